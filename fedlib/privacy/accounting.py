"""What noise guarantees: ε of (ε, δ)-differential privacy from the noise multiplier σ, sampling rate q, steps and δ.

A mechanism is (ε, δ)-private if for neighbouring data D, D' and every event S: P[M(D) in S] ≤ e^ε P[M(D') in S] + δ. Neighbours
differ by one record that is there or not ("record"), or by one client's whole update that is there or zero ("client"). Sampling
is Poisson's: every record is in a batch with probability q, independently (`fedlib.privacy.noise` draws its batches so).

`bound` says how the composition of many steps is bounded, tightest last:

| bound | what it is | source |
|---|---|---|
| classic | Rényi divergence of all steps, turned into ε by min_a RDP(a) + ln(1/δ)/(a - 1) | I. Mironov 2017, arXiv:1702.07476 |
| rdp | the same, turned into ε by min_a RDP(a) + ln(1 - 1/a) - (ln δ + ln a)/(a - 1) | C. Canonne, G. Kamath, T. Steinke 2020, arXiv:2004.00010 |
| prv | the distribution of the privacy loss itself, composed by fast Fourier transform; an upper bound within 0.5 % or 0.01 | S. Gopi, Y. T. Lee, L. Wutschitz 2021, arXiv:2106.02848 |
| exact | for q = 1 only: δ(ε) = Φ(μ/2 - ε/μ) - e^ε Φ(-μ/2 - ε/μ), μ = √steps/σ | B. Balle, Y.-X. Wang 2018, arXiv:1805.06530 |

Rényi divergences and `prv` are Opacus' (`opacus.accountants`); a test compares them with Google's dp-accounting.
"""

from __future__ import annotations

import functools
import warnings
from dataclasses import dataclass
from math import ceil, exp, inf, log, sqrt

import numpy as np

from fedlib import draws
from fedlib.data import load
from fedlib.errors import choose, require
from fedlib.spec import RunSpec

ORDERS = (*(1 + k / 10 for k in range(1, 100)), *range(11, 65), 80, 96, 128, 192, 256, 512, 1024)
BOUNDS = ("classic", "rdp", "prv", "exact")


def epsilon(sigma: float, rate: float, steps: int, delta: float = 1e-5, bound: str = "rdp") -> float:
    """ε after `steps` Gaussian mechanisms of noise multiplier `sigma`, each on a Poisson sample of rate `rate`; ∞ for sigma = 0.

    Raises BadValue for a value out of range, and for `bound="exact"` with a rate below 1.
    """
    require(sigma >= 0, "sigma", sigma, "a number from 0 up")
    require(0 < rate <= 1, "rate", rate, "a number above 0 and up to 1")
    require(steps >= 0 and steps == int(steps), "steps", steps, "an integer from 0 up")
    require(0 < delta < 1, "delta", delta, "a number between 0 and 1")
    choose("bound", bound, BOUNDS)
    require(bound != "exact" or rate == 1, "bound", bound, "classic, rdp or prv where the rate is below 1")
    if steps == 0:
        return 0.0
    if sigma == 0:
        return inf
    if bound == "exact":
        return _gaussian(sqrt(steps) / sigma, delta)
    return _numeric(sigma, rate, steps, delta) if bound == "prv" else _renyi(sigma, rate, steps, delta, bound)


@functools.cache
def _of_one_step(sigma: float, rate: float) -> np.ndarray:
    """Rényi divergence of one step, by ORDERS; that of many steps is their number times it."""
    from opacus.accountants.analysis.rdp import compute_rdp

    return np.asarray(compute_rdp(q=rate, noise_multiplier=sigma, steps=1, orders=ORDERS))


def _renyi(sigma: float, rate: float, steps: int, delta: float, bound: str) -> float:
    a, rdp = np.array(ORDERS), steps * _of_one_step(sigma, rate)
    if bound == "classic":
        bounds = rdp + log(1 / delta) / (a - 1)
    else:
        bounds = rdp + np.log1p(-1 / a) - (log(delta) + np.log(a)) / (a - 1)
    return max(0.0, float(np.nanmin(bounds)))


def _numeric(sigma: float, rate: float, steps: int, delta: float) -> float:
    from opacus.accountants import PRVAccountant

    other = _renyi(sigma, rate, steps, delta, "rdp")  # also an upper bound
    error = max(0.01, 0.005 * other)  # as fine is the grid, which costs time and memory
    accountant = PRVAccountant()
    accountant.history = [(sigma, rate, steps)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return min(other, float(accountant.get_epsilon(delta, eps_error=error)))


def _gaussian(mu: float, delta: float) -> float:
    """The ε at which the δ of a Gaussian mechanism of sensitivity mu, noise 1, is `delta`."""
    from scipy.optimize import brentq
    from scipy.stats import norm

    def excess(e: float) -> float:
        return norm.cdf(mu / 2 - e / mu) - exp(e + norm.logcdf(-mu / 2 - e / mu)) - delta

    return 0.0 if excess(0.0) <= 0 else float(brentq(excess, 0.0, mu**2 + 50 * mu + 50, xtol=1e-10))


def budgets(spec: RunSpec, delta: float = 1e-5, bound: str = "rdp") -> np.ndarray:
    """ε of every client of a run, float64 [N], for what it releases in the rounds in which it takes part (0 if in none).

    record: E ⌈N_i/B⌉ steps a round at rate min(1, B/N_i), the steps of a method that goes E times through the data. client: one
    release a round, `exact`. Clients' ε are those of an observer who knows who takes part. Without noise or without
    clipping all are ∞. δ: as in `epsilon`. Loads the data set, for the sizes.
    Raises BadValue as `epsilon`, and as loading and dividing the data does.
    """
    N, mechanism = spec.num_clients, spec.mechanism
    takes_part = np.zeros(N, dtype=int)
    for t in range(1, spec.rounds + 1):
        takes_part[draws.participants(spec.seed, t, N, spec.join_ratio)] += 1
    if mechanism.kind not in ("record", "client") or mechanism.sigma == 0:
        return np.where(takes_part > 0, inf, 0.0)
    if mechanism.kind == "client":
        return np.array([epsilon(mechanism.sigma, 1, int(count), delta, "exact") for count in takes_part])
    sizes = [len(parts["train"]) for parts in spec.divide(load(spec.dataset))[1]]
    known: dict[tuple, float] = {}
    for key in zip(sizes, takes_part.tolist()):
        size, count = key
        if key not in known:
            steps = count * spec.local_epochs * ceil(size / spec.batch_size)
            known[key] = epsilon(mechanism.sigma, min(1.0, spec.batch_size / max(1, size)), steps, delta, bound)
    return np.array([known[key] for key in zip(sizes, takes_part.tolist())])


# pFedSV, Table 4 -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reading:
    """One way to account for the runs of Table 4; the paper says δ = 1e-5, 10 clients, 20 rounds of 5 epochs, and no more."""

    name: str
    rate: float
    steps: int
    bound: str

    def epsilon(self, sigma: float) -> float:
        """ε at δ = 1e-5."""
        return epsilon(sigma, self.rate, self.steps, 1e-5, self.bound)


# The first three are the settings that the literature would suggest; the others were found by looking for pairs that fit, over rates
# from 0.001 to 0.5 and 1 to 1000 epochs, so that their agreement is no evidence that the authors computed so.
READINGS = (
    Reading("batches of 100 of 5,000 records, 20 x 5 epochs, classic", 0.02, 5000, "classic"),
    Reading("batches of 100 of 5,000 records, 20 x 5 epochs, rdp", 0.02, 5000, "rdp"),
    Reading("batches of 100 of 5,000 records, 20 x 5 epochs, prv", 0.02, 5000, "prv"),
    Reading("batches of 128 of 5,000 records, 20 x 5 epochs, prv", 128 / 5000, 4000, "prv"),
    Reading("a tenth of the records a step, 20 epochs, rdp", 0.1, 200, "rdp"),
    Reading("a tenth of the records a step, 10 epochs, rdp", 0.1, 100, "rdp"),
    Reading("a tenth of the records a step, 5 epochs, rdp", 0.1, 50, "rdp"),
    Reading("one release a round, all records, exact", 1.0, 20, "exact"),
)

# (mean, ±) that can be read in the table: σ = 1, then σ = 2. Where a method has two values for σ = 1 their columns are lost.
PRINTED = {
    "fedavg": {1.0: ((11.28, 0.32), (8.47, 0.67)), 2.0: {"cifar10": (3.64, 0.13), "cifar100": (2.56, 0.19)}},
    "pfedsv": {1.0: ((8.42, 0.71), (5.97, 0.11)), 2.0: {"cifar10": (1.82, 0.05), "cifar100": (1.80, 0.16)}},
}


def table4(readings: tuple[Reading, ...] = READINGS) -> list[dict]:
    """Every reading beside every pair of printed budgets (σ = 1, σ = 2) that the table can mean, one dict each.

    Keys: method, dataset, printed_1, printed_1_error, printed_2, printed_2_error, reading, rate, steps, bound, epsilon_1, epsilon_2, off:
    the larger of the two distances, in units of the printed ±, so that `off` ≤ 1 reproduces the pair.

    What no reading can reproduce: at equal σ FedAvg and pFedSV differ only in what the server and the others do with the uploads,
    which costs no privacy, so their ε are equal in every accounting of the same training. The printed ones differ.
    """
    rows = []
    ours = {reading: (reading.epsilon(1.0), reading.epsilon(2.0)) for reading in readings}
    for method, printed in PRINTED.items():
        for first in printed[1.0]:
            for dataset, second in printed[2.0].items():
                for reading, (one, two) in ours.items():
                    off = max(abs(one - first[0]) / first[1], abs(two - second[0]) / second[1])
                    rows.append(
                        {
                            "method": method,
                            "dataset": dataset,
                            "printed_1": first[0],
                            "printed_1_error": first[1],
                            "printed_2": second[0],
                            "printed_2_error": second[1],
                            "reading": reading.name,
                            "rate": reading.rate,
                            "steps": reading.steps,
                            "bound": reading.bound,
                            "epsilon_1": one,
                            "epsilon_2": two,
                            "off": off,
                        }
                    )
    return rows
