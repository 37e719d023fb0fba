"""Tables 3 and 4: what noise on a client's training costs, and what it guarantees."""

from __future__ import annotations

from math import ceil

import numpy as np
import pandas as pd

from fedlib import figures
from fedlib.engine.result import RunResult
from fedlib.experiments.items import Claim, Item, Verdict, only, paper_table, verdict
from fedlib.experiments.pfedsv.accounting import PRINTED, budgets, table4
from fedlib.experiments.pfedsv.accuracy import listed
from fedlib.experiments.pfedsv.task import (
    SCALES,
    SETTINGS,
    SMALLER,
    beside,
    clients_of,
    final_rows,
    printed,
    run_spec,
    scale_of,
    shown_dataset,
)
from fedlib.privacy.accounting import epsilon
from fedlib.spec import RunSpec

DELTA = 1e-5
BASELINES = ("local", "fedavg", "fedfomo", "fedamp")
NOISY = {"pfedsv_dp": "record", "pfedsv_dp, client": "client", "pfedsv_dp, unclipped": "unclipped_relative"}
ROWS = (*BASELINES, "pfedsv", *NOISY)
SIGMAS = (0.0, 1.0, 2.0)
COMPARED = ("fedavg", "pfedsv")  # methods of Table 4
PLOTTED = (1, 2, 3, 4, 6, 8, 10, 12, 16, 20)  # rounds after which ε is computed

# Unpublished, and ours: the bounds on norms. clip: of one record's gradient; client_clip: of a client's whole update.
NOISE = {
    "smoke": {"sigma": 1.0, "clip": 3.0, "client_clip": 0.1},
    "quick": {"sigma": 1.0, "clip": 3.0, "client_clip": 0.1},
    "paper": {"sigma": 1.0, "clip": 1.0, "client_clip": 0.1},
}


def record_noise(s: dict, sigma: float) -> dict:
    """RunSpec's fields for DP-SGD; none for sigma = 0, so that such a run is the plain one of Table 1."""
    return {"privacy": "record", "noise_sigma": sigma, "noise_clip": s["clip"]} if sigma else {}


def final_row(r: RunResult) -> dict:
    """The headline row of `final_rows` on the clients' own test parts, with privacy, sigma, and ε (mean and largest over clients).

    Local training releases nothing: its ε is 0.
    """
    row = next(row for row in final_rows(r) if row["headline"] and row["tested_on"] == "own")
    spent = np.zeros(1) if r.spec.method == "local" else budgets(r.spec, DELTA)
    return {
        **{name: row[name] for name in ("scale", "clients", "seed", "method", "point", "accuracy")},
        "privacy": r.spec.privacy,
        "sigma": r.spec.noise_sigma,
        "epsilon": float(spent.mean()),
        "epsilon_max": float(spent.max()),
    }


def spent(rows: pd.DataFrame) -> str:
    """ε as text: mean over clients and seeds, and the largest."""
    if np.isinf(rows["epsilon_max"]).any():
        return "∞"
    return f"{rows['epsilon'].mean():.2f} (max {rows['epsilon_max'].max():.2f})"


# Table 3 -------------------------------------------------------------------------------------------------------------


def table3_specs(s: dict) -> list[RunSpec]:
    noises = {
        "record": record_noise(s, s["sigma"]),
        "client": {"privacy": "client", "noise_sigma": s["sigma"], "noise_clip": s["client_clip"]},
        "unclipped_relative": {"privacy": "unclipped_relative", "noise_sigma": s["sigma"]},
    }
    return [
        spec
        for seed in range(s["seeds"])
        for scale in SCALES
        for spec in (
            *(run_spec(s, method, scale, "dirichlet", seed) for method in (*BASELINES, "pfedsv")),
            *(run_spec(s, "pfedsv", scale, "dirichlet", seed, noises[kind]) for kind in NOISY.values()),
        )
    ]


def row_of(spec: RunSpec) -> str:
    """The row of Table 3 that a run belongs to."""
    named = {kind: row for row, kind in NOISY.items()}
    return named.get(spec.privacy, spec.method)


def analyse_noise(s: dict, results: list[RunResult]) -> dict[str, pd.DataFrame]:
    """tidy: one row a run; released: accuracy of the models that leave the clients of pFedSV (`post`)."""
    tidy = pd.DataFrame([{"row": row_of(r.spec), **final_row(r)} for r in results])
    released = [
        {
            "row": row_of(r.spec),
            "scale": scale_of(r.spec),
            "seed": r.spec.seed,
            "released": r.final("client_mean", "post"),
        }
        for r in results
        if r.spec.method == "pfedsv"
    ]
    rows = []
    for name in ROWS:
        row = {"method": name}
        for scale in SCALES:
            own = only(tidy, row=name, scale=scale)
            paper, ours, difference = beside(printed("3", s, scale, name), 100 * own["accuracy"])
            row[f"{scale}: paper, {shown_dataset(s)}"] = paper
            row[f"{scale}: ours, {s['dataset']}, {clients_of(s, scale)}"] = ours
            row[f"{scale}: difference"] = difference
            row[f"{scale}: ε"] = spent(own)
        rows.append(row)
    return {"tidy": tidy, "compare": pd.DataFrame(rows), "released": pd.DataFrame(released)}


def noise_means(tables, scale: str) -> pd.Series:
    """Mean accuracy in percent over seeds, by row."""
    return 100 * only(tables["tidy"], scale=scale).groupby("row", sort=False)["accuracy"].mean()


def check_few_points(tables) -> Verdict:
    costs = {k: float(m["pfedsv"] - m["pfedsv_dp"]) for k, m in ((k, noise_means(tables, k)) for k in SCALES)}
    listing = ", ".join(f"{cost:.1f} with {scale} clients" for scale, cost in costs.items())
    return verdict(
        all(cost <= 5 for cost in costs.values()),
        f"points lost to noise in training (record level): {listing}; the paper's are 1.3 to 3.5",
    )


def check_above_baselines(tables) -> Verdict:
    parts, holds = [], True
    for scale in SCALES:
        m = noise_means(tables, scale)
        best = m[list(BASELINES)]
        holds &= bool(m["pfedsv_dp"] > best.max())
        parts.append(f"{scale} clients: pfedsv_dp {m['pfedsv_dp']:.1f}; {listed(best.sort_values(ascending=False))}")
    return verdict(holds, "; ".join(parts))


def check_only_clipping_guarantees(tables) -> Verdict:
    largest = only(tables["tidy"], method="pfedsv").groupby("row", sort=False)["epsilon_max"].max()[list(NOISY)]
    finite = np.isfinite(largest)
    holds = bool(finite["pfedsv_dp"] and finite["pfedsv_dp, client"] and not finite["pfedsv_dp, unclipped"])
    return verdict(holds, "largest ε of a client: " + ", ".join(f"{row} {value:.1f}" for row, value in largest.items()))


def check_released_is_useless(tables) -> Verdict:
    parts, holds = [], True
    for scale in SCALES:
        m, out = (
            noise_means(tables, scale),
            only(tables["released"], scale=scale).groupby("row")["released"].mean() * 100,
        )
        own, sent, free = m["pfedsv_dp, client"], out["pfedsv_dp, client"], m["pfedsv"]
        holds &= bool(sent < 0.6 * own and free - own < 10)
        parts.append(
            f"{scale} clients: released models {sent:.1f}, the clients' mixtures {own:.1f}, without noise {free:.1f}"
        )
    return verdict(holds, "; ".join(parts))


def answer(tables) -> str:
    """What noise costs and guarantees, in sentences from the numbers."""
    parts = []
    for scale in SCALES:
        m, rows = noise_means(tables, scale), only(tables["tidy"], scale=scale)
        costs = ", ".join(
            f"{m['pfedsv'] - m[row]:+.1f} ({kind}, ε {spent(only(rows, row=row))})" for row, kind in NOISY.items()
        )
        parts.append(f"with {scale} clients pFedSV has {m['pfedsv']:.1f} % and loses {costs}")
    return f"Points of accuracy lost to noise of level 1, by where it is added: {'; '.join(parts)}."


TABLE3 = Item(
    name="pfedsv/table3_dp",
    title="pFedSV Table 3: accuracy with differential privacy",
    claim="With noise of level 1 pFedSV loses a few points and stays ahead of the baselines without noise.",
    smaller=SMALLER,
    settings={p: {**own, **NOISE[p], "seeds": {"smoke": 1, "quick": 1, "paper": 5}[p]} for p, own in SETTINGS.items()},
    minutes={"smoke": 0.3, "quick": 1, "paper": 900},
    specs=table3_specs,
    analyse=analyse_noise,
    answer=answer,
    figure=lambda tables: figures.private_accuracies(tables["tidy"], paper_table("pfedsv", "3"), ROWS),
    claims=(
        Claim("Noise of level 1 costs a few points: at most 5, at both scales.", check_few_points),
        Claim("pFedSV with noise is still above Separate, FedAvg, FedFomo and FedAMP without.", check_above_baselines),
        Claim(
            "(Ours) The same σ = 1 guarantees something where norms are bounded (finite ε), and nothing where they are not.",
            check_only_clipping_guarantees,
        ),
        Claim(
            "(Ours) Client-level noise makes the released models useless, and hardly hurts: clients fall back on their own models, which have no noise.",
            check_released_is_useless,
        ),
    ),
)

# Table 4 -------------------------------------------------------------------------------------------------------------


def table4_specs(s: dict) -> list[RunSpec]:
    return [
        run_spec(s, method, "few", "ring", seed, record_noise(s, sigma))
        for seed in range(s["seeds"])
        for method in COMPARED
        for sigma in SIGMAS
    ]


def analyse_budget(s: dict, results: list[RunResult]) -> dict[str, pd.DataFrame]:
    """tidy: one row a run; by_round: ε after every round; readings: which accounting yields which printed pair of ε."""
    tidy = pd.DataFrame([final_row(r) for r in results])
    best = best_readings()
    paper, rows = printed_accuracies(shown_dataset(s)), []
    for method in COMPARED:
        for sigma in SIGMAS:
            own = only(tidy, method=method, sigma=sigma)
            cell = only(paper, method=method, sigma=sigma)
            accuracy = beside(cell.iloc[0] if len(cell) else None, 100 * own["accuracy"])
            row = {"method": method, "σ": sigma, "ε paper": printed_epsilons(method, sigma, shown_dataset(s))}
            row |= {"ε ours": spent(own)}
            rows.append(
                row
                | dict(
                    zip(
                        (f"accuracy paper, {shown_dataset(s)}", f"accuracy ours, {s['dataset']}", "difference"),
                        accuracy,
                    )
                )
            )
    return {"tidy": tidy, "compare": pd.DataFrame(rows), "by_round": by_round(results), "readings": best}


def printed_accuracies(dataset: str) -> pd.DataFrame:
    """Table 4's accuracies on a data set: method (pfedsv with and without noise), sigma (number), value, std."""
    cells = only(paper_table("pfedsv", "4"), dataset=dataset, metric="test_accuracy_pct")
    return cells.assign(method=cells["method"].str.removesuffix("_dp"), sigma=cells["sigma"].astype(float)).dropna(
        subset="value"
    )


def printed_epsilons(method: str, sigma: float, dataset: str) -> str:
    """The paper's ε as far as it can be read; both candidates where their columns are lost."""
    if sigma == 0:
        return "∞"
    found = PRINTED[method][sigma]
    return (
        " or ".join(f"{mean} ({error})" for mean, error in found)
        if sigma == 1
        else "{} ({})".format(*found.get(dataset, ("", "")))
    )


def by_round(results: list[RunResult]) -> pd.DataFrame:
    """ε after every round for σ = 1 and 2, with three ways to account: setting, sigma, round, epsilon."""
    spec, counts = results[0].spec, results[0].arrays["counts"].sum(1)
    size = round(
        float(np.median(counts)) * (1 - spec.test_fraction) * (1 - 0.2)
    )  # pFedSV trains on 4/5 of what is left
    steps = spec.local_epochs * ceil(size / spec.batch_size)
    settings = {
        f"this run: {spec.batch_size} of {size} records a step": (min(1.0, spec.batch_size / size), steps, "rdp"),
        "100 of 5,000 records a step": (0.02, 250, "rdp"),
        "one release of all records a round": (1.0, 1, "exact"),
    }
    rows = [
        (name, sigma, t, epsilon(sigma, rate, t * each, DELTA, bound))
        for name, (rate, each, bound) in settings.items()
        for sigma in SIGMAS[1:]
        for t in PLOTTED
    ]
    return pd.DataFrame(rows, columns=["setting", "sigma", "round", "epsilon"])


def best_readings() -> pd.DataFrame:
    """For every pair of budgets that the printed table can mean the accounting that comes nearest; `off` ≤ 1: within the printed ±."""
    found = pd.DataFrame(table4())
    best = found.loc[found.groupby(["method", "dataset", "printed_1"])["off"].idxmin()]
    columns = [
        "method",
        "dataset",
        "printed_1",
        "printed_2",
        "reading",
        "rate",
        "steps",
        "epsilon_1",
        "epsilon_2",
        "off",
    ]
    return best[columns].reset_index(drop=True)


def budget_means(tables, method: str, value: str = "accuracy") -> pd.Series:
    """Mean over seeds by σ; accuracies in percent."""
    factor = 100 if value == "accuracy" else 1
    return factor * only(tables["tidy"], method=method).groupby("sigma")[value].mean()


def check_more_noise(tables) -> Verdict:
    parts, holds = [], True
    for method in COMPARED:
        accuracy, eps = budget_means(tables, method), budget_means(tables, method, "epsilon")
        holds &= accuracy.is_monotonic_decreasing and accuracy.is_unique and eps.is_monotonic_decreasing
        parts.append(f"{method}: " + ", ".join(f"σ {s:g}: {accuracy[s]:.1f} % at ε {eps[s]:.1f}" for s in SIGMAS))
    return verdict(bool(holds), "; ".join(parts))


def check_level_1_is_cheap(tables) -> Verdict:
    m = budget_means(tables, "pfedsv")
    first, second = m[0.0] - m[1.0], m[0.0] - m[2.0]
    return verdict(
        bool(first <= 3 and second > 2 * first),
        f"pfedsv loses {first:.1f} points at σ 1 and {second:.1f} at σ 2; printed 2.6 and 6.4",
    )


def check_lead_stays(tables) -> Verdict:
    lead = budget_means(tables, "pfedsv") - budget_means(tables, "fedavg")
    return verdict(
        bool((lead > 0).all()), "pfedsv minus fedavg: " + ", ".join(f"{v:+.1f} at σ {s:g}" for s, v in lead.items())
    )


def check_pfedsv_spends_less(tables) -> Verdict:
    ours = {m: budget_means(tables, m, "epsilon_max") for m in COMPARED}
    less = all(ours["pfedsv"][s] < 0.95 * ours["fedavg"][s] for s in SIGMAS[1:])
    pairs = ", ".join(f"{ours['pfedsv'][s]:.1f} and {ours['fedavg'][s]:.1f} at σ {s:g}" for s in SIGMAS[1:])
    return verdict(less, f"largest ε of a client of pfedsv and of fedavg: {pairs}")


def check_one_accounting(tables) -> Verdict:
    best = tables["readings"]
    fits = best[best["off"] <= 1]
    described = fits["reading"].str.contains("20 x 5 epochs")
    evidence = f"{len(fits)} of {len(best)} possible pairs have an accounting within the printed ±; {int(described.sum())} of these with the stated 20 rounds of 5 epochs"
    return verdict(bool(len(fits) and described.all() and set(fits["method"]) == set(COMPARED)), evidence)


TABLE4 = Item(
    name="pfedsv/table4_dp_budget",
    title="pFedSV Table 4: noise level, privacy budget and accuracy",
    claim="More noise gives a smaller privacy budget and a lower accuracy; level 1 costs little.",
    smaller="digits (16x16) instead of CIFAR-10 and CIFAR-100, LeNet-5 instead of the larger CNN; 6 rounds of 3 epochs instead of 20 of 5",
    settings={
        p: {
            **{
                name: value
                for name, value in own.items()
                if name not in ("alpha", "min_size") and not name.startswith("many")
            },
            **{"clip": NOISE[p]["clip"], "seeds": {"smoke": 1, "quick": 1, "paper": 5}[p]},
        }
        for p, own in SETTINGS.items()
    },
    minutes={"smoke": 0.3, "quick": 1, "paper": 900},
    specs=table4_specs,
    analyse=analyse_budget,
    figure=lambda tables: figures.budgets(tables["tidy"], tables["by_round"], printed_accuracies("cifar10")),
    claims=(
        Claim("The more noise, the smaller ε and the lower the accuracy, for both methods.", check_more_noise),
        Claim(
            "For pFedSV level 1 costs at most 3 points, and level 2 more than twice as much.", check_level_1_is_cheap
        ),
        Claim("pFedSV is above FedAvg at every level of noise.", check_lead_stays),
        Claim(
            "At the same level of noise pFedSV spends a smaller budget than FedAvg (as printed).",
            check_pfedsv_spends_less,
        ),
        Claim(
            "The printed budgets of both methods follow from 20 rounds of 5 epochs of noisy steps.",
            check_one_accounting,
        ),
    ),
)

ITEMS = (TABLE3, TABLE4)
