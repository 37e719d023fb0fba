"""What is asked of all methods, a question a function and the methods in its table: values that are refused, backends
that agree, who owns what, what is sent, what is learned. Steps by hand are in test_methods_* and in the lessons."""

from __future__ import annotations

import copy
import dataclasses
import functools

import numpy as np
import pytest
import torch
from helpers import (
    HYPER,
    METHODS,
    POINTS,
    backends_agree,
    close,
    computed,
    exact,
    outcome,
    played,
    rounds_that_leave_inputs_alone,
    same,
    shorter,
    tensors,
    tiny,
    uneven,
    wide,
)

from fedlib import algorithms
from fedlib.base import tree
from fedlib.base.errors import BadValue
from fedlib.base.options import Options
from fedlib.checks.contract import MANY
from fedlib.checks.plays import rounds_with_tests
from fedlib.engine.client_data import PlainData
from fedlib.engine.evaluate import evaluate
from fedlib.engine.setup import set_up
from fedlib.engine.simulate import simulate, simulate_together

CORE = ("fedavg", "fedper", "local", "pfedsim")  # every method is compared once, these under every circumstance
HEAD = {"head.weight", "head.bias"}

# values ---------------------------------------------------------------------------------------------------------------


REFUSED = {  # by method and field, values that are out of range
    "clusterfl": dict(eps_mode=["rel"], min_size=[0]),
    "fedamp": dict(sigma=[0.0]),
    "fedavg_ft": dict(ft_part=["tail"], k=[0]),
    "fedbabu": dict(ft_part=["body"], k=[0]),
    "feddyn": dict(alpha=[0], feddyn_variant=["fl-bench"], grad_clip=[-1]),
    "fedem": dict(M=[0]),
    "fedfomo": dict(M=[0], reference=["mean"], val_fraction=[0]),
    "fedgen": dict(decay=[1.5], ensemble=["mean"], labels=["local"]),
    "fedgh": dict(server_batch=[0]),
    "fedpac": dict(head_epochs=[-1]),
    "fedprox": dict(mu=[-0.1, float("nan")]),
    "fedproto": dict(lam=[-1.0], predict_by=["nearest"], weights=["n"]),
    "fedrep": dict(E_f=[-1], E_h=[-1], weights=["n"]),
    "fedrod": dict(gamma=[-1]),
    "fedsimsup": dict(order=["both"], supervisors=[""], tau_s=[-1]),
    "fesem": dict(members=["some"]),
    "ffedap": dict(mu=[1.5], rho=[-0.1]),
    "ifca": dict(K=[0], weights=["n"]),
    "perfedavg": dict(tau=[0], variant=["SO"]),
    "pfedcs": dict(
        beta=[1.5], dist_power=[3], eta_v=[0], group=["dbscan"], lam=[-0.1], select=["some"], weights=["open"]
    ),
    "pfedhn": dict(clip=[-1.0]),
    "pfedme": dict(K=[0], lam=[0.0], weights=["n"]),
    "pfedsim": dict(eps=[0], max_age=[-1], phi=["eq2"], phi_cap=[0, 1], phi_refresh=["none"], phi_self=["own", -1.0, 0])
    | dict(rho=[-0.1, 1.1, float("nan")]),
    "pfedsv": dict(
        alpha=[2], k=[0], k_max=[3], self_distance=["max"], sv=["approximate"], val_fraction=[0], variant=["C"]
    ),
}


@pytest.mark.parametrize(
    ("method", "hyper"),
    [
        *((m, {name: value}) for m, fields in REFUSED.items() for name, each in fields.items() for value in each),
        ("pfedsv", dict(k=12, sv="exact")),
    ],
)
def test_values_out_of_range_are_refused(method, hyper):
    """By field and value, and where it is one of some names, with these."""
    field, value = next(iter(hyper.items()))
    with pytest.raises(BadValue) as error:
        algorithms.make(method, **hyper)
    said = str(error.value)
    assert field in said and repr(value) in said
    if value and isinstance(value, str) and field != "phi_self":
        assert str(getattr(algorithms.make(method), field)) in said


def test_what_options_accept_is_checked_in_every_method():
    """A class that has such fields and forgets to inherit from Options would take any value."""
    for name in METHODS:
        method = algorithms.find(name)
        has_limits = any("accepted" in field.metadata for field in dataclasses.fields(method))
        assert issubclass(method, Options) or not has_limits, name


# backends -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "hyper", "bn_stats"),
    [
        *((method, {}, "local") for method in METHODS),
        ("fedamp", dict(sigma_mode="median"), "local"),
        ("fedamp", dict(variant="cosine"), "global"),
        ("fedavg", {}, "global"),
        ("fedavg_ft", dict(ft_part="head"), "global"),
        ("fedbabu", dict(ft_part="head"), "global"),
        ("fedbn", {}, "global"),
        ("feddyn", dict(feddyn_variant="flbench2023"), "local"),
        ("feddyn", dict(feddyn_variant="pfllib", grad_clip=0.5), "global"),
        ("fedem", {}, "global"),
        ("fedfomo", dict(reference="current"), "global"),
        ("fedgen", {}, "global"),
        ("fedgen", dict(labels="global", ensemble="logits"), "local"),
        ("fedpac", {}, "global"),
        ("fedpac", dict(head_inside=False), "local"),
        ("fedper", {}, "global"),
        ("fedproto", dict(predict_by="head"), "local"),
        ("fedproto", dict(weights="samples"), "local"),
        ("fedrep", dict(E_f=2), "global"),
        ("fedrod", dict(gamma=0.5), "global"),
        ("fedsimsup", dict(combine="prob", participants_mix=True), "global"),
        ("fesem", dict(members="participants"), "global"),
        ("ffedap", {}, "global"),
        ("ifca", {}, "global"),
        ("perfedavg", {}, "global"),
        ("perfedavg", dict(variant="HF"), "local"),
        ("pfedcs", dict(beta=1.0, teacher_feat="received", detach=False, pool="all_last"), "global"),
        ("pfedhn", {}, "global"),
        ("pfedme", {}, "global"),
        ("pfedsim", {}, "global"),
        ("pfedsim", dict(rho=0, phi="eq3"), "local"),
        ("pfedsim", dict(rho=0, phi="eq3", phi_refresh="all", phi_bias=True), "local"),
        ("pfedsim", dict(rho=0, phi_refresh="one_fresh", max_age=1), "local"),
        ("pfedsv", dict(variant="D+C", sv="exact", self_distance="prev", v_empty="chance"), "global"),
        ("pfedsv", dict(variant="W", utility="loss", self_distance="mean_other", samples=2), "global"),
    ],
)
def test_vmap_agrees_with_serial(method, hyper, bn_stats, small_scans):
    """Three of six clients a round (five where models are mixed), 1 to 130 samples; all methods, and then readings and
    statistics besides the defaults."""
    tolerance = 1e-9 if hyper.get("variant") == "HF" else 1e-12  # HF divides rounding by 2 delta
    backends_agree(wide(method, hyper=hyper, bn_stats=bn_stats), tolerance)


def test_a_stack_without_a_minibatch_needs_no_noise():
    """A client with one sample, alone in its stack, of a method that asks for noise."""
    backends_agree(wide("fedgen", **MANY))


def test_vmap_agrees_with_serial_in_float32():
    """After a short full run on digits: accuracies and losses within 1e-4."""
    for method in CORE:
        spec = tiny(method, join_ratio=1.0, rounds=2)
        serial, stacked = (simulate(spec, backend=backend).history for backend in ("serial", "vmap"))
        for a, b in zip(serial, stacked, strict=True):
            assert (a["round"], a["point"]) == (b["round"], b["point"])
            compared = [key for key in a if key not in ("round", "point", "headline")]
            assert all(a[key] == pytest.approx(b[key], abs=1e-4) for key in compared)


PROCESS_CASES = [
    *((method, "local") for method in (*CORE, "fedem", "pfedsv", "fedsimsup")),
    ("fedavg", "global"),
    ("fedper", "global"),
]


@pytest.mark.parametrize(("method", "bn_stats"), PROCESS_CASES)
def test_process_agrees_with_serial_bit_for_bit(method, bn_stats):
    spec = wide(method, bn_stats=bn_stats, precision="float32")
    (serial, _), (process, _) = (outcome(spec, backend) for backend in ("serial", "process"))
    assert len(serial) == len(process) and all(torch.equal(a, b) for a, b in zip(serial, process))


@pytest.mark.parametrize("method", CORE)
def test_seeds_in_one_stack_are_the_runs_on_their_own(method):
    """Two seeds, another partition each: serial bit for bit, vmap (one stack for all their clients) up to rounding."""
    specs = [wide(method, seed=k, partition_seed=k, rounds=1, eval_points=()) for k in range(2)]
    alone = [exact(simulate(spec, backend="serial")) for spec in specs]
    assert [exact(result) for result in simulate_together(specs, backend="serial")] == alone
    for result, one in zip(simulate_together(specs, backend="vmap"), alone):
        for a, b in zip(result.history, one["history"], strict=True):
            assert all(a[key] == pytest.approx(b[key], abs=1e-9) for key in a)


@pytest.mark.parametrize("backend", ["serial", "vmap"])
@pytest.mark.parametrize("method", ["fedprox", "fedrep", "fedbabu", "fedbn", "fedavg_ft", "feddyn", "fedrod"])
def test_a_client_without_a_minibatch(method, backend):
    """One sample and batch norm: its only batch is skipped, so it sends back what it received and keeps what it had;
    all is finite."""

    def update(model, message, own, data):
        return run.method.client_update(model, message, own, data)

    run = uneven(set_up(tiny(method, num_clients=6, precision="float64")))
    server, clients = run.method.init(run.work.model, run.setting)
    message = run.method.download(server, 0)
    upload, kept = computed(run, backend, update, range(6), tree.repeat(message, 6), clients)
    close(tree.rows(upload, 0), {name: message[name] for name in upload})
    close(tree.rows(kept, 0), tree.rows(clients, 0))
    assert all(torch.isfinite(leaf).all() for _, leaf in tree.leaves((upload, kept)))


# reductions -----------------------------------------------------------------------------------------------------------

BITS = None  # in place of a tolerance: everything in the result is the same bit for bit, communication too
F64 = dict(precision="float64")
ONE_CENTRE = dict(weights="samples", K=1)
REDUCTIONS = [  # (a method, its options, what it is then), at (its point, the other's) if not at their own; changes
    ("fedavg_ft", {}, "fedavg", ("ft(5)", "ft(5)"), {}, BITS),
    ("fedavg_ft", {}, "fedavg", ("glob", "glob"), {}, BITS),
    ("fedbn", {}, "fedavg", ("recv", "glob"), dict(num_clients=1, partition={}, scheme="iid"), 0),
    *(("fedprox", {"mu": 0}, "fedavg", (point, point), {}, BITS) for point in ("glob", "ft(1)")),
    *(("pfedsim", {"rho": 1}, "fedavg", points, {}, BITS) for points in ((), *((p, p) for p in ("ft(1)", "post")))),
    ("ffedap", {"rho": 1}, "fedbn", (), {}, BITS),
    ("pfedcs", {"select": "none"}, "fedper", (), {}, BITS),
    ("pfedcs", {"beta": 0.0}, "fedper", (), {}, BITS),
    ("pfedcs", {"beta": 1.0, "kd_weight": 0.0, "E_ft": 0}, "fedper", (), F64, 1e-10),
    ("ffedap", {"rho": 0, "mu": 1}, "local", ("post", "post"), {}, 0),
    ("fedamp", {"lam": 0.0}, "local", ("post", "post"), F64, 1e-12),
    ("fedproto", {"lam": 0, "predict_by": "head"}, "local", (), F64, 1e-10),
    ("fedgen", {"alpha": 0, "beta": 0}, "fedavg", (), F64, 1e-10),
    *(
        (method, hyper, "fedavg", points, F64 | dict(bn_stats=bn_stats), tolerance)
        for bn_stats in ("local", "global")
        for method, hyper, points, tolerance in [
            ("fedrod", {"gamma": 0}, ("glob", "glob"), 1e-12),
            ("ifca", ONE_CENTRE, (), 1e-12),
            ("fesem", ONE_CENTRE | dict(members="participants"), ("glob", "glob"), 1e-12),
            ("clusterfl", dict(weights="samples"), ("glob", "glob"), 1e-12),
            ("clusterfl", dict(weights="samples", t0=0, eps1=0.0), ("glob", "glob"), 1e-12),
            ("fedem", dict(M=1), ("recv", "glob"), 1e-12),
        ]
    ),
    ("pfedme", dict(lam=1e-9, eta=1e9, K=1, eta_p=0.05, weights="samples"), "fedavg", ("glob", "glob"), F64, 1e-7),
]


@pytest.mark.parametrize(("method", "hyper", "plain", "points", "changes", "tolerance"), REDUCTIONS)
def test_with_such_options_a_method_is_a_simpler_one(method, hyper, plain, points, changes, tolerance):
    """In all tests after all rounds of a run. Compiled steps have a gradient of their own for the plain cross-entropy,
    and round it otherwise than that of a loss with a term of weight 0."""
    task = [tiny(method, hyper=hyper, **changes), tiny(plain, **changes)]
    task = [spec.but(eval_points=(point,)) for spec, point in zip(task, points)] or task
    one, other = (simulate(spec, step="torch" if method == "fedprox" else "auto") for spec in task)
    if tolerance is BITS:
        assert exact(one) == exact(other)
    for a, b in zip(one.history, other.history, strict=True):
        a, b = ({key: row[key] for key in row if key != "point"} for row in (a, b))
        assert a == pytest.approx(b, rel=tolerance or 0, abs=tolerance or 0)


# ownership ------------------------------------------------------------------------------------------------------------


ROWS = ("models", "extractors", "heads", "wanted", "v")  # what servers keep a row of for each client


def owned(state) -> dict:
    """What belongs to single clients, wherever it is kept: states, statistics, remembered uploads, stored models."""
    kept = {name: {"": state.server[name]} for name in ROWS if name in state.server}
    return {"clients": state.clients, "stats": state.stats, "uploads": state.uploads or {}, **kept}


def others_stayed(method: str, before: dict, after: dict, ids, num_clients: int) -> bool:
    """Whether rows of clients that did not take part are what they were, bit for bit; what clients train moved."""
    others = np.setdiff1d(np.arange(num_clients), ids)
    if before.keys() != after.keys():  # the warm-up is over
        return True
    for part in before:
        for (name, old), (_, new) in zip(tree.leaves(before[part]), tree.leaves(after[part]), strict=True):
            if not torch.equal(old[others], new[others]):
                return False
            # a bias before batch norm may well stay; FedBABU's head does
            trained = part in ("clients", "uploads", "models") and name in ("head.weight", "extractor.fc1.weight")
            if trained and (method, name) != ("fedbabu", "head.weight"):
                assert all(not torch.equal(old[i], new[i]) for i in ids), (part, name)
    return True


@pytest.mark.parametrize("method", METHODS)
def test_clients_stay_as_they_are_while_others_train_or_are_tested(method):
    """Testing at all points after every round changes nothing, nor does it change the numbers at the end."""
    spec, before = tiny(method, hyper=HYPER.get(method, {}), eval_points=POINTS[method]), None
    for _, state, ids in rounds_with_tests(spec, shorter):
        assert before is None or others_stayed(method, before, owned(state), ids, spec.num_clients)
        before = copy.deepcopy(owned(state))
    assert len(state.history) == spec.rounds * len(spec.eval_points)


@pytest.mark.parametrize("method", METHODS)
def test_clients_stay_as_they_are_wherever_statistics_are_kept(method):
    before = None
    for run, state, ids in played(tiny(method, hyper=HYPER.get(method, {}), bn_stats="global"), change=shorter):
        assert before is None or others_stayed(method, before, owned(state), ids, run.spec.num_clients)
        before = copy.deepcopy(owned(state))


@pytest.mark.parametrize(
    ("method", "hyper"),
    [
        *((method, HYPER.get(method, {})) for method in METHODS),
        ("fedgen", dict(labels="global", ensemble="logits")),
        ("fedproto", dict(weights="samples")),
        ("fedproto", dict(predict_by="head")),
        ("fedpac", dict(head_inside=False)),
    ],
)
def test_inputs_are_not_modified(method, hyper):
    for before, after in rounds_that_leave_inputs_alone(shorter(set_up(tiny(method, num_clients=3, hyper=hyper))), 3):
        assert method == "local" or not same(before, after)


@pytest.mark.parametrize("method", METHODS)
def test_server_and_clients_share_no_memory(method):
    """The engine writes into the clients' rows: nothing of theirs may be seen through the server, another client's
    state or the model."""
    run = set_up(tiny(method, hyper=HYPER.get(method, {})))
    server, clients = run.method.init(run.work.model, run.setting)
    own, others = (
        [leaf.data_ptr() for leaf in tensors(part)]
        for part in (clients, {"server": server, "theta0": run.work.model.theta0})
    )
    assert len(set(own)) == len(own) and not set(own) & set(others)


BODY = "extractor.fc1.weight"
SHARING = {  # what a client is tested with that is its own; in all else all are alike
    "fedper": HEAD, "fedrep": HEAD, "fedrod": HEAD, "pfedcs": HEAD, "fedpac": HEAD, "fedbn": {"norm"},
    "fedavg": set(), "fedprox": set(), "fedavg_ft": set(), "feddyn": set(), "fedbabu": set(),
}  # fmt: skip
ALONE = {  # with models of their own, of which these parts are looked at
    "fedgh": {BODY},
    **dict.fromkeys(("pfedsv", "fedsimsup", "fedfomo", "ffedap", "fedproto", "pfedhn"), {BODY, "head.weight"}),
}  # fmt: skip
OWN = {name: hyper for name, hyper in HYPER.items() if name != "fesem"}
OWN |= {"ffedap": {"rho": 0}, "fedproto": {"predict_by": "head"}, "pfedsim": {"rho": 0}}


@pytest.mark.parametrize("method", [*SHARING, *ALONE])
def test_what_is_personal_differs_and_what_is_shared_does_not(method):
    """bn_stats = global, all clients in both rounds: entry by entry of what each client would be tested with."""
    spec = tiny(method, hyper=OWN.get(method, {}), join_ratio=1.0, rounds=2, bn_stats="global")
    *_, (run, state, _) = played(spec)
    own, model = run.method, run.work.model
    stored = own.stored_upload if run.points(state)[0] == "post" else None
    with torch.no_grad():
        models = [
            own.personal_model(
                model,
                (stored or own.download)(state.server, i),
                tree.rows(state.clients, i),
                PlainData(run.turn(i, 1, 2)),
            )
            for i in range(4)
        ]
    assert not torch.equal(models[0][BODY], model.theta0[BODY])
    norm = set(model.norm_names)  # some of which are the same where nothing moves them
    personal = norm if method == "fedbn" else (SHARING | ALONE)[method]
    for name in model.theta0 if method in SHARING else personal:
        alike = [torch.equal(models[i][name], models[j][name]) for i in range(4) for j in range(i)]
        assert any(alike) == all(alike) or name in norm, name
        assert all(alike) == (name not in personal), name


SHARED = {"fedamp": "agg", "fesem": "glob", "pfedme": "glob"}  # where those are tested that never trained


@pytest.mark.parametrize(
    "method", ["local", "pfedsim", "fedrep", "fedbn", "fedrod", "pfedcs", "fedpac", *ALONE, *SHARED]
)
def test_training_personalises_what_is_evaluated(method):
    """`post` is the model that its client itself trained last: its test changes when the client trains, and not
    otherwise. FedProto's prototypes are everybody's, so its head is looked at; clients of FedAMP, FeSEM and pFedMe that
    never trained are tested with a model that changes."""
    before, known = None, None
    for run, state, ids in played(tiny(method, hyper=OWN.get(method, {}), rounds=4, eval_points=("post",))):
        with torch.no_grad():
            _, loss = evaluate(run, state, "post")
            common = evaluate(run, state, SHARED[method])[1] if method in SHARED else None
        if before is not None:
            seen = known if method in SHARED else np.ones(4, dtype=bool)
            moved = np.flatnonzero((loss != before) & seen)
            assert moved.tolist() == [i for i in ids if seen[i]]
            assert common is None or all(loss[i] != common[i] for i in ids)
        before, known = loss, state.trained.numpy().copy()
    assert known.any()


# messages -------------------------------------------------------------------------------------------------------------

# LeNet5-BN on 1x16x16 with 10 classes, by hand: conv1, bn1, conv2, bn2, fc1 (4*4*16 = 256), fc2; head. Batch norm's
# weights and biases are 44, its running statistics another 44.
NU_F = 156 + 12 + 2416 + 32 + 120 * (256 + 1) + 10164
NU_M, STATISTICS = NU_F + 850, 44
SENT = [  # numbers a participant and round, (down, up), and how many models' statistics are among them
    ("local", {}, (0, 0), (0, 0)),
    ("fedavg", {}, (NU_M, NU_M), (1, 1)),
    ("fedper", {}, (NU_F, NU_F), (1, 1)),
    ("pfedsim", {}, (NU_M, NU_M), (1, 1)),
    ("fedprox", {}, (NU_M, NU_M), (1, 1)),
    ("fedavg_ft", {}, (NU_M, NU_M), (1, 1)),
    ("feddyn", {}, (NU_M, NU_M), (1, 1)),
    ("fedrod", {}, (NU_M, NU_M), (1, 1)),
    ("fedrep", {}, (NU_F, NU_F), (1, 1)),
    ("fedbabu", {}, (NU_F, NU_F), (1, 1)),
    ("fedbn", {}, (NU_M - 44, NU_M - 44), (0, 0)),
    ("perfedavg", {}, (NU_M, NU_M), (1, 1)),
    ("perfedavg", dict(variant="HF", tau=1), (NU_M, NU_M), (1, 1)),
    ("fedamp", {}, (NU_M, NU_M), (1, 1)),
    ("ifca", dict(K=3), (3 * NU_M, NU_M + 1), (3, 1)),
    ("fesem", {}, (NU_M, NU_M), (1, 1)),
    ("clusterfl", HYPER["clusterfl"], (NU_M, NU_M), (1, 1)),
    ("fedem", dict(M=2), (2 * NU_M, 2 * NU_M), (2, 2)),
    ("pfedme", dict(K=1), (NU_M, NU_M), (1, 1)),
    ("ffedap", {}, (NU_M - 44, NU_M - 44), (0, 0)),
    ("fedgen", {}, (NU_M + 42 * 32 + 32 + 64 + 32 * 84 + 84, NU_M), (1, 1)),  # and the generator
    ("fedpac", {}, (NU_M + 840, NU_M + 2 * 840 + 10 + 1), (1, 1)),  # d = 84 features, 10 classes
    ("pfedhn", {}, (NU_M, NU_M), (1, 1)),
]


@pytest.mark.parametrize("bn_stats", ["local", "global"])
@pytest.mark.parametrize(("method", "hyper", "numbers", "models"), SENT)
def test_communication_is_the_closed_form(method, hyper, numbers, models, bn_stats):
    """Two participants of five, two rounds; running statistics travel under "global" only."""
    counted = simulate(
        tiny(method, hyper=hyper, bn_stats=bn_stats, num_clients=5, rounds=2, eval_every=2)
    ).communication
    extra = STATISTICS if bn_stats == "global" else 0
    for way, own, k in zip(("down", "up"), numbers, models):
        floats = 2 * 2 * (own + k * extra)
        assert counted[way] == {"floats": floats, "bytes": 4 * floats}


def test_bytes_follow_the_precision():
    counted = simulate(tiny("fedavg", rounds=1, precision="float64")).communication["up"]
    assert counted["bytes"] == 8 * counted["floats"] > 0


@pytest.mark.parametrize("bn_stats", ["local", "global"])
def test_communication_of_pfedcs_and_fedsimsup(bn_stats):
    """Two of five clients, four rounds. PFedCS: nu_m in the two rounds of stage 1, nu_f after; FedSimSup: nu_m,
    whatever the supervisor."""
    stats = STATISTICS if bn_stats == "global" else 0
    expected = {"pfedcs": 2 * 2 * (NU_M + stats) + 2 * 2 * (NU_F + stats), "fedsimsup": 4 * 2 * (NU_M + stats)}
    for method, floats in expected.items():
        spec = tiny(method, hyper=HYPER.get(method, {}), num_clients=5, rounds=4, bn_stats=bn_stats)
        counted = simulate(spec).communication
        assert {way: counted[way]["floats"] for way in counted} == {"down": floats, "up": floats}


@pytest.mark.parametrize("bn_stats", ["local", "global"])
def test_communication_of_fedfomo(bn_stats):
    """All of four clients, M = 2: nothing down in round 1, 2 nu_m then; nu_m and the scores of what was received up.
    M = 9: three others."""
    model = NU_M + (STATISTICS if bn_stats == "global" else 0)
    for M, got in ((2, 2), (9, 3)):
        counted = simulate(tiny("fedfomo", hyper={"M": M}, join_ratio=1.0, bn_stats=bn_stats)).communication
        assert counted["down"]["floats"] == 4 * 2 * got * model
        assert counted["up"]["floats"] == 4 * (3 * model + 2 * got)


@pytest.mark.parametrize("bn_stats", ["local", "global"])
@pytest.mark.parametrize("variant", ["W", "D", "D+C"])
def test_communication_of_pfedsv(variant, bn_stats):
    """Down sum of k_i^t nu_m (D+C: nu_f + k_i^t nu_c), up nu_m. W: k_i^t = k from round 2; D: what was asked for,
    counted here."""
    stats = STATISTICS if bn_stats == "global" else 0
    spec = tiny("pfedsv", hyper={"k": 2, "variant": variant}, join_ratio=1.0, bn_stats=bn_stats)
    asked = 0
    for t, (run, state, _) in enumerate(played(spec)):
        if t < 3:  # what is downloaded in round t + 1
            asked += sum(int(run.method.download(state.server, i)["real"].sum()) for i in range(4))
    counted = simulate(spec).communication
    model = NU_M + stats
    down = 3 * 4 * (NU_F + stats) + asked * 850 if variant == "D+C" else asked * model
    assert counted["down"]["floats"] == down and counted["up"]["floats"] == 3 * 4 * model
    assert asked == 2 * 4 * 2 if variant == "W" else 4 * 2 <= asked <= 2 * 4 * 2


# learning -------------------------------------------------------------------------------------------------------------

SKEWED = dict(partition=dict(alpha=0.1, min_size=5), local_epochs=2, test_fraction=0.5)  # digits, Dir(0.1)
TASKS = {  # clients, share of them in a round, rounds
    "all": SKEWED | dict(num_clients=8, join_ratio=1.0, rounds=5, eval_every=5),
    "half": SKEWED | dict(num_clients=10, join_ratio=0.5, rounds=8, eval_every=8),
}


@functools.cache
def learned(task: str, method: str, *hyper: tuple):
    """A run of a method on one of the tasks, once for all tests."""
    return simulate(tiny(method, hyper=dict(hyper), **TASKS[task]))


@pytest.mark.parametrize(
    ("task", "method", "hyper", "point", "least", "above_fedavg"),
    [
        ("half", "fedprox", {}, "glob", 0.25, None),
        ("half", "feddyn", {}, "glob", 0.4, 0.05),
        ("half", "fedbn", {}, "recv", 0.25, None),
        ("half", "fedbn", {}, "post", 0.6, 0.3),
        ("half", "fedrod", {}, "glob", 0.3, None),
        ("half", "fedrod", {}, "recv", 0.7, 0.3),
        ("half", "fedrep", {}, "recv", 0.5, 0.15),
        ("half", "fedrep", {}, "post", 0.5, 0.2),
        ("half", "fedbabu", {}, "ft(5)", 0.7, 0.3),
        ("half", "fedavg_ft", {}, "ft(5)", 0.7, 0.3),
        ("half", "ffedap", {}, "post", 0.6, 0.3),
        ("half", "fedproto", {}, "post", 0.5, 0.2),
        ("half", "fedpac", {}, "post", 0.5, 0.2),
        ("half", "fedgh", {}, "post", 0.7, 0.3),
        ("half", "pfedhn", HYPER["pfedhn"], "post", 0.7, 0.3),
        # without a local step: with a small hypernetwork and a larger step
        ("half", "pfedhn", dict(server_lr=0.1, momentum=0.0, hidden=20, depth=1), "glob", 0.3, 0.05),
        ("half", "fedgen", dict(alpha=1.0, beta=0.1), "glob", 0.3, None),  # with the paper's 10 and 10 it needs thirty
        ("all", "pfedcs", {}, "recv", 0.7, 0.15),
        ("all", "pfedsv", HYPER["pfedsv"], "agg", 0.7, 0.1),
        ("all", "fedsimsup", HYPER["fedsimsup"], "agg", 0.7, 0.1),
        ("all", "fedfomo", HYPER["fedfomo"], "post", 0.7, 0.1),
        ("all", "perfedavg", {}, "ft(1)", 0.6, 0.1),
        ("all", "perfedavg", dict(variant="HF"), "ft(1)", 0.6, 0.1),
        ("all", "fedamp", {}, "post", 0.7, 0.1),
        ("all", "ifca", dict(K=2), "glob", 0.45, None),
        ("all", "fesem", HYPER["fesem"], "post", 0.7, 0.1),
        ("all", "clusterfl", HYPER["clusterfl"] | dict(eps2=0.5), "glob", 0.7, 0.1),
        ("all", "fedem", HYPER["fedem"], "recv", 0.45, None),
        ("all", "pfedme", dict(K=3, eta_p=0.05), "post", 0.6, 0.05),
    ],
)
def test_it_learns(task, method, hyper, point, least, above_fedavg):
    """Pooled accuracy: chance is 0.1; where clients are tested with a model of their own, above FedAvg's single one."""
    accuracy = learned(task, method, *hyper.items()).final("pooled", point)
    assert accuracy > least
    assert above_fedavg is None or accuracy > learned(task, "fedavg").final() + above_fedavg


@pytest.mark.parametrize(
    ("task", "method", "point", "by"),
    [("half", "fedbabu", "ft(5)", 0.3), ("half", "fedavg_ft", "ft(5)", 0.3), ("all", "perfedavg", "ft(1)", 0.1)],
)
def test_fine_tuning_is_what_makes_it_personal(task, method, point, by):
    result = learned(task, method)
    assert result.final("pooled", point) > result.final("pooled", "glob") + by


# one client, and next to nothing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_one_client_alone(method):
    """N = 1: no pair, no cluster, no mean; everything still works."""
    spec = tiny(method, num_clients=1, rounds=2, hyper=HYPER.get(method, {}))
    result = simulate(spec)
    assert result.status == "finished" and np.isfinite(result.final())


@pytest.mark.parametrize("method", METHODS)
def test_two_samples_are_enough(method):
    """Clients with one training and one test sample, or without a validation sample: a run ends with finite numbers."""

    def bare(run):
        parts = [
            {"train": own["train"][:1], "test": own["test"], "val": own["train"][1 : 1 + i]}
            for i, own in enumerate(run.work.parts)
        ]
        return dataclasses.replace(run, work=dataclasses.replace(run.work, parts=parts))

    with torch.no_grad():
        *_, (run, state, _) = played(tiny(method, hyper=HYPER.get(method, {}), join_ratio=1.0, rounds=2), change=bare)
        _, loss = evaluate(run, state, POINTS[method][0])
    assert np.isfinite(loss).all()
