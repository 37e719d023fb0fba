"""Judges: what a claim says of several numbers, from their draws, best first;
margins by what is compared, and evidence in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise, permutations, product

import pandas as pd

from fedlib.analysis.tables import listed
from fedlib.analysis.uncertainty import Interval, simultaneous
from fedlib.claims.verdicts import Margins

Judge = Callable[[pd.DataFrame], tuple[Margins, str]]  # of draws by row, best first: margins and evidence


def places(leads: Margins) -> str:
    """The places that a row may have by its leads over the others: "3 to 5", "3"."""
    wider = simultaneous(leads | {(other,): -m for other, m in leads.items()})
    found = map(Interval.of, leads.values())
    ends = [(i.value - wider * (i.value - i.low), i.value + wider * (i.high - i.value)) for i in found]
    first, last = 1 + sum(high < 0 for _, high in ends), 1 + len(ends) - sum(low > 0 for low, _ in ends)
    return f"{first}" if first == last else f"{first} to {last}"


def apart(margin: pd.Series, form: str = ".1f") -> str:
    """A difference and its interval."""
    return Interval.of(margin).text(f"+{form}")


def each_apart(margins: Margins, form: str = ".1f") -> str:
    """ "+1.2 [0.3, 2.1] (a), -0.5 [-0.9, 0.1] (b)": differences with their intervals, and what they are of."""
    return ", ".join(f"{apart(margin, form)} ({name})" for name, margin in margins.items())


def lead(margins: Margins, form: str = ".1f") -> str:
    """A row's smallest lead over the others, and which more it is not significantly ahead of."""
    rival = smallest(margins)
    others = {str(other): i for other, m in margins.items() if other != rival and (i := Interval.of(m)).known}
    behind, level = [o for o, i in others.items() if i.high < 0], [o for o, i in others.items() if i.low <= 0 <= i.high]
    rest = f"; also behind {', '.join(behind)}" * bool(behind)
    rest += f"; not significantly ahead of {', '.join(level)}" * bool(level)
    return f"minus {rival}: {apart(margins[rival], form)}{rest}"


def smallest(margins: Margins):
    """The name of the smallest margin; if that is of one seed, of the smallest that lies below 0 with its interval."""
    found = {name: Interval.of(m) for name, m in margins.items()}
    least = min(found, key=lambda name: found[name].value)
    below = [name for name, i in found.items() if i.high < 0]
    return least if found[least].known or not below else min(below, key=lambda name: found[name].value)


def first(row, form: str = ".1f", what: str = "") -> Judge:
    """The row is above every other one; what: is compared."""

    def judge(m):
        margins = {other: m[row] - m[other] for other in m.columns.drop(row)}
        return margins, f"{what and what + ': '}{row} {m[row].iloc[0]:{form}}, {lead(margins, form)}"

    return judge


def ranked(number: int, shown: pd.Series, gaps: Mapping[tuple, pd.Series]) -> tuple[Margins, str]:
    """A row has this place (-1 is the last) by its differences from all others; shown: all estimates, best first."""
    row, leads = next(iter(gaps))[0], {other: m for (_, other), m in gaps.items()}
    found = {other: Interval.of(m) for other, m in leads.items()}
    # above are first those that are significantly so, and last those that are significantly below
    others = sorted(found, key=lambda o: ((found[o].low > 0) - (found[o].high < 0), found[o].value))
    above = others[: number - 1 if number > 0 else None]
    margins = {other: -m if other in above else m for other, m in leads.items()}
    rank, known = 1 + list(shown.index).index(row), any(i.known for i in found.values())
    found = f"{row} has rank {rank} of {1 + len(leads)}{f' (95 % CI of the rank: {places(leads)})' if known else ''}"
    ends = f"highest: {listed(shown.head(4))}" if number > 0 else f"lowest: {listed(shown.tail(3))}"
    return margins, f"{found}; {ends}"


def under(lower: Sequence, upper: Sequence, by: float = 0, form: str = ".1f") -> Judge:
    """Every one of the lower rows is below every upper one, by more than `by`."""
    pairs = list(product(upper, lower))
    return lambda m: separated(by, m.iloc[0], {(high, low): m[high] - m[low] for high, low in pairs}, form)


def separated(by: float, shown: pd.Series, gaps: Mapping[tuple, pd.Series], form: str = ".1f") -> tuple[Margins, str]:
    """The first row of every pair is above its second one, by more than `by` (a threshold set by us, where it is not
    0), by these differences; shown: estimates, on seeds of their own."""
    margins = {f"{high} minus {low}": gap - by for (high, low), gap in gaps.items()}
    high, low = smallest({pair: gap - by for pair, gap in gaps.items()})
    gap, (highs, lows) = gaps[high, low], (len(set(rows)) for rows in zip(*gaps))
    text = f"{high} {shown[high]:{form}}" + (f" (lowest of {highs})" if highs > 1 else "")
    text += f" minus {low} {shown[low]:{form}}" + (f" (highest of {lows})" if lows > 1 else "")
    if abs(shown[high] - shown[low] - gap.iloc[0]) > 1e-6:  # the two have other seeds, too
        text = f"{high} minus {low}, on the same seeds"
    return margins, f"{text}: {apart(gap, form)}{threshold(margins, by, form) if by else ''}"


def close(rows: Sequence, most: float, form: str = ".1f") -> Judge:
    """No two of these rows differ by more than `most`."""

    def judge(m):
        margins = {f"{a} minus {b}": most - (m[a] - m[b]) for a, b in permutations(rows, 2)}
        high, *_, low = m.iloc[0][list(rows)].sort_values(ascending=False).index
        return margins, f"{high} ({m[high].iloc[0]:{form}}) minus {low}: {apart(m[high] - m[low], form)}"

    return judge


def in_order(rows: Sequence, form: str = ".1f", what: str = "") -> Judge:
    """Each of these rows is above the next one; what: is compared."""

    def judge(m):
        margins = {f"{a} minus {b}": m[a] - m[b] for a, b in pairwise(rows)}
        shown = ", ".join(f"{row} {m[row].iloc[0]:{form}}" for row in rows)
        gaps = ", ".join(f"{name} {apart(margin, form)}" for name, margin in margins.items())
        return margins, f"{what and what + ': '}{shown}; differences: {gaps}"

    return judge


def beyond(row, at: float, sign: int = 1, form: str = ".1f", what: str = "") -> Judge:
    """The row is above a threshold set by us, or below it with sign -1; what: "%" for shares, from 0 to 100 %."""

    def judge(m):
        found = f"{row}: {Interval.of(m[row].clip(0, 100) if what else m[row]).text(form)}{what and ' ' + what}"
        return {row: sign * (m[row] - at)}, f"{found} (threshold of {at:g}, set by us)"

    return judge


def threshold(margins: Margins, by: float, form: str = ".1f") -> str:
    """What other thresholds than ours would give."""
    found, wider = [Interval.of(margin) for margin in margins.values()], simultaneous(margins)
    if not all(i.known for i in found):
        return f" (threshold {by:g}, set by us)"
    low, high = by + min(i.low for i in found), by + min(i.value + wider * (i.high - i.value) for i in found)
    ends = f"up to {low:{form}} all comparisons would support the claim, above {high:{form}} one would contradict it"
    return f" (threshold {by:g}, set by us; {ends})"


def best_of(rows: Sequence, others: Sequence) -> Judge:
    """The best of some rows is above every one of the others; corrected (max-T) for being chosen by these numbers."""

    def judge(m: pd.DataFrame) -> tuple[Margins, str]:
        (top, rival), margins = (m.iloc[0][list(some)].idxmax() for some in (rows, others)), {}
        for other in others:
            leads = {row: m[row] - m[other] for row in rows}
            value = leads[top].iloc[0]
            margins[other] = value + simultaneous(leads) * (leads[top] - value)
        return margins, f"{top} {apart(margins[rival])} relative to {rival}"

    return judge
