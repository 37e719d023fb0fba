"""The contract of an algorithm: what a method defines, and what happens where it does not.

An algorithm is a frozen dataclass in a file of its own in this folder. Its fields are the hyper-parameters, named after
the paper's symbols, with the paper's values as defaults. Its methods are pure: they never modify their arguments.
Four things are kept apart: what the **server** keeps, what goes **down** (message), what a **client** keeps between
its rounds, and what goes **up** (upload). Each is a tree of tensors (`fedlib.base.tree`); the server may also keep
numbers. `model` says how to compute with parameters; its initial values theta0 are for `init` only, because the
engine trains runs with different seeds in one stack.

theta, the parameters of a model, is a flat dict of tensors by name (`fedlib.models.Model`). Batch norm's running
statistics are entries of theta like any other; the engine's transport applies the run's policy to them (`bn_stats`).

Letters in shapes: N all clients, K participants of a round, C classes, d features.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from fedlib.algorithms.parts.hooks import absent, check_hooks
from fedlib.algorithms.parts.passes import local_sgd
from fedlib.base import tree
from fedlib.base.carry import Travelling, is_arriving
from fedlib.base.options import Options

Tree = dict[str, Any]
SURVEYED = "all clients report once, at the end of the warm-up, and a new client is not there"


@dataclass(frozen=True)
class Setting:
    """What an algorithm may know of the run before it starts: N clients, T rounds, C classes, the run's seed, and,
    where clients report them once, the numbers of training samples of every class on each client, int64 [N, C]."""

    num_clients: int
    rounds: int
    num_classes: int
    seed: int = 0
    class_counts: Any = None


class ClientData(Protocol):
    """One client's data and its local training settings, as seen by `client_update`."""

    num_samples: Any  # training samples N_i
    class_counts: Any  # training samples of every class, int64 [C]
    local_epochs: int  # E
    lr: float  # eta
    group: str  # this client's group, where the algorithm has `groups`; the one thing that Python may branch on

    def fold(
        self, step, state, epochs: int | None = None, *, steps: int | None = None, together: int = 1, noise: int = 0
    ):
        """ "For each minibatch": state = step(state, batch); returns the last state.

        epochs: number of shuffled passes over the client's training samples (default E). A batch has x [B, c, h, w],
        y [B], mask (bool [B], or None when every row is a real sample) and mean(values [B]) over the real rows.
        steps: number of steps, instead of epochs. together: number of minibatches that a step gets, step(state, batch,
        batch', ...). noise: number of standard normal numbers per sample in batch.noise [B, noise].
        """

    def scan(self, step, state, part: str = "train"):
        """One pass in fixed order over "train", "val" or "test", which trains nothing; returns the last state."""

    def differentiate(self, model, loss, theta, part, batch) -> tuple[Any, Any]:
        """How to differentiate in a step of `fold`, to be given to `model.sgd_step`: (gradient, running statistics).

        The model's own gradient of loss(theta, batch, part) with respect to the parameters in `part`; under privacy =
        "record" that of every record, clipped, and noise. There a step that takes another gradient is refused.
        """


class Algorithm(Options, Travelling, ABC):
    """Base of all methods. Evaluation points are the codes glob, recv, agg, post and ft(k) of `fedlib.engine.evaluate`.

    A method defines the first six (`download` or `messages` is enough). The engine calls all of them; what follows
    them is defined only where the paper differs from the default. What many methods have for a hook is at the end of
    this file. A name that looks like a misspelt hook, or a hook with other parameters, is a TypeError when the class is
    defined.
    """

    points: Sequence[str] = ()  # evaluation points that make sense for this algorithm
    siblings: Sequence[str] = ()  # other backbones it uses (`model.sibling`), built before anything starts
    # where a client trains several models at once, how many; leaves of a theta, statistics too, are [num_models, ...]
    num_models: int | None = None
    val_fraction: float = 0.0  # this share of a client's training samples becomes its part "val"; usually an option
    batch_gradients: int = 1  # gradients per training step, all on the same minibatch
    # how training records reach others or a loss other than by gradients (prototypes, class counts), in words
    unprotected: str = ""
    no_newcomers: str = ""  # why a client that comes after the last round cannot join, where it cannot
    added: Sequence[str] = ()  # options that came after the first stored results, see `fedlib.spec`
    gone: Mapping[str, object] = {}  # removed options: the values that stored results had, and ids have

    @abstractmethod
    def init(self, model, setting: Setting) -> tuple[Tree, Tree]:
        """State before round 1: (server, clients), every leaf of clients stacked [N, ...]."""

    def download(self, server: Tree, i: int) -> Tree:
        """The message to client i: exactly what is sent down."""
        return tree.rows(self.messages(server, [i]), 0)

    @abstractmethod
    def client_update(self, model, message: Tree, client: Tree, data: ClientData) -> tuple[Tree, Tree]:
        """One client's round: (upload, new client state). The loop over minibatches is data.fold; no branch on data."""

    @abstractmethod
    def server_update(self, server: Tree, ids, uploads: Tree, n) -> Tree:
        """The new server state. ids: the K participants; uploads: stacked [K, ...]; n: their training samples [K]."""

    @abstractmethod
    def personal_model(self, model, message: Tree, client: Tree, data: ClientData) -> Tree:
        """theta of one client, from a message (or its last upload, of the same form) and the client's own state."""

    @abstractmethod
    def eval_points(self, server: Tree) -> tuple[str, ...]:
        """The points evaluated now; the first one is the primary one."""

    @absent
    def passes(self, T: int, t: int, E: int) -> int:
        """How often `client_update` goes through the training samples in round t of T; E: the run's local epochs.

        A pass has ceil(N_i / B) steps with `batch_gradients` gradients each, what privacy = "record" charges; a run
        that takes more is refused, and so is a method that does not say. Not inherited by one with a `client_update`
        of its own.
        """

    # communication ---------------------------------------------------------------------------------------------------

    def messages(self, server: Tree, ids: Sequence[int]) -> Tree:
        """The messages to clients `ids`, stacked [K, ...]; defined where many are computed faster together."""
        each = [self.download(server, int(i)) for i in ids]

        def joined(*leaves):
            same = all(leaf is leaves[0] for leaf in leaves)  # one message for all is not copied
            return leaves[0].expand(len(ids), *leaves[0].shape) if same else torch.stack(leaves)

        return tree.map(joined, each[0], *each[1:])

    def floats_down(self, message: Tree) -> Tree:
        """What of one client's message is counted, where some of it is padding or known anyway.

        What it is given holds no statistics that `bn_stats` keeps on the clients.
        """
        return message

    def floats_up(self, upload: Tree) -> Tree:
        """What of one client's upload is counted, as in `floats_down`."""
        return upload

    @absent
    def stored_upload(self, server: Tree, i: int) -> Tree:
        """Client i's last upload, of a server that keeps them all: what is evaluated at `post`."""

    @absent
    def chosen(self, server: Tree, i: int) -> tuple[Any, Any]:
        """Whose models client i is sent next, int64 [places], and which of these places are filled, bool [places]."""

    # what is tested --------------------------------------------------------------------------------------------------

    def predict(self, model, personal: Tree, x) -> Any:
        """Logits [B, C] of what `personal_model` returns, defined where that is more than a theta.

        x: images [B, c, h, w].
        """
        return model.logits(personal, x)

    def scores(self, model, personal: Tree, batch) -> Any:
        """What `predict` makes of a minibatch, [B, C]. Without a `predict` of its own, images may stay as stored."""
        if type(self).predict is Algorithm.predict:
            return model.scores(personal, batch)
        return self.predict(model, personal, batch.x)

    @absent
    def generic_model(self, model, message: Tree) -> Tree:
        """theta that is evaluated at `glob`, where `personal_model` is made for `recv`."""

    def fine_tune(self, model, theta: Tree, data: ClientData, epochs: int) -> Tree:
        """What `ft(k)` does with a copy."""
        return local_sgd(model, theta, data, epochs)

    # clients that differ, phases that differ -------------------------------------------------------------------------

    def groups(self, setting: Setting) -> Sequence[str]:
        """A name for each of the N clients, seen as data.group; stacks hold one group. (): all are of one group."""
        return ()

    def warm_up(self, setting: Setting) -> tuple[Algorithm | None, int]:
        """Another algorithm whose rounds come first, and how many, 0..T."""
        return None, 0

    @absent
    def survey(self, model, message: Tree, client: Tree, data: ClientData) -> Tree:
        """What every client reports once at the end of the warm-up, whose message and client state it gets."""

    def switch_phase(
        self, model, setting: Setting, server: Tree, clients: Tree, reports: Tree | None
    ) -> tuple[Tree, Tree]:
        """(server, clients) after the warm-up, from those before; reports: of `survey`, [N, ...], or None."""
        return server, clients

    # -----------------------------------------------------------------------------------------------------------------

    def __init_subclass__(cls, **options):
        super().__init_subclass__(**options)
        for part in cls.__mro__:
            if part is cls or not (issubclass(part, Algorithm) or part in Algorithm.__mro__):  # its mixins too
                check_hooks(part, Algorithm)
        if "client_update" in vars(cls) and "passes" not in vars(cls):
            cls.passes = None
        silent = cls.download is Algorithm.download and cls.messages is Algorithm.messages
        if silent and not is_arriving():
            raise TypeError(f"{cls.__name__} defines neither download nor messages")
        if cls.survey is not None and not cls.no_newcomers:
            cls.no_newcomers = SURVEYED


# what many methods have for a hook, and name in its place -------------------------------------------------------------


def local_epochs(self: Algorithm, T: int, t: int, E: int) -> int:
    """`passes`: one for each of the run's local epochs."""
    return E


def always(*points: str):
    """`eval_points`: these in every round."""

    def eval_points(self, server):
        return points

    return eval_points


def last_upload(self: Algorithm, server: Tree, i: int) -> Tree:
    """`stored_upload`, where server["models"] are all clients' last uploads, stacked [N, ...]."""
    return tree.rows(server["models"], i)
