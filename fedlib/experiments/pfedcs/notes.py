"""Replication notes: what each open choice does to PFedCS, what its gain over FedPer consists of, and what the server
sees of the clients' classes."""

from dataclasses import replace
from functools import partial

import pandas as pd

from fedlib import figures
from fedlib.analysis.groups import seen_by_round
from fedlib.analysis.sensitivity import BASE, CHANCE, Arms, Choice, Sensitivity, hyper
from fedlib.analysis.tables import described, mean_stds, only, rows_of
from fedlib.claims import Verdict, ahead, apart, beyond, both, less_accurate, matter, not_tested, ours, over_seeds
from fedlib.experiments.item import Found, Item, Runs, Tables, joined, leaving_out, part, per_profile, runs_of
from fedlib.experiments.pfedcs import task
from fedlib.experiments.pfedcs.fig1_distances import KEPT
from fedlib.experiments.pfedcs.table1_pathological import TABLE
from fedlib.spec import RunSpec

SELF, RANDOM = "own classifier as teacher", "three random clients"
TWIN, ORACLE = "one random client with the same classes", "all clients with the same classes"
UNUSED, NEAREST, START = "uniform weights", "the nearest one only", "the aggregate replaces the client's own classifier"
UNTUNED = "rho = 0"
CHOICES = (
    Choice("weights", UNUSED, "weights of Eq. 7", hyper(weights="uniform"), left_open=False),
    Choice("lambda", "lambda = 0: by samples", "0.5", hyper(lam=0.0)),
    Choice("lambda", "lambda = 1: by similarity", "0.5", hyper(lam=1.0)),
    Choice("weights", "Eqs. 7, 8 over collaborators only", "over them and the client", hyper(weights="literal_renorm")),
    Choice("weights", "the client itself left out", "part of the aggregate", hyper(weights="no_self")),
    Choice("candidates", "only the mixture's cluster", "and all clients as close as these", hyper(closure=False)),
    Choice("distance", "distances not squared", "squared", hyper(dist_power=1)),
    Choice("beta", "stage 1: a quarter of the rounds", "half", hyper(beta=0.25)),
    Choice("beta", "stage 1: all rounds", "half", hyper(beta=1.0)),
    Choice("selection", NEAREST, "all within the threshold", hyper(most=1), left_open=False),
    Choice("selection", SELF, "an aggregate", hyper(select="self"), left_open=False),
    Choice("selection", RANDOM, "the nearest ones", hyper(select="random"), left_open=False),
    Choice("selection", TWIN, "the nearest ones", hyper(select="twin"), left_open=False),
    Choice("selection", ORACLE, "the nearest ones", hyper(select="oracle"), left_open=False),
    Choice("role", START, "it is the teacher", hyper(role="start")),
    Choice("teacher", "teacher on the old extractor", "on the current one", hyper(teacher_feat="received")),
    Choice("teacher", "gradient through the teacher", "none", hyper(detach=False)),
    Choice("distillation", "temperature 4", "1", hyper(temperature=4.0)),
    Choice("distillation", "half the weight on the teacher", "1", hyper(kd_weight=0.5)),
    Choice("rho", UNTUNED, "1", hyper(E_ft=0), left_open=False),
    Choice("rho", "rho = 5", "1", hyper(E_ft=5), left_open=False),
    Choice("extractor", "extractors averaged uniformly", "by samples", hyper(extractor_weights="uniform")),
    Choice(CHANCE, "another seed, same partition", "seeds from 0 on",
           task=lambda s, r: {"seed": r.seed + task.trials(s)}),
)  # fmt: skip
SENSITIVITY = Sensitivity(
    "pfedcs", CHOICES, ("fedper",), lambda spec: f"{spec.partition['classes_per_client']} classes", "client_mean"
)  # fmt: skip
PER = {"method": "fedper", "eval_points": ("recv", "post", "ft(1)"), "ft_part": "head"}
CONTROLS = {"plain": PER, "tuned": {**PER, "head_epochs": 1}}  # FedPer; with heads tuned before they are trained
WATCHED = {"method": "pfedcs", "beta": 1.0, "rounds": 10, "measures": KEPT}  # by a curious server
SERVER_SEEDS = 3  # at least: these runs are short
LEAKS = {
    "auc": "clients with the same classes by distance, AUC",
    "rand": "adjusted Rand index of the inferred groups",
    "class_auc": "classes by rows of the classifier, AUC",
    "sets": "share of clients whose classes are all inferred",
}

WHOLE, POST = "PFedCS", "PFedCS after local training"
ARMS = Arms(
    {
        "FedPer": ("plain", "recv"),
        "FedPer, head fine-tuned before training": ("tuned", "recv"),
        "FedPer, head fine-tuned at test time": ("plain", "ft(1)"),
        "FedPer, head fine-tuned before training and at test time": ("tuned", "ft(1)"),
        "PFedCS, own classifier as teacher": (SELF, "recv"),
        "PFedCS, three random clients as teacher": (RANDOM, "recv"),
        "PFedCS, one random client with the same classes as teacher": (TWIN, "recv"),
        WHOLE: (BASE, "recv"),
        "FedPer after local training": ("plain", "post"),
        "FedPer after local training, head fine-tuned before training": ("tuned", "post"),
        POST: (BASE, "post"),
    },
    whole=WHOLE, at={"post": POST},
)  # fmt: skip


def bases(s: dict) -> list[RunSpec]:
    """PFedCS and FedPer as in Table 1, in one of its columns."""
    rows = TABLE.rows({**s, "methods": ("fedper", "pfedcs")})
    return [TABLE.run(TABLE.task(s, s["column"]), rows, row, seed) for seed in range(task.trials(s)) for row in rows]


def runs(s: dict) -> Runs:
    own = task.of_column(s, task.PATHOLOGICAL[s["column"]])
    watched = {"watched": {**WATCHED, "rounds": min(10, s["rounds"])}}
    return joined({
        "choice": SENSITIVITY.runs(s, bases(s)),
        "control": runs_of(own, CONTROLS, task.trials(s)),
        "server": runs_of(own, watched, max(task.trials(s), SERVER_SEEDS)),
    })  # fmt: skip


def analyse(s: dict, found: Found) -> Tables:
    """Besides the effects: parts, FedPer's variants and PFedCS's at both points; leak, what the server sees."""
    choices, watched = part(found, "choice"), part(found, "server")
    effects = SENSITIVITY.effects(choices)
    paper = only(TABLE.printed({**s, "methods": task.METHODS}), row="pfedcs", column=s["column"])["value"].tolist()
    printed = dict.fromkeys(effects["tidy"]["task"], paper[0]) if paper else {}
    own = {(name, seed): r for (name, _, method, seed), r in choices.items() if method == "pfedcs"}
    leak = rows_of({key[1:]: r for key, r in watched.items()}, ("seed",), seen_by_round)
    ends = leak[leak["round"].isin([1, 2, leak["round"].max()])] if len(leak) else pd.DataFrame(columns=["round"])
    return {
        **effects,
        "compare": SENSITIVITY.compared(effects, s.get("dataset") or s["column"].split(",")[0], printed),
        **ARMS.tables(own | part(found, "control")),
        "leak": leak,
        "server": described(ends, "round", **mean_stds(LEAKS)),
    }


worse = partial(less_accurate, "pfedcs")


def known(value: str, line: float, text: str):
    """A claim of what the server knows in the last round that it was watched."""

    def check(tables) -> Verdict:
        leak = tables["leak"]
        if leak["seed"].nunique() < SERVER_SEEDS:
            return not_tested(f"needs {SERVER_SEEDS} runs that are watched")
        last = leak[leak["round"] == leak["round"].max()].assign(what=LEAKS[value])
        v = over_seeds("last", value, "what", beyond(LEAKS[value], line, form=".2f"))({"last": last})
        evidence = f"{v.evidence}, over {last['seed'].nunique()} seeds"
        return replace(v, evidence=evidence, margins={})  # of runs of its own

    return ours(text, check)


def answer(tables) -> str:
    """What PFedCS's gain over FedPer consists of, from the numbers."""
    m = tables["_parts"]
    if any(arm not in m for arm in ARMS.of):
        return SENSITIVITY.in_words(tables)

    def over(other: str, arm: str = WHOLE) -> str:
        return apart(m[arm] - m[other])

    return (
        f"PFedCS is {over('FedPer')} points above FedPer before local training, and "
        f"{over('FedPer after local training', POST)} where both are evaluated after local training. Its lead "
        f"over FedPer whose heads are fine-tuned for one epoch before training is "
        f"{over('FedPer, head fine-tuned before training')}, and over FedPer whose heads are fine-tuned at test time "
        f"{over('FedPer, head fine-tuned at test time')}. PFedCS minus the same with another teacher, in points: own "
        f"classifier only {over('PFedCS, own classifier as teacher')}, three random clients "
        f"{over('PFedCS, three random clients as teacher')}, one random client with the same classes "
        f"{over('PFedCS, one random client with the same classes as teacher')}. {SENSITIVITY.in_words(tables)}"
    )


ITEM = Item(
    title="PFedCS: replication notes",
    claim="Ablation: what explains PFedCS's gain over FedPer, how unspecified implementation choices change it, and "
          "what the server learns.",
    smaller=f"{task.SMALLER}, three for what the server infers",
    settings=per_profile(
        leaving_out(task.SETTINGS, "reduced"), methods=("fedper", "pfedcs"),
        column=["cifar10, 4 classes", "cifar10, 4 classes", "cifar100, 20 classes"],
    ),
    minutes={"smoke": 0.5, "quick": 0.7, "paper": 33_000},
    runs=runs,
    analyse=analyse,
    partial=True,
    figure=lambda tables: figures.choices_by_task(tables["effects"], "pfedcs"),
    answer=answer,
    shown={
        "parts": "Ablation of PFedCS's lead over FedPer",
        "server": "Information that an honest-but-curious server infers from the classifiers, means over seeds (std)",
    },
    claims=(
        ours("An aggregate of similar clients' classifiers teaches better than the client's own classifier.",
             worse(SELF)),
        ours("Similar clients teach better than random ones.", worse(RANDOM)),
        ours("Several collaborators teach better than only the nearest one.", worse(NEAREST)),
        ours("Eq. 7's weights help: uniform weights are worse.", worse(UNUSED)),
        ours("Fine-tuning the teacher helps.", worse(UNTUNED)),
        ours("A teacher is better than starting from the aggregate, which the paper calls naive.", worse(START)),
        ours("PFedCS also outperforms FedPer with heads fine-tuned before training, at both evaluation points.",
             both(ahead(WHOLE, "FedPer, head fine-tuned before training"),
                  ahead(POST, "FedPer after local training, head fine-tuned before training"))),
        ours("PFedCS outperforms FedPer whose heads are fine-tuned for one epoch at test time.",
             ahead(WHOLE, "FedPer, head fine-tuned at test time")),
        known("rand", 0.9, "An honest-but-curious server infers which clients have the same classes (adjusted Rand "
                           "index above 0.9)."),
        known("sets", 0.9, "The server infers the classes of more than nine of ten clients exactly."),
        matter(SENSITIVITY, "PFedCS"),
    ),
)  # fmt: skip
