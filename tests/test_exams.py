"""The exams: points add up, each question has its answer in the marking scheme, and answers that are numbers are what
fedlib's own functions give; the schemes do not get to students."""

from __future__ import annotations

import re
from functools import cache
from math import log

import numpy as np
import pandas as pd
import pytest
import torch

from fedlib import algorithms
from fedlib.algorithms.fedsimsup import FedSimSup
from fedlib.algorithms.parts import shapley
from fedlib.algorithms.parts.similarity import class_cosines
from fedlib.algorithms.pfedsim import PFedSim
from fedlib.analysis.uncertainty import Interval, draws
from fedlib.base import tree
from fedlib.base.files import CHECKOUT
from fedlib.claims import decided
from fedlib.data.describe import label_cosine
from fedlib.data.partition.dirichlet import dirichlet_tries
from fedlib.engine.setup import first_state, set_up
from fedlib.engine.simulate import watched_round
from fedlib.lessons.toys import Parabola, ToyData, play
from fedlib.privacy.accounting import epsilon
from fedlib.privacy.noise import Mechanism, release
from fedlib.spec import RunSpec

EXAMS = CHECKOUT / "notebooks" / "labs" / "exams"
NAMES = {"midterm": 60, "final": 90}  # minutes, and points
QUESTION = re.compile(r"^\* \*\*(\d[a-f])\*\* \((\d) points?\)(?:: )?(.+)$", re.MULTILINE)
PART = re.compile(r"^## (\d) .+ \((\d+) points\)$", re.MULTILINE)
VERDICTS = {"reproduced": "supported", "not reproduced": "contradicted", "inconclusive": "nothing decided"}


# what the exams give, as the functions below compute with it: who changes one, changes both
GIVEN = {
    "midterm": (
        *("20, 40, 30, 60 and 50 training samples", "clients 1, 3 and 5 take part", "1.0 (client 1), 2.0 (client 3)"),
        *(
            "4.0 (client 5)",
            "60 % of the clients are sampled",
            "take no part in three rounds in a row",
            "10 samples each",
        ),
        *("are 0.4, 1.4, 0.2 for", "and 0.5, 0.9, 0.5 for", "(20/3)", r"A's loss is $\frac12w^2$", "$(w-6)^2$"),
        *("start at $w=2$", r"learning rate $\frac14$", "5,822 parameters here, of which the head has 1,210"),
        *("Ten clients, of which five take part",),
    ),
    "final": (
        *("$i$ are $(3,4)$ and $(1,0)$", "$j$ are $(4,3)$ and $(0,1)$", "| 0 | 40 | 50 | 10 | 80 | 40 | 50 | 70 |"),
        *("gradients $(3,4)$ and $(0.3,0.4)$", "norm $C=1$", r"$\sigma=4$", r"$\delta=10^{-5}$", "divided by 2"),
        *("of one step", "of eight steps", "7 samples each", "label counts $(3,4)$", "have $(4,3)$ and $(0,7)$"),
        *("take part in three rounds", "| with | 71 | 78 | 65 | 72 | 81 |", "| without | 70 | 74 | 64 | 71 | 78 |"),
        *("value of t for five seeds is 2.78", "ten other independent comparisons"),
    ),
}


def asked(path) -> dict[str, tuple[int, str]]:
    """Points and text of every question of an exam, or of every answer."""
    return {key: (int(points), text.strip()) for key, points, text in QUESTION.findall(path.read_text("utf-8"))}


def numbers(*values, digits: int | None = None) -> str:
    return ", ".join(f"{float(value):.10g}" if digits is None else f"{float(value):.{digits}f}" for value in values)


def averaged(values, weights) -> float:
    return float(tree.weighted_mean({"w": torch.tensor(values, dtype=torch.float64)}, weights)["w"])


class Given:
    """A generator whose gamma numbers are those of the exam."""

    def __init__(self, rows):
        self.rows = iter(rows)

    def standard_gamma(self, alpha, size):
        return np.array([next(self.rows)])


def dealt(limit: float) -> np.ndarray:
    """The counts of the midterm's two classes [class, client]."""
    gammas = Given([[0.4, 1.4, 0.2], [0.5, 0.9, 0.5]])
    return dirichlet_tries((10, 10), 3, 1.0, limit, 1, gammas)[:, 0]


def parabolas(epochs: int, rounds: int) -> float:
    """Where FedAvg is with the midterm's two clients."""
    clients = [ToyData([([1.0], [0.0])], 0.25, epochs=epochs), ToyData([([2.0], [6.0])], 0.25, epochs=epochs)]
    *_, (server, _) = play(algorithms.make("fedavg"), Parabola(w=2.0), clients, rounds)
    return float(server["theta"]["extractor.w"])


@cache
def sent_up(method: str) -> int:
    """Bytes of a round of five of ten clients."""
    run = set_up(RunSpec(method, num_clients=10, join_ratio=0.5, model="lenet5", partition={"min_size": 20}), "serial")
    return 4 * watched_round(run, first_state(run), t=1).numbers["up"]


def verdict(row: str, column: int) -> str:
    """What the midterm's table says of a method that is to be better than that of a column."""
    line = next(line for line in (EXAMS / "midterm.md").read_text("utf-8").splitlines() if line.startswith(f"| {row},"))
    value, low, high = map(float, re.findall(r"[-+][\d.]+", line.split("|")[column]))
    status = decided({"": pd.Series([value, *np.linspace(low, high, 101)])}, "").status
    return VERDICTS[status]


def midterm() -> dict[str, str]:
    samples, uploads = np.array([20, 30, 50]), [1.0, 2.0, 4.0]
    less = 100 * (1 - sent_up("fedper") / sent_up("fedavg"))
    shares = Given([[0.4, 1.4, 0.2]]).standard_gamma(1, 1)[0]
    return {
        "2a": numbers(*(averaged(np.eye(3)[k], samples) for k in range(3))),
        "2b": numbers(averaged(uploads, samples)),
        "2c": numbers(averaged(uploads, [1, 1, 1]), digits=2),
        "2d": numbers(averaged([*uploads, 0.0], [*samples, 100])),
        "2e": numbers((1 - 0.6) ** 3),
        "3a": numbers(*(shares / shares.sum())),
        "3b": numbers(*dealt(np.inf)[0]),
        "3c": numbers(*dealt(np.inf)[1]),
        "3d": numbers(*dealt(20 / 3)[1]),
        "4a": numbers(round(parabolas(1, 300), 6)),
        "4b": numbers(parabolas(1, 1)),
        "4c": numbers(round(parabolas(100, 3), 6)),
        "5a": f"{sent_up('fedavg'):,}",
        "5b": f"{sent_up('fedper'):,}",
        "5c": numbers(less, digits=1),
        "6a": verdict("FedPer", 3),
        "6b": verdict("FedPer", 4),
        "6c": verdict("Local", 4),
        "6d": verdict("method N", 3),
    }


def of_pfedsim(phi: str) -> tuple[float, float]:
    """j's weight for i, and its share in percent."""
    heads = torch.tensor([[[3.0, 4.0], [1.0, 0.0]], [[4.0, 3.0], [0.0, 1.0]]], dtype=torch.float64)
    method = PFedSim(phi=phi)
    known = method.refreshed(torch.eye(2, dtype=torch.float64), {"head.weight": heads}, [0, 1])
    own, other = method.mixing_weights({"phi": known}, [0])[0].tolist()
    return other, 100 * other / (own + other)


def worth(members: torch.Tensor) -> torch.Tensor:
    values = {"": 0, "A": 40, "B": 50, "C": 10, "AB": 80, "AC": 40, "BC": 50, "ABC": 70}
    names = ["".join(name for name, there in zip("ABC", row) if there) for row in members.tolist()]
    return torch.tensor([values[name] for name in names], dtype=torch.float64)


def released(gradient, sigma: float) -> torch.Tensor:
    """A vector after it was clipped to 1, with noise."""
    upload, zero = ({"w": torch.tensor(value)[None]} for value in (gradient, np.zeros_like(gradient)))
    own = release(Mechanism("client", sigma, 1.0), 0, 1, [0], upload, zero, zero)[1]
    return own["w"][0]


def idle_client(rounds: int) -> tuple[list[float], float, list[float], float]:
    """Cosines with the participants, alpha, shares, and what is left of the own model."""
    counts, took_part = torch.tensor([[3, 4], [4, 3], [0, 7]]), [1, 2]
    method = FedSimSup()
    server = {"sizes": counts.sum(1).double(), "similarity": torch.from_numpy(label_cosine(counts))}
    shares, alpha = method.mixing_weights(server, torch.tensor([0]), torch.tensor(took_part))
    dye = {"w": torch.eye(3, dtype=torch.float64)}  # how much of whose model is in whose
    server |= {"personal": dye}
    for _ in range(rounds):
        server = method.server_update(server, took_part, tree.rows(dye, torch.tensor(took_part)), None)
    left = float(server["personal"]["w"][0, 0])
    return server["similarity"][0, 1:].tolist(), float(alpha), shares[0].tolist(), left


def final() -> dict[str, str]:
    vectors = [torch.tensor(v, dtype=torch.float64)[None] for v in ([[3, 4], [1, 0]], [[4, 3], [0, 1]])]
    cosines = class_cosines(*vectors).flatten().tolist()
    (weight, share), (weight_3, share_3) = of_pfedsim("reference"), of_pfedsim("eq3")
    clipped = sum(released(np.array(gradient), 0.0) for gradient in ([3.0, 4.0], [0.3, 0.4]))
    noise = released(np.zeros(200_000), 4.0).std() / 2
    alike, alpha, shares, left = idle_client(3)
    with_, without = np.array([71, 78, 65, 72, 81]), np.array([70, 74, 64, 71, 78])
    runs = [("with", s, v) for s, v in enumerate(with_)] + [("without", s, v) for s, v in enumerate(without)]
    means = draws(pd.DataFrame(runs, columns=["arm", "seed", "accuracy"]), "accuracy", ["arm"])
    found = Interval.of(means["with"] - means["without"])
    status = decided({"": means["with"] - means["without"]}, "").status
    return {
        "2a": numbers(*(round(c, 6) for c in cosines)),
        "2b": numbers(1 - np.exp(-weight), digits=2),
        "2c": numbers(weight, digits=3),
        "2d": numbers(share, digits=1),
        "2e": f"{weight_3:.3f}, {share_3:.1f}",
        "3a": numbers(*(round(float(v), 6) for v in shapley.exact(worth, 3))),
        "4a": numbers(*(round(float(v), 6) for v in clipped)),
        "4b": numbers(noise, digits=1),
        "4c": numbers(epsilon(4.0, 1.0, 1, 1e-5, "classic"), digits=2),
        "4d": numbers(epsilon(4.0, 1.0, 8, 1e-5, "classic"), digits=2),
        "5a": numbers(*(round(c, 6) for c in alike)),
        "5b": numbers(alpha),
        "5c": numbers(*shares, digits=3),
        "5d": numbers(left),
        "6a": numbers(found.value, (with_ - without).std(ddof=1), digits=2),
        "6b": numbers(found.low, found.high, digits=1),
        "6c": "for the claim" if status == "reproduced" else status,
        "6d": numbers(100 * (1 - 0.95**10), digits=0),
    }


@pytest.mark.parametrize("name, points", NAMES.items())
def test_points_add_up_and_each_question_has_its_answer(name, points):
    text, questions = (EXAMS / f"{name}.md").read_text("utf-8"), asked(EXAMS / f"{name}.md")
    answers = asked(EXAMS / "marking" / f"{name}.md")
    assert {key: worth for key, (worth, _) in questions.items()} == {key: worth for key, (worth, _) in answers.items()}
    assert f"{points} minutes, {points} points" in text and sum(worth for worth, _ in questions.values()) == points
    for part, whole in PART.findall(text):
        assert sum(worth for key, (worth, _) in questions.items() if key[0] == part) == int(whole)


@pytest.mark.parametrize("name", NAMES)
def test_an_exam_gives_the_numbers_that_its_answers_are_computed_from(name):
    text = (EXAMS / f"{name}.md").read_text("utf-8")
    assert not [given for given in GIVEN[name] if given not in text], "the exam says something else: change both"


@pytest.mark.parametrize("name, computed", [("midterm", midterm), ("final", final)])
def test_answers_that_are_numbers_are_what_fedlib_computes(name, computed):
    answers = asked(EXAMS / "marking" / f"{name}.md")
    bold = {key: found[1] for key, (_, text) in answers.items() if (found := re.match(r"\*\*(.+?)\*\*", text))}
    assert bold == computed()


def test_the_own_weight_in_the_exam_is_pfedsims():
    own = PFedSim().mixing_weights({"phi": torch.eye(2, dtype=torch.float64)}, [0])[0, 0]
    assert f"own weight is {float(own):.2f}" in (EXAMS / "final.md").read_text("utf-8")
    assert f"{log(1e5):.3f}" in (EXAMS / "final.md").read_text("utf-8")


@pytest.mark.parametrize("folder", ["lessons", "labs", "solutions", "guides"])
def test_students_are_not_led_to_the_exams(folder):
    """A release holds labs and the notebooks that they link to."""
    pages = sorted((CHECKOUT / "notebooks" / folder).glob("*.ipynb"))
    assert pages and not [path.name for path in pages if re.search(r"exams/|marking", path.read_text("utf-8"))]
