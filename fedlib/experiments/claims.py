"""Claims, how they are decided, and checks of what tables usually claim: who is best, who is below whom, what falls.

A check is a function of an item's tables that gives a `Verdict`. Most say by how much a claim holds: margins, differences in
points that must all be above 0, each with an interval (`fedlib.analysis.uncertainty`). All intervals above 0: reproduced. One
of them below: not reproduced. Otherwise undecided: another draw of seeds and clients could turn the verdict round.

The stock checks here look at a table's accuracies by column and row, in percent (`means`); they are not tested where a row that
they name was not run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, permutations, product

import numpy as np
import pandas as pd

from fedlib.analysis.tables import listed, only
from fedlib.analysis.uncertainty import Interval, draws

REPRODUCED, NOT_REPRODUCED, UNDECIDED, NOT_TESTED = "reproduced", "not reproduced", "undecided", "not tested"
STATUSES = (REPRODUCED, NOT_REPRODUCED, UNDECIDED, NOT_TESTED)

Tables = Mapping[str, pd.DataFrame]
Margins = dict[
    str, pd.Series
]  # by what is compared: the estimate first, then what resampling makes of it; positive: as claimed


@dataclass(frozen=True)
class Verdict:
    """How a claim fared, and the numbers behind it.

    holds: what the estimates alone say, None if that is nothing. margins: intervals by what is compared. anywhere: it does not
    depend on the data.
    """

    status: str
    evidence: str
    holds: bool | None = None
    margins: dict[str, Interval] = field(default_factory=dict)
    anywhere: bool = False

    @property
    def closest(self) -> Interval | None:
        """The margin that decides: the smallest one."""
        return min(self.margins.values(), key=lambda margin: margin.value, default=None)


def verdict(holds: bool, evidence: str) -> Verdict:
    """Of what has no uncertainty: counts, facts, what a run did."""
    return Verdict(REPRODUCED if holds else NOT_REPRODUCED, evidence, bool(holds))


def decided(margins: Margins, evidence: str) -> Verdict:
    """By the intervals of these margins, all of which the claim wants above 0."""
    found = {name: Interval.of(margin) for name, margin in margins.items()}
    if any(margin.high <= 0 for margin in found.values()):
        status = NOT_REPRODUCED
    else:
        status = REPRODUCED if all(margin.low > 0 for margin in found.values()) else UNDECIDED
    return Verdict(status, evidence, all(margin.value > 0 for margin in found.values()), found)


def fact(holds: bool, evidence: str) -> Verdict:
    """Of what is read off papers, networks or formulas, whatever data a run had."""
    return dataclasses.replace(verdict(holds, evidence), anywhere=True)


def not_tested(why: str) -> Verdict:
    """What is missing for a check."""
    return Verdict(NOT_TESTED, why)


Check = Callable[[Tables], Verdict]


@dataclass(frozen=True)
class Claim:
    """A sentence and the check that decides it.

    kind: "paper", a sentence that a reader takes from the item; "own", a question of ours; "check", what holds by construction
    and is checked by a computation that is independent of the method: it tests this implementation, not the paper.
    """

    text: str
    check: Check
    kind: str = "paper"


def ours(text: str, check: Check) -> Claim:
    """A question of ours."""
    return Claim(text, check, "own")


def implementation(text: str, check: Check) -> Claim:
    """What holds by construction."""
    return Claim(text, check, "check")


# how a verdict is called ------------------------------------------------------------------------------------------------

WORDS = {
    "paper": {REPRODUCED: "reproduced", NOT_REPRODUCED: "not reproduced"},
    "own": {REPRODUCED: "holds", NOT_REPRODUCED: "does not hold"},
    "check": {REPRODUCED: "passed", NOT_REPRODUCED: "failed"},
}


def in_words(status: str, kind: str, elsewhere: str = "") -> str:
    """What a verdict is called; elsewhere: the data that a claim was tested on, where they are none of the paper's.

    Small data never refute a claim about the paper's: there it "does not hold on digits".
    """
    if elsewhere and kind != "check" and status in (REPRODUCED, NOT_REPRODUCED):
        return f"{WORDS['own'][status]} on {elsewhere}"
    return WORDS[kind].get(status, status)


# accuracies by column and row ------------------------------------------------------------------------------------------


def means(tables: Tables, **where) -> pd.DataFrame:
    """Accuracies in percent by (column, row), [1 + RESAMPLES, cells]: the estimate first, then what resampling makes of it.

    where: columns of "tidy"; at the headline point if no point is named. Of a table of printed numbers there is the estimate only.
    """
    where = where if "point" in where else {"headline": True, **where}
    exact = "_clients" not in tables
    frame = tables["tidy" if exact else "_clients"]
    rows = only(frame, **where) if set(where) <= set(frame.columns) else frame[:0]
    if exact or rows.empty:
        return 100 * rows.set_index(["column", "row"])["accuracy"].to_frame().T.reset_index(drop=True)
    return 100 * draws(rows, "accuracy", ["column", "row"], "client", "weight")


def without(found: pd.DataFrame, needs: Sequence[str], columns: Sequence[str]) -> str:
    """Which rows were not run, and in which columns; an empty text if all were."""
    texts = []
    for row in dict.fromkeys(needs):
        gone = [column for column in columns if (column, row) not in found.columns]
        if gone:
            texts.append(row if len(gone) == len(columns) else f"{row} ({', '.join(gone)})")
    return f"without {', '.join(texts)}" if texts else ""


# judges: what a claim says of several numbers -------------------------------------------------------------------------

Judge = Callable[[pd.DataFrame], tuple[Margins, str]]  # of draws by row, best first: margins and evidence


def unclear(margins: Margins) -> str:
    """Which of the compared are not told apart, as the end of a sentence."""
    names = [str(name) for name, margin in margins.items() if (i := Interval.of(margin)).low <= 0 < i.high]
    return f"; not told apart from {', '.join(names)}" if names else ""


def apart(margin: pd.Series, form: str = ".1f") -> str:
    """A difference and its interval."""
    return Interval.of(margin).text(f"+{form}")


def first(row, form: str = ".1f") -> Judge:
    """The row is above every other one."""

    def judge(m):
        margins = {other: m[row] - m[other] for other in m.columns.drop(row)}
        rival = next(iter(margins))  # best first
        lead = f"{apart(margins[rival], form)} against the best other, {rival}"
        return margins, f"{row} {m[row].iloc[0]:{form}}, {lead}{unclear(margins)}"

    return judge


def at_place(row, number: int, form: str = ".1f") -> Judge:
    """The row has this place; -1 is the last."""

    def judge(m):
        others = list(m.columns.drop(row))
        above = others[: number - 1 if number > 0 else None]
        margins = {other: m[other] - m[row] if other in above else m[row] - m[other] for other in others}
        shown = listed(m.iloc[0].head(4) if number > 0 else m.iloc[0].tail(3), form)
        found = f"{row} is number {m.columns.get_loc(row) + 1} of {len(m.columns)}"
        return margins, f"{found}; {shown}{unclear(margins)}"

    return judge


def under(lower: Sequence, upper: Sequence, by: float = 0, form: str = ".1f") -> Judge:
    """Every one of the lower rows is below every upper one, by more than `by` (a line of ours, where it is not 0)."""

    def judge(m):
        margins = {f"{high} over {low}": m[high] - m[low] - by for high, low in product(upper, lower)}
        low, high = m.iloc[0][list(lower)], m.iloc[0][list(upper)]
        gap = apart(m[high.idxmin()] - m[low.idxmax()], form)
        text = f"{low.idxmax()} {low.max():{form}}" + (f" (highest of {len(low)})" if len(low) > 1 else "")
        text += f", {high.idxmin()} {high.min():{form}}" + (f" (lowest of {len(high)})" if len(high) > 1 else "")
        return margins, f"{text}, {gap}{line(margins, by, form) if by else ''}"

    return judge


def close(rows: Sequence, most: float, form: str = ".1f") -> Judge:
    """No two of these rows differ by more than `most`."""

    def judge(m):
        margins = {f"{a} over {b}": most - (m[a] - m[b]) for a, b in permutations(rows, 2)}
        high, *_, low = m.iloc[0][list(rows)].sort_values(ascending=False).index
        return margins, f"{high} {m[high].iloc[0]:{form}} is {apart(m[high] - m[low], form)} over {low}"

    return judge


def in_order(rows: Sequence, form: str = ".1f") -> Judge:
    """Each of these rows is above the next one."""

    def judge(m):
        margins = {f"{a} over {b}": m[a] - m[b] for a, b in pairwise(rows)}
        shown = ", ".join(f"{row} {m[row].iloc[0]:{form}}" for row in rows)
        return margins, f"{shown}; {', '.join(f'{name} {apart(margin, form)}' for name, margin in margins.items())}"

    return judge


def beyond(row, at: float, sign: int = 1, form: str = ".1f", what: str = "") -> Judge:
    """The row is above a line of ours, or below it with sign -1; what: is counted."""

    def judge(m):
        found = f"{row}: {Interval.of(m[row]).text(form)}{what}"
        return {row: sign * (m[row] - at)}, f"{found} (the line of {at:g} is ours)"

    return judge


def line(margins: Margins, by: float, form: str = ".1f") -> str:
    """What other lines than ours would give."""
    found = [Interval.of(margin) for margin in margins.values()]
    low, high = (by + min(getattr(margin, end) for margin in found) for end in ("low", "high"))
    return f" (the line of {by:g} is ours: below {low:{form}} reproduced, above {high:{form}} not)"


# checks of a table of accuracies ---------------------------------------------------------------------------------------


def in_columns(
    judge: Judge, needs: Sequence[str] = (), columns: Sequence[str] = (), among: Sequence[str] = (), **where
) -> Check:
    """A check that `judge` holds in every column, or in these, of all rows, or of these; where: as in `means`."""

    def check(tables: Tables) -> Verdict:
        found = means(tables, **where)
        shown = list(columns) or list(found.columns.unique(0))
        if (lacks := without(found, needs, shown)) or not shown:
            return not_tested(lacks or "nothing was run")
        margins, texts = {}, []
        for column in shown:
            own, text = judge(best_first(found[column], among))
            margins |= {f"{column}: {name}": margin for name, margin in own.items()}
            texts.append(f"{column}: {text}")
        return decided(margins, "; ".join(texts))

    return check


def best_first(m: pd.DataFrame, among: Sequence[str] = ()) -> pd.DataFrame:
    """Draws by row in the order of their estimates, of all rows that were run, or of these."""
    rows = m.iloc[0].dropna().sort_values(ascending=False, kind="stable").index
    return m[[row for row in rows if not among or row in among]]


def best(row: str, needs: Sequence[str] = (), **options) -> Check:
    """The row is above every other one."""
    return in_columns(first(row), (row, *needs), **options)


def place(row: str, number: int, needs: Sequence[str] = (), **options) -> Check:
    """The row has this place; -1 is the last."""
    return in_columns(at_place(row, number), (row, *needs), **options)


def below(lower: Sequence[str], upper: Sequence[str], by: float = 0, **options) -> Check:
    """Every one of the lower rows is below every upper one, by more than `by` points."""
    return in_columns(under(lower, upper, by), (*lower, *upper), **options)


def within(rows: Sequence[str], points: float, **options) -> Check:
    """No two of these rows differ by more than so many points."""
    return in_columns(close(rows, points), rows, **options)


Number = Callable[[pd.DataFrame], pd.Series]  # of one column's draws by row


def changes(numbers: Mapping[str, Number], sign: int, needs: Sequence[str] = (), **where) -> Check:
    """From the first column to the last all of these numbers rise (sign 1) or fall (-1)."""

    def check(tables: Tables) -> Verdict:
        found = means(tables, **where)
        columns = list(found.columns.unique(0))
        if (lacks := without(found, needs, columns)) or len(columns) < 2:
            return not_tested(lacks or "needs two columns")
        a, b = found[columns[0]], found[columns[-1]]
        moved = {name: of(b) - of(a) for name, of in numbers.items()}
        texts = [f"{name} {of(a).iloc[0]:.1f}, {apart(moved[name])}" for name, of in numbers.items()]
        evidence = f"{columns[0]} to {columns[-1]}: {', '.join(texts)}"
        return decided({name: sign * change for name, change in moved.items()}, evidence)

    return check


def falls(*rows: str, **where) -> Check:
    """The accuracy of each of these rows falls from the first column to the last."""
    return changes({row: lambda m, row=row: m[row] for row in rows}, -1, rows, **where)


def rises(*rows: str, **where) -> Check:
    """The accuracy of each of these rows rises from the first column to the last."""
    return changes({row: lambda m, row=row: m[row] for row in rows}, 1, rows, **where)


def gap(over: str, under: Sequence[str] = ()) -> Number:
    """A row minus the best of the others, or of these."""
    return lambda m: m[over] - (m[list(under)] if under else m.drop(columns=over)).max(axis=1)


def both(*checks: Check) -> Check:
    """All of these hold."""

    def check(tables: Tables) -> Verdict:
        found = [one(tables) for one in checks]
        if lacking := [v.evidence for v in found if v.status == NOT_TESTED]:
            return not_tested("; ".join(dict.fromkeys(lacking)))
        statuses, evidence = {v.status for v in found}, "; ".join(v.evidence for v in found)
        status = next((s for s in (NOT_REPRODUCED, UNDECIDED) if s in statuses), REPRODUCED)
        margins = {f"{k}. {name}": margin for k, v in enumerate(found, 1) for name, margin in v.margins.items()}
        return Verdict(status, evidence, all(v.holds for v in found), margins)

    return check


def negated(check: Check) -> Check:
    """That does not hold: one of its margins at least is below 0."""
    opposite = {REPRODUCED: NOT_REPRODUCED, NOT_REPRODUCED: REPRODUCED}

    def other(tables: Tables) -> Verdict:
        v = check(tables)
        margins = {
            f"not: {name}": Interval(-m.value, -m.high, -m.low) for name, m in v.margins.items() if m == v.closest
        }
        return Verdict(opposite.get(v.status, v.status), v.evidence, None if v.holds is None else not v.holds, margins)

    return other


def like_the_paper(least: float = 0.8, among: Sequence[str] = (), needs: Sequence[str] = (), **where) -> Check:
    """The rows' order is that of the paper: Spearman's rank correlation above `least` (a line of ours) in every column.

    among: rows whose own correlation is reported besides, the more telling one where two groups are far apart: then any order
    within them has a large correlation over all.
    """

    def check(tables: Tables) -> Verdict:
        found, printed = means(tables, **where), tables["_printed"].set_index(["column", "row"])["value"]
        margins, texts = {}, []
        for column in found.columns.unique(0):
            known = [row for row in found[column].columns if (column, row) in printed.index]
            if (lacks := without(found, needs, [column])) or len(known) < 3:
                return not_tested(lacks or f"{column}: fewer than three rows with a printed number")
            whole, inner = correlation(found[column][known], printed[column]), [row for row in known if row in among]
            margins[column] = whole - least
            texts.append(f"{column} {Interval.of(whole).text('.2f')} over {len(known)} rows")
            if len(inner) > 2:
                own = Interval.of(correlation(found[column][inner], printed[column])).text(".2f")
                texts[-1] += f" ({own} among the {len(inner)} with models of their own)"
        return decided(margins, f"Spearman's correlation: {', '.join(texts)}; the line of {least:g} is ours")

    return check


def correlation(m: pd.DataFrame, printed: pd.Series) -> pd.Series:
    """Spearman's rank correlation of every draw with the printed numbers; NaN where a row's mean is."""
    ours, theirs = m.rank(axis=1).to_numpy(), printed[m.columns].rank().to_numpy()
    ours, theirs = ours - ours.mean(1, keepdims=True), theirs - theirs.mean()
    norms = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs)
    return pd.Series(ours @ theirs / np.where(norms > 0, norms, np.nan)).where(m.notna().all(axis=1))


# checks of other tables ------------------------------------------------------------------------------------------------


def over_seeds(table: str, value: str, by: str, judge: Judge, scale: float = 1, **where) -> Check:
    """A check that `judge` holds of the means over seeds of a column of a table, by group; scale: 100 for percent.

    where: columns of the table. Several numbers of one seed and group are averaged first.
    """

    def check(tables: Tables) -> Verdict:
        rows = only(tables[table], **where).groupby([by, "seed"], sort=False)[value].mean().reset_index()
        return decided(*judge(best_first(scale * draws(rows, value, [by]))))

    return check
