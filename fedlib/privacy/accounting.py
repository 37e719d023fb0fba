"""What noise guarantees: ε of (ε, δ)-differential privacy from the noise multiplier σ, sampling rate q, steps and δ.

A mechanism is (ε, δ)-private if for neighbouring data D, D' and every event S: P[M(D) in S] ≤ e^ε P[M(D') in S] + δ.
Neighbours differ by one record that is there or not ("record"), or by one client's whole update that is there or zero
("client"). Sampling is Poisson's: every record is in a batch with probability q, independently (`fedlib.privacy.noise`
draws its batches so).

`bound` says how the composition of many steps is bounded, tightest last:

| bound | what it is | source |
|---|---|---|
| classic | Rényi divergence of all steps, turned into ε by min_a RDP(a) + ln(1/δ)/(a - 1) | [1] |
| rdp | the same, turned into ε by min_a RDP(a) + ln(1 - 1/a) - (ln δ + ln a)/(a - 1) | [2] |
| prv | the privacy loss itself, composed by fast Fourier transform; an upper bound within 0.5 % or 0.01 | [3] |
| exact | for q = 1 only: δ(ε) = Φ(μ/2 - ε/μ) - e^ε Φ(-μ/2 - ε/μ), μ = √steps/σ | [4] |

[1] I. Mironov 2017, arXiv:1702.07476. [2] C. Canonne, G. Kamath, T. Steinke 2020, arXiv:2004.00010. [3] S. Gopi,
Y. T. Lee, L. Wutschitz 2021, arXiv:2106.02848. [4] B. Balle, Y.-X. Wang 2018, arXiv:1805.06530.

Rényi divergences and `prv` are Opacus' (`opacus.accountants`); a test compares them with Google's dp-accounting.
"""

from __future__ import annotations

import functools
import warnings
from math import exp, inf, log, sqrt

import numpy as np

from fedlib.base.errors import choose, require

ORDERS = (*(1 + k / 10 for k in range(1, 100)), *range(11, 65), 80, 96, 128, 192, 256, 512, 1024)
BOUNDS = ("classic", "rdp", "prv", "exact")


def epsilon(sigma: float, rate: float, steps: int, delta: float = 1e-5, bound: str = "rdp") -> float:
    """ε after `steps` Gaussian mechanisms of noise multiplier `sigma`, each on a Poisson sample of rate `rate`;
    ∞ for sigma = 0.

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
    from scipy.special import log_ndtr, ndtr

    def excess(e: float) -> float:
        return ndtr(mu / 2 - e / mu) - exp(e + log_ndtr(-mu / 2 - e / mu)) - delta

    return 0.0 if excess(0.0) <= 0 else float(brentq(excess, 0.0, mu**2 + 50 * mu + 50, xtol=1e-10))


# pFedSV, Table 4 ------------------------------------------------------------------------------------------------------
