"""The round loop: draws, divergence, batch-norm statistics in transit, metrics, progress, devices."""

from __future__ import annotations

import dataclasses
import inspect
import itertools

import numpy as np
import pytest
import torch
from helpers import METHODS, close, computed, exact, get_or_run, played, same, shorter, tiny

from fedlib.base import draws, tree
from fedlib.base.errors import BadValue, Diverged
from fedlib.engine import simulate as engine
from fedlib.engine.batches import TRAIN
from fedlib.engine.evaluate import evaluate, personal_models, summarise
from fedlib.engine.result import finished
from fedlib.engine.rounds import Round, check_finite
from fedlib.engine.setup import find_device, set_up
from fedlib.engine.simulate import simulate
from fedlib.runs import run as runs
from fedlib.runs.store import Store

# draws ---------------------------------------------------------------------------------------------------------------


def test_draws_are_functions_of_their_ids():
    def first(*args):
        return draws.rng(*args).integers(2**62)

    assert first(0, "batches", 1, 2) == first(0, "batches", 1, 2)
    others = [(1, "batches", 1, 2), (0, "split", 1, 2), (0, "batches", 2, 1), (0, "batches", 1, 3)]
    others += [(0, "batches", 1), (0, "batches", 1, 2, 1)]
    assert len({first(0, "batches", 1, 2), *(first(*args) for args in others)}) == 7
    one, again, other = (draws.torch_seeded(seed, "x", lambda: torch.rand(2)).tolist() for seed in (3, 3, 4))
    assert one == again != other


def test_a_run_neither_reads_nor_moves_the_global_generators():
    spec, results = tiny("pfedsim", hyper={"rho": 0.34}, rounds=2), []
    for seed in (1, 2):
        torch.manual_seed(seed)
        np.random.seed(seed)
        before = torch.get_rng_state(), np.random.get_state()[1].tolist()
        results.append(exact(simulate(spec)))
        assert torch.equal(torch.get_rng_state(), before[0]) and np.random.get_state()[1].tolist() == before[1]
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("N", "r", "count"),
    [(10, 0.1, 1), (100, 0.1, 10), (7, 0.3, 2), (3, 0.1, 1), (10, 0.7, 7), (100, 0.29, 29), (5, 1, 5), (9, 0.999, 8)],
)
def test_participants_are_max_1_floor_r_N_distinct_clients(N, r, count):
    """0.7 * 10 and 0.29 * 100 are not whole numbers in floating point."""
    rounds = [draws.participants(0, t, N, r) for t in range(1, 40)]
    assert all(len(ids) == count and (np.diff(ids) > 0).all() and ids[0] >= 0 and ids[-1] < N for ids in rounds)
    assert count == N or len({tuple(ids) for ids in rounds}) > 1
    assert set(np.concatenate(rounds)) == set(range(N)) or count * 39 < 5 * N


def test_every_method_sees_the_same_participants_and_initial_weights():
    """What differs between methods must not reach the draws."""
    seen = {}
    for method in METHODS:
        steps = [
            (state.trained.tolist(), run.partition.checksum, run.work.model.theta0, run.work.training.seed)
            for run, state, _ in played(tiny(method, rounds=2), change=shorter)
        ]
        seen[method] = steps
    assert all(same(steps, seen["fedavg"]) for steps in seen.values())
    assert sum(seen["fedavg"][1][0]) == 2  # floor(0.5 * 4) after the first round
    assert "method" not in inspect.signature(draws.participants).parameters


def test_seed_and_partition_seed_are_apart():
    a, b, c = (set_up(tiny("fedavg", **change)) for change in ({}, {"seed": 1}, {"partition_seed": 1}))
    assert a.partition.checksum == b.partition.checksum != c.partition.checksum
    assert not torch.equal(a.work.model.theta0["head.weight"], b.work.model.theta0["head.weight"])
    assert torch.equal(a.work.model.theta0["head.weight"], c.work.model.theta0["head.weight"])


# divergence ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["serial", "vmap"])
@pytest.mark.parametrize("method", METHODS)
def test_divergence_names_client_round_and_step(method, backend):
    """The place is found again by hand: the first step of the first participant after which its model is not finite."""
    # its rate does not follow lr
    spec = tiny(method, lr=1e15, rounds=5, hyper={"eta_p": 1e15} if method == "pfedme" else {})
    with pytest.raises(Diverged) as error:
        simulate(spec, backend=backend)
    client, t, step = error.value.client, error.value.round, error.value.step
    said = str(error.value)
    assert f"client {client}" in said and f"round {t}" in said and f"step {step}" in said
    assert client in draws.participants(spec.seed, t, spec.num_clients, spec.join_ratio)
    finite = []

    def watched(model, message, own, data):
        data.watch = lambda number, theta: finite.append(
            (number, all(torch.isfinite(leaf).all() for _, leaf in tree.leaves((theta,))))
        )
        return run.acting(state).client_update(model, message, own, data)

    run, state, _ = next(itertools.islice(played(spec), t - 1, None))  # before round t
    message, own = run.acting(state).download(state.server, client), tree.rows(state.clients, client)
    received = run.transport.received(tree.stack([message]), tree.rows(state.stats, [client]))
    computed(run, "serial", watched, [client], received, tree.stack([own]), draw=(TRAIN, t))
    assert (step, False) == next(entry for entry in finite if not entry[1])


def test_a_diverged_run_is_stored_as_such_and_not_repeated(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDLIB_CACHE", str(tmp_path / "cache"))
    store, spec = Store("t", tmp_path), tiny("fedavg", lr=1e15)
    result = get_or_run(spec, store)
    assert result.status == "diverged" and "client" in result.error and "round 1" in result.error
    assert np.isnan(result.final()) and result.history == [] and result.point == ""
    monkeypatch.setattr(runs, "simulate_together", lambda *_, **__: pytest.fail("the stored result was not used"))
    assert exact(get_or_run(spec, store)) == exact(result) and store.get(spec).error == result.error


def test_uploads_of_single_numbers_are_checked_too():
    """A method may send one number a client (a loss, a count): leaves [K]. Finite ones pass, others name the client."""
    run = next(played(tiny("fedavg")))[0]
    messages = tree.repeat(run.work.model.theta0, 2)
    seen = Round(1, np.array([0, 2]), {}, messages, {}, {}, {"loss": torch.tensor([1.0, 2.0])}, {})
    check_finite(run, run.method, seen)
    with pytest.raises(Diverged) as error:
        check_finite(run, run.method, dataclasses.replace(seen, uploads={"loss": torch.tensor([1.0, float("nan")])}))
    assert (error.value.client, error.value.round, error.value.step) == (2, 1, None)


# batch-norm statistics in transit ------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Spy:
    """A method that notes the running statistics with which every client starts and ends its local training."""

    method: object
    seen: list

    def __getattr__(self, name):
        return getattr(self.method, name)

    def client_update(self, model, message, client, data):
        upload, kept = self.method.client_update(model, message, client, data)
        pick = [
            {name: leaf.clone() for name, leaf in tree.leaves(node) if name in model.running}
            for node in ((message, client), (upload, kept))
        ]
        self.seen.append((data.turn.draw[1], data.turn.draw[2], *pick))  # round, client, before, after
        return upload, kept


def spy_on(run, seen):
    first, rounds = run.warm_up
    return dataclasses.replace(run, method=Spy(run.method, seen), warm_up=(Spy(first, seen), rounds))


def spied(method, bn_stats, **changes):
    seen = []
    states = [
        (run, dataclasses.replace(state, stats=tree.map(torch.clone, state.stats)))
        for run, state, _ in played(
            tiny(method, bn_stats=bn_stats, **changes), change=lambda run: spy_on(shorter(run), seen)
        )
    ]
    return states, seen


def initial_like(run, stats: dict) -> dict:
    """The initial statistics, once for every model that a client holds."""
    return {name: run.work.model.theta0[name].expand(*leaf.shape) for name, leaf in stats.items()}


@pytest.mark.parametrize("method", ["fedavg", "fedper", "pfedsim"])
def test_statistics_stay_with_their_client(method):
    """The server's never leave their initial values, the clients' are those at the end of their own last training."""
    states, seen = spied(method, "local", rounds=4, **({"hyper": {"rho": 0.34}} if method == "pfedsim" else {}))
    run, last = states[-1]
    for _, state in states:
        for name, leaf in tree.leaves({k: v for k, v in state.server.items() if isinstance(v, dict)}):
            if name in run.work.model.running:
                assert torch.equal(leaf, run.work.model.theta0[name].expand_as(leaf))
    ends = {i: after for _, i, _, after in seen}
    for i in range(4):
        assert same(
            {n: last.stats[n][i] for n in run.work.model.running},
            {n: ends.get(i, run.work.model.theta0)[n] for n in run.work.model.running},
        )
    assert any(not torch.equal(end["extractor.bn1.running_mean"], torch.zeros(6)) for end in ends.values())


# it starts from one of K models, which a client picks itself
@pytest.mark.parametrize("method", [m for m in METHODS if m != "ifca"])
def test_local_statistics_persist_across_participations(method):
    """A client starts with the statistics of the end of its own previous training,
    the first time with the initial ones."""
    states, seen = spied(method, "local", rounds=4)
    previous, again = {}, 0
    for _, i, before, after in seen:
        again += i in previous
        assert same(before, previous.get(i) or initial_like(states[0][0], before))
        previous[i] = after
    assert again > 0


def test_global_statistics_are_averaged_like_the_parameters():
    """FedAvg: after a round the server's are the sample-weighted mean of the participants',
    with which the next round starts."""
    states, seen = spied("fedavg", "global", rounds=2)
    run = states[0][0]
    for t in (1, 2):
        mine = [(i, before, after) for round, i, before, after in seen if round == t]
        share = run.sizes[[i for i, _, _ in mine]] / run.sizes[[i for i, _, _ in mine]].sum()
        for name in run.work.model.running:
            mean = sum(s * after[name] for s, (_, _, after) in zip(share, mine))
            torch.testing.assert_close(states[t][1].server["theta"][name], mean.to(torch.float32), rtol=1e-5, atol=1e-6)
            assert all(torch.equal(before[name], states[t - 1][1].server["theta"][name]) for _, before, _ in mine)
            assert not torch.equal(states[t][1].server["theta"][name], states[t - 1][1].server["theta"][name])
    assert states[2][1].stats == {}


def test_global_statistics_of_pfedsim_are_mixed_like_the_extractor():
    """The mixture of all clients' statistics with the similarity weights; under "local" a client's own."""
    states, seen = spied("pfedsim", "global", hyper={"rho": 0}, rounds=3)
    run, name = states[0][0], "extractor.bn1.running_mean"
    for t in (2, 3):
        server = states[t - 1][1].server
        for _, i, before, _ in (entry for entry in seen if entry[0] == t):
            weights = run.method.mixing_weights(server, [i])[0]
            mixed = (weights / weights.sum()) @ server["models"][name].double()
            torch.testing.assert_close(before[name], mixed.float(), rtol=1e-5, atol=1e-6)


def test_clients_that_never_trained_are_tested_with_statistics_of_their_own_data():
    """Under "local", FedAvg: mean and unbiased variance of the layer's inputs over the client's training images (one
    batch: fewer than 512)."""
    *_, (run, state, ids) = played(tiny("fedavg", rounds=1, precision="float64"))
    idle = int(np.setdiff1d(np.arange(4), ids)[0])
    with torch.no_grad():
        thetas = {
            int(i): tree.rows(rows, k)
            for chunk, rows in personal_models(run, state, "glob")
            for k, i in enumerate(chunk)
        }
        x = run.work.source.batch(torch.from_numpy(run.work.parts[idle]["train"])).x
        z = torch.nn.functional.conv2d(x, thetas[idle]["extractor.conv1.weight"], thetas[idle]["extractor.conv1.bias"])
    close(thetas[idle]["extractor.bn1.running_mean"][None], z.mean((0, 2, 3))[None], 1e-10)
    close(thetas[idle]["extractor.bn1.running_var"][None], z.var((0, 2, 3))[None], 1e-10)
    trained = int(ids[0])
    assert torch.equal(
        thetas[trained]["extractor.bn1.running_mean"], state.stats["extractor.bn1.running_mean"][trained]
    )
    assert simulate(tiny("fedavg", rounds=1)).partition["never_trained"] == 2


UNNAMED = {  # settings without draws that belong to a client's number
    "pfedsim": {"rho": 0.5},
    "fedsimsup": {"shared_sup_init": True},
    "fedgen": {"alpha": 0, "beta": 0},
    "fedfomo": {"M": 3},
    "pfedsv": {"k": 3, "sv": "exact"},
}


# embeddings, permutations drawn by client
@pytest.mark.parametrize("method", [m for m in METHODS if m not in ("pfedhn", "pfedsv_known")])
def test_renaming_clients_renames_their_results(method):
    """Client k of the second run has the data of client order[k] of the first. With one batch a client the draws of
    batch orders, which belong to a client's number, matter in the last digits only; so all states and tests are the
    first run's, reordered."""
    order = np.array([2, 0, 3, 1])
    spec = tiny(method, join_ratio=1.0, rounds=2, batch_size=2000, precision="float64", hyper=UNNAMED.get(method, {}))

    def renamed(run):
        run = shorter(run)
        setting = dataclasses.replace(run.setting, class_counts=run.setting.class_counts[order])
        work = dataclasses.replace(run.work, parts=[run.work.parts[i] for i in order])
        return dataclasses.replace(run, work=work, tests=run.tests[order], setting=setting)

    (*_, (run_a, a, _)), (*_, (run_b, b, _)) = played(spec, change=shorter), played(spec, change=renamed)
    with torch.no_grad():
        for point in run_a.points(a):
            (correct_a, loss_a), (correct_b, loss_b) = evaluate(run_a, a, point), evaluate(run_b, b, point)
            np.testing.assert_array_equal(correct_b, correct_a[order])
            np.testing.assert_allclose(loss_b, loss_a[order], rtol=1e-7)
    assert not np.array_equal(loss_a, loss_a[order])
    close(b.stats, tree.rows(a.stats, order), 1e-9)
    if method != "pfedsv":  # whose clients keep columns of clients, too
        close(b.clients, tree.rows(a.clients, order), 1e-9)


# evaluation ----------------------------------------------------------------------------------------------------------


def test_clients_are_tested_on_their_test_parts():
    """Correct predictions by class and summed losses of the global model, computed client by client."""
    *_, (run, state, _) = played(tiny("fedavg", model="lenet5", rounds=1))
    with torch.no_grad():
        correct, loss = evaluate(run, state, "glob")
        for i, parts in enumerate(run.work.parts):
            batch = run.work.source.batch(torch.from_numpy(parts["test"]))
            scores = run.work.model.logits(state.server["theta"], batch.x)
            right = batch.y[scores.argmax(1) == batch.y].bincount(minlength=10)
            assert correct[i].tolist() == right.tolist() and right.sum() > 0
            assert float(loss[i]) == pytest.approx(
                float(torch.nn.functional.cross_entropy(scores, batch.y) * len(scores))
            )


def test_metrics_by_hand():
    """Three clients, three classes.

    tests: (8, 2, 0), (0, 5, 5), (1, 0, 0); correct: (8, 1, 0), (0, 2, 3), (0, 0, 0).
    pooled (8+1+2+3)/21 = 14/21. Accuracies 0.9, 0.5, 0: mean 7/15, variance (0.81+0.25)/3 - (7/15)^2 = 0.135556.
    10th percentile of (0, 0.5, 0.9): position 0.2 between 0 and 0.5 = 0.1.
    balanced: (1 + 0.5)/2 = 0.75, (0.4 + 0.6)/2 = 0.5, 0: mean 1.25/3. loss (2.1 + 4.2 + 0)/21 = 0.3.
    """
    correct, tests = np.array([[8, 1, 0], [0, 2, 3], [0, 0, 0]]), np.array([[8, 2, 0], [0, 5, 5], [1, 0, 0]])
    expected = dict(
        pooled=14 / 21,
        client_mean=7 / 15,
        client_std=(1.06 / 3 - (7 / 15) ** 2) ** 0.5,
        client_p10=0.1,
        balanced=1.25 / 3,
        loss=0.3,
    )
    assert summarise(correct, np.array([2.1, 4.2, 0.0]), tests) == pytest.approx(expected)


def test_history_has_every_evaluation_and_one_headline_each():
    spec = tiny("fedper", rounds=5, eval_every=2)
    result = simulate(spec)
    assert [(h["round"], h["point"], h["headline"]) for h in result.history] == [
        (t, p, p == "recv") for t in (2, 4, 5) for p in ("recv", "post")
    ]
    assert result.curve()[0] == [2, 4, 5] and result.point == "recv"
    assert result.final() == result.arrays["correct"].sum() / result.arrays["tests"].sum() == result.curve()[1][-1]
    assert result.final("loss", "post") == result.history[-1]["loss"]
    assert result.arrays["counts"].sum() == 1797 and result.status == "finished"


@pytest.mark.parametrize("backend", ["serial", "vmap"])
def test_progress_counts_up_to_the_last_round(backend):
    seen = []
    simulate(tiny("local", rounds=2), backend=backend, progress=seen.append)
    assert seen == [0, 1, 2]


# devices -------------------------------------------------------------------------------------------------------------


def test_missing_cuda_is_an_error(monkeypatch):
    """Never a silent run on the CPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    for name in ("cuda", "cuda:0", "cuda:3"):
        with pytest.raises(BadValue, match=name):
            find_device(name)
    with pytest.raises(BadValue, match="cuda"):
        simulate(tiny("local"), device="cuda")
    assert find_device("auto") == find_device("cpu") == torch.device("cpu")


def test_a_cuda_device_beyond_the_last_is_an_error(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    assert find_device("auto") == find_device("cuda") == find_device("cuda:0") == torch.device("cuda:0")
    with pytest.raises(BadValue, match="cuda:1"):
        find_device("cuda:1")


@pytest.mark.parametrize("name", ["gpu", "tpu", "meta", "cuda:x", ""])
def test_unknown_devices_are_errors_that_name_the_accepted(name):
    with pytest.raises(BadValue, match="cpu") as error:
        find_device(name)
    assert repr(name) in str(error.value)


def test_unknown_backends_are_errors():
    with pytest.raises(BadValue, match="serial"):
        simulate(tiny("local"), backend="seriel")


def test_threads_are_as_before_after_a_run():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        simulate(tiny("local", rounds=1))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_watched_run_is_the_run():
    """Before round 1 and after every round; pFedSim changes from its warm-up to its own state on the way."""
    spec = tiny("pfedsim", hyper={"rho": 0.5})
    rounds, kinds = [], []
    for _run, state in engine.watched(spec):
        rounds.append(state.round)
        kinds.append("phi" in state.server)
    assert rounds == [0, 1, 2, 3] and kinds == [False, True, True, True]
    assert exact(finished(_run, state, {})) == exact(engine.simulate(spec))
