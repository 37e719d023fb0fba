"""Checks of what tables usually claim: who is best, who is below whom, what falls.

A check is a function of an item's tables that gives a `Verdict`. The first ones look at a table's accuracies by column
and row, in percent (`analysis.accuracies.means`); they are not tested where a row that they name was not run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product

import numpy as np
import pandas as pd

from fedlib.analysis.accuracies import best_first, columns_read, correlation, differences, in_common, means, without
from fedlib.analysis.sensitivity import Sensitivity
from fedlib.analysis.tables import only
from fedlib.analysis.uncertainty import Interval, draws, in_seeds, shared_seeds, units
from fedlib.claims.judges import Judge, apart, close, lead, ranked, separated
from fedlib.claims.verdicts import (
    NOT_REPRODUCED,
    NOT_TESTED,
    POINT,
    Check,
    Claim,
    Margins,
    Tables,
    Verdict,
    decided,
    each_equal,
    not_tested,
    opposite,
    ours,
    verdict,
)

Rows = Sequence[str]
Columns = Rows | Callable[[str], bool]


def in_columns(judge: Judge, needs: Rows = (), columns: Columns = (), among: Rows = (), equal=0.0, **where) -> Check:
    """A check that `judge` holds in every column, or in these, or in those that are there and of which a function says
    so; of all rows, or of these, on the seeds that they have in common; equal: points of accuracy that are no
    difference; where: as in `means`. What fails in one column fails, also where rows are missing in others (a run that
    diverged, or was not done); else it is not tested then."""

    def check(tables: Tables) -> Verdict:
        found, there, over = on_shared_seeds(tables, among, **where)
        shown = list(filter(columns, there)) if callable(columns) else list(columns or there)
        lacks = without(found, needs, shown, over)
        whole = [column for column in shown if not without(found, needs, [column])]
        if not whole:
            return not_tested(lacks or "nothing was run")
        margins, texts = {}, []
        for column in whole:
            rows = best_first(found[column], among)
            if rows.shape[1] < 2:
                return not_tested(f"{column}: nothing to compare with")
            own, text = judge(rows)
            margins |= {f"{column}: {name}": margin for name, margin in own.items()}
            texts.append(f"{column}: {text}")
        v = decided(margins, "; ".join([*texts, lacks] if lacks else texts), over, equal, "points")
        return v if not lacks or v.status == NOT_REPRODUCED else not_tested(v.evidence, v)

    return check


AcrossColumns = Callable[[Mapping[str, pd.DataFrame]], tuple[Margins, str]]  # of draws by row, by column in order


def across_columns(
    judge: AcrossColumns, needs: Sequence[str] = (), two: str = "", equal: float = 0.0, **where
) -> Check:
    """A check that `judge` holds of all columns together, on the seeds that the rows it needs have in common; not
    tested if one of these rows is missing in a column, or everything; equal, where: as in `in_columns`.

    two: what the columns are, in the plural, where at least two are needed.
    """

    def check(tables: Tables) -> Verdict:
        found, columns, over = on_shared_seeds(tables, needs, **where)
        if lacks := without(found, needs, columns, over):
            return not_tested(lacks)
        there = {column: found[column] for column in columns if column in found}
        if len(there) < (2 if two else 1):
            return not_tested(f"needs two {two}" if two else "nothing was run")
        margins, text = judge(there)
        return decided(margins, text, over, equal, "points")

    return check


def on_shared_seeds(tables: Tables, rows: Sequence[str] = (), **where) -> tuple[pd.DataFrame, list[str], str]:
    """The accuracies on the seeds that these rows have in common (`means`), the columns that are there, and what
    intervals are over, if that is less than in the tables."""
    compared = in_common(tables, rows)
    over = units(compared) if len(compared["tidy"]) < len(tables["tidy"]) else ""
    return means(compared, **where), columns_read(tables, **where), over


def best(row: str, needs: Rows = (), *columns_and_among: Rows, **options) -> Check:
    """The row is above every other one; arguments: those of `in_pairs`."""

    def judge(shown, gaps):
        leads = {other: m for (_, other), m in gaps.items()}
        return leads, f"{row} {shown[row]:.1f}, {lead(leads)}"

    return in_pairs((row,), (), judge, (row, *needs), *columns_and_among, **options)


def place(row: str, number: int, needs: Rows = (), **options) -> Check:
    """The row has this place; -1 is the last. Any but the first and the last is judged where no row is missing."""
    return in_pairs((row,), (), partial(ranked, number), (row, *needs), whole=number not in (1, -1), **options)


def below(lower: Rows, upper: Rows, by: float = 0, **options) -> Check:
    """Every one of the lower rows is below every upper one, by more than `by` points."""
    rows = (*lower, *upper)
    return in_pairs(upper, lower, partial(separated, by), rows, **{"equal": 0.0 if by else POINT, **options})


def in_pairs(
    upper: Rows, lower: Rows, judge, needs: Rows, columns: Columns = (), among=(), equal=POINT, whole=False, **at
) -> Check:
    """A check of the differences of some rows from others, or from all others, each on all the seeds that its two rows
    share, so that one seed of a method does not hide what three of another say. judge: of a column's accuracies, best
    first, and of these differences gives margins and evidence; whole: only columns without a missing row count; at: as
    in `means`; the others as of `in_columns`."""

    def check(tables: Tables) -> Verdict:
        found, there = means(tables, **at), columns_read(tables, **at)
        shown = list(filter(columns, there)) if callable(columns) else list(columns or there)
        gaps, seeds, apart_only = {column: {} for column in shown}, {column: {} for column in shown}, []
        rows = dict.fromkeys(row for _, row in found.columns)
        for a, b in product(upper, lower or [row for row in rows if row not in upper and row in (among or rows)]):
            frame, drawn = differences(tables, a, b, **at)
            shared = frame.set_index("column")["seeds"]
            for column in shown:
                if column in drawn:
                    gaps[column][a, b], seeds[column][a, b] = drawn[column], shared[column]
                elif {(column, a), (column, b)} <= set(found):
                    apart_only.append((column, b))
        paired, needed = found.drop(columns=apart_only), (*needs, *(b for _, b in apart_only))
        lacks, margins, texts, over = without(paired, needed, shown, apart_only), {}, [], []
        for column in shown:
            if gaps[column] and not (whole and without(paired, needed, [column])):
                over += [n for n in seeds[column].values() if n > 1]
                own, text = judge(best_first(found[column], among).iloc[0], gaps[column])
                margins |= {f"{column}: {name}": margin for name, margin in own.items()}
                texts.append(f"{column}: {text}")
        if not margins or not lacks and not all(gaps.values()):
            return not_tested(lacks or "nothing to compare with")
        evidence, over = "; ".join([*texts, lacks] if lacks else texts), in_seeds(pd.Series(over, dtype=int))
        v = decided(margins, evidence, "" if over == units(tables) else over, equal, "points")
        return v if not lacks or v.status == NOT_REPRODUCED else not_tested(v.evidence, v)

    return check


def within(rows: Sequence[str], points: float, **options) -> Check:
    """No two of these rows differ by more than so many points."""
    return in_columns(close(rows, points), rows, **{"among": rows, **options})


def of_all(check: Check) -> Check:
    """A check that is not tested before all runs have ended: a method that is missing may be the best one."""

    def whole(tables):
        v = check(tables)
        if "_columns" not in tables:  # what a paper prints
            return v
        ended = tables["_columns"].groupby("column", sort=False)["ended"].all()
        return v if ended.all() else not_tested(f"{v.evidence}; missing runs in {', '.join(ended.index[~ended])}", v)

    return whole


Number = Callable[[pd.DataFrame], pd.Series]  # of one column's draws by row


def changes(numbers: Mapping[str, Number], sign: int, needs: Sequence[str] = (), **where) -> Check:
    """From the first column to the last all of these numbers rise (sign 1) or fall (-1)."""

    def judge(columns):
        (here, a), *_, (there, b) = columns.items()
        moved = {name: of(b) - of(a) for name, of in numbers.items()}
        texts = [f"{name} {of(a).iloc[0]:.1f}, change {apart(moved[name])}" for name, of in numbers.items()]
        return {name: sign * change for name, change in moved.items()}, f"{here} to {there}: {', '.join(texts)}"

    return across_columns(judge, needs, two="columns", equal=POINT, **where)


def falls(*rows: str, sign: int = -1, **where) -> Check:
    """The accuracy of each of these rows falls from the first column to the last, or rises with sign 1."""
    return changes({row: lambda m, row=row: m[row] for row in rows}, sign, rows, **where)


rises = partial(falls, sign=1)


def gap(over: str, under: Sequence[str] = ()) -> Number:
    """A row minus the best of the others, or of these."""
    return lambda m: m[over] - (m[list(under)] if under else m.drop(columns=over)).max(axis=1, skipna=False)


def both(*checks: Check) -> Check:
    """All of these hold; one that fails decides, also where another is not tested."""

    def check(tables: Tables) -> Verdict:
        found = [one(tables) for one in checks]
        tested = [v for v in found if v.status != NOT_TESTED]
        if len(tested) < len(found) and all(v.status != NOT_REPRODUCED for v in tested):
            return not_tested("; ".join(dict.fromkeys(v.evidence for v in found if v not in tested)))
        evidence, facts = "; ".join(v.evidence for v in found), [v for v in tested if not v.margins]
        margins = {f"{k}. {name}": m for k, v in enumerate(found, 1) for name, m in v.drawn.items()}
        if not margins or not all(v.holds for v in facts):
            return verdict(all(v.holds for v in facts), evidence)
        equal = {f"{k}. {n}": e for k, v in enumerate(found, 1) for n, e in each_equal(v.equal, v.drawn).items()}
        over = next((v.over for v in found if v.over and any(m.known for m in v.margins.values())), "")
        unit = next((v.unit for v in found if v.unit), "")
        v = decided(margins, evidence, over, equal, unit)
        return v if len(tested) == len(found) or v.status == NOT_REPRODUCED else not_tested(evidence, v)

    return check


def unless(lacks: Callable[[Tables], str]) -> Callable[[Check], Check]:
    """Decorates a check that is not tested where something is lacking; lacks: of the tables what, "" for nothing."""

    def decorated(check: Check) -> Check:
        return lambda tables: not_tested(why) if (why := lacks(tables)) else check(tables)

    return decorated


def negated(check: Check) -> Check:
    """That does not hold: one of its margins at least is below 0."""
    return lambda tables: opposite(check(tables))


def like_the_paper(least: float = 0.8, among: Sequence[str] = (), needs: Sequence[str] = (), **where) -> Check:
    """The rows' order is that of the paper: Spearman's rank correlation above `least` (a threshold set by us) in every
    column.

    among: rows whose own correlation is reported besides, the more telling one where two groups are far apart:
    then any order within them has a large correlation over all.
    """

    def check(tables: Tables) -> Verdict:
        found, columns, over = on_shared_seeds(tables, **where)
        printed, margins, texts = tables["_printed"].set_index(["column", "row"])["value"], {}, []
        lacks = without(found, needs, columns, over)
        for column in columns:
            known = [row for row in found[column].columns if (column, row) in printed.index] if column in found else []
            if lacks or len(known) < 3:
                return not_tested(lacks or f"{column}: fewer than three rows with a printed number")
            whole, inner = correlation(found[column][known], printed[column]), [row for row in known if row in among]
            margins[column] = whole - least
            texts.append(f"{column}: {Interval.of(whole).text('.2f')} over {len(known)} rows")
            if len(inner) > 2:
                own = Interval.of(correlation(found[column][inner], printed[column])).text(".2f")
                texts[-1] += f" ({own} among the {len(inner)} with personalised models)"
        return decided(margins, f"Spearman's correlation: {'; '.join(texts)}; threshold of {least:g}, set by us", over)

    return check


# other tables ---------------------------------------------------------------------------------------------------------


def over_seeds(
    table: str, value: str, by: str, judge: Judge, scale: float = 1, each: str = "", needs: Sequence[str] = (), **where
) -> Check:
    """A check that `judge` holds of the means over seeds of a column of a table, by group; scale: 100 for percent.

    each: a column for every value of which it must hold; needs: groups without which it is not tested; where: columns
    of the table. Several numbers of one seed and group are averaged first.
    """

    def check(tables: Tables) -> Verdict:
        rows, margins, texts, over = only(tables[table], **where), {}, [], ""
        if rows.empty:
            return not_tested("nothing of it was run")
        for name, own in rows.groupby(each, sort=False) if each else [("", rows)]:
            shared = own[own["seed"].isin(shared_seeds(own, by))]
            if shared.empty:
                return not_tested(f"without a seed that all {by}s have" + (f" ({name})" if each else ""))
            own, over = shared, over if len(shared) == len(own) else units({"tidy": shared})
            means = own.groupby([by, "seed"], sort=False)[value].mean().reset_index()
            m = best_first(scale * draws(means, value, [by]))
            if lacks := [group for group in needs if group not in m]:
                return not_tested(f"missing runs: {', '.join(lacks)}")
            found, text = judge(m)
            margins |= {f"{name}: {what}" if each else what: margin for what, margin in found.items()}
            texts.append(f"{name}: {text}" if each else text)
        return decided(margins, "; ".join(texts), over)

    return check


def every_row(
    table: str, holds: Callable[[pd.DataFrame], pd.Series], of: str = "", say=None, each: str = "", /, **where
) -> Check:
    """A check that something holds in every row; where: columns of the table.

    Evidence: how many rows it holds in, if `of` says what they are in the plural, and what `say` tells of all of them,
    or of those of every value of the column `each`.
    """

    def check(tables: Tables) -> Verdict:
        rows = only(tables[table], **where)
        right = holds(rows)
        texts = [f"{right.sum()} of {len(rows)} {of}"] if of else []
        if say and each:
            texts += [f"{name}: {say(own)}" for name, own in rows.groupby(each, sort=False)]
        elif say:
            texts.append(say(rows))
        return verdict(right.all(), "; ".join(text for text in texts if text))

    return check


# choices that a paper leaves open, and what a method's lead consists of ----------------------------------------------


def _over(tables: Tables, method: str) -> str:
    """What intervals of the effects on a method are over."""
    return in_seeds(only(tables["effects"], method=method)["seeds"])


def less_accurate(method: str, *names: str) -> Check:
    """Is a method less accurate with each of these choices?"""

    def check(tables: Tables) -> Verdict:
        own = {choice: e for (_, one, choice), e in tables["_effects"].items() if one == method}
        if lacks := [name for name in names if name not in own]:
            return not_tested(f"missing runs: {', '.join(lacks)}")
        shown = ", ".join(f"{name} {apart(own[name], '.2f')}" for name in names)
        return decided({name: -own[name] for name in names}, f"points: {shown}", _over(tables, method))

    return check


def ahead(arm: str, *others: str, table: str = "_parts") -> Check:
    """Is an arm (`fedlib.analysis.sensitivity.Arms`) above each of the others? table: that of the arms' draws."""

    def check(tables: Tables) -> Verdict:
        m = tables.get(table, pd.DataFrame())
        if lacks := [name for name in (arm, *others) if name not in m]:
            return not_tested(f"missing runs: {', '.join(lacks)}")
        leads = {name: m[arm] - m[name] for name in others}
        shown = "; ".join(f"{name} {m[name].iloc[0]:.1f}, {apart(lead, '.2f')}" for name, lead in leads.items())
        seeds = in_seeds(tables["parts"]["seeds"])
        return decided(leads, f"{arm} {m[arm].iloc[0]:.1f} against {shown}", seeds, POINT, "points")

    return check


def matter(sensitivity: Sensitivity, name: str) -> Claim:
    """Does any choice move the method by more than chance does?"""

    @unless(sensitivity.missing)
    def check(tables: Tables) -> Verdict:
        moved, chance = sensitivity.mean_effects(tables, left_open=True), sensitivity.chance(tables)
        size, sign = moved.iloc[0].abs(), np.sign(moved.iloc[0])
        largest, more = size.idxmax(), (size > chance).sum()
        evidence = f"largest of {len(size)}: {largest} {apart(moved[largest], '.2f')}; {more} change it by more"
        none_does = {c: chance - sign[c] * moved[c] for c in moved if moved[c].any()}  # margins of the opposite
        if not none_does:
            return verdict(False, "no choice changes anything")
        averaged = sensitivity.averaged(tables)
        evidence = f"{evidence} than another seed (or partition, where tried) does ({chance:.2f} in size{averaged})"
        return opposite(decided(none_does, evidence, _over(tables, sensitivity.method)))

    text = f"An unspecified choice changes {name}'s accuracy by more than another seed (or partition) does."
    return ours(text, check)
