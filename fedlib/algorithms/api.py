"""The contract of an algorithm: what it is made of, and nothing that behaves.

An algorithm is a frozen dataclass in a file of its own in this folder. Its fields are the hyper-parameters, named after
the paper's symbols, with the paper's values as defaults. It has six pure methods, which never modify their arguments.
Four things are never mixed: what the **server** keeps, what goes **down** (message), what a **client** keeps between
its rounds, and what goes **up** (upload). Each is a tree of tensors (`fedlib.base.tree`); the server may also keep numbers.
`model` says how to compute with parameters; its initial values theta0 are for `init` only, for the engine trains runs
with different seeds in one stack.

theta, the parameters of a model, is a flat dict of tensors by name (`fedlib.models.Model`). Batch norm's running
statistics are entries of theta like any other; the engine's transport applies the run's policy to them (`bn_stats`).

Letters in shapes: N all clients, K participants of a round, C classes, d features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

Tree = dict[str, Any]


@dataclass(frozen=True)
class Setting:
    """What an algorithm may know of the run before it starts: N clients, T rounds, C classes, the run's seed, and, for
    servers that are told so once, how many training samples of every class each client has, int64 [N, C]."""

    num_clients: int
    rounds: int
    num_classes: int
    seed: int = 0
    class_counts: Any = None


class ClientData(Protocol):
    """One client's data and its local training settings, as seen by `client_update`."""

    num_samples: Any  # training samples N_i
    class_counts: Any  # of every class, int64 [C]
    local_epochs: int  # E
    lr: float  # eta
    group: str  # this client's group, where the algorithm has `groups`; the one thing that Python may branch on

    def fold(
        self, step, state, epochs: int | None = None, *, steps: int | None = None, together: int = 1, noise: int = 0
    ):
        """ "For each minibatch": state = step(state, batch), over `epochs` (default E) shuffled passes; returns the last state.

        A batch has x [B, c, h, w], y [B], mask (bool [B], or None when every row is a real sample) and mean(values [B])
        over the real rows. steps: so many steps instead of epochs. together: step(state, batch, batch', ...) gets so many
        minibatches at a time. noise: batch.noise holds so many standard normal numbers a sample, [B, noise].
        """

    def scan(self, step, state, part: str = "train"):
        """One pass in fixed order over "train", "val" or "test", for evaluation and statistics; returns the last state."""


class Algorithm(Protocol):
    """A federated algorithm. Evaluation points are the codes glob, recv, agg, post and ft(k) of `fedlib.engine.evaluate`."""

    points: ClassVar[tuple[str, ...]]  # evaluation points that make sense for this algorithm

    def init(self, model, setting: Setting) -> tuple[Tree, Tree]:
        """State before round 1: (server, clients), every leaf of clients stacked [N, ...]."""

    def download(self, server: Tree, i: int) -> Tree:
        """The message to client i: exactly what is sent down."""

    def client_update(self, model, message: Tree, client: Tree, data: ClientData) -> tuple[Tree, Tree]:
        """One client's round: (upload, new client state). The loop over minibatches is data.fold; no Python branch on data."""

    def server_update(self, server: Tree, ids, uploads: Tree, n) -> Tree:
        """The new server state. ids: the K participants; uploads: stacked [K, ...]; n: their training samples [K]."""

    def personal_model(self, model, message: Tree, client: Tree, data: ClientData) -> Tree:
        """theta of one client, from a message (or its last upload, which has the same form) and the client's own state."""

    def eval_points(self, server: Tree) -> tuple[str, ...]:
        """The points evaluated now; the first one is the headline."""

    # Optional, each with a default in the engine:
    # val_fraction: float                              a field: this share of a client's training data becomes its part "val"
    # siblings: list[str]                              other backbones it uses (model.sibling), built before anything starts
    # predict(self, model, personal, x) -> scores      where `personal_model` is more than a theta: class scores [B, C]
    # generic_model(self, model, message) -> theta     what is tested at `glob`, where `personal_model` is made for `recv`
    # fine_tune(self, model, theta, data, epochs) -> theta
    #                                                  what `ft(k)` does with a copy; default: LocalSGD on all parameters
    # downloads(self, server, ids) -> Tree             many messages at once, stacked [K, ...]
    # stored_upload(self, server, i) -> Tree           a server that keeps all last uploads: what is evaluated at `post`
    # num_models: int                                  a client trains so many models at once: every leaf of a theta is
    #                                                  stacked [num_models, ...], running statistics included
    # floats_down(self, message), floats_up(self, upload) -> Tree
    #                                                  what of one client's message is counted, where some of it is padding
    #                                                  or known anyway; statistics that bn_stats keeps on the clients are
    #                                                  left out of what they are given
    # groups(self, setting) -> list[str]               a name for each of the N clients: data.group; stacks hold one group
    # warm_up(self, setting) -> (Algorithm, int)       another algorithm's rounds that come first, 0..T; runs that share
    #                                                  them can compute them once
    # survey(self, model, message, client, data)       what every client reports once at the end of the warm-up
    # take_over(self, model, setting, server, clients, reports) -> (Tree, Tree)
    #                                                  the state after it; reports [N, ...] (None without `survey`)
