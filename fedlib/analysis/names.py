"""How methods, networks and data sets are called where somebody reads: as their papers write them."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

from fedlib import algorithms

OTHERS = {
    "pfedsv_dp": "pFedSV, record-level DP", "pfedsv_dp, client": "pFedSV, client-level DP",
    "pfedsv_dp, unclipped": "pFedSV, noise without clipping", "pfedsv, D+C": "pFedSV (D+C)", "gmm": "Gaussian mixture",
    "kmeans": "k-means", "hierarchical": "hierarchical clustering", "fixed_threshold": "fixed threshold",
    "mcmahan_cnn": "McMahan's CNN", "lenet5": "LeNet-5", "lenet_dlg": "DLG's LeNet", "cifar100": "CIFAR-100",
    "cifar10": "CIFAR-10", "femnist": "FEMNIST", "tiny_imagenet": "Tiny-ImageNet", "cinic10": "CINIC-10",
    "emnist": "EMNIST", "fmnist": "Fashion-MNIST", "mnist": "MNIST", "pacs": "PACS", "domainnet": "DomainNet",
    "digits_looks": "digits in six styles", "digits_large": "digits, 32x32", "art_painting": "art painting",
    "pfedcs, beta = T": "PFedCS with beta = T", "clusterfl, relative": "ClusterFL with relative thresholds",
    "clusterfl, no thresholds": "ClusterFL without thresholds",
}  # rows of tables that are no method's file, networks, data sets  # fmt: skip
POINTS = {
    **{code: f"before local training ({code})" for code in ("glob", "recv", "agg")},
    "post": "after local training (post)",
}
POINTS |= {f"ft({k})": f"fine-tuned for {k} epoch{'s' * (k > 1)} (ft({k}))" for k in range(1, 21)}
HEADS = {
    "rank_correlation": "rank correlation", "question": "choice varied", "arm": "variant",
    "point": "evaluation point", "column": "setting", "row": "method", "over": "compared with", "change": "reversed",
    "significantly": "significantly reversed", "first": "best method", "closest": "closest metric", "times": "repeats",
    "reached in round": "reported accuracy reached in round", "of them diverged": "diverged",
    "in round": "diverged in round", "rate": "learning rate", "difference then": "difference at the second point",
    "inputs": "input pipeline", "the method's lead over it": "lead over this variant", "headline": "primary",
    "low": "95 % CI, low", "high": "95 % CI, high",
}  # of columns  # fmt: skip
SETTING = re.compile(  # as tables name one
    r"\b(?:cifar100?|f?mnist|femnist|tiny_imagenet), (?:Dir\([\d.]+\)|\d+ classes|few|many)(?:, \d+(?! ?\w))?"
)
CLIENTS = {"few": "10 clients", "many": "100 clients"}  # at the ends of pFedSV's settings
WORDS = "training|step|change|epoch|model|data|update|only"  # "local" before these is no method


@functools.cache
def proper_name(method: str) -> str:
    """A method's name as its paper writes it, which its file begins with; what is no method stays as it is."""
    if method not in algorithms.of_fedlib():
        return method
    found = re.match(r"([\w+-]+)( \(\w+\))?(:| training)", algorithms.text(method))
    return found[1] if found else method


@functools.cache
def _written() -> tuple[Mapping[str, str], re.Pattern]:
    """Proper names, and what finds the internal ones in a text: not in paths and commands, nor "local" as a word."""
    names = {method: proper_name(method) for method in algorithms.of_fedlib()} | OTHERS
    longest = "|".join(sorted(map(re.escape, names), key=len, reverse=True))
    return names, re.compile(rf"(?<![\w`/.-])(?:{longest})(?![\w`/(=-])(?<!local(?= (?:{WORDS})))")


def proper(text, instead: str = ""):
    """A text with proper names of methods, networks, data sets, or the meaning of a point's code; else what it is.
    instead: the data that stand in for a setting's, "digits for 'CIFAR-10, Dir(0.1)'"."""
    names, internal = _written()
    text = SETTING.sub(functools.partial(_setting, instead=instead), text) if isinstance(text, str) else text
    return POINTS.get(text) or internal.sub(lambda found: names[found[0]], text) if isinstance(text, str) else text


def _setting(found: re.Match, instead: str) -> str:
    """With what its end means: "cifar10, Dir(0.1), 100 clients"."""
    name = re.sub(r", (few|many|\d+)$", lambda end: f", {CLIENTS.get(end[1], f'{end[1]} clients')}", found[0])
    return f"{instead} for '{name}'" if instead else name


def titled(column: str, instead: str = "") -> str:
    """A column of a table as a title: "CIFAR-10, Dir(0.1), 100 clients" for "cifar10, Dir(0.1), 100"; "few clients" for
    "few"; "digits for 'CIFAR-10, 2 classes'" for "cifar10, 2 classes: ours, digits"; instead: proper's."""
    name = proper(column, instead if SETTING.fullmatch(column) else "")
    text = re.sub(r"(\b(?:few|many))(?=$|:|'| \(in)", r"\1 clients", name)
    return HEADS.get(column) or re.sub(r"^(CIFAR-.+): ours, (digits.*)$", r"\2 for '\1'", text)


def counted(number: int, of: str) -> str:
    """ "1 seed", "3 seeds"."""
    return f"{number} {of}{'' if number == 1 else 's'}"
