"""What all figures share: style, colours of methods, axes."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from fedlib.analysis.names import proper_name
from fedlib.base.errors import choose
from fedlib.base.files import SHIPPED

COLUMN, PAGE = 3.35, 6.9  # inches: the two widths of figures, of one column and of both in a journal
SIZE = 8  # points of letters
SHARP = 200  # pixels per inch of what is saved and shown
STYLE = {
    **dict.fromkeys(("font.size", "axes.titlesize", "axes.labelsize", "figure.titlesize", "figure.labelsize"), SIZE),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize", "legend.fontsize"), SIZE - 1),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False),
    "figure.titleweight": "bold",
    "savefig.facecolor": "white",  # on pages with a dark theme, too
}
INK = "#1b6ca8"  # what a figure is about
OTHERS = "#8c8c8c"  # what it is compared with
PAPER = "#777777"
REFERENCE = "#c0504d"
APART = ("#0173b2", "#de8f05", "#029e73", "#d55e00", "#cc78bc", "#ca9161", "#fbafe4", "#949494", "#ece133", "#56b4e9")
MARKERS = "osD^vP*Xh<>dp"
PAPERS = ("pfedsim", "fedsimsup", "pfedcs", "pfedsv")  # the methods of our four papers
HOME = (
    ("fedavg", "fedamp", "ffedap"),
    ("fedper", "fedpac", "ifca"),
    ("fedrep", "fedrod", "pfedsv"),
    ("pfedsim", "fedgh", "pfedhn"),
    ("fedsimsup", "fedbabu", "fesem", "fedem", "fedgen"),
    ("perfedavg", "feddyn", "fedavg_ft"),
    ("fedproto", "fedbn", "pfedme"),
    ("local", "clusterfl"),
    ("fedfomo",),
    ("pfedcs", "fedprox"),
)  # of the colours of APART; methods that a paper compares share as few as possible, and markers tell those apart
COLOURS = {method: colour for colour, methods in zip(APART, HOME) for method in methods}


def colours(number: int) -> list[tuple[float, float, float]]:
    """So many colours that colour-blind readers can tell apart (seaborn's palette for them);
    from the eleventh on they repeat."""
    return [mpl.colors.to_rgb(APART[k % len(APART)]) for k in range(number)]


def colour_map(name: str) -> mpl.colors.Colormap:
    """One of seaborn's colour maps."""
    import seaborn  # noqa: F401  here, because it registers them, and takes a second where nothing else needs SciPy

    return mpl.colormaps[name]


@contextlib.contextmanager
def as_everywhere(style: dict[str, object]) -> Iterator[None]:
    """Drawing with Matplotlib's own settings and `style`, whatever those of the user and the program around it are."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(style)
        yield


styled = as_everywhere(STYLE)  # a decorator


def axes_of(height: float, rows: int = 1, cols: int = 1, width: float = PAGE, **options):
    """A figure outside pyplot's global state, so that nothing is shown or leaked, and its axes [rows, cols]; height and
    width, COLUMN or PAGE, in inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, cols, squeeze=False, **options)


def tiles(number: int, wide: int, height: float, more: float, **options):
    """A figure and its panels, so many, `wide` of them side by side; height: of each in inches, besides `more` for the
    figure; options: as in `axes_of`."""
    wide = min(wide, number)
    high = -(-number // wide)
    figure, axes = axes_of(height * high + more, high, wide, **options)
    for ax in axes.flat[number:]:
        ax.remove()
    return figure, axes.flat[:number]


def logarithmic(ax, ticks: Iterable[float], label: str) -> None:
    """A logarithmic axis of x with these ticks alone."""
    ticks = list(ticks)
    ax.set_xscale("log")
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()
    ax.set_xlabel(label)


def pixels(one) -> np.ndarray:
    """A picture that tables keep as text, [h, w, c] from 0 to 255; one: channels, and pixels in hexadecimal, the lines
    of one channel after the other, with spaces between them."""
    lines = [list(bytes.fromhex(text)) for text in one.pixels.split()]
    return np.array(lines, dtype=np.uint8).reshape(one.channels, -1, len(lines[0])).transpose(1, 2, 0)


@styled
def headline(figure: Figure, text: str) -> Figure:
    """The figure with what it shows, or asks, as its title."""
    letters = int(figure.get_figwidth() * 72 / (0.6 * SIZE))  # of a line: a bold letter is about so wide
    figure.suptitle(textwrap.fill(text, letters), x=0.005, ha="left")
    return figure


def key_below(figure: Figure, ax) -> None:
    """What the marks of one of the axes stand for, below the figure."""
    figure.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=5)


def name_lines(axes: Sequence) -> None:
    """Write every line's label beside its end, in a darker shade of its colour, moved up or down as little as keeps
    labels apart; for axes whose limits are set, and whose lines end near the right edge. Labels that begin with _ are
    left out."""
    from sklearn.isotonic import isotonic_regression  # here, because it takes a second

    figure, size = axes[0].figure, SIZE - 1  # points of a letter
    figure.draw_without_rendering()  # constrained layout decides how high the axes are
    for ax in axes:
        lines = [line for line in ax.get_lines() if not line.get_label().startswith("_")]
        lines = [line for line in lines if len(line.get_xydata()) and np.isfinite(line.get_ydata()[-1])]
        if not lines:
            continue
        lines.sort(key=lambda line: line.get_ydata()[-1])
        height = ax.get_window_extent().height * 72 / figure.dpi  # in points
        ends = height * (ax.transScale + ax.transLimits).transform([line.get_xydata()[-1] for line in lines])[:, 1]
        apart = 1.15 * size * np.arange(len(lines))
        places = np.minimum(isotonic_regression(ends - apart) + apart, height - apart[::-1])  # none above the axes
        for line, place in zip(lines, places):
            darker = 0.7 * np.array(mpl.colors.to_rgb(line.get_color()))
            ax.text(
                1.02, place / height, line.get_label(), transform=ax.transAxes, va="center", fontsize=size, color=darker
            )


def thinned(number: int) -> range:
    """At most twelve of 0..number-1, evenly spaced in round steps."""
    return range(0, number, next(step for step in (1, 2, 5, 10, 20, 50, 100, 200, 500, number) if number <= 12 * step))


def show(figure: Figure | None, dpi: int = SHARP // 2) -> None:
    """Display a figure in a notebook as a PNG, two of its pixels to one of the page, with `drawn` as the text beside
    it. None, which an item has where nothing of it was run, is said in words."""
    from base64 import b64encode

    from IPython.display import display

    if figure is None:
        print("No picture: not run yet.")
        return
    picture = png(figure, 2 * dpi)
    width, height = (int.from_bytes(picture[at : at + 4], "big") // 2 for at in (16, 20))  # of its header
    shown = {"image/png": b64encode(picture).decode(), "text/plain": drawn(figure)}
    display(shown, metadata={"image/png": {"width": width, "height": height}}, raw=True)


def drawing(name: str) -> None:
    """Display one of the lessons' drawings in a notebook, by the name of its file in figures/lessons; in one line,
    without what is not seen, and not wider than the page. Raises BadValue for another one."""
    from IPython.display import display

    files = {path.stem: path for path in (SHIPPED / "figures" / "lessons" / "light").glob("*.svg")}
    text = files[choose("drawing", name, files)].read_text("utf-8")
    unseen = r"<!--.*?-->|<metadata>.*?</metadata>|\n\s*"
    text = re.sub(unseen, " ", text[text.index("<svg ") :], flags=re.DOTALL)
    text = text.replace("<svg ", '<svg style="max-width: 100%; height: auto" ', 1)
    display({"image/svg+xml": text, "text/plain": f"drawing: {name}"}, raw=True)


def png(figure: Figure, dpi: int = SHARP) -> bytes:
    """A figure as a PNG of 256 colours, which is a third of the bytes; the same figure is the same bytes. What was laid
    out by hand, as in a notebook, is cut to what there is."""
    import io

    from PIL import Image

    buffer, small = io.BytesIO(), io.BytesIO()
    with as_everywhere({}):
        box = None if figure.get_layout_engine() else "tight"
        figure.savefig(buffer, format="png", dpi=dpi, facecolor="white", bbox_inches=box)
    Image.open(buffer).convert("RGB").quantize(256).save(small, "png", optimize=True)
    return small.getvalue()


def drawn(figure: Figure) -> str:
    """How many numbers a figure shows, and a digest of these (six digits of each) and of its words. By it pictures are
    compared: a PNG is another one with every release of matplotlib, which also chooses ticks and places."""
    words, arrays = [figure.get_suptitle()] if figure.get_suptitle() else [], []
    for ax in figure.axes:
        words += [text.get_text() for text in (ax.title, ax.xaxis.label, ax.yaxis.label, *ax.texts)]
        arrays += [line.get_xydata() for line in ax.lines]
        arrays += [image.get_array() for image in ax.images]
        arrays += [bar.get_bbox().bounds for bar in ax.patches if isinstance(bar, Rectangle)]
        for points in ax.collections:
            arrays += [points.get_offsets(), points.get_array(), *(path.vertices for path in points.get_paths())]
    numbers = np.concatenate([np.ravel(np.asarray(a, float)) for a in arrays if a is not None] or [[]])
    text = " ".join([*words, *(f"{x:.6g}" for x in numbers + 0.0)])
    return f"picture of {len(numbers):,} numbers, digest {hashlib.sha256(text.encode()).hexdigest()[:8]}"


@functools.cache
def colour_of(name: str) -> str | None:
    """The colour of the method with this code or proper name, None if there is no such method."""
    return next((colour for method, colour in COLOURS.items() if name in (method, proper_name(method))), None)


def looks(rows: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Colour and marker of every row. A method has its own colour, and its variants too; rows that share a colour have
    different markers; what is no method gets a colour that no other row has, as long as there are any."""
    own = {row: COLOURS.get(re.match(r"\w*", row)[0]) for row in rows}
    free = [colour for colour in APART if colour not in own.values()] or list(APART)
    found, used = {}, {}
    for k, row in enumerate(row for row in rows if own[row] is None):
        own[row] = free[k % len(free)]
    for row in rows:
        number = used[own[row]] = used.get(own[row], -1) + 1
        found[row] = (own[row], MARKERS[(APART.index(own[row]) + 5 * number) % len(MARKERS)])
    return found
