"""What all figures share: style, colours, axes."""

from __future__ import annotations

import functools
import textwrap
from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

STYLE = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
INK = "#1b6ca8"
PAPER = "#777777"
REFERENCE = "#c0504d"
APART = ("#0173b2", "#de8f05", "#029e73", "#d55e00", "#cc78bc", "#ca9161", "#fbafe4", "#949494", "#ece133", "#56b4e9")


def colours(number: int) -> list[tuple[float, float, float]]:
    """So many colours that colour-blind readers can tell apart (seaborn's palette for them);
    from the eleventh on they repeat."""
    return [mpl.colors.to_rgb(APART[k % len(APART)]) for k in range(number)]


def colour_map(name: str) -> mpl.colors.Colormap:
    """One of seaborn's colour maps."""
    import seaborn  # noqa: F401  here, because it registers them, and takes a second where nothing else needs SciPy

    return mpl.colormaps[name]


def styled(draw):
    """Draw with fedlib's style, whatever the style of the program around it."""

    @functools.wraps(draw)
    def wrapped(*args, **kwargs) -> Figure:
        with mpl.rc_context(STYLE):
            return draw(*args, **kwargs)

    return wrapped


def axes_of(width: float, height: float, rows: int = 1, cols: int = 1, **options):
    """A figure outside pyplot's global state, so that nothing is shown or leaked, and its axes [rows, cols]."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, cols, squeeze=False, **options)


def note_below(figure: Figure, text: str, size: float = 8) -> None:
    """Write text below all that a figure shows, in lines as long as it is wide; seen where it is saved with a tight
    bounding box."""
    figure.draw_without_rendering()  # makes room for legends outside the axes; then nothing moves any more
    figure.set_layout_engine("none")
    for legend in figure.legends:  # else they follow the border of what is saved, down over the text
        legend.set_bbox_to_anchor((0, 0, 1, 1), figure.transFigure)
    letters = int(72 * figure.get_figwidth() / (0.55 * size))  # of a line; a letter is about half as wide as high
    figure.text(0, -0.02, textwrap.fill(text, letters), size=size, color=PAPER, va="top")


def name_lines(axes: Sequence, size: float = 8) -> None:
    """Write every line's label beside its end, in a darker shade of its colour, moved up or down as little as keeps
    labels apart; for axes whose limits are set, and whose lines end near the right edge. Labels that begin with _ are
    left out.

    size: of the letters, in points.
    """
    from sklearn.isotonic import isotonic_regression  # here, because it takes a second

    figure = axes[0].figure
    figure.draw_without_rendering()  # constrained layout decides how high the axes are
    for ax in axes:
        lines = [line for line in ax.get_lines() if not line.get_label().startswith("_")]
        lines.sort(key=lambda line: line.get_ydata()[-1])
        height = ax.get_window_extent().height * 72 / figure.dpi  # in points
        ends = height * (ax.transScale + ax.transLimits).transform([line.get_xydata()[-1] for line in lines])[:, 1]
        apart = 1.15 * size * np.arange(len(lines))
        for line, place in zip(lines, isotonic_regression(ends - apart) + apart):
            darker = 0.7 * np.array(mpl.colors.to_rgb(line.get_color()))
            ax.text(
                1.02, place / height, line.get_label(), transform=ax.transAxes, va="center", fontsize=size, color=darker
            )


def thinned(number: int) -> range:
    """At most twelve of 0..number-1, evenly spaced in round steps."""
    return range(0, number, next(step for step in (1, 2, 5, 10, 20, 50, 100, 200, 500, number) if number <= 12 * step))


def show(figure: Figure, dpi: int = 85) -> None:
    """Display a figure in a notebook as a small PNG."""
    import io

    from IPython.display import Image, display

    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi, bbox_inches="tight", metadata={"Software": None})
    display(Image(buffer.getvalue(), format="png"))
