"""Claims about choices that a paper leaves open, and about what a method's lead consists of."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fedlib.analysis.sensitivity import Sensitivity
from fedlib.analysis.uncertainty import units
from fedlib.claims.judges import apart
from fedlib.claims.verdicts import Check, Claim, Tables, Verdict, decided, not_tested, ours


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
    clients = tables["_clients"]
    own = clients[clients["run"].str.split("|").str[1] == method] if len(clients) else clients
    return units({"tidy": own, "_clients": own}) if len(own) else ""


def less_accurate(method: str, *names: str) -> Check:
    """Is a method less accurate with each of these choices?"""

    def check(tables: Tables) -> Verdict:
        own = {choice: e for (_, one, choice), e in tables["_effects"].items() if one == method}
        if lacks := [name for name in names if name not in own]:
            return not_tested(f"without {', '.join(lacks)}")
        shown = ", ".join(f"{name} {apart(own[name], '.2f')}" for name in names)
        return decided({name: -own[name] for name in names}, f"points: {shown}", over(tables, method))

    return check


def ahead(arm: str, *others: str, table: str = "_parts") -> Check:
    """Is an arm (`fedlib.analysis.arms`) above each of the others? table: that of the arms' draws."""

    def check(tables: Tables) -> Verdict:
        m = tables.get(table, pd.DataFrame())
        if lacks := [name for name in (arm, *others) if name not in m]:
            return not_tested(f"without {', '.join(lacks)}")
        leads = {name: m[arm] - m[name] for name in others}
        shown = "; ".join(f"{name} {m[name].iloc[0]:.1f}, {apart(lead, '.2f')}" for name, lead in leads.items())
        seeds = tables["parts"]["seeds"].max()
        over = f"{seeds} seeds and clients" if seeds > 1 else "clients (1 seed)"
        return decided(leads, f"{arm} {m[arm].iloc[0]:.1f} against {shown}", over)

    return check


def matter(sensitivity: Sensitivity, name: str) -> Claim:
    """Does any choice move the method by more than chance does?"""

    @with_all(sensitivity)
    def check(tables: Tables, chance: float) -> Verdict:
        moved = sensitivity.mean_effects(tables, left_open=True)
        size = moved.iloc[0].abs()
        largest, above = (
            size.idxmax(),
            f"{(size > chance).sum()} of {len(size)} move it by more than chance ({chance:.2f})",
        )
        evidence = f"largest: {largest} {apart(moved[largest], '.2f')}; {above}"
        return decided({largest: np.sign(moved[largest].iloc[0]) * moved[largest] - chance}, evidence,
                       over(tables, sensitivity.method))  # fmt: skip

    return ours(f"A choice that the paper leaves open moves {name} more than chance does.", check)
