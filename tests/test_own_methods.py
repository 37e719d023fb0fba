"""Methods from a notebook's cell, a file or a package: found, told apart by their source, carried to other processes,
checked."""

from __future__ import annotations

import dataclasses
import importlib
import json
import linecache
import math
import os
import pickle
import re
import subprocess
import sys
import textwrap

import pytest
import torch
from helpers import call, exact, tiny

import fedlib
from fedlib import algorithms
from fedlib.algorithms import registered
from fedlib.algorithms.api import Algorithm
from fedlib.algorithms.fedavg import FedAvg
from fedlib.algorithms.parts.passes import local_sgd
from fedlib.base import tree
from fedlib.base.errors import BadValue
from fedlib.checks import contract
from fedlib.checks.plays import Broken, difference
from fedlib.engine import worker_processes
from fedlib.engine.simulate import simulate
from fedlib.experiments import OpenItem, find
from fedlib.runs.store import Store
from fedlib.runs.sweep import run_all
from fedlib.spec import RunSpec

FILE = '''
"""Halfway: between the server's model and one's own."""
from dataclasses import dataclass

from fedlib.algorithms.api import Algorithm
from fedlib.algorithms.parts.passes import local_sgd
from fedlib.base import tree
from fedlib.base.options import option

SHARE = 1.0


def between(theta, own, w):
    return tree.map(lambda a, b: (1 - SHARE * w) * a + SHARE * w * b, theta, own)


def not_used():
    return 1


@dataclass(frozen=True)
class Halfway(Algorithm):
    w: float = option(0.5, 0, 1)
    points = ("recv", "post", "ft")

    def init(self, model, setting):
        return {"theta": model.theta0}, {"own": tree.repeat(model.theta0, setting.num_clients)}

    def download(self, server, i):
        return server["theta"]

    def client_update(self, model, message, client, data):
        trained = local_sgd(model, between(message, client["own"], self.w), data)
        return trained, {"own": trained}

    def server_update(self, server, ids, uploads, n):
        return {"theta": tree.weighted_mean(uploads, n)}

    def personal_model(self, model, message, client, data):
        return between(message, client["own"], self.w)

    def eval_points(self, server):
        return ("recv",)
'''


@pytest.fixture(autouse=True)
def nothing_registered(monkeypatch, tmp_path):
    """Tests leave no method behind, and write nowhere else."""
    monkeypatch.setattr(registered, "OWN", {})
    for name in ("HOME", "CACHE"):
        monkeypatch.setenv(f"FEDLIB_{name}", str(tmp_path / name.lower()))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def halfway(tmp_path):
    """The file of a method."""
    (tmp_path / "halfway.py").write_text(FILE)
    return "./halfway.py:Halfway"


def cell(text: str, **names) -> dict:
    """What a notebook's cell leaves behind: its source is known to `linecache`, and its module is __main__."""
    file = f"<cell {len(linecache.cache)}>"
    text = textwrap.dedent(text)
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    namespace = {"__name__": "__main__", "FedAvg": FedAvg, "dataclass": dataclasses.dataclass, **names}
    exec(compile(text, file, "exec"), namespace)
    return namespace


FAST = """
def rate(data):
    return RATE * data.lr

@dataclass(frozen=True)
class Fast(FedAvg):
    def client_update(self, model, message, client, data):
        return local_sgd(model, message, data, lr=rate(data)), client
"""


# found ----------------------------------------------------------------------------------------------------------------


def test_a_misspelt_name_of_fedlib_is_an_error():
    with pytest.raises(AttributeError, match="'regster'"):
        fedlib.regster  # noqa: B018


def test_a_file_is_run_from_the_command_line(halfway):
    options = ("--clients", 4, "--rounds", 2, "--min-size", 5)
    done = call("run", halfway, "--set", "w=0", *options)
    assert done.exit_code == 0 and "round    2:" in done.stdout, done.output
    plain = call("run", "fedavg", *options, "--set", 'eval_points=["glob"]')
    assert done.stdout.splitlines()[:2] == plain.stdout.splitlines()[:2]  # w = 0 is FedAvg
    assert "halfway" in algorithms.names() and algorithms.text("halfway").startswith("Halfway: between")
    shown = call("list", "--methods").stdout
    assert "halfway" in shown and "between the server's model" in shown
    table = call("list", halfway)
    assert table.exit_code == 0 and "1.00 (model)" in table.stdout


def test_a_file_with_one_method_needs_no_class(halfway):
    assert algorithms.named("halfway.py") == "halfway"
    assert algorithms.make("halfway", w=0.25).w == 0.25


def test_a_table_of_a_paper_takes_it(halfway):
    item = OpenItem(find("pfedsim/table3_accuracy"), "smoke", methods=f"local,{halfway}")
    assert item.settings["methods"] == ("local", "halfway")
    assert {spec.method for spec in item.specs} == {"local", "halfway"} and "halfway.py" not in item.place


def test_its_notebook_gets_the_file(halfway, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDLIB_HOME", str(tmp_path / "home"))
    done = call("reproduce", "pfedsim/table3_accuracy", "--methods", f"local,{halfway}", "--profile", "smoke",
                "--jobs", "1")  # fmt: skip
    assert done.exit_code == 0 and "FAILED" not in done.output, done.output
    (made,) = (tmp_path / "home").rglob("notebooks/pfedsim/table3_accuracy.ipynb")
    assert f'methods = \\"local,{tmp_path}/halfway.py:Halfway\\"' in made.read_text()


def test_a_class_of_a_cell_is_registered_under_its_name_or_another():
    kind = cell(FAST, RATE=2, local_sgd=local_sgd)["Fast"]
    assert fedlib.register(kind) is kind and algorithms.find("fast") is kind
    assert fedlib.register(name="quick_one")(kind) is kind and algorithms.find("quick_one") is kind
    assert simulate(tiny("fast")).final("loss") > 0


def test_a_class_of_a_package_is_registered(tmp_path, monkeypatch):
    (tmp_path / "halfway_package.py").write_text(FILE)
    monkeypatch.syspath_prepend(str(tmp_path))
    fedlib.register(importlib.import_module("halfway_package").Halfway, name="half")
    sys.modules.pop("halfway_package")
    assert "half" in algorithms.names() and len(tiny("half").method_source) == 16
    assert simulate(tiny("half", rounds=1)).point == "recv"


# told apart -----------------------------------------------------------------------------------------------------------


def changed(tmp_path, old: str, new: str) -> str:
    """The id of a run of the file's method, with a change in the file."""
    assert old in FILE
    (tmp_path / "halfway.py").write_text(FILE.replace(old, new))
    algorithms.named("halfway.py")
    return tiny("halfway").id


def test_a_change_of_the_source_is_another_run(tmp_path):
    """Of a function of the class, of one that it uses, and of a number that this one uses; not of what it does not
    use."""
    ids = [
        changed(tmp_path, "", ""),
        changed(tmp_path, '{"theta": tree.w', '{"theta":  tree.w'),
        changed(tmp_path, "(1 - SHARE * w) * a", "(1 - w) * a"),
        changed(tmp_path, "SHARE = 1.0", "SHARE = 0.9"),
        changed(tmp_path, "option(0.5, 0, 1)", "option(0.5, 0, 2)"),
    ]
    assert len(set(ids)) == 5
    assert changed(tmp_path, "return 1", "return 2") == ids[0]


def test_the_id_is_the_same_in_another_process(halfway):
    algorithms.named(halfway)
    script = "from fedlib import algorithms; from fedlib.spec import RunSpec; algorithms.named('halfway.py'); "
    done = subprocess.run(
        [sys.executable, "-c", script + "print(RunSpec('halfway').id)"], capture_output=True, text=True
    )
    assert done.stdout.strip() == RunSpec("halfway").id, done.stderr


def test_methods_of_fedlib_have_no_source_in_their_ids():
    assert "method_source" not in RunSpec("fedavg").to_dict() and RunSpec("fedavg").method_source == ""


def test_a_function_of_another_cell_that_is_defined_anew_stops_old_specs():
    names = cell(FAST, RATE=2, local_sgd=local_sgd)
    fedlib.register(names["Fast"])
    spec = tiny("fast")
    names["RATE"] = 3
    with pytest.raises(BadValue, match="'fast' is not what it was.*make the RunSpec again"):
        simulate(spec)
    again = tiny("fast")
    assert again.id != spec.id and simulate(again).spec == again
    assert spec.but(method="fedavg").id == tiny("fedavg").id


def test_a_changed_method_does_not_reuse_stored_results(tmp_path, halfway):
    """It does not find them either: the changed method is trained, and both results stay."""
    store = Store("own", tmp_path)
    algorithms.named(halfway)
    first = tiny("halfway", rounds=1)
    run_all([first], store, jobs=1)
    (tmp_path / "halfway.py").write_text(FILE.replace("SHARE = 1.0", "SHARE = 0.0"))
    algorithms.named(halfway)
    second = tiny("halfway", rounds=1)
    assert store.get(second) is None
    done = run_all([second], store, jobs=1)
    assert done[second.id].spec.method_source != first.method_source and len(list(store.folder.glob("*.json"))) == 2
    assert store.get(second).history == done[second.id].history


# carried --------------------------------------------------------------------------------------------------------------


def test_a_run_arrives_in_a_process_that_does_not_know_the_method(tmp_path):
    """With its class, its source's hash and a function of another cell."""
    fedlib.register(cell(FAST, RATE=2, local_sgd=local_sgd)["Fast"])
    spec = tiny("fast", rounds=1)
    (tmp_path / "spec").write_bytes(pickle.dumps(spec))
    script = """
import pickle, json
from fedlib.engine.simulate import simulate
spec = pickle.loads(open("spec", "rb").read())
again = spec.from_dict(spec.to_dict())
print(json.dumps([spec.id, again.id, simulate(again).history, pickle.loads(pickle.dumps(spec)) == spec]))
"""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout) == [spec.id, spec.id, simulate(spec).history, True]


@pytest.mark.parametrize("how", ["forkserver", "spawn"])
def test_worker_processes_get_the_method(how, monkeypatch):
    """Of a cell; in both ways to start workers."""
    if how == "spawn":
        monkeypatch.setattr(worker_processes.sys, "platform", "darwin")
    elif not sys.platform.startswith("linux"):
        pytest.skip("NO FORK SERVER HERE: it was NOT tested")
    fedlib.register(cell(FAST, RATE=2, local_sgd=local_sgd)["Fast"])
    spec = tiny("fast", rounds=1)
    assert exact(simulate(spec, backend="process", workers=1)) == exact(simulate(spec, backend="serial"))


def test_runs_side_by_side_get_the_method(tmp_path, halfway):
    algorithms.named(halfway)
    specs = [tiny("halfway", rounds=1, seed=seed) for seed in range(2)]
    done = run_all(specs, Store("own", tmp_path), jobs=2)
    assert [exact(done[spec.id]) for spec in specs] == [exact(simulate(spec)) for spec in specs]
    assert registered.OWN["halfway"].carried is None  # what comes back does not replace what is here


# bad input ------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Good(FedAvg):
    pass


class Undecorated(FedAvg):
    rate: float = 0.1


@dataclasses.dataclass(frozen=True)
class Unfinished(Algorithm):
    def download(self, server, i):
        return server


@dataclasses.dataclass(frozen=True)
class WithoutDefault(FedAvg):
    rate: float


@dataclasses.dataclass(frozen=True)
class OutOfRange(FedAvg):
    rate: float = 2.0

    def __post_init__(self):
        if self.rate > 1:
            raise ValueError(f"rate = {self.rate}")


@pytest.mark.parametrize(
    ("kind", "options", "said"),
    [
        (3, {}, "method = 3 is not accepted; expected a class derived from"),
        (dict, {}, "a class derived from fedlib.algorithms.api.Algorithm"),
        (Undecorated, {}, r"Undecorated is no method yet: write @dataclass\(frozen=True\) above it"),
        (Unfinished, {}, "does not define client_update, eval_points, init, personal_model, server_update"),
        (WithoutDefault, {}, "rate needs a default value"),
        (OutOfRange, {}, r"OutOfRange\(\) fails: rate = 2.0"),
        (Good, {"name": "fedavg"}, "name = 'fedavg' is not accepted.*free"),
        (Good, {"name": "Not This"}, "name = 'Not This' is not accepted; expected small letters"),
    ],
)
def test_classes_that_cannot_be_registered(kind, options, said):
    with pytest.raises(BadValue, match=said) as error:
        fedlib.register(kind, **options)
    assert "\n" not in str(error.value) and not registered.OWN


def test_a_name_is_one_class_s(tmp_path, halfway):
    """The same class defined anew may have it, another one may not."""
    fedlib.register(Good, name="halfway")
    fedlib.register(Good, name="halfway")
    with pytest.raises(BadValue, match="name = 'halfway' is not accepted.*class Good in .*test_own_methods.py"):
        algorithms.named(halfway)


def test_a_class_without_source_is_refused():
    names = {"FedAvg": FedAvg, "dataclass": dataclasses.dataclass, "local_sgd": local_sgd, "__name__": "__main__"}
    fedlib.register(cell(FAST, RATE=2, local_sgd=local_sgd)["Fast"])  # whose source is known from now on
    exec(FAST.replace("RATE", "FACTOR"), names)  # its function `rate` is other code
    with pytest.raises(BadValue, match="source of 'rate' cannot be read.*in a file or in a notebook's cell"):
        fedlib.register(names["Fast"])


@pytest.mark.parametrize(
    ("text", "content", "said"),
    [
        ("none.py:X", None, "'none.py:X' is not accepted; expected FILE.py:CLASS; there is no such file"),
        ("mine.py:Halfwy", FILE, "unknown class in mine.py 'Halfwy'; did you mean Halfway"),
        ("mine.py:X", "def f(:", "mine.py:X cannot be imported in line 1: SyntaxError"),
        ("mine.py:X", "import no_such_package", "cannot be imported: ModuleNotFoundError: No module named 'no_such_"),
        ("mine.py", "x = 1", "expected FILE.py:CLASS with one of no methods there"),
        ("mine.py:Misspelt", FILE + "\nclass Misspelt(Halfway):\n    def downlaod(self, server, i): ...\n",
         "Misspelt.downlaod looks like the hook 'download'"),
        ("mine.py:Other", FILE + "\nclass Other:\n    pass\n", "expected a class derived from"),
    ],
)  # fmt: skip
def test_files_that_cannot_be_used(tmp_path, text, content, said):
    if content is not None:
        (tmp_path / "mine.py").write_text(content)
    for command in (["run"], ["run", "--check"], ["list"]):
        done = call(*command, text)
        assert done.exit_code == 2 and said in done.output and done.output.count("\n") == 1, done.output


# checked --------------------------------------------------------------------------------------------------------------


def test_a_good_method_passes_all_checks(halfway):
    done = call("run", halfway, "--check", "--set", "w=0.3")
    assert done.exit_code == 0 and "10 of 10 checks passed" in done.stdout, done.output
    assert done.stdout.count("\n") == 11


class Hidden:
    """A number that a method keeps where nobody looks for it."""

    number = 0


SEEN = Hidden()


@dataclasses.dataclass(frozen=True)
class InPlace(FedAvg):
    def server_update(self, server, ids, uploads, n):
        for leaf in server["theta"].values():
            leaf += 1
        return super().server_update(server, ids, uploads, n)


@dataclasses.dataclass(frozen=True)
class OtherMessages(FedAvg):
    def messages(self, server, ids):
        return tree.map(lambda leaf: 2 * leaf, super().messages(server, ids))


@dataclasses.dataclass(frozen=True)
class GlobalDraws(FedAvg):
    def client_update(self, model, message, client, data):
        upload, client = super().client_update(model, message, client, data)
        return tree.map(lambda leaf: leaf * (1 + 0.01 * torch.rand(())), upload), client


@dataclasses.dataclass(frozen=True)
class Branching(FedAvg):
    def client_update(self, model, message, client, data):
        if message["head.bias"].sum() > 100:
            return message, client
        return super().client_update(model, message, client, data)


@dataclasses.dataclass(frozen=True)
class Unmasked(FedAvg):
    """Its loss counts padded rows."""

    def client_update(self, model, message, client, data):
        def loss(theta, batch, train):
            return (model.training_features(theta, batch, train)[0] ** 2).mean(), {}

        return local_sgd(model, message, data, loss=loss), client


@dataclasses.dataclass(frozen=True)
class BackToTheStart(FedAvg):
    def client_update(self, model, message, client, data):
        return super().client_update(model, tree.map(torch.add, message, model.theta0), client, data)


@dataclasses.dataclass(frozen=True)
class Remembers(FedAvg):
    """What the server does depends on how often it was called in this process."""

    def server_update(self, server, ids, uploads, n):
        SEEN.number += 1
        return {
            "theta": tree.map(
                lambda leaf: leaf * 0.9**SEEN.number, super().server_update(server, ids, uploads, n)["theta"]
            )
        }


@dataclasses.dataclass(frozen=True)
class ByProcess(FedAvg):
    def client_update(self, model, message, client, data):
        upload, client = super().client_update(model, message, client, data)
        return tree.map(lambda leaf: leaf * (1 + 1e-9 * os.getpid()), upload), client


@dataclasses.dataclass(frozen=True)
class Elsewhere(FedAvg):
    def eval_points(self, server):
        return ("recv",)


@dataclasses.dataclass(frozen=True)
class Infinite(FedAvg):
    def personal_model(self, model, message, client, data):
        return tree.map(lambda leaf: leaf * math.inf, message)


@dataclasses.dataclass(frozen=True)
class Overcounted(FedAvg):
    def floats_up(self, upload):
        return {"twice": (upload, upload)}


@dataclasses.dataclass(frozen=True)
class Uncounted(FedAvg):
    def floats_down(self, message):
        return {}


@dataclasses.dataclass(frozen=True)
class Trains(FedAvg):
    """What the server does depends on how often somebody was tested."""

    def personal_model(self, model, message, client, data):
        SEEN.number += 1
        return message

    def server_update(self, server, ids, uploads, n):
        return {"theta": tree.map(lambda leaf: leaf + 1e-3 * SEEN.number, tree.weighted_mean(uploads, n))}


@dataclasses.dataclass(frozen=True)
class Unstorable(FedAvg):
    rates: object = dataclasses.field(default_factory=lambda: {0.1, 0.2})


@pytest.mark.parametrize(
    ("kind", "check", "said"),
    [
        (
            InPlace,
            contract.inputs_stay,
            "server_update changes its argument server: theta extractor.conv1.weight differs",
        ),
        (
            OtherMessages,
            contract.inputs_stay,
            "messages is not what download is for each client: extractor.conv1.weight",
        ),
        (GlobalDraws, contract.seed_decides, "two runs with one seed differ: .*draw with fedlib.base.draws.rng"),
        (Branching, contract.stack_agrees, "RuntimeError: vmap.* \\(in client_update, line \\d+\\)"),
        (Unmasked, contract.stack_agrees, "backend vmap does not give what serial gives: server theta"),
        (BackToTheStart, contract.seeds_stack, "two seeds in one stack .*; model.theta0 is for init only"),
        (Remembers, contract.resuming_changes_nothing, "stopped after round 2 ends with other numbers"),
        (Remembers, contract.seed_decides, "two runs with one seed differ"),
        (ByProcess, contract.processes_agree, "backend process does not give what serial gives: server theta"),
        (Elsewhere, contract.points_exist, r"eval_points returns \('recv',\) after round 0, but points has \('glob', "),
        (Infinite, contract.points_exist, "the loss at .* is nan"),
        (Overcounted, contract.travel_is_counted, r"floats_up counts \d+ numbers of a message that holds \d+"),
        (Uncounted, contract.travel_is_counted, "floats_down counts none of the \\d+ numbers that went down"),
        (Trains, contract.testing_changes_nothing, "testing after every round changes the last test"),
        (Unstorable, contract.options_can_be_stored, "options are numbers, names, true, false or none"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_each_check_finds_what_it_is_for(kind, check, said):
    """And FedAvg passes it (the test above)."""
    SEEN.number = 0
    fedlib.register(kind, name="wrong")
    ((_, found),) = contract.check("wrong", {}, [check])
    assert re.search(said, found), found
    assert "\n" not in found


def test_what_is_wrong_is_printed_and_is_the_exit_status(monkeypatch, tmp_path):
    wrong = "\n    def floats_down(self, message):\n        return {}\n"
    (tmp_path / "mine.py").write_text(FILE + wrong)
    monkeypatch.setattr(contract, "CHECKS", (contract.options_can_be_stored, contract.travel_is_counted))
    monkeypatch.setattr(contract.check, "__defaults__", (contract.CHECKS,))
    monkeypatch.setattr("fedlib.reports.one_run.CHECKS", contract.CHECKS)
    done = call("run", "mine.py:Halfway", "--check")
    lines = done.stdout.splitlines()
    assert done.exit_code == 1 and lines[0].startswith("ok ") and lines[1].startswith("WRONG ")
    assert "floats_down counts none" in lines[2] and lines[3] == "1 of 2 checks passed"


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        ({"x": 1}, {"y": 1}, "it has ['x'], expected ['y']"),
        ([1, 2], [1], "it has 2 entries, expected 1"),
        ({"x": (torch.zeros(2),)}, {"x": (torch.zeros(3),)}, "x [0] is torch.float32 [2], expected torch.float32 [3]"),
        ({"x": [0.5]}, {"x": [0.25]}, "x [0] is 0.5, expected 0.25"),
        (torch.tensor([1.0, math.nan]), torch.tensor([1.0, math.nan]), ""),
        (torch.tensor([1.0]), torch.tensor([1.5]), "it differs by 5.0e-01"),
    ],
)  # fmt: skip
def test_differences_in_words(a, b, said):
    assert difference(a, b) == said and issubclass(Broken, AssertionError)
