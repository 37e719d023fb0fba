"""Figure 4: a run of pFedSim walked through round by round, on live objects."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch

from fedlib import figures
from fedlib.base import draws, tree
from fedlib.engine.setup import first_state, set_up
from fedlib.engine.simulate import watched_round
from fedlib.experiments.items import Claim, Item, Verdict, verdict
from fedlib.experiments.pfedsim.task import SETTINGS, run_spec
from fedlib.spec import RunSpec

PAPER = {"num_clients": 100, "join_ratio": 0.1, "rounds": 200}  # whose pairs meet how often needs no training
RHO, ALPHA = 0.5, 0.1


def walk(spec: RunSpec) -> tuple[pd.DataFrame, dict[int, np.ndarray]]:
    """One row a round, and the similarity matrix [N, N] after every round of the second phase, by round.

    | column | |
    |---|---|
    | phase | generalisation (FedAvg) or personalisation |
    | down, up | numbers sent to and by a participant |
    | pairs | share of the pairs of clients whose similarity is known after the round |
    | others | share of the other clients in the participants' extractors, by the weights of Eq. 4; 0 in the first phase |
    | mixture_error | largest difference between a received extractor and Eq. 4 done by hand; 0 in the first phase |
    | heads_changed | classifiers on the server that differ from before the round |
    """
    run = set_up(spec)
    state, rows, phis = first_state(run), [], {}
    for t in range(1, spec.rounds + 1):
        server, method, floats = state.server, run.acting(state), dict(state.floats)
        first_phase = state.warming_up
        seen = watched_round(run, state, t)
        sent = [(state.floats[way] - floats[way]) // len(seen.ids) for way in ("down", "up")]
        row = {
            "round": t,
            "phase": "generalisation" if first_phase else "personalisation",
            "down": sent[0],
            "up": sent[1],
        }
        row |= {"pairs": 0.0, "others": 0.0, "mixture_error": 0.0, "heads_changed": len(server.get("phi", ()))}
        if not first_phase:
            weights = method.mixing_weights(server, seen.ids)
            weights = weights / weights.sum(1, keepdim=True)
            phis[t] = state.server["phi"].numpy()
            row["pairs"] = known_pairs(phis[t])
            row["others"] = 1 - float(weights[range(len(seen.ids)), seen.ids].mean())
            row["mixture_error"] = mixture_error(server["models"], weights, seen.messages, run.work.model)
            row["heads_changed"] = heads_changed(server["models"], state.server["models"])
        rows.append(row)
    return pd.DataFrame(rows), phis


def known_pairs(phi: np.ndarray) -> float:
    """Share of the pairs above the diagonal whose similarity is above 0."""
    upper = phi[np.triu_indices(len(phi), 1)]
    return float((upper > 0).mean())


def mixture_error(models: dict, weights: torch.Tensor, messages: dict, model) -> float:
    """|received extractor - sum over j of a_ij ω_j|, the largest over participants and parameters; computed with einsum in float64."""
    names = [name for name in model.trainable if name.startswith("extractor.")]
    return max(
        float((torch.einsum("kn,n...->k...", weights, models[name].double()) - messages[name].double()).abs().max())
        for name in names
    )


def heads_changed(before: dict, after: dict) -> int:
    """Clients whose classifier on the server is another one than before."""
    old, new = tree.select(before, "head."), tree.select(after, "head.")
    return int(torch.stack([(old[n] != new[n]).flatten(1).any(1) for n in old]).any(0).sum())


def meetings(num_clients: int, join_ratio: float, rounds: int, seed: int = 0) -> pd.DataFrame:
    """After every round: the share of pairs of clients that have taken part together at least once, drawn and expected.

    With m of n clients in a round a pair meets with probability m(m-1)/(n(n-1)).
    """
    met = np.zeros((num_clients, num_clients), dtype=bool)
    upper = np.triu_indices(num_clients, 1)
    rows = []
    for t in range(1, rounds + 1):
        ids = draws.participants(seed, t, num_clients, join_ratio)
        met[np.ix_(ids, ids)] = True
        m, n = len(ids), num_clients
        rows.append((t, met[upper].mean(), 1 - (1 - m * (m - 1) / (n * (n - 1))) ** t))
    return pd.DataFrame(rows, columns=["rounds", "drawn", "expected"])


def analyse_workflow(s: dict, results: list) -> dict[str, pd.DataFrame]:
    tidy, phis = walk(run_spec(s, "pfedsim", ALPHA, seed=0, rho=RHO))
    shown = [min(phis), (min(phis) + max(phis)) // 2, max(phis)]
    matrices = [(t, i, j, value) for t in dict.fromkeys(shown) for (i, j), value in np.ndenumerate(phis[t])]
    personalised = int((1 - RHO) * PAPER["rounds"])
    met = meetings(PAPER["num_clients"], PAPER["join_ratio"], personalised)
    size = set_up(run_spec(s, "pfedsim", ALPHA, seed=0, rho=RHO)).work.model.num_parameters["model"]
    last = tidy[tidy["phase"] == "personalisation"].iloc[-1]
    step = "{:,} numbers = {:g} model"
    compare = [
        ("1 distribute", "one model to each participant", step.format(last["down"], last["down"] / size)),
        (
            "2 train",
            "extractor and classifier jointly",
            f"{last['heads_changed']} classifiers changed in the last round",
        ),
        ("3 upload", "one model from each participant", step.format(last["up"], last["up"] / size)),
        ("4 aggregate", "extractors mixed by similarity, Eq. 4", f"as by hand, to {tidy['mixture_error'].max():.0e}"),
    ]
    return {
        "tidy": tidy,
        "compare": pd.DataFrame(compare, columns=["step of Figure 4", "paper", "ours"]),
        "phi": pd.DataFrame(matrices, columns=["round", "client", "other", "phi"]),
        "meetings": met,
        "task": pd.DataFrame([{"model": size, "participants": max(1, int(s["join_ratio"] * s["num_clients"] + 1e-9))}]),
    }


def _phase(tables, name: str) -> pd.DataFrame:
    return tables["tidy"][tables["tidy"]["phase"] == name]


def check_one_model(tables) -> Verdict:
    size, sent = tables["task"]["model"].iloc[0], tables["tidy"][["down", "up"]]
    return verdict(
        bool((sent == size).all(axis=None)),
        f"down and up: {', '.join(map(str, np.unique(sent)))} numbers; the model has {size}",
    )


def check_heads_stay(tables) -> Verdict:
    changed, most = _phase(tables, "personalisation")["heads_changed"], tables["task"]["participants"].iloc[0]
    return verdict(
        bool((changed == most).all()),
        f"{changed.min()} to {changed.max()} classifiers changed a round, {most} clients took part",
    )


def check_mixture(tables) -> Verdict:
    worst = tables["tidy"]["mixture_error"].max()
    return verdict(worst < 1e-5, f"largest difference of any parameter in any round: {worst:.1e}")


def check_fills_up(tables) -> Verdict:
    pairs = _phase(tables, "personalisation")["pairs"]
    return verdict(
        bool((pairs.diff().dropna() > -0.02).all() and pairs.iloc[-1] > pairs.iloc[0]),
        f"known pairs: {pairs.iloc[0]:.0%} after the first round of the phase, {pairs.iloc[-1]:.0%} at its end",
    )


def check_never_met(tables) -> Verdict:
    last = tables["meetings"].iloc[-1]
    evidence = f"after {last['rounds']:.0f} rounds of 10 of 100 clients {1 - last['drawn']:.0%} of the pairs have never met (expected {1 - last['expected']:.0%})"
    return verdict(bool(1 - last["drawn"] > 0.25), evidence)


FIG4 = Item(
    name="pfedsim/fig4_workflow",
    title="pFedSim Figure 4: the workflow, round by round",
    claim="Averaging first, then extractors mixed by the similarity of classifiers, for the traffic of FedAvg.",
    smaller="digits (16x16) instead of CIFAR-10, 20 clients of which 10 take part instead of 100 and 10; how often pairs meet is drawn with the paper's numbers",
    settings={
        "smoke": {**SETTINGS["smoke"], "rounds": 4},
        "quick": SETTINGS["quick"],
        "paper": {**SETTINGS["paper"], "rounds": 20},
    },
    minutes={"smoke": 0.1, "quick": 0.2, "paper": 2},
    specs=lambda s: [],
    analyse=analyse_workflow,
    figure=lambda tables: figures.workflow(tables["phi"], tables["tidy"], tables["meetings"]),
    claims=(
        Claim("In both phases a participant receives one model and sends one model, as in FedAvg.", check_one_model),
        Claim(
            "In the second phase a classifier changes only on a client that takes part; nothing averages it.",
            check_heads_stay,
        ),
        Claim("The extractors that are sent are the similarity-weighted means of Eq. 4.", check_mixture),
        Claim("The similarity matrix starts as the identity and fills up as clients meet.", check_fills_up),
        Claim(
            "(Ours) At the paper's settings more than a quarter of the pairs never meet, so that their weight stays 0.",
            check_never_met,
        ),
    ),
)

ITEMS = (FIG4,)
