"""Claims about choices that a paper leaves open, and about what a method's lead consists of."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fedlib.analysis.sensitivity import Sensitivity
from fedlib.analysis.tables import only
from fedlib.analysis.uncertainty import in_seeds
from fedlib.claims.judges import apart
from fedlib.claims.verdicts import POINT, Check, Claim, Tables, Verdict, decided, not_tested, opposite, ours, verdict


def with_all(sensitivity: Sensitivity):
    """Decorates a check that is made only where every choice was tried;
    it gets what chance moves the accuracy by, too."""

    def decorated(check) -> Check:
        def checked(tables: Tables) -> Verdict:
            lacks = sensitivity.missing(tables)
            return not_tested(lacks) if lacks else check(tables, sensitivity.chance(tables))

        return checked

    return decorated


def over(tables: Tables, method: str) -> str:
    """What intervals of the effects on a method are over."""
    return in_seeds(only(tables["effects"], method=method)["seeds"])


def less_accurate(method: str, *names: str) -> Check:
    """Is a method less accurate with each of these choices?"""

    def check(tables: Tables) -> Verdict:
        own = {choice: e for (_, one, choice), e in tables["_effects"].items() if one == method}
        if lacks := [name for name in names if name not in own]:
            return not_tested(f"missing runs: {', '.join(lacks)}")
        shown = ", ".join(f"{name} {apart(own[name], '.2f')}" for name in names)
        return decided({name: -own[name] for name in names}, f"points: {shown}", over(tables, method))

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

    @with_all(sensitivity)
    def check(tables: Tables, chance: float) -> Verdict:
        moved = sensitivity.mean_effects(tables, left_open=True)
        size, sign = moved.iloc[0].abs(), np.sign(moved.iloc[0])
        largest, more = size.idxmax(), (size > chance).sum()
        evidence = f"largest of {len(size)} left open: {largest} {apart(moved[largest], '.2f')}; {more} by more"
        none_does = {c: chance - sign[c] * moved[c] for c in moved if moved[c].any()}  # margins of the opposite
        if not none_does:
            return verdict(False, "no choice changes anything")
        evidence = f"{evidence} than another seed or partition does ({chance:.2f})"
        return opposite(decided(none_does, evidence, over(tables, sensitivity.method)))

    return ours(f"An unspecified choice changes {name}'s accuracy by more than another seed or partition does.", check)
