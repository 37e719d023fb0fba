"""Claims about choices that a paper leaves open."""

from __future__ import annotations

import numpy as np

from fedlib.analysis.sensitivity import Sensitivity
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


def matter(sensitivity: Sensitivity, name: str) -> Claim:
    """Does any choice move the method by more than chance does?"""

    @with_all(sensitivity)
    def check(tables: Tables, chance: float) -> Verdict:
        moved = sensitivity.mean_effects(tables)
        size = moved.iloc[0].abs()
        largest, above = (
            size.idxmax(),
            f"{(size > chance).sum()} of {len(size)} move it by more than chance ({chance:.2f})",
        )
        evidence = f"largest: {largest} {apart(moved[largest], '.2f')}; {above}"
        return decided({largest: np.sign(moved[largest].iloc[0]) * moved[largest] - chance}, evidence)

    return ours(f"A choice that the paper leaves open moves {name} more than chance does.", check)
