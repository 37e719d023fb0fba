"""What all figures share: style, colours, axes."""

from __future__ import annotations

import functools

import matplotlib as mpl
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
