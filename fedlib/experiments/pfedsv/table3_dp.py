"""Table 3: what noise on a client's training costs."""

from dataclasses import replace

import numpy as np
import pandas as pd

from fedlib.analysis.accuracies import in_common, means
from fedlib.analysis.names import proper
from fedlib.analysis.points import changes
from fedlib.analysis.tables import listed, only
from fedlib.claims import Claim, Verdict, apart, below, decided, implementation, not_tested, ours, verdict
from fedlib.experiments.item import Found, Tables, per_profile
from fedlib.experiments.pfedsv import task
from fedlib.experiments.pfedsv.accounting import DELTA, NOISE, in_words, of_budgets, record_noise, spent
from fedlib.experiments.pfedsv.task import OWN, SCALES

BASELINES = ("local", "fedavg", "fedfomo", "fedamp")
RECORD, CLIENT, UNCLIPPED = NOISY = ("pfedsv_dp", "pfedsv_dp, client", "pfedsv_dp, unclipped")
POST = {"point": "post", **OWN}


def rows(s: dict) -> dict[str, dict]:
    """The paper's baselines and pFedSV, and pFedSV with three kinds of noise."""
    noise = {
        RECORD: record_noise(s, s["sigma"]),
        CLIENT: {"privacy": "client", "noise_sigma": s["sigma"], "noise_clip": s["client_clip"]},
        UNCLIPPED: {"privacy": "unclipped_relative", "noise_sigma": s["sigma"]},
    }
    plain = {method: task.plain(method) for method in (*BASELINES, "pfedsv")}
    return plain | {name: {"method": "pfedsv", **fields} for name, fields in noise.items()}


TABLE = replace(task.table("3", "dirichlet", rows), also={})


def analyse(s: dict, found: Found) -> Tables:
    """Besides the table's: budgets, see `accounting.spent`, which the comparison shows too."""
    tables, budgets = TABLE.analyse(s, found), spent(found, DELTA)
    compare = tables["compare"]
    for column in SCALES:
        compare[f"{column}: ε"] = [in_words(budgets, row=row, column=column) for row in compare["method"]]
    return {**tables, "budgets": budgets}


def only_clipping_guarantees(found: pd.Series) -> Verdict:
    own = found[list(NOISY)]
    return verdict(np.isfinite(own).tolist() == [True, True, False], f"largest ε of a client: {listed(own)}")


def released_is_useless(tables) -> Verdict:
    shared = in_common(tables, (CLIENT, "pfedsv"))
    mixed, sent, margins, texts, lacks = means(shared, **OWN), means(shared, **POST), {}, [], []
    for scale in SCALES:
        if any((scale, row) not in found for row in (CLIENT, "pfedsv") for found in (mixed, sent)):
            lacks.append(f"{scale} clients: missing runs with or without client-level DP")
            continue
        own, out, free = mixed[scale][CLIENT], sent[scale][CLIENT], mixed[scale]["pfedsv"]
        beyond = changes(
            {"tidy": only(shared["tidy"], column=scale, row=CLIENT, **OWN)}, "point", "agg", "post", share=0.6
        )
        margins |= {f"{scale}: released": -beyond[scale, CLIENT], f"{scale}: own": 10 - (free - own)}
        found = f"released models {out[0]:.1f}, personalised models {own[0]:.1f}, without noise {free[0]:.1f}"
        texts.append(f"{scale} clients: {found}")
    lines = "thresholds set by us: released models below 0.6 of the personalised ones, which lose less than 10"
    evidence = f"{'; '.join(texts + lacks)} ({lines})"
    return not_tested(evidence, decided(margins, evidence)) if lacks else decided(margins, evidence)


def answer(tables) -> str:
    """What noise costs and guarantees, in sentences from the numbers."""
    own, parts = means(tables, **OWN), []
    for scale in (scale for scale in SCALES if scale in own and "pfedsv" in own[scale]):
        costs = []
        for row in (row for row in NOISY if row in own[scale]):
            m = means(in_common(tables, ("pfedsv", row)), **OWN)[scale]
            where, budget = proper(row).partition(", ")[2], in_words(tables["budgets"], row=row, column=scale)
            costs.append(f"{apart(m['pfedsv'] - m[row]).removeprefix('+')} ({where}, ε: {budget})")
        parts.append(
            f"with {scale} clients pFedSV has {own[scale]['pfedsv'].iloc[0]:.1f} % and loses {', '.join(costs)}"
        )
    return f"Points of accuracy lost to noise with σ = 1, by where it is added: {'; '.join(parts)}." if parts else ""


ITEM = TABLE.item(
    title="pFedSV Table 3: accuracy with differential privacy",
    claim="With noise multiplier σ = 1 pFedSV loses a few points and stays ahead of the baselines without noise.",
    smaller=task.SMALLER,
    smaller_reduced=f"{task.LESS}; three seeds, FedAMP: one (paper: five); CIFAR-10 only",
    settings=per_profile(task.SETTINGS, **NOISE),
    minutes={"smoke": 0.3, "quick": 1, "reduced": 150, "paper": 900},
    analyse=analyse,
    answer=answer,
    claims=(
        Claim("Noise with σ = 1 reduces accuracy by at most 5 points, with 10 and with 100 clients.",
              below(["pfedsv"], [RECORD], by=-5, **OWN)),
        Claim("pFedSV with noise still outperforms local-only training, FedAvg, FedFomo and FedAMP without noise.",
              below(BASELINES, [RECORD], **OWN)),
        implementation("σ = 1 gives a finite ε only where norms are bounded by clipping.",
                       of_budgets(NOISY, only_clipping_guarantees)),
        ours("Client-level DP makes the released models useless, and hardly reduces accuracy: clients fall back "
             "on their own models, which have no noise.", released_is_useless),
    ),
)  # fmt: skip
