"""Exercises that check themselves: a notebook asks, and runs to its end whether or not somebody has answered. Below, by
question, the right answer, and hints for typical mistakes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import ceil, cos, exp, isfinite, log, nan, radians, sqrt
from numbers import Real

import numpy as np

from fedlib.base.errors import choose


@dataclass(frozen=True)
class Answer:
    """right: a number, several, or what says in words whether an answer is right. mistakes: by wrong number, a hint."""

    right: object
    mistakes: dict[float, str] = field(default_factory=dict)
    tolerance: float = 0.01


def check(question: str, answer: object, right: float | None = None, tolerance: float = 0.01) -> None:
    """Print in words what is wrong with an answer to a question of `ANSWERS`; None is no answer yet. right: the
    answer to another question, where runs decide it."""
    known = right is None
    expected = ANSWERS[choose("question", question, ANSWERS)] if known else Answer(float(right), tolerance=tolerance)
    print(f"{question} -> {said(answer, expected)}")


def said(answer: object, expected: Answer) -> str:
    """Whether an answer is right, and what is wrong if not; of several numbers, for each."""
    right, several = expected.right, isinstance(expected.right, tuple) or callable(expected.right)
    if answer is None or several and isinstance(answer, list) and any(one is None for one in answer):
        return "not answered yet"
    if not several:
        return _of_one(answer, expected)
    count = 2 if callable(right) else len(right)
    if not isinstance(answer, list | tuple | np.ndarray) or getattr(answer, "ndim", 1) == 0:
        return f"give {count} numbers in a list"
    if len(answer) != count:
        return f"give {count} numbers, not {len(answer)}"
    if callable(right):
        return right(answer) if all(isinstance(one, Real) for one in answer) else f"give numbers, not {answer}"
    each = [_of_one(one, replace(expected, right=r)) for one, r in zip(answer, right)]
    return each[0] if len(set(each)) == 1 else "; ".join(each)


def _of_one(answer: object, expected: Answer) -> str:
    try:
        value = nan if isinstance(answer, str | bool) else float(answer)
    except (TypeError, ValueError, OverflowError):
        value = nan
    if not isfinite(value):
        return f"give a number, not {answer!r}"
    right, tolerance = expected.right, expected.tolerance
    if abs(value - right) <= tolerance:
        return "right"
    hints = (hint for mistake, hint in expected.mistakes.items() if abs(value - mistake) <= min(tolerance, 0.1))
    return ": ".join([_how_far(value, right), *hints][:2])


def _how_far(value: float, right: float) -> str:
    if value * right < 0:
        return "wrong sign"
    if value * right == 0:
        return "too large" if value > right else "too small"
    factor = max(value / right, right / value)
    way = "large" if abs(value) > abs(right) else "small"
    said = f"{factor:.0f}" if factor >= 10 else f"{factor:.2g}"
    return f"a factor of {said} too {way}" if factor >= 1.1 else f"a little too {way}"


# questions ------------------------------------------------------------------------------------------------------------


def two_cosines(answer) -> str:
    """Lesson 6, exercise 3: any two cosines with these two properties are right."""
    first, second = answer
    if not all(-1 <= c <= 1 for c in answer):
        return "a cosine lies between -1 and 1"
    if first + second >= 0:
        return "their mean is not negative"
    by_eq3 = -sum(log(1 - min(max(c, 0), 1 - 1e-8)) for c in answer) / 2
    return "right" if by_eq3 > 1 else "the weight by eq3 is not above 1: which cosine makes it large?"


def sigma(s: float) -> float:
    return 1 / (1 + exp(-s))


p = 4 / 20 * 3 / 19  # lesson 6, exercise 7: that two clients are sampled
own_2 = log(1e-4) / (log(1e-4) + log(0.2))  # lesson 10, exercise 1
std_5 = sqrt(2.7)  # lesson 14, exercise 2

ANSWERS = {
    "lesson 0, exercise 1: gigabytes": Answer(
        10 * 200 * 2 * 4e6 / 1e9,
        {
            8: "did you count both directions?",
            4: "how many bytes has a number?",
            1.6: "that is one client",
            160: "how many clients take part in a round?",
        },
    ),
    "lesson 0, exercise 2: weighted by samples": Answer(2.5, {2: "a client counts by its samples"}),
    "lesson 0, exercise 2: all the same": Answer(2, {2.5: "here samples do not count"}),
    "lesson 0, exercise 3: client mean": Answer(
        0.8, {0.79: "that is the pooled accuracy", 80: "give a fraction, not percent"}, 0.001
    ),
    "lesson 0, exercise 3: pooled": Answer(
        0.79, {0.8: "that is the client mean", 79: "give a fraction, not percent"}, 0.001
    ),
    "lesson 0, exercise 4: misses three rounds": Answer(
        0.343, {0.027: "that is taking part three times", 0.7: "that is one round"}, 0.001
    ),
    "lesson 0, exercise 4: rounds": Answer(
        15, {35: "those are the rounds that it misses", 6: "that is clients a round"}
    ),
    "lesson 1, exercise 2: accepted at alpha = 0.1": Answer(766, {234: "those are the rejected ones"}),
    "lesson 1, exercise 2: accepted at alpha = 10": Answer(994, {6: "those are the rejected ones"}),
    "lesson 1, exercise 3: classes of the last client": Answer(
        1, {3: "are there three classes left for the last group?"}
    ),
    "lesson 1, exercise 4: std of a size at alpha = 0.1": Answer(
        sqrt(10 * 6000**2 * 99 / (100**2 * 11)), {180: "that is one class", 1800: "variances add, not stds"}, 1
    ),
    "lesson 1, exercise 4: std of a size at alpha = 0.5": Answer(
        sqrt(10 * 6000**2 * 99 / (100**2 * 51)), {83.6: "that is one class", 836: "variances add, not stds"}, 1
    ),
    "lesson 2, exercise 1: w, v, b": Answer((2.0295, -1.0633, 0.3926), {0.5074: "step against the gradient"}, 0.001),
    "lesson 2, exercise 2: b after B's first minibatch": Answer(
        0.4, {0.6: "step against the gradient", 0.5: "b moves, too"}, 0.001
    ),
    "lesson 2, exercise 4: slope": Answer(-1.8125, {-1.75: "that weights by samples"}, 0.001),
    "lesson 2, exercise 4: intercept": Answer(-0.0625, {0: "that weights by samples"}, 0.001),
    "lesson 3, exercise 1: minimum of the sample-weighted loss": Answer(
        2, {1: "curvatures count, too", 3: "samples count, too"}
    ),
    "lesson 3, exercise 1: FedAvg's limit for many local steps": Answer(
        1, {2: "each client counts by its samples", 3: "A has the three samples"}
    ),
    "lesson 3, exercise 7: derivative, asked for class 0": Answer(
        -sigma(1), {-sigma(-1): "is that the probability of class 0, or of class 1?"}, 0.001
    ),
    "lesson 3, exercise 7: derivative, asked for class 1": Answer(2 * sigma(2), {sigma(2): "how steep is B?"}, 0.001),
    "lesson 4, exercise 1: w, v, b": Answer((1.9763, 0.7013, -0.6495), tolerance=0.001),
    "lesson 4, exercise 2: epochs of two (head, extractor)": Answer((1, 1), {2: "head and extractor share them"}),
    "lesson 4, exercise 2: epochs of five (head, extractor)": Answer((4, 1), {5: "head and extractor share them"}),
    "lesson 4, exercise 4: balanced softmax of class 0": Answer(1, {0.5: "that is the ordinary softmax"}),
    "lesson 4, exercise 4: mean derivative, logit 0, balanced": Answer(0, {-0.5: "that is the ordinary one"}),
    "lesson 4, exercise 4: mean derivative, logit 0, ordinary": Answer(-0.5, {0: "that is the balanced one"}),
    "lesson 5, exercise 2: FedAvg, FO, HF": Answer((5 / 7, 0.5, 13 / 38), {0.5: "that is the mean without weights"}),
    "lesson 5, exercise 3: client 2's weight, FO": Answer(-4, {4: "1 minus alpha times the curvature is?"}),
    "lesson 5, exercise 3: client 2's weight, HF": Answer(4, {-4: "for HF the factor is squared"}),
    "lesson 5, exercise 3: HF converges to w": Answer(4 / 4.25, {4 / 4.5: "both factors are squared"}),
    "lesson 6, exercise 2: scores of A and B": Answer((0.2635, -0.7071), {-0.2635: "the loss at q minus the other's"}),
    "lesson 6, exercise 2: weights (own, A, B)": Answer((0, 1, 0), {0.5: "a score of 0 has no weight"}),
    "lesson 6, exercise 2: new s": Answer(1, {0.5: "that is the old one"}),
    "lesson 6, exercise 3: two cosines": Answer(two_cosines),
    "lesson 6, exercise 5: models down (M = 19, M = 5, pFedSim)": Answer(
        (380, 100, 20), {19: "that is one client", 5: "that is one client", 1: "that is one client"}
    ),
    "lesson 6, exercise 7: probability of a joint round": Answer(p, {0.04: "drawn without replacement"}, 0.001),
    "lesson 6, exercise 7: mean number of joint rounds": Answer(4 * p, {p: "that is one round"}),
    "lesson 6, exercise 7: share never sampled together": Answer(
        (1 - p) ** 4, {1 - p: "that is one round", 1 - (1 - p) ** 4: "that is the share sampled together"}
    ),
    "lesson 7, exercise 1: largest c": Answer(3.9, {2: "the nearer slope is chosen", 4: "f_0 is not 0"}),
    "lesson 7, exercise 1: clients that choose it at c = 2.5": Answer(2),
    "lesson 7, exercise 2: the paper's cut": Answer(cos(radians(50)), {cos(radians(45)): "that is the other"}),
    "lesson 7, exercise 2: complete linkage": Answer(cos(radians(45)), {cos(radians(50)): "that is the paper's cut"}),
    "lesson 7, exercise 3: pi_0, beginning with 0.5 and 0.7": Answer((0.5, 0.7)),
    "lesson 8, exercise 1: own head of clients 0 and 1": Answer((0.88, 0.44), {0.12: "it is the other head"}),
    "lesson 8, exercise 2: first row of A": Answer(
        (0.6, 0.15), {0.8: "lambda is 2", 0.075: "lambda is 2", 1.4: "step against the gradient"}
    ),
    "lesson 8, exercise 2: lambda": Answer(20, {10: "exactly at the prototype is no overshoot yet"}),
    "lesson 9, exercise 1: sum of the clipped changes": Answer(
        (1.5, 1.2), {6.3: "that is without clipping", 0.9: "clip to C = 2, not to 1"}, 0.005
    ),
    "lesson 9, exercise 2: right with four releases": Answer(
        0.841, {0.691: "that is one release", 84.1: "give a fraction, not percent"}, 0.002
    ),
    "lesson 9, exercise 3: sigma for 25 rounds": Answer(
        10, {50: "not 25 times as much: noise of a mean falls with the root", 0.4: "more releases need more noise"}
    ),
    "lesson 9, exercise 4: right at most, epsilon 2": Answer(
        exp(2) / (1 + exp(2)), {exp(2): "that is the factor", 1 / (1 + exp(2)): "that is wrong at least"}, 0.002
    ),
    "lesson 9, exercise 4: noise in the mean of 400": Answer(
        0.1, {2: "that is one client", 0.005: "divide by the root of 400"}, 0.001
    ),
    "lesson 10, exercise 1: shares of client 2 (own, client 3)": Answer(
        (own_2, 1 - own_2), {0.8: "similarities become weights by the logarithm"}, 0.002
    ),
    "lesson 10, exercise 2: own share of client 2, as stated in the paper": Answer(
        1 / (1 - log(0.2)), {own_2: "that is the authors' code", 1 - 1 / (1 - log(0.2)): "that is client 3's"}, 0.002
    ),
    "lesson 10, exercise 3: rounds of FedAvg": Answer(12, {18: "those are the rounds of phase 2"}),
    "lesson 10, exercise 3: probability of a joint round, and of none": Answer(
        (1 / 19, (18 / 19) ** 18), {1 / 16: "drawn without replacement", (18 / 19) ** 30: "only phase 2 counts"}, 0.002
    ),
    "lesson 10, exercise 4: as much as its own": Answer(0.9999, {9.21: "that is the weight"}, 2e-5),
    "lesson 11, exercise 2: D between client 1 and client 2": Answer(
        4 / 81, {0.04: "divide by the maximum of client 1's row", 2 / 9: "distances are squared"}, 0.001
    ),
    "lesson 11, exercise 2: number of candidates of client 1": Answer(3, {4: "client 1 itself is none"}, 0),
    "lesson 11, exercise 2: client 1's weight for itself (round 1, round 4)": Answer(
        (8 / 43 + 0.1, 0.5 + 1 / 3), {16 / 43: "add the data term", 1: "add the data term"}
    ),
    "lesson 11, exercise 3: the smallest lambda": Answer(0.1 / (0.1 + 1 / 65), {2 / 15: "that is 1 - lambda"}, 0.005),
    "lesson 12, exercise 2: alpha of client 0": Answer(14 / 33, {19 / 33: "that is 1 - alpha"}, 0.005),
    "lesson 12, exercise 2: share of client 2 in the aggregate for client 1": Answer(
        1, {14 / 19: "shares follow similarity, not size", 0.5: "how similar are clients 1 and 3?"}
    ),
    "lesson 12, exercise 2: how much of client 2's model client 1 has now": Answer(
        19 / 33, {14 / 33: "that is alpha, its own part", 1: "client 1 keeps alpha of its own"}, 0.005
    ),
    "lesson 12, exercise 3: probability of class 1": Answer(0.375, {0.25: "that is theta alone"}, 0.001),
    "lesson 12, exercise 3: the supervisor must give more than": Answer(
        0.99, {0.5: "the mean of both must be above one half"}, 0.001
    ),
    "lesson 13, exercise 2: values of I, F, S": Answer(
        (40, 31, -11), {44: "that is part 1", 35: "that is part 1", 32: "the empty coalition has the weight 1/3"}
    ),
    "lesson 13, exercise 4: the friend's value, in sixths": Answer(2, {1 / 3: "in sixths"}),
    "lesson 13, exercise 4: the aggregate's threshold": Answer(
        10.3 / 3.5, {2.85: "values are weights, not all alike", 3.5: "the client's own model counts, too"}
    ),
    "lesson 13, exercise 4: of six points right": Answer(5, {6: "what does the aggregate predict for point 3?"}, 0),
    "lesson 14, exercise 1: mean": Answer(2),
    "lesson 14, exercise 1: standard error": Answer(1, {sqrt(2): "that is the standard deviation"}),
    "lesson 14, exercise 1: half-width": Answer(12.7, {2: "t is not 2 with two seeds", 25.4: "half of it"}, 0.1),
    "lesson 14, exercise 2: mean": Answer(2.2),
    "lesson 14, exercise 2: standard deviation": Answer(
        std_5, {1.4697: "divide by n - 1, not by n", 2.7: "that is the variance"}, 0.02
    ),
    "lesson 14, exercise 2: seeds": Answer(5),
    "lesson 14, exercise 3: half-width": Answer(
        2.776 * std_5 / sqrt(5), {2.776 * std_5: "divide by the root of n", std_5 / sqrt(5): "t is missing"}, 0.02
    ),
    "lesson 14, exercise 3: seeds": Answer(
        ceil((2 * std_5 / 0.5) ** 2), {43: "round up", 11: "plus or minus 0.5, so the half-width is 0.5"}
    ),
    "lesson 14, exercise 4: at least one of ten": Answer(
        1 - 0.95**10, {0.5: "ten times 5 % counts some cases twice", 0.95**10: "that is none of ten"}, 0.005
    ),
    "lesson 14, exercise 4: five heads": Answer(1 / 32, {1 / 16: "all heads, not all alike"}, 0.001),
    "lesson 15, exercise 1: accuracy and balanced accuracy, %": Answer(
        (100 * 115 / 123, 50), {100 * 8 / 123: 'that is for "always healthy"'}, 0.1
    ),
    "lesson 15, exercise 2: missing value": Answer(6, {24: "no test patient counts"}),
}
