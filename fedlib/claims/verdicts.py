"""Claims, verdicts and their words.

Most verdicts say by how much a claim holds: margins, differences that must all be above 0, each with a confidence
interval (`fedlib.analysis.uncertainty`).

* reproduced: all intervals lie above 0. No correction is needed for many margins, since all of them must.
* not reproduced: one of them lies below 0, after a correction for how many were looked at (max-T: intervals wide enough
  to hold together in 95 %).
* practically equal: one at least lies, with its whole interval, so close to 0 that the difference does not matter
  (closer than is declared with the check, a point of accuracy), and all others lie so or above 0.
* underpowered: none of this, and had the reported numbers been exactly true, this design would have said
  "reproduced" in less than half of all replications.
* inconclusive: none of this.
* no verdict (one seed): a margin has no interval, so there is only a number.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pandas as pd

from fedlib.analysis.names import proper
from fedlib.analysis.uncertainty import Interval, simultaneous

REPRODUCED, NOT_REPRODUCED, EQUAL = "reproduced", "not reproduced", "practically equal"
INCONCLUSIVE, UNDERPOWERED, ONE_SEED, NOT_TESTED = "inconclusive", "underpowered", "no verdict (one seed)", "not tested"
DECIDED = (REPRODUCED, NOT_REPRODUCED, EQUAL)
PARTLY = "partly tested"  # what "not tested" is called where some of the runs are there
STATUSES = (REPRODUCED, EQUAL, NOT_REPRODUCED, INCONCLUSIVE, UNDERPOWERED, ONE_SEED, NOT_TESTED)
POINT = 1.0  # accuracies that are within this many points of each other are practically equal
ENOUGH = 0.5  # of replications in which a true claim must come out as reproduced; below it is underpowered

Tables = Mapping[str, pd.DataFrame]
Margins = dict[str, pd.Series]  # by what is compared, > 0 as claimed: the estimate, then its draws


@dataclass(frozen=True)
class Verdict:
    """How a claim fared, and the numbers behind it.

    holds: what the estimates alone say, None if that is nothing. margins: intervals by what is compared. anywhere:
    it does not depend on the data. over: what the intervals are over, where that is less than all runs of the item.
    equal: differences up to this (or these, by margin) are none, in `unit`s; 0 where that is not asked. power: the
    share of replications in which this design says "reproduced" if the reported numbers are exactly true; chance: in
    which it says "not reproduced" if all margins are 0; None where they are not known.
    """

    status: str
    evidence: str
    holds: bool | None = None
    margins: dict[str, Interval] = field(default_factory=dict)
    anywhere: bool = False
    over: str = ""
    equal: float | Mapping = 0.0
    unit: str = ""
    power: float | None = None
    chance: float | None = None
    drawn: Margins = field(default_factory=dict, repr=False, compare=False)  # the margins, as draws

    @property
    def closest(self) -> Interval | None:
        """The margin that decides: the smallest one."""
        return min(self.margins.values(), key=lambda margin: margin.value, default=None)

    def beside(self, printed: Verdict) -> Verdict:
        """With the power that these runs have, if what `printed` found of the printed numbers is true."""
        if not self.margins or self.status in (ONE_SEED, NOT_TESTED) or not printed.holds:
            return self
        if not set(self.margins) <= set(printed.margins) or not all(margin.known for margin in self.margins.values()):
            return self
        truth = {name: printed.margins[name].value for name in self.margins}
        true = _decisions(self.drawn, truth, self.equal)[0]
        tied = _decisions(self.drawn, dict.fromkeys(truth, 0.0), self.equal)[1]
        status = UNDERPOWERED if self.status == INCONCLUSIVE and true < ENOUGH else self.status
        return dataclasses.replace(self, status=status, power=true, chance=tied)


def _decisions(drawn: Margins, truth: Mapping[str, float], equal: float | Mapping) -> tuple[float, float]:
    """The shares of replications that say "reproduced" and "not reproduced", if the margins are truly these; their
    errors are those of the draws, their intervals as wide as ours."""
    found, wider = {name: Interval.of(m) for name, m in drawn.items()}, simultaneous(drawn)
    above, below, near = [], [], each_equal(equal, drawn)
    for name, i in found.items():
        seen = truth[name] + drawn[name].iloc[1:].to_numpy() - i.value
        low, high, far = seen - (i.value - i.low), seen + (i.high - i.value), seen + wider * (i.high - i.value)
        above.append((low > 0) & (high > near[name]))
        below.append((far < 0) & (low < -near[name]))
    return float(np.mean(np.all(above, 0))), float(np.mean(np.any(below, 0)))


def each_equal(equal: float | Mapping, margins: Margins) -> Mapping:
    """Which differences are none, by margin."""
    return equal if isinstance(equal, Mapping) else dict.fromkeys(margins, equal)


def verdict(holds: bool, evidence: str) -> Verdict:
    """Of what has no uncertainty: counts, facts, what a run did."""
    return Verdict(REPRODUCED if holds else NOT_REPRODUCED, evidence, bool(holds))


def decided(margins: Margins, evidence: str, over: str = "", equal: float | Mapping = 0.0, unit: str = "") -> Verdict:
    """By the intervals of these margins, all of which the claim wants above 0. One that reaches 0 decides nothing,
    unless it is exactly 0: a tie. equal, unit: see `Verdict`."""
    found = {name: Interval.of(margin) for name, margin in margins.items()}
    if not found:
        return not_tested("nothing to compare with")
    wider, near = simultaneous(margins), each_equal(equal, margins)
    within = {name: -near[name] <= i.low and i.high <= near[name] > 0 and not i.exact for name, i in found.items()}
    below = {name: i.value + wider * (i.high - i.value) < 0 or i.low == i.high == 0 for name, i in found.items()}
    if any(below[name] and not within[name] for name in found):
        status = NOT_REPRODUCED
    elif not all(i.known for i in found.values()):
        status = ONE_SEED
    elif all(i.low > 0 or within[name] for name, i in found.items()):
        status = EQUAL if any(within.values()) else REPRODUCED
    else:
        status = INCONCLUSIVE
    holds = all(margin.value > 0 for margin in found.values())
    return Verdict(status, evidence, holds, found, over=over, equal=equal, unit=unit, drawn=dict(margins))


def opposite(v: Verdict) -> Verdict:
    """Of the claim that one of these margins at least is below 0."""
    turned = {REPRODUCED: NOT_REPRODUCED, NOT_REPRODUCED: REPRODUCED}
    name = min(v.margins, key=lambda name: v.margins[name].value, default=None)
    drawn = {} if name is None else {f"not: {name}": -v.drawn[name]}
    found = {name: Interval.of(m) for name, m in drawn.items()}
    holds = None if v.holds is None else not v.holds
    return dataclasses.replace(v, status=turned.get(v.status, v.status), holds=holds, margins=found, drawn=drawn)


def fact(holds: bool, evidence: str) -> Verdict:
    """Of what is read off papers, networks or formulas, whatever data a run had."""
    return dataclasses.replace(verdict(holds, evidence), anywhere=True)


def not_tested(why: str, v: Verdict | None = None) -> Verdict:
    """What is missing for a check; v: what the runs that are there say."""
    return Verdict(NOT_TESTED, why, equal=v.equal if v else 0.0, drawn=v.drawn if v else {})


Check = Callable[[Tables], Verdict]


@dataclass(frozen=True)
class Claim:
    """A sentence and the check that decides it.

    kind: "paper", a sentence that a reader takes from the item; "own", an additional question of ours; "check", what
    holds by construction and is checked by a computation that is independent of the method: it tests this
    implementation, not the paper.
    """

    text: str
    check: Check
    kind: str = "paper"

    def said(self, v: Verdict, elsewhere: str, over: str, scale: str = "") -> tuple[str, Verdict]:
        """The sentence and a verdict as they are shown; elsewhere, scale: see `in_words`; over: what the intervals are
        over."""
        known = any(margin.known for margin in v.margins.values())
        over = (v.over or over) if known else ""
        about = [f"95 % CI over {over}"] if over else []
        if v.power is not None:
            about.append(f"power {100 * v.power:.0f} %, type I error rate {100 * v.chance:.0f} %")
        instead = "" if v.anywhere else elsewhere
        evidence = proper(f"{v.evidence} [{'; '.join(about)}]" if about else v.evidence, instead)
        words = in_words(v.status, self.kind, instead, "" if v.anywhere else scale)
        words = PARTLY if v.status == NOT_TESTED and v.drawn else words
        return PREFIXES[self.kind] + self.text, dataclasses.replace(v, status=words, evidence=evidence, over=over)


ours, implementation = partial(Claim, kind="own"), partial(Claim, kind="check")


# how a verdict is called ----------------------------------------------------------------------------------------------

PREFIXES = {"paper": "", "own": "(Additional) ", "check": "(Check) "}
WORDS = {
    "paper": {REPRODUCED: "reproduced", NOT_REPRODUCED: "not reproduced"},
    "own": {REPRODUCED: "holds", NOT_REPRODUCED: "does not hold"},
    "check": {REPRODUCED: "passed", NOT_REPRODUCED: "failed"},
}


def in_words(status: str, kind: str, elsewhere: str = "", scale: str = "") -> str:
    """What a verdict is called. elsewhere: the data that a claim was tested on, where they are none of the paper's;
    scale: that of the runs, where it is not the paper's.

    Small data never refute a claim about the paper's: there it "does not hold on digits".
    """
    if kind == "check" or status not in DECIDED:
        return WORDS[kind].get(status, status)
    if elsewhere:
        return f"{WORDS['own'].get(status, status)} on {elsewhere}"
    return WORDS[kind].get(status, status) + (f" at {scale} scale" if scale else "")
