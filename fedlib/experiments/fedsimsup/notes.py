"""Replication notes: what the parts of FedSimSup and open choices do, and what its gain over FedRep consists of."""

from dataclasses import replace
from functools import partial

import pandas as pd

from fedlib import figures
from fedlib.analysis.groups import label_secrets
from fedlib.analysis.sensitivity import BASE, CHANCE, Arms, Choice, Sensitivity, ends_of_training, hyper, stability
from fedlib.analysis.tables import only, rows_of
from fedlib.claims import Claim, ahead, apart, less_accurate, matter, ours
from fedlib.experiments.fedsimsup import task
from fedlib.experiments.fedsimsup.table1_dirichlet import TABLE
from fedlib.experiments.item import Found, Item, Runs, Tables, joined, leaving_out, part, per_profile
from fedlib.spec import RunSpec

WIDER = 141  # hidden units with which LeNet-5 has as many parameters as LeNet-5 (120) and its supervisor together
ALONE = {"supervisors": "supervisor_none", "tau_s": 0, "tau_theta": 5}
NO_SUPERVISOR, AS_LARGE = "no supervisor, five epochs on the model", "no supervisor, one model as large as both"
ENSEMBLE = "two networks trained separately"
KEPT, UNIFORM = "non-participating clients keep their models", "uniform weights for non-participating clients"
PARTS = (
    Choice("supervisor", NO_SUPERVISOR, "2 epochs on the supervisor, 3 on the model", hyper(**ALONE), left_open=False),
    Choice("supervisor", AS_LARGE, "two (CIFAR-10: 52,202 and 8,679 parameters)", hyper(**ALONE), left_open=False,
           task=lambda s, r: {"model_options": {**r.model_options, "hidden": WIDER}}),
    Choice("supervisor", ENSEMBLE, "the sum of their logits is trained", hyper(learn="alone"), left_open=False),
    Choice("aggregation", KEPT, "they aggregate by label cosines", hyper(similarity="none"), left_open=False),
    Choice("aggregation", UNIFORM, "by label cosines", hyper(similarity="uniform"), left_open=False),
)  # fmt: skip
CHOICES = (
    *PARTS[:3],
    Choice("supervisor", "five epochs on each", "2 and 3", hyper(tau_s=5, tau_theta=5), left_open=False),
    *PARTS[3:],
    Choice("fallback", "no similar client: uniform weights", "its own model is kept", hyper(zero_sim="uniform")),
    Choice("scale of weights", "1 - alpha times the largest similarity", "1 - alpha", hyper(scale_by_sim=True)),
    Choice("for whom", "an aggregate for participants, too", "for others only (Eq. 7)", hyper(participants_mix=True)),
    Choice("initial supervisors", "all supervisors start from the same weights",
                 "each starts from its own random weights", hyper(shared_sup_init=True)),
    Choice("order", "the model learns first", "the supervisor (Alg. 1)", hyper(order="model"), left_open=False),
    Choice("combination", "mean of probabilities", "sum of logits", hyper(combine="prob")),
    Choice("size", "supervisor: a small CNN", "a LeNet-5 of 1/6", hyper(supervisors="supervisor_cnn")),
    Choice("size", "supervisor as large as the model", "a sixth", hyper(supervisors="lenet5")),
    Choice(CHANCE, "another seed, same partition", "seeds from 0 on", task=lambda s, r: {"seed": r.seed + s["seeds"]}),
)  # fmt: skip
SENSITIVITY = Sensitivity(
    "fedsimsup", CHOICES, ("fedrep",), lambda spec: f"Dir({spec.partition['alpha']:g})", "client_mean"
)
TAKEN_OUT = replace(SENSITIVITY, choices=PARTS)  # at further alphas

# Per-FedAvg (in the paper near chance on CIFAR-100) and FedProto, with other rates and tests than it states
PER = task.preset("perfedavg")
LOW = {
    "perfedavg": PER,
    "perfedavg, outer learning rate 0.01": PER | {"beta": 0.01},
    "perfedavg, outer learning rate 0.001": PER | {"beta": 0.001},
    "perfedavg, inner learning rate 0.01": PER | {"alpha": 0.01},
    "perfedavg, both learning rates 0.01": PER | {"alpha": 0.01, "beta": 0.01},
    "perfedavg, first order": PER | {"variant": "FO"},
    "fedproto": {"method": "fedproto"},
    "fedproto, evaluated with classifier heads": {"method": "fedproto", "predict_by": "head"},
    "local": {"method": "local"},
}
COLUMN = "cifar10, Dir({:g}), 100"


def of_rates(s: dict) -> tuple[str, ...]:
    """Columns of Table 1 in which other rates are tried: that of the notes, and those of CIFAR-100."""
    return COLUMN.format(s["alpha"]), *(f"cifar100, Dir({alpha:g}), 100" for alpha in s["hundred_classes"])


def with_rates(s: dict, column: str) -> dict:
    """What the runs of such a column have in common; those of CIFAR-100 are on its images."""
    return TABLE.task(s | {"dataset": "cifar100"} if column.startswith("cifar100") else s, column)


RATES = replace(TABLE, rows=lambda s: LOW, seeds=lambda s, row, column: 1, columns=of_rates, task=with_rates)


# Does training at the printed rate go well? Methods of Table 1 (at the paper's settings FedPer too), many clients,
# both alphas
STABLE_METHODS = ("local", "fedavg", "fedrep", "fedsimsup")
STABLE = replace(
    TABLE,
    rows=lambda s: {method: task.preset(method) for method in s["stable"]},
    seeds=lambda s, row, column: s["seeds"],
    columns=lambda s: tuple(COLUMN.format(alpha) for alpha in (0.1, 0.5)),
)
RATE = 0.1  # as printed


# what the lead over FedRep consists of
WHOLE, WHOLE_POST = "FedSimSup before local training", "FedSimSup after local training"
ARMS = Arms(
    {
        "FedRep before local training": ((BASE, "fedrep"), "recv"),
        "FedRep after local training": ((BASE, "fedrep"), "post"),
        "FedRep, as many parameters as both networks": ((AS_LARGE, "fedrep"), "recv"),
        "FedRep after local training, as many parameters": ((AS_LARGE, "fedrep"), "post"),
        WHOLE: ((BASE, "fedsimsup"), "agg"),
        WHOLE_POST: ((BASE, "fedsimsup"), "post"),
        "FedSimSup without aggregation": ((KEPT, "fedsimsup"), "agg"),
        "FedSimSup, uniform weights": ((UNIFORM, "fedsimsup"), "agg"),
        "FedSimSup, two networks trained separately": ((ENSEMBLE, "fedsimsup"), "agg"),
        "FedSimSup without supervisor": ((NO_SUPERVISOR, "fedsimsup"), "agg"),
        "FedSimSup without supervisor, as many parameters": ((AS_LARGE, "fedsimsup"), "agg"),
    },
    whole=WHOLE, at={"post": WHOLE_POST},
)  # fmt: skip


def bases(s: dict, alpha: float) -> list[RunSpec]:
    """FedSimSup and FedRep as in Table 1, with many clients."""
    rows, own = TABLE.rows({**s, "methods": ("fedrep", "fedsimsup")}), TABLE.task(s, COLUMN.format(alpha))
    return [TABLE.run(own, rows, row, seed) for seed in range(s["seeds"]) for row in rows]


def tried(s: dict) -> dict[str, dict]:
    """With which rates and inputs it is asked whether training goes well: by name, what changes."""
    rates = {f"{rate:g}": {"lr": rate} for rate in (RATE, s["lr"], *s["lower"])}
    return rates | {f"{lr:g}, pixels scaled to [-1, 1]": dict(lr=lr, pixels="symmetric") for lr in s["smaller_inputs"]}


def runs(s: dict) -> Runs:
    stable = {name: STABLE.runs({**s, **change}) for name, change in tried(s).items()}
    further = [base for alpha in s["further"] for base in bases(s, alpha)]
    return joined({"choice": SENSITIVITY.runs(s, bases(s, s["alpha"])), "part": TAKEN_OUT.runs(s, further),
                   "rate": RATES.runs(s), **stable})  # fmt: skip


def analyse(s: dict, found: Found) -> Tables:
    """Besides the effects: parts, what the lead over FedRep consists of; rates, of the baselines that nearly fail;
    secrets, what label counts tell."""
    finished = {key: r for key, r in found.items() if r.status == "finished"}
    effects = SENSITIVITY.effects(part(found, "choice"))
    ablated = part(finished, "choice") | part(finished, "part")
    by_task = {task_of(alpha): {key[:1] + key[2:]: r for key, r in ablated.items() if key[1] == task_of(alpha)}
               for alpha in (s["alpha"], *s["further"])}  # choice, method and seed  # fmt: skip
    parts = {task: ARMS.tables({(key[:2], key[2]): r for key, r in own.items()}) for task, own in by_task.items()}
    counts = {(task,): [r.arrays["counts"] for key, r in own.items() if key[:2] == (BASE, "fedsimsup")]
              for task, own in by_task.items()}  # fmt: skip
    paper = only(TABLE.printed({**s, "methods": task.METHODS}), row="fedsimsup").set_index("column")["value"]
    printed = {task_of(s["alpha"]): paper.get(COLUMN.format(s["alpha"]))}
    return {
        **effects,
        "compare": SENSITIVITY.compared(effects, s["dataset"], {k: v for k, v in printed.items() if v == v}),
        "parts": rows_of({(task,): own for task, own in parts.items()}, ["task"], lambda own: own["parts"]),
        **{f"_parts, {task}": own["_parts"] for task, own in parts.items()},
        "rates": RATES.analyse(s | {"dataset": s["dataset"].replace("cifar10", "")}, part(finished, "rate"))["compare"],
        "secrets": rows_of(counts, ["task"], label_secrets),
        "stability": stability({key: r for key, r in found.items() if key[0] in tried(s)}),
    }


def task_of(alpha: float) -> str:
    """What a task is called in tables."""
    return f"Dir({alpha:g})"


worse = partial(less_accurate, "fedsimsup")


def answer(tables) -> str:
    """What FedSimSup's gain over FedRep consists of, and how much of it survives, from the numbers."""
    whole = {name.removeprefix("_parts, "): m for name, m in tables.items() if name.startswith("_parts, ")}
    told = [consists_of(task, m) for task, m in whole.items() if all(arm in m for arm in ARMS.of)]
    if not told and len(tables["stability"]):
        return ends_of_training(tables["stability"])
    return " ".join([*told, SENSITIVITY.in_words(tables)])


def consists_of(task: str, m: pd.DataFrame) -> str:
    """The same for one task, from the draws of its arms."""

    def over(arm: str, other: str) -> str:
        return apart(m[arm] - m[other])

    without, (fedrep, fedrep_post, large, large_post, *_) = partial(over, WHOLE), ARMS.of
    return (
        f"FedSimSup minus FedRep at {task}, in points: {over(WHOLE, fedrep)} at the paper's evaluation points, "
        f"{over(WHOLE_POST, fedrep_post)} after local training; minus a FedRep with as many parameters as both "
        f"networks, {over(WHOLE, large)} and {over(WHOLE_POST, large_post)}. FedSimSup minus its ablations, in "
        f"points: {without('FedSimSup without supervisor')} without the supervisor "
        f"({without('FedSimSup without supervisor, as many parameters')} with one network of as many parameters, "
        f"{without('FedSimSup, two networks trained separately')} with two networks trained separately), "
        f"{without('FedSimSup without aggregation')} without aggregation for non-participating clients, "
        f"{without('FedSimSup, uniform weights')} with uniform weights. They overlap, and do not add up to the lead."
    )


def survives(alpha: float) -> Claim:
    """Is FedSimSup above FedRep under equal conditions?"""
    return ours(
        f"At {task_of(alpha)} the lead over FedRep remains under equal conditions: both after local training, FedRep "
        "with as many parameters.",
        ahead(WHOLE_POST, "FedRep after local training, as many parameters", table=f"_parts, {task_of(alpha)}"),
    )


ITEM = Item(
    title="FedSimSup: replication notes",
    claim="Ablation: what explains FedSimSup's gain over FedRep, and how implementation choices that the paper does "
          "not specify change its accuracy.",
    smaller=task.MANY,
    settings=per_profile(
        leaving_out(task.SETTINGS, "reduced"),
        dataset=["digits", "digits", "cifar10"], alpha=0.1, seeds=[1, 1, 3], methods=("fedrep", "fedsimsup"),
        stable=[STABLE_METHODS, STABLE_METHODS, (*STABLE_METHODS, "fedper")], lower=[(), (), (0.05,)],
        smaller_inputs=[(), (), (RATE, 0.05)], further=[(), (), (0.5,)], hundred_classes=[(), (), (0.1,)],
    ),
    minutes={"smoke": 0.5, "quick": 0.7, "paper": 1500},
    runs=runs,
    analyse=analyse,
    partial=True,
    diverging=True,
    figure=lambda tables: figures.choices_by_task(tables["effects"], "fedsimsup"),
    answer=answer,
    shown={
        "parts": "Ablation of FedSimSup's lead over FedRep",
        "rates": "Per-FedAvg and FedProto, with other learning rates and evaluation points than the paper states",
        "stability": "Training at the reported learning rate of 0.1, at lower ones, and with pixels scaled to [-1, 1]",
        "secrets": "Information leakage from label counts: what they reveal about the label of one image",
    },
    claims=(
        ours("The supervisor helps: five epochs on the model, without a supervisor, are worse.", worse(NO_SUPERVISOR)),
        ours("The number of parameters does not explain the gain: one network with as many is worse.", worse(AS_LARGE)),
        ours("Joint training helps: two networks trained separately are worse.", worse(ENSEMBLE)),
        ours("Aggregation for non-participating clients helps: clients that keep their models are worse.", worse(KEPT)),
        ours("Similarity helps: uniform weights are worse.", worse(UNIFORM)),
        survives(0.1),
        survives(0.5),
        matter(SENSITIVITY, "FedSimSup"),
    ),
)  # fmt: skip
