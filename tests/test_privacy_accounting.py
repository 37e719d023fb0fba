"""Privacy budgets: against closed forms, a second library, runs on paper, and the printed table."""

from __future__ import annotations

import time
from math import exp, inf, log, log1p

import dp_accounting
import numpy as np
import pytest
from dp_accounting import pld, rdp
from helpers import tiny
from scipy.optimize import brentq
from scipy.stats import norm

from fedlib.base import draws
from fedlib.base.errors import BadValue
from fedlib.data import load
from fedlib.engine.privacy_budget import budgets
from fedlib.engine.simulate import simulate
from fedlib.experiments.pfedsv.accounting import ACCOUNTINGS, OFF, REPORTED, best_accountings
from fedlib.privacy.accounting import ORDERS, epsilon


def second_opinion(accountant, sigma, rate, steps):
    event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(sigma))
    return accountant.compose(dp_accounting.SelfComposedDpEvent(event, steps)).get_epsilon(1e-5)


@pytest.mark.parametrize(
    ("sigma", "steps", "expected"), [(1, 1, 4.377), (2, 1, 1.993), (1, 20, 28.373), (2, 20, 11.480)]
)
def test_gaussian_releases_of_all_records(sigma, steps, expected):
    """Closed form; at δ(ε) itself the two tails differ by δ; looser bounds are larger."""
    exact = epsilon(sigma, 1, steps, bound="exact")
    assert exact == pytest.approx(expected, abs=2e-3)
    assert exact == pytest.approx(second_opinion(pld.PLDAccountant(), sigma, 1.0, steps), rel=2e-3)
    assert (
        exact
        < epsilon(sigma, 1, steps, bound="prv") * 1.001
        < epsilon(sigma, 1, steps, bound="rdp")
        < epsilon(sigma, 1, steps, bound="classic")
    )


@pytest.mark.parametrize(
    ("sigma", "rate", "steps", "classic", "tight"),
    [
        (1, 0.01, 10_000, 7.469, 6.719),
        (2, 0.01, 10_000, 2.735, 2.353),
        (1, 0.02, 5000, 11.184, 10.229),
        (2, 0.02, 5000, 3.970, 3.491),
    ],
)
def test_sampled_steps(sigma, rate, steps, classic, tight):
    """Known values of integer orders; fractional ones, which we have as well, can only be better.
    The second library agrees."""
    found = epsilon(sigma, rate, steps, bound="classic"), epsilon(sigma, rate, steps)
    assert 0.985 * classic < found[0] <= classic + 1e-3 and 0.985 * tight < found[1] <= tight + 1e-3
    assert found[1] == pytest.approx(second_opinion(rdp.RdpAccountant(list(ORDERS)), sigma, rate, steps), rel=1e-3)


def test_the_numerical_bound_agrees_with_the_second_library():
    ours, theirs = epsilon(1.5, 0.05, 200, bound="prv"), second_opinion(pld.PLDAccountant(), 1.5, 0.05, 200)
    assert ours == pytest.approx(theirs, rel=6e-3) and ours < epsilon(1.5, 0.05, 200)


def test_more_noise_fewer_steps_and_rarer_samples_cost_less():
    for better, worse in [((2, 0.1, 50), (1, 0.1, 50)), ((1, 0.1, 50), (1, 0.1, 51)), ((1, 0.1, 50), (1, 0.11, 50))]:
        assert epsilon(*better) < epsilon(*worse)
    assert epsilon(1, 0.1, 50, delta=1e-4) < epsilon(1, 0.1, 50)
    assert epsilon(1, 0.1, 0) == 0 and epsilon(0, 0.1, 1) == inf
    assert epsilon(1000.0, 1, 1, delta=0.1, bound="exact") == 0


def of_one_sampled_step(sigma, rate, delta=1e-5):
    """ε of one step in closed form: the ratio of densities 1 - q + q exp((2x - 1)/2σ²) is above e^ε where x is above t,
    and there P = (1 - q) N(0, σ²) + q N(1, σ²) has the probability e^ε P[N(0, σ²) > t] + δ."""

    def excess(e):
        t = sigma**2 * (e + log1p(-(1 - rate) * exp(-e)) - log(rate)) + 0.5
        p = (1 - rate) * norm.sf(t / sigma) + rate * norm.sf((t - 1) / sigma)
        return p - exp(min(700, e + norm.logsf(t / sigma))) - delta

    return brentq(excess, 1e-9, 1e5)


@pytest.mark.parametrize("rate", [0.01, 0.3, 0.999])
@pytest.mark.parametrize("sigma", [0.01, 0.05, 0.09, 0.1, 0.2, 0.5, 1])
def test_no_accountant_is_trusted_outside_its_range(sigma, rate):
    least = of_one_sampled_step(sigma, rate)
    loose, rdp, prv = (epsilon(sigma, rate, 1, bound=bound) for bound in ("classic", "rdp", "prv"))
    assert least * 0.9999 <= prv <= rdp <= loose


def test_with_all_records_in_every_step_the_numerical_bound_is_exact():
    assert epsilon(0.01, 1, 1, bound="prv") == epsilon(0.01, 1, 1, bound="exact") == pytest.approx(5425.5, abs=0.1)
    assert epsilon(1e-6, 1, 1, bound="exact") == pytest.approx(1e12 / 2 + 4.2649e6, rel=1e-9)


@pytest.mark.parametrize("sigma", [1e-300, 1e-100, 0.01, 0.7, 10, 19, 1e3, 1e6, 1e100, 1e155, inf])
@pytest.mark.parametrize("rate", [1e-300, 0.5, 1 - 1e-12, 1])
def test_extremes(sigma, rate):
    """Never negative, never NaN, in order, and soon."""
    for steps in (1, 10**6, 10**30):
        for delta in (5e-324, 1e-12, 1e-5, 1 - 1e-12):
            start = time.process_time()
            loose, rdp, prv = (epsilon(sigma, rate, steps, delta, bound) for bound in ("classic", "rdp", "prv"))
            assert 0 <= prv <= rdp * (1 + 1e-9) and rdp <= loose * (1 + 1e-9) and time.process_time() - start < 5
            if rate == 1:
                assert epsilon(sigma, 1, steps, delta, "exact") == prv
    assert epsilon(sigma, rate, 0) == 0


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((float("nan"), 0.1, 1), "sigma = nan"),
        ((1, float("nan"), 1), "rate = nan"),
        ((1, 0.1, inf), "steps = inf"),
        ((1, 0.1, 1, 1), "delta = 1"),
        ((-1, 0.1, 1), "sigma = -1"),
        ((1, 0, 1), "rate = 0"),
        ((1, 1.1, 1), "rate"),
        ((1, 0.1, 1.5), "steps"),
        ((1, 0.1, 1, 0), "delta = 0"),
        ((1, 0.1, 1, 1e-5, "rpd"), "rdp"),
        ((1, 0.1, 1, 1e-5, "exact"), "rate is below 1"),
    ],
)
def test_values_out_of_range(arguments, named):
    with pytest.raises(BadValue, match=named):
        epsilon(*arguments)


def test_budgets_of_a_run():
    """Every client by hand: its rounds, its steps, its rate."""
    spec = tiny("fedavg", model="lenet5", privacy="record", noise_sigma=1.2, batch_size=16, local_epochs=2)
    sizes = [len(parts["train"]) for parts in spec.divide(load("digits"))[1]]
    joined = np.concatenate([draws.participants(0, t, 4, 0.5) for t in (1, 2, 3)])
    found = budgets(spec)
    for i, size in enumerate(sizes):
        rounds = int((joined == i).sum())
        assert found[i] == pytest.approx(epsilon(1.2, min(1, 16 / size), rounds * 2 * -(-size // 16)))
    samples = simulate(spec).arrays["counts"].sum(1)
    with_validation = spec.but(method="pfedsv")
    for one in (spec, with_validation):
        assert budgets(one, samples=samples).tolist() == budgets(one).tolist()
    assert budgets(with_validation).max() > found.max()
    client = budgets(spec.but(privacy="client"))
    np.testing.assert_allclose(client, [epsilon(1.2, 1, int((joined == i).sum()), bound="exact") for i in range(4)])
    assert set(np.bincount(joined, minlength=4)) - {0, 1} and len(set(sizes)) > 1


@pytest.mark.parametrize(
    "changes",
    [
        dict(),
        dict(privacy="unclipped", noise_sigma=5),
        dict(privacy="record", noise_sigma=0),
        dict(privacy="unclipped_relative", noise_sigma=5),
    ],
)
def test_without_noise_or_without_a_bound_nothing_is_guaranteed(changes):
    assert set(budgets(tiny("fedavg", model="lenet5", join_ratio=1.0, **changes))) == {inf}


def test_the_printed_budgets():
    """Table 4: FedAvg's pair on CIFAR-10 and three others have an accounting within their ±; the rest has none."""
    rows = best_accountings()
    fits = {(row["method"], row[REPORTED], row["dataset"]) for _, row in rows.iterrows() if row[OFF] <= 1}
    assert fits == {
        ("fedavg", 11.28, "cifar10"),
        ("fedavg", 8.47, "cifar100"),
        ("pfedsv", 5.97, "cifar10"),
        ("pfedsv", 5.97, "cifar100"),
    }
    rate, steps, bound = next(iter(ACCOUNTINGS.values()))
    assert abs(epsilon(1.0, rate, steps, bound=bound) - 11.28) < 0.32
    assert abs(epsilon(2.0, rate, steps, bound=bound) - 3.64) > 2 * 0.13
    assert not any(epsilon(sigma, 1.0, 20, bound="exact") < 11.3 for sigma in (1.0, 2.0))
