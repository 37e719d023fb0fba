"""How methods are called and coloured in figures: each has one proper name and one colour, whatever figure it is in."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from pathlib import Path

from fedlib.figures.base import APART

MARKERS = "osD^vP*Xh<>dp"
PAPERS = ("pfedsim", "fedsimsup", "pfedcs", "pfedsv")  # the methods of our four papers
HOME = (
    ("fedavg", "fedamp", "ffedap"),
    ("fedper", "fedpac", "ifca"),
    ("fedrep", "fedrod", "pfedsv"),
    ("pfedsim", "fedgh", "pfedhn"),
    ("fedsimsup", "fedbabu", "fesem", "fedem", "fedgen"),
    ("perfedavg", "feddyn", "fedavg_ft"),
    ("fedproto", "fedbn", "pfedme"),
    ("local", "clusterfl"),
    ("fedfomo",),
    ("pfedcs", "fedprox"),
)  # of the colours of APART; methods that a paper compares share as few as possible, and markers tell those apart


CALLED = {
    "pfedsv_dp": "pFedSV, noise in every step", "pfedsv_dp, client": "pFedSV, noise on updates",
    "pfedsv_dp, unclipped": "pFedSV, noise without clipping", "gmm": "Gaussian mixture", "kmeans": "k-means",
    "hierarchical": "hierarchical clustering", "fixed_threshold": "fixed threshold",
}  # rows of tables that are no method's file  # fmt: skip
NETWORKS = {"mcmahan_cnn": "McMahan's CNN", "lenet5": "LeNet-5", "lenet_dlg": "DLG's LeNet"}


@functools.cache
def proper_name(method: str) -> str:
    """A method's name as its paper writes it, which its file begins with; what is no method stays as it is."""
    file = Path(__file__).parents[1] / "algorithms" / f"{method}.py"
    if not re.fullmatch(r"\w+", method) or not file.exists():
        return method
    with file.open(encoding="utf-8") as lines:
        found = re.match(r'"""([\w+-]+)( \(\w+\))?(:| training)', next(lines))
    return found[1] if found else method


def proper(row: str) -> str:
    """A row of a table with its method's proper name: "pFedSim, rho = 0" for "pfedsim, rho = 0"; networks likewise."""
    if row in CALLED:
        return CALLED[row]
    for name, written in NETWORKS.items():
        row = re.sub(rf"\b{name}\b", written, row)
    method, rest = re.fullmatch(r"(\w*)(.*)", row, re.DOTALL).groups()
    return proper_name(method) + rest


DATA = {"cifar100": "CIFAR-100", "cifar10": "CIFAR-10", "femnist": "FEMNIST", "tiny_imagenet": "Tiny-ImageNet"}
DATA |= {"cinic10": "CINIC-10", "emnist": "EMNIST"}


def titled(column: str) -> str:
    """A column of a table as the title of a panel: "CIFAR-10, Dir(0.1), 100 clients" for "cifar10, Dir(0.1), 100"; "few
    clients" for "few"."""
    for name, written in DATA.items():
        column = re.sub(rf"\b{name}\b", written, column)
    column = re.sub(r"\b(few|many)$", r"\1 clients", column)
    return re.sub(r"(, \d+)$", r"\1 clients", column)


@functools.cache
def colour_of(name: str) -> str | None:
    """The colour of the method with this code or proper name, None if there is no such method."""
    for colour, methods in zip(APART, HOME):
        if any(name in (method, proper_name(method)) for method in methods):
            return colour
    return None


def looks(rows: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Colour and marker of every row. A method has its own colour, and its variants too; rows that share a colour have
    different markers; what is no method gets a colour that no other row has, as long as there are any."""
    home = {method: colour for colour, methods in zip(APART, HOME) for method in methods}
    own = {row: home.get(re.match(r"\w*", row)[0]) for row in rows}
    free = [colour for colour in APART if colour not in own.values()] or list(APART)
    found, used = {}, {}
    for k, row in enumerate(row for row in rows if own[row] is None):
        own[row] = free[k % len(free)]
    for row in rows:
        number = used[own[row]] = used.get(own[row], -1) + 1
        found[row] = (own[row], MARKERS[(APART.index(own[row]) + 5 * number) % len(MARKERS)])
    return found


def counted(number: int, of: str) -> str:
    """ "1 seed", "3 seeds"."""
    return f"{number} {of}{'' if number == 1 else 's'}"
