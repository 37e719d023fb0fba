"""Table 8 and Figure 5: clients that differ in how their images look, not in their labels."""

from __future__ import annotations

import pandas as pd

from fedlib import data, figures
from fedlib.engine.result import RunResult
from fedlib.experiments.items import NOT_TESTED, Claim, Item, Verdict, only, paper_table, verdict
from fedlib.experiments.pfedsim.accuracy import METHODS, SINGLE_MODEL, needing
from fedlib.experiments.pfedsim.task import SETTINGS, over_seeds, presets
from fedlib.spec import RunSpec

SPLIT_MODEL = ("fedper", "fedrep", "fedfomo", "perfedavg")
TASK = ("dataset", "num_clients", "join_ratio", "rounds", "local_epochs", "lr", "eval_every", "model")
LOOKS = {"dataset": "digits_looks", "model": "lenet5_bn", "weights": ""}


def table8_specs(s: dict) -> list[RunSpec]:
    return [
        RunSpec(
            method,
            hyper=presets(s).get(method, {}),
            seed=seed,
            scheme="domain",
            partition={"clients_per_domain": s["clients_per_domain"]},
            model_options={"weights": s["weights"]} if s["weights"] else {},
            **{name: s[name] for name in TASK},
        )
        for seed in range(s["seeds"])
        for method in s["methods"]
    ]


def analyse_domains(s: dict, results: list[RunResult]) -> dict[str, pd.DataFrame]:
    """tidy: one row a run and domain, the domain "average" weighted by test samples."""
    names = data.load(s["dataset"]).group_names
    rows, sizes = [], {}
    for r in results:
        correct, tests = r.arrays["correct"].sum(1), r.arrays["tests"].sum(1)
        for k, name in enumerate(names):
            mine = slice(k * s["clients_per_domain"], (k + 1) * s["clients_per_domain"])
            rows.append((r.spec.seed, r.spec.method, r.point, name, correct[mine].sum() / tests[mine].sum()))
            sizes[name] = int(r.arrays["counts"][mine].sum())
        rows.append((r.spec.seed, r.spec.method, r.point, "average", r.final("pooled")))
    tidy = pd.DataFrame(rows, columns=["seed", "method", "point", "domain", "accuracy"])
    sizes = pd.DataFrame({"domain": list(sizes), "samples": list(sizes.values())})
    return {"tidy": tidy, "compare": compared(tidy, s), "by_domain": by_domain(tidy), "sizes": sizes}


def by_domain(tidy: pd.DataFrame) -> pd.DataFrame:
    """Mean accuracy in percent, methods by domains."""
    wide = 100 * tidy.groupby(["method", "domain"], sort=False)["accuracy"].mean().unstack()
    return wide.round(2).reset_index()


def compared(tidy: pd.DataFrame, s: dict) -> pd.DataFrame:
    """Paper | ours | difference of the weighted averages, in percent."""
    rows = []
    for method in s["methods"]:
        ours, paper = 100 * only(tidy, method=method, domain="average")["accuracy"], printed(method, "average")
        rows.append(
            {
                "method": method,
                "tested at": only(tidy, method=method)["point"].iloc[0],
                "paper, DomainNet": "" if paper is None else f"{paper['value']:.2f} ({paper['std']:.2f})",
                f"ours, {s['dataset']}": over_seeds(ours),
                "difference": "" if paper is None else f"{ours.mean() - paper['value']:+.2f}",
            }
        )
    return pd.DataFrame(rows)


def printed(method: str, domain: str) -> pd.Series | None:
    """The paper's cell (value, std), or None for a method that its Table 8 does not have."""
    cells = only(paper_table("pfedsim", "8"), method=method, domain=domain)
    return cells.iloc[0] if len(cells) else None


# claims --------------------------------------------------------------------------------------------------------------


def _averages(tables) -> pd.Series:
    """Weighted average in percent by method, best first."""
    rows = only(tables["tidy"], domain="average")
    return 100 * rows.groupby("method")["accuracy"].mean().sort_values(ascending=False)


@needing(*METHODS, alphas=())
def check_best(tables) -> Verdict:
    means = _averages(tables)
    return verdict(
        means.index[0] == "pfedsim", "best first: " + ", ".join(f"{m} {v:.1f}" for m, v in means.head(4).items())
    )


@needing(*METHODS, alphas=())
def check_shared_beat_split(tables) -> Verdict:
    means, shared = _averages(tables), [*SINGLE_MODEL, "fedbn", "ffedap"]
    low, high = means[shared], means[list(SPLIT_MODEL)]
    evidence = f"the lowest of {', '.join(shared)} is {low.idxmin()} with {low.min():.1f}, the highest of {', '.join(SPLIT_MODEL)} is {high.idxmax()} with {high.max():.1f}"
    return verdict(low.min() > high.max(), evidence)


@needing("local", *SPLIT_MODEL, alphas=())
def check_all_beat_local(tables) -> Verdict:
    means = _averages(tables)
    return verdict(
        bool(means[list(SPLIT_MODEL)].min() > means["local"]),
        f"Local {means['local']:.1f}; " + ", ".join(f"{m} {means[m]:.1f}" for m in SPLIT_MODEL),
    )


@needing(*METHODS, alphas=())
def check_best_in_most_domains(tables) -> Verdict:
    wide = tables["tidy"].groupby(["domain", "method"], sort=False)["accuracy"].mean().unstack().drop(index="average")
    best = wide.idxmax(axis=1)
    return verdict(int((best == "pfedsim").sum()) >= 5, "best: " + ", ".join(f"{d} {m}" for d, m in best.items()))


def check_counts(tables) -> Verdict:
    sizes = tables["sizes"].set_index("domain")["samples"]
    paper = paper_table("pfedsim", "fig5b").set_index("domain")["value"]
    if set(sizes.index) != set(paper.index):
        return Verdict(NOT_TESTED, f"these are not DomainNet's domains; sizes {', '.join(map(str, sizes))}")
    gaps = {d: f"{sizes[d]} ({sizes[d] - int(paper[d]):+d})" for d in paper.index}
    return verdict(bool((sizes[paper.index] == paper).all()), ", ".join(f"{d} {gap}" for d, gap in gaps.items()))


TABLE8 = Item(
    name="pfedsim/table8_domainnet",
    title="pFedSim Table 8 and Figure 5: feature skew",
    claim="Where clients differ in how their images look, one model for all beats split models, and pFedSim beats both.",
    smaller="digits in six looks (16x16) instead of DomainNet's six domains; 18 clients of which 9 take part, 15 rounds, instead of 120, 12 and 200; LeNet5-BN instead of a pretrained MobileNetV2; lr 0.05 instead of 0.01",
    settings={
        "smoke": {
            **SETTINGS["smoke"], **LOOKS, "num_clients": 6, "clients_per_domain": 1, "methods": METHODS, "seeds": 1,
        },
        "quick": {
            **SETTINGS["quick"], **LOOKS, "num_clients": 18, "clients_per_domain": 3, "methods": METHODS, "seeds": 1,
        },
        "paper": {
            **SETTINGS["paper"], "dataset": "domainnet", "model": "mobilenetv2", "weights": "pretrained",
            "num_clients": 120, "clients_per_domain": 20, "methods": METHODS, "seeds": 5,
        },
    },
    minutes={"smoke": 0.5, "quick": 1.5, "paper": 6000},
    specs=table8_specs,
    analyse=analyse_domains,
    figure=lambda tables: figures.domains(tables["tidy"], paper_table("pfedsim", "8"), METHODS),
    claims=(
        Claim("pFedSim has the best average.", check_best),
        Claim(
            "Methods with one model for all, and those with batch norm of their own, beat FedPer, FedRep, FedFomo and Per-FedAvg.",
            check_shared_beat_split,
        ),
        Claim("FedPer, FedRep, FedFomo and Per-FedAvg beat Local-Only.", check_all_beat_local),
        Claim("pFedSim is the best in five of the six domains at least.", check_best_in_most_domains),
        Claim("The domains have the numbers of images of Figure 5(b).", check_counts),
    ),
)  # fmt: skip

ITEMS = (TABLE8,)
