"""The store of results: one JSON file a run, arrays beside it; a finished run is only overwritten to be done again."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from filelock import BaseFileLock, FileLock

from fedlib.attacks.spec import AttackSpec
from fedlib.base.errors import DataError, FedlibError
from fedlib.base.files import home, write_atomically
from fedlib.base.same_bits import arithmetic, of_run
from fedlib.data.datasets import is_own, load
from fedlib.engine.result import RunResult
from fedlib.spec import RunSpec

FORMAT = 1
Spec = RunSpec | AttackSpec


def spec_of(values: dict) -> Spec:
    """The inverse of a spec's `to_dict`: of a training run, or of an attack, which says so.
    Raises BadValue as these do."""
    return (AttackSpec if values.get("kind") == AttackSpec.kind else RunSpec).from_dict(values)


def _changed(dataset: str, checksum: str) -> bool:
    """Whether a user's own data has another checksum now; data that is gone has not changed."""
    try:
        return is_own(dataset) and not load(dataset).sha256.startswith(checksum)
    except DataError:
        return False


class Store:
    """The results of one profile under `<home>/results/<profile>/runs`.

    also: other profiles whose finished runs count as well; they are read where they lie and nothing is written there.
    renew: set it, and runs of another arithmetic than this process's count as absent, until they are done again.
    """

    renew = False

    def __init__(self, profile: str, root: Path | None = None, also: Sequence[str] = ()):
        results = home() / "results" if root is None else Path(root)
        self.folder = results / profile / "runs"
        self.elsewhere = [results / other / "runs" for other in also if other != profile]

    def path(self, spec: Spec) -> Path:
        """Where the run is, or where it will be written."""
        own = self.folder / f"{spec.id}.json"
        return next((path for path in (own, *(f / own.name for f in self.elsewhere)) if path.exists()), own)

    def get(self, spec: Spec) -> RunResult | None:
        """The stored result, or None. A damaged file, and one of a user's own data that has changed since, counts as
        absent, with a warning; in the own folder it is kept aside as *.damaged."""
        path = self.path(spec)
        if not path.exists():
            return None
        try:
            found = self.read(path)
            if _changed(spec.dataset, found.partition.get("data", "")):
                raise ValueError(f"{spec.dataset} holds other images now")
            return None if self.renew and of_run(found.provenance) not in (arithmetic(), "gpu") else found
        except (ValueError, KeyError, FileNotFoundError, TypeError) as error:
            number = next(k for k in range(10_000) if not path.with_name(f"{path.name}.damaged{k or ''}").exists())
            own = path.parent == self.folder
            for part in (path, path.with_suffix(".npz")):
                if own and part.exists():
                    os.replace(part, part.with_name(f"{part.name}.damaged{number or ''}"))
            message = f"stored run {path.name} ({spec.label}) is damaged: {error}"
            warnings.warn(f"{message}; {'kept aside as *.damaged, ' * own}the run is done again", stacklevel=2)
            return None

    def put(self, result: RunResult) -> None:
        """Write a result, arrays first, so that a JSON file is there only when everything is."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{result.spec.id}.json"
        body = {"format": FORMAT, **dataclasses.asdict(result), "spec": result.spec.to_dict()}
        del body["arrays"]
        if not result.newcomers:  # as results were before there were any
            del body["newcomers"]
        if result.arrays:
            packed = io.BytesIO()
            np.savez_compressed(packed, **result.arrays)
            write_atomically(path.with_suffix(".npz"), packed.getvalue())
            body["arrays_sha256"] = hashlib.sha256(packed.getvalue()).hexdigest()
        body["sha256"] = _digest(body)
        write_atomically(path, (json.dumps(body, indent=1) + "\n").encode())

    def check_writable(self) -> None:
        """Raise FedlibError if no result can be written here."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=self.folder).close()
        except OSError as error:
            why = f"results cannot be written to {self.folder} ({error.strerror})"
            raise FedlibError(f"{why}; FEDLIB_HOME sets another folder") from None

    def lock(self, id: str) -> BaseFileLock:
        """The lock that whoever does this run holds; other processes that want it wait, or do another run meanwhile."""
        locks = self.folder / ".locks"
        locks.mkdir(parents=True, exist_ok=True)
        return FileLock(locks / f"{id}.lock")

    def read(self, path: Path) -> RunResult:
        """The run in a file. Raises ValueError, KeyError, OSError or TypeError if it is damaged."""
        body = json.loads(path.read_text("utf-8"))
        if not isinstance(body, dict):
            raise ValueError("it does not hold a run")
        digest = body.pop("sha256")
        if digest != _digest(body):
            raise ValueError("its checksum does not match")
        if body.pop("format") != FORMAT:
            raise ValueError("its format is not the one this version reads")
        spec = spec_of(body["spec"])
        if spec.id != path.stem:
            raise ValueError(f"it holds another run, {spec.id}")
        arrays = {}
        expected = body.pop("arrays_sha256", None)
        if expected:
            packed = path.with_suffix(".npz").read_bytes()
            if hashlib.sha256(packed).hexdigest() != expected:
                raise ValueError("the checksum of its arrays does not match")
            with np.load(io.BytesIO(packed), allow_pickle=False) as stored:
                arrays = {name: stored[name] for name in stored.files}
        return RunResult(**{**body, "spec": spec}, arrays=arrays)


def _digest(body: dict) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
