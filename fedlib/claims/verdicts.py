"""Claims, verdicts and their words.

Most verdicts say by how much a claim holds: margins, differences in points that must all be above 0, each with an
interval (`fedlib.analysis.uncertainty`). All intervals above 0: reproduced. One of them below: not reproduced.
Otherwise undecided: another draw of seeds and clients could turn the verdict round.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import pandas as pd

from fedlib.analysis.uncertainty import Interval

REPRODUCED, NOT_REPRODUCED, UNDECIDED, NOT_TESTED = "reproduced", "not reproduced", "undecided", "not tested"
STATUSES = (REPRODUCED, NOT_REPRODUCED, UNDECIDED, NOT_TESTED)

Tables = Mapping[str, pd.DataFrame]
Margins = dict[str, pd.Series]  # by what is compared, > 0 as claimed: the estimate, then what resampling makes of it


@dataclass(frozen=True)
class Verdict:
    """How a claim fared, and the numbers behind it.

    holds: what the estimates alone say, None if that is nothing. margins: intervals by what is compared. anywhere:
    it does not depend on the data. over: what the intervals are over, where that is less than all runs of the item.
    """

    status: str
    evidence: str
    holds: bool | None = None
    margins: dict[str, Interval] = field(default_factory=dict)
    anywhere: bool = False
    over: str = ""

    @property
    def closest(self) -> Interval | None:
        """The margin that decides: the smallest one."""
        return min(self.margins.values(), key=lambda margin: margin.value, default=None)


def verdict(holds: bool, evidence: str) -> Verdict:
    """Of what has no uncertainty: counts, facts, what a run did."""
    return Verdict(REPRODUCED if holds else NOT_REPRODUCED, evidence, bool(holds))


def decided(margins: Margins, evidence: str, over: str = "") -> Verdict:
    """By the intervals of these margins, all of which the claim wants above 0. One that reaches 0 decides nothing,
    unless it is exactly 0: a tie."""
    found = {name: Interval.of(margin) for name, margin in margins.items()}
    if not found:
        return not_tested("nothing to compare with")
    if any(margin.high < 0 or margin.low == margin.high == 0 for margin in found.values()):
        status = NOT_REPRODUCED
    else:
        status = REPRODUCED if all(margin.low > 0 for margin in found.values()) else UNDECIDED
    return Verdict(status, evidence, all(margin.value > 0 for margin in found.values()), found, over=over)


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

    kind: "paper", a sentence that a reader takes from the item; "own", a question of ours; "check", what holds by
    construction and is checked by a computation that is independent of the method: it tests this implementation, not
    the paper.
    """

    text: str
    check: Check
    kind: str = "paper"

    def said(self, v: Verdict, elsewhere: str, over: str) -> tuple[str, Verdict]:
        """The sentence and a verdict as they are shown; elsewhere: see `in_words`; over: what intervals are over."""
        over = v.over or over
        evidence = f"{v.evidence} [95 % intervals over {over}]" if v.margins and over else v.evidence
        status = in_words(v.status, self.kind, "" if v.anywhere else elsewhere)
        return PREFIXES[self.kind] + self.text, dataclasses.replace(v, status=status, evidence=evidence)


ours, implementation = partial(Claim, kind="own"), partial(Claim, kind="check")


# how a verdict is called ----------------------------------------------------------------------------------------------

PREFIXES = {"paper": "", "own": "(Ours) ", "check": "(Check) "}
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
