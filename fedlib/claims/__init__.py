"""How a sentence of a paper is decided on our results: claims and verdicts, judges of numbers, checks of tables."""
# ruff: noqa: F401 (these names are for others)

from fedlib.claims.checks import (
    above_each,
    across_columns,
    below,
    best,
    both,
    changes,
    every_row,
    falls,
    gap,
    in_columns,
    like_the_paper,
    negated,
    over_seeds,
    place,
    rises,
    within,
)
from fedlib.claims.judges import apart, at_place, best_of, beyond, close, each_apart, first, in_order, under
from fedlib.claims.verdicts import (
    NOT_REPRODUCED,
    NOT_TESTED,
    REPRODUCED,
    UNDECIDED,
    Check,
    Claim,
    Tables,
    Verdict,
    decided,
    fact,
    implementation,
    in_words,
    not_tested,
    ours,
    verdict,
)
