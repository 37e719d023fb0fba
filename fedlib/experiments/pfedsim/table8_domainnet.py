"""Table 8 and Figure 5: clients that differ in how their images look, not in their labels."""

import numpy as np
import pandas as pd

from fedlib import figures
from fedlib.analysis.accuracies import chosen, means, without
from fedlib.analysis.readings import Reading
from fedlib.claims import Claim, Verdict, apart, below, best, decided, gap, not_tested, ours, verdict
from fedlib.data.datasets import group_names
from fedlib.engine.result import RunResult
from fedlib.experiments.accuracy_table import AccuracyTable
from fedlib.experiments.item import Found, Tables, per_profile
from fedlib.experiments.paper_numbers import paper_table
from fedlib.experiments.pfedsim.task import METHODS, SETTINGS, SINGLE_MODEL, every_method

SHARED, SPLIT = (*SINGLE_MODEL, "fedbn", "ffedap"), ("fedper", "fedrep", "fedfomo", "perfedavg")
AVERAGE = {"columns": ("average",)}  # over all test samples


def of_domain(r: RunResult, domain: str) -> list[Reading]:
    """The accuracy at every point over the test samples of a domain's clients, who lie side by side, or of all."""
    names, each = group_names(r.spec.dataset), r.spec.partition["clients_per_domain"]
    own = slice(names.index(domain) * each, (names.index(domain) + 1) * each) if domain in names else slice(None)
    found = []
    for last in r.last:
        correct, tests = (counts[own] for counts in r.by_client(last["point"]))
        found.append(Reading(last["point"], last["headline"], correct.sum() / tests.sum()))
    return found


TABLE = AccuracyTable(
    "pfedsim", ("8",), lambda s: ("average", *group_names(s["dataset"])),
    task=lambda s, domain: {**s, "scheme": "domain"},
    rows=every_method, column_of=lambda cell: cell["domain"], read=lambda s: of_domain, dataset=lambda s: "domainnet",
)  # fmt: skip


def analyse(s: dict, found: Found) -> Tables:
    """Besides the table's: sizes, the domains' images; the cells have the paper's for other domains, too."""
    tables = TABLE.analyse(s, found)
    counts, names = next(iter(found.values())).arrays["counts"].sum(1), group_names(s["dataset"])
    sizes = pd.DataFrame({"domain": names, "samples": counts.reshape(-1, s["clients_per_domain"]).sum(1)})
    theirs = paper_table("pfedsim", "8").rename(columns={"method": "row", "domain": "column", "value": "mean"})
    theirs = theirs[~theirs["column"].isin(["average", *names])].assign(series="paper")
    return {
        **tables,
        "cells": pd.concat([tables["cells"], theirs[["series", "column", "row", "mean", "std"]]]),
        "sizes": sizes,
    }


def best_in_five_domains(tables) -> Verdict:
    found = means(tables)
    domains = [column for column in found.columns.unique(0) if column != "average"]
    if (lacks := without(found, METHODS, domains)) or len(domains) < 2:
        return not_tested(lacks or "nothing was run")
    leads = pd.DataFrame({domain: gap("pfedsim")(found[domain]) for domain in domains})
    all_but_one = pd.Series(np.sort(leads, axis=1)[:, 1])
    listing = ", ".join(f"{domain} {apart(lead)}" for domain, lead in leads.items())
    return decided({"all but one": all_but_one}, f"lead over the best competitor: {listing}")


def mixture_above_one_model(method: str):
    """Is what the server mixes for a client, before the client trains on it, above FedAvg's model, on average?"""

    def check(tables) -> Verdict:
        two = pd.concat(
            [chosen(tables, {"row": "fedavg", "point": "glob"}), chosen(tables, {"row": method, "point": "agg"})]
        )
        found = means({"tidy": two.assign(point="")}, point="")
        if lacks := without(found, ("fedavg", method), ["average"]):
            return not_tested(lacks)
        one, mixed = found["average", "fedavg"], found["average", method]
        levels = f"{method} before local training {mixed.iloc[0]:.1f}, the global model of fedavg {one.iloc[0]:.1f}"
        return decided({method: mixed - one}, f"{levels}, {apart(mixed - one)}")

    return check


def printed_counts(tables) -> Verdict:
    sizes = tables["sizes"].set_index("domain")["samples"]
    paper = paper_table("pfedsim", "fig5b").set_index("domain")["value"].astype(int)
    if set(sizes.index) != set(paper.index):
        return not_tested(f"these are not DomainNet's domains; sizes {', '.join(map(str, sizes))}")
    gaps = sizes[paper.index] - paper
    return verdict(not gaps.any(), ", ".join(f"{domain} {sizes[domain]} ({more:+d})" for domain, more in gaps.items()))


ITEM = TABLE.item(
    title="pFedSim Table 8 and Figure 5: feature skew",
    claim="With feature skew, a single global model beats methods with personal heads, and pFedSim beats both.",
    smaller="digits in six styles (16x16) instead of DomainNet's six domains; 18 clients of which 9 take part, 15 "
            "rounds, instead of 120, 12 and 200; LeNet5-BN instead of a pretrained MobileNetV2; lr 0.05 instead of "
            "0.01",
    smaller_reduced="PACS's four domains (9,991 images) instead of DomainNet's six, so 80 clients of which 8 take part "
    "instead of 120 and 12; LeNet5-BN instead of a pretrained MobileNetV2; three seeds "
    "instead of five",
    settings=per_profile(
        SETTINGS, dataset=["digits_looks", "digits_looks", "domainnet"], weights=["", "", "pretrained"],
        model=["lenet5_bn", "lenet5_bn", "mobilenetv2"], num_clients=[6, 18, 120], clients_per_domain=[1, 3, 20],
        methods=METHODS, seeds=[1, 1, 5],
        reduced=dict(dataset="pacs", weights="", model="lenet5_bn", num_clients=80, seeds=3),
    ),
    minutes={"smoke": 0.5, "quick": 1.5, "reduced": 50, "paper": 6000},
    analyse=analyse,
    figure=lambda tables: figures.domains(tables["cells"], "pfedsim"),
    claims=(
        Claim("pFedSim has the best average.", best("pfedsim", METHODS, **AVERAGE)),
        Claim("Methods with a single global model, and those with client-specific batch norm, beat FedPer, FedRep, "
              "FedFomo and Per-FedAvg.", below(SPLIT, SHARED, **AVERAGE)),
        Claim("FedPer, FedRep, FedFomo and Per-FedAvg beat Local.", below(["local"], SPLIT, **AVERAGE)),
        Claim("pFedSim is the best in all domains (paper: six; PACS: four) but one at least.", best_in_five_domains),
        Claim("The domains have the numbers of images of Figure 5(b).", printed_counts),
        ours("Before local training, pFedSim's personalised models are more accurate than FedAvg's model, on average.",
             mixture_above_one_model("pfedsim")),
        ours("Before local training, f-FedAP's personalised models are more accurate than FedAvg's model, on average.",
             mixture_above_one_model("ffedap")),
    ),
)  # fmt: skip
