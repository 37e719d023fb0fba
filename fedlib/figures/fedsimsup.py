"""The figures of FedSimSup's items."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fedlib.analysis.names import counted
from fedlib.figures.base import INK, REFERENCE, axes_of, colour_map, headline, styled, thinned

MOST_WAITS = 20  # idle rounds shown
MOST_NAMES = 16  # idle clients, all of which are named
NOTHING = "#d0d0d0"


@styled
def framework(own: pd.DataFrame, weights: pd.DataFrame, waits: pd.DataFrame) -> Figure:
    """Left: who takes part in which round (black), and how a client's own share fades until its next turn; grey: not
    trained yet. Middle: weights of non-participating clients in a round, both sorted by most frequent label; clients
    with the same one are marked. Right: waiting at the paper's settings.

    own: round, client, idle, own; weights: round, client, label, other, other_label, weight; waits: idle, reached, own,
    low, high.
    """
    figure, ((left, middle, right),) = axes_of(3.0, 1, 3)
    timeline = own.pivot(index="client", columns="round", values="own")
    timeline = timeline.reindex(index=range(own["client"].max() + 1), columns=range(1, own["round"].max() + 1))
    _matrix(left, timeline.to_numpy(), figure, "own share")
    left.set_xticks(ticks := thinned(timeline.shape[1]), [str(t + 1) for t in ticks])
    left.set_yticks(thinned(len(timeline)))
    left.set_facecolor(NOTHING)
    left.set(title="share of own training\n(grey: not trained yet)", xlabel="round", ylabel="client")
    rows, columns = (
        weights.drop_duplicates(name).sort_values([label, name])
        for name, label in (("client", "label"), ("other", "other_label"))
    )
    matrix = weights.pivot(index="client", columns="other", values="weight").loc[rows["client"], columns["other"]]
    _matrix(middle, matrix.to_numpy(), figure, "weight (Eq. 8)")
    few = len(rows) <= MOST_NAMES
    y, x = np.nonzero(rows["label"].to_numpy()[:, None] == columns["other_label"].to_numpy())
    middle.plot(
        x, y, "o", markersize=3 if few else 1, color="white", markeredgecolor="black", markeredgewidth=0.6 if few else 0
    )
    _name(middle.set_yticks, rows["client"], rows["label"], " ", few)
    _name(middle.set_xticks, columns["other"], columns["other_label"], "\n", few)
    title = f"weights in round {weights['round'].iloc[0]}\n(dots: same top label)"
    middle.set(title=title, xlabel="participant (label)", ylabel="non-participating\nclient (label)")
    shown = waits[waits["idle"] <= MOST_WAITS]
    right.fill_between(shown["idle"], shown["low"], shown["high"], color=INK, alpha=0.2, linewidth=0)
    right.plot(shown["idle"], shown["own"], "o-", color=INK, markersize=3, label="own share, median")
    waited = "share of participations after\nat least so many rounds"
    right.plot(shown["idle"], shown["reached"], "--", color=REFERENCE, label=waited)
    title = "10 of 100 clients per round\n(band: 80 % of participations)"
    right.set(title=title, xlabel="rounds without participation", ylim=(0, 1.02))
    right.set_xticks(range(0, MOST_WAITS + 1, 5))
    right.legend(loc="upper center", bbox_to_anchor=(0.45, -0.3))
    gone = shown.loc[shown["own"] < 0.5, "idle"]
    after = counted(gone.iloc[0], "round") if len(gone) else f"more than {MOST_WAITS} rounds"
    text = f"Less than half of a client's own training is left after {after} without participation"
    return headline(figure, f"{text} (median)")


def _matrix(ax, values: np.ndarray, figure: Figure, label: str) -> None:
    """Shares as colours from 0, light, to 1, black; NaN stays as the background is."""
    image = ax.imshow(values, vmin=0, vmax=1, cmap=colour_map("mako_r"), aspect="auto", interpolation="nearest")
    figure.colorbar(image, ax=ax, shrink=0.7, aspect=25, orientation="horizontal", label=label)


def _name(set_ticks, clients: pd.Series, labels: pd.Series, between: str, few: bool) -> None:
    """Clients' numbers and labels along an axis, all of few ones."""
    shown = range(len(clients)) if few else thinned(len(clients))
    names = [f"{client}{between}({label})" for client, label in zip(clients, labels)]
    set_ticks(list(shown), [names[k] for k in shown])
