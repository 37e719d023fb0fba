"""RunSpec: everything that determines the numbers of one training run. Its hash is the run's name in the store."""

from __future__ import annotations

import dataclasses
import json
import re
from copy import copy
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from fedlib import algorithms
from fedlib.algorithms.api import Algorithm, Setting
from fedlib.base import draws
from fedlib.base.errors import BadValue, check_fields, choose, like, require
from fedlib.base.options import Hashed, signature
from fedlib.data.datasets import Dataset
from fedlib.data.own import full_name
from fedlib.data.partition import SCHEMES, Partition, checked_parameters, make_partition, parameters_of
from fedlib.data.split import check_split, official_halves, some_of_each, split_clients
from fedlib.measures import check_measure
from fedlib.models import check_model, checked_options, maker, options_of
from fedlib.privacy.noise import Mechanism

# Fields that came after the first stored results. At their default they are left out of the canonical JSON, so that the
# ids of those results stay; classes of methods and schemes, and models, name such parameters of theirs in `added`.
ADDED_FIELDS = (
    *("stratified", "test_distribution", "privacy", "noise_sigma", "noise_clip", "images", "pixels", "batch_order"),
    *("unseen", "join_epochs", "method_source", "holdout", "test_part"),
)
STATISTICS = ("local", "global")  # where batch norm's running statistics are kept, see fedlib.engine.state
RECOMPUTED = "+bn"  # ends the codes of evaluation points with statistics of the client's training data
PIXELS, ORDERS = ("standardised", "reference", "symmetric"), ("shuffled", "fixed")
TEST_PARTS = ("drawn", "official")
PRECISIONS = ("float32", "float64", "tf32", "bf16")  # the last two: GPU only; forward pass in bfloat16, sums in float32


@dataclass(frozen=True)
class RunSpec(Hashed):
    """One run: task, method and evaluation. Defaults are pFedSim's common settings (§5.1); all fields are checked here.

    Raises BadValue for an unknown field value or one out of range, before anything is loaded or trained.
    """

    method: str
    hyper: dict = field(default_factory=dict)  # the method's hyper-parameters; missing ones take its defaults
    dataset: str = "digits"
    scheme: str = "dirichlet"  # partition scheme
    partition: dict = field(default_factory=dict)  # its parameters
    num_clients: int = 100  # N
    test_fraction: float = 0.5  # of each client's own data
    stratified: bool = False  # test and validation parts keep the shares of the classes
    test_distribution: str = "matched"  # what a client is tested on, see fedlib.data.split
    model: str = "lenet5_bn"
    model_options: dict = field(default_factory=dict)
    join_ratio: float = 0.1  # r
    rounds: int = 200  # T
    local_epochs: int = 5  # E
    batch_size: int = 32  # B
    lr: float = 0.01  # eta
    bn_stats: str = "local"
    precision: str = "float32"
    eval_every: int = 10  # rounds between evaluations; the last round is always evaluated
    eval_points: tuple[str, ...] = ()  # () = the method's own
    measures: tuple[str, ...] = ()  # measurements on the final models or after every round, see fedlib.measures
    seed: int = 0  # initial parameters, participants, batches
    partition_seed: int = 0  # partition and splits; fixed across seeds in pFedSim
    privacy: str = "none"  # a mechanism of fedlib.privacy.noise, with its σ and its bound on norms
    noise_sigma: float = 0.0
    noise_clip: float = 1.0
    images: int = 0  # use so many images, stratified by class, sampled by partition_seed; 0: all
    pixels: str = "standardised"  # or "reference" (pFedSim's code) or "symmetric", see fedlib.engine.batches.DeviceData
    batch_order: str = "shuffled"  # in every epoch; or "fixed": always the order of the client's training part
    unseen: int = 0  # number of new clients: sampled by partition_seed, absent until the last round is over
    join_epochs: int = 1  # local epochs with which new clients then join, see fedlib.engine.join; 0: tested on arrival
    holdout: float = 0.0  # share of each training part kept for validation; 0: only where the method needs it
    test_part: str = "drawn"  # sampled from each client's data; or "official": the data set's own test part
    method_source: str = ""  # hash of the source of a method that is not fedlib's; filled in here
    kind: ClassVar = "run"

    def __post_init__(self):
        def put(name, value):
            object.__setattr__(self, name, value)

        put("dataset", full_name(self.dataset) if isinstance(self.dataset, str) else self.dataset)
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            if isinstance(f.default, (bool, int, float, str)):
                put(f.name, like(f.default, f.name, value))
            elif f.name in ("hyper", "partition", "model_options"):
                require(isinstance(value, dict), f.name, value, "a dict")
            elif f.name != "method":
                value = [part.strip() for part in value.split(",")] if isinstance(value, str) and value else value
                listed = isinstance(value, (list, tuple)) and all(isinstance(v, str) for v in value)
                require(listed, f.name, value, "a list of names")
                put(f.name, tuple(value))
        put("method_source", self.method_source or algorithms.source_of(self.method))
        method = self.algorithm
        put("hyper", dataclasses.asdict(method))
        choose("partition scheme", self.scheme, SCHEMES)
        put("partition", checked_parameters(self.scheme, self.partition))
        check_model(self.model)
        put("model_options", checked_options(self.model, self.model_options))
        names = dict(bn_stats=STATISTICS, precision=PRECISIONS, pixels=PIXELS, batch_order=ORDERS, test_part=TEST_PARTS)
        check_fields(self, **names)
        for measure in self.measures:
            check_measure(measure, method)
        self._check_validation(method)
        for name in ("num_clients", "rounds", "local_epochs", "batch_size", "eval_every"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "an integer of at least 1")
        for name in ("seed", "partition_seed"):
            require(0 <= getattr(self, name) < 2**32, name, getattr(self, name), "an integer from 0 to 2^32 - 1")
        require(self.images >= 0, "images", self.images, "a number of images, or 0 for all")
        check_split(self.test_fraction, test_distribution=self.test_distribution)
        halves, official = SCHEMES[self.scheme].halves, self.test_part == "official"
        if halves or official:
            fixed = f"scheme {self.scheme!r}" if halves else "test_part 'official'"
            own = f"drawn for {fixed}, which has its own halves"
            require(not (halves and official), "test_part", self.test_part, own)
            require(self.test_fraction == 0.5, "test_fraction", self.test_fraction, f"0.5, the default, for {fixed}")
            require(not self.stratified, "stratified", True, f"False for {fixed}, which draws no split")
        self._check_newcomers(method)
        require(0 < self.join_ratio <= 1, "join_ratio", self.join_ratio, "a number above 0 and up to 1")
        require(self.lr > 0, "lr", self.lr, "a positive number")
        Mechanism(self.privacy, self.noise_sigma, self.noise_clip)
        for point in self.eval_points:
            code = "ft" if re.fullmatch(r"ft\([1-9]\d*\)", point) else point.removesuffix(RECOMPUTED)
            if code not in method.points or point in ("ft", "ft" + RECOMPUTED):
                accepted = ", ".join("ft(K) with K epochs" if p == "ft" else p for p in method.points)
                accepted += f"; all but ft also with {RECOMPUTED} at the end"
                raise BadValue(f"evaluation point {point!r} does not exist for {self.method!r}; accepted: {accepted}")

    def _check_validation(self, method: Algorithm) -> None:
        own = method.val_fraction
        accepted = f"{own:g}, which the method takes, or 0" if own else "a number from 0 to below 1"
        require(0 <= self.holdout < 1 and self.holdout in (0, own or self.holdout), "holdout", self.holdout, accepted)
        none = "validation" in self.measures and not self.validation
        require(not none, "holdout", 0, "a number above 0 where the measure 'validation' is taken")

    def _check_newcomers(self, method: Algorithm) -> None:
        all_but_one = f"a number from 0 to {self.num_clients - 1}, so that a client is left to train"
        require(0 <= self.unseen < self.num_clients, "unseen", self.unseen, all_but_one)
        require(self.join_epochs >= 0, "join_epochs", self.join_epochs, "an integer of at least 0")
        reason = f"0 for {self.method!r}: {method.no_newcomers}"
        require(not (self.unseen and method.no_newcomers), "unseen", self.unseen, reason)
        require(self.unseen or self.join_epochs == 1, "join_epochs", self.join_epochs, "1 where unseen is 0")

    @property
    def algorithm(self) -> Algorithm:
        """The method with its hyper-parameters. Raises BadValue for an unknown method, hyper-parameter or value, and if
        the method is another one now than it was when this was made."""
        if self.method_source != (now := algorithms.source_of(self.method)):
            raise BadValue(
                f"method {self.method!r} is not what it was: its source, with the values that it uses, had the hash "
                f"{self.method_source or 'none'}, now {now or 'none'}; make the RunSpec again"
            )
        return algorithms.make(self.method, **self.hyper)

    @property
    def warm_up(self) -> tuple[Algorithm | None, int]:
        """The method whose rounds come first, and how many these are."""
        return self.algorithm.warm_up(Setting(self.num_members, self.rounds, num_classes=0, seed=self.seed))

    def __reduce__(self):
        """Pickled with the method, where another process would not know it."""
        return _with_method, (vars(self), algorithms.registered.carried(self.method))

    @property
    def validation(self) -> float:
        """Share of each training part that is kept for validation: `holdout`, else what the method needs."""
        return self.holdout or self.algorithm.val_fraction

    @property
    def num_members(self) -> int:
        """Clients that take part in the rounds: all but the new clients. `join_ratio` is the share of these."""
        return self.num_clients - self.unseen

    @property
    def arrival(self) -> np.ndarray:
        """The clients of the partition in the order in which they come, int64 [num_clients]: the members, sorted, then
        the new clients, sorted. A client's number in a run is its place here."""
        last = draws.newcomers(self.partition_seed, self.num_clients, self.unseen)
        return np.concatenate([np.setdiff1d(np.arange(self.num_clients), last), last])

    @property
    def mechanism(self) -> Mechanism:
        """What its privacy fields say."""
        return Mechanism(self.privacy, self.noise_sigma, self.noise_clip)

    def to_dict(self) -> dict:
        """The resolved fields as JSON types, without those that came later and have their default."""
        values = {f.name: copy(getattr(self, f.name)) for f in dataclasses.fields(self)}
        _leave_out(values, RunSpec, ADDED_FIELDS)
        method = algorithms.find(self.method)
        _leave_out(values["hyper"], method, method.added)
        values["hyper"] |= method.gone
        for name, kind in (("partition", SCHEMES[self.scheme]), ("model_options", maker(self.model))):
            _leave_out(values[name], kind, getattr(kind, "added", ()))
        return json.loads(json.dumps(values))

    @classmethod
    def of_task(cls, task: dict, method: str, **row) -> RunSpec:
        """A run of a task. task: fields of the run, parameters of its scheme, options of its model;
        what else it has is left out.

        row: fields of the run, or hyper-parameters of the method. Raises BadValue as the class does.
        """
        known = {f.name for f in dataclasses.fields(cls)}
        fields = {name: value for name, value in {**task, **row}.items() if name in known}
        parameters = parameters_of(fields.get("scheme", cls.scheme))
        nested = {"partition": parameters, "model_options": options_of(fields.get("model", cls.model))}
        for name, names in nested.items():
            fields[name] = {key: task[key] for key in names if key in task} | fields.get(name, {})
        return cls(method, hyper={name: value for name, value in row.items() if name not in known}, **fields)

    def but(self, **changes) -> RunSpec:
        """A copy with some fields changed."""
        same = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        if "method" in changes:
            del same["method_source"]
        return RunSpec.from_dict({**same, **changes})

    @property
    def division(self) -> dict:
        """All that determines the partition, which is the same for specs with these settings and one data set."""
        names = ("images", "num_clients", "scheme", "partition", "test_part", "test_fraction", "stratified")
        own = {name: getattr(self, name) for name in (*names, "test_distribution")}
        return {**own, "seed": self.partition_seed, "val_fraction": self.validation}

    def divide(self, dataset: Dataset) -> tuple[Partition, list[dict[str, np.ndarray]]]:
        """The partition of a data set, and every client's samples by part: train, test, val.

        Raises BadValue and InfeasiblePartition if the data cannot be divided as the fields say.
        """
        return _divided(dataset, **self.division)

    @property
    def title(self) -> str:
        """A short name, without the seed."""
        parts = [self.method, *(f"{k}={v}" for k, v in self.hyper.items() if k == "rho"), self.dataset]
        if "alpha" in self.partition:
            parts.append(f"Dir({self.partition['alpha']})")
        if self.privacy != "none":
            kind = {"record": "record-level DP", "client": "client-level DP"}.get(self.privacy, "unclipped noise")
            parts.append(f"{kind} σ={self.noise_sigma:g}")
        return " ".join(parts)


def _divided(
    dataset: Dataset, images: int, num_clients: int, scheme: str, partition: dict, test_part: str, seed: int, **split
) -> tuple[Partition, list[dict[str, np.ndarray]]]:
    """`RunSpec.divide`, which knows nothing but the division; split: arguments of `split_clients`."""
    reason = f"official for {dataset.name}, whose inputs were made with statistics of its training part"
    require(test_part == "official" or not dataset.fitted, "test_part", test_part, reason)
    labels = dataset.labels.numpy()
    used = some_of_each(labels, images or len(labels), seed)
    groups = None if dataset.groups is None else dataset.groups.numpy()[used]
    made = make_partition(labels[used], num_clients, scheme, seed, groups=groups, **partition).among(used)
    halves = official_halves(made.clients, dataset.is_test.numpy()) if test_part == "official" else made.halves
    return made, split_clients(made.clients, labels, seed, halves=halves, **split)


def _with_method(fields: dict, method: algorithms.registered.Carried | None) -> RunSpec:
    algorithms.registered.accept(method)
    spec = object.__new__(RunSpec)
    vars(spec).update(fields)
    return spec


def _leave_out(values: dict, kind: object, added: tuple[str, ...]) -> None:
    """Remove from `values` those of the `added` parameters of a class or function that have their default."""
    parameters = signature(kind).parameters if added else {}
    for name in added:
        if values[name] == parameters[name].default:
            del values[name]
