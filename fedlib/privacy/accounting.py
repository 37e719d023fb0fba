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

With a rate of 1 `prv` is `exact`; where σ is not within TRUSTED, or δ, ε or the steps are extreme, it is `rdp`.

[1] I. Mironov 2017, arXiv:1702.07476. [2] C. Canonne, G. Kamath, T. Steinke 2020, arXiv:2004.00010. [3] S. Gopi,
Y. T. Lee, L. Wutschitz 2021, arXiv:2106.02848. [4] B. Balle, Y.-X. Wang 2018, arXiv:1805.06530.

Rényi divergences D(a) and `prv` are Opacus' (`opacus.accountants`); a test compares them with Google's dp-accounting.
Those of fractional orders are held between D at the order rounded down and what convexity of (a - 1) D(a) allows, which
also stands in for them where Opacus' series takes for ever or cancels out.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from math import exp, inf, log, sqrt

import numpy as np

from fedlib.base.errors import choose, require

ORDERS = (*(1 + k / 10 for k in range(1, 100)), *range(11, 65), 80, 96, 128, 192, 256, 512, 1024)
TRUSTED = (0.1, 10.0)  # noise multipliers for which Opacus' fractional orders and `prv` are asked
LEAST_DELTA, MOST_EPSILON, MOST_STEPS = 1e-10, 100.0, 100_000  # and `prv` for these only
LEAST = 1e-150  # a noise multiplier below counts as no noise: ε is a number of more than 300 digits
BOUNDS = ("classic", "rdp", "prv", "exact")


def epsilon(sigma: float, rate: float, steps: int, delta: float = 1e-5, bound: str = "rdp") -> float:
    """ε after `steps` Gaussian mechanisms of noise multiplier `sigma`, each on a Poisson sample of rate `rate`;
    ∞ for sigma = 0.

    Raises BadValue for a value out of range, and for `bound="exact"` with a rate below 1.
    """
    require(sigma >= 0, "sigma", sigma, "a number from 0 up")
    require(0 < rate <= 1, "rate", rate, "a number above 0 and up to 1")
    require(0 <= steps < inf and steps == int(steps), "steps", steps, "an integer from 0 up")
    require(0 < delta < 1, "delta", delta, "a number between 0 and 1")
    choose("bound", bound, BOUNDS)
    require(bound != "exact" or rate == 1, "bound", bound, "classic, rdp or prv where the rate is below 1")
    if steps == 0 or sigma == inf:
        return 0.0
    if sigma < LEAST:
        return inf
    sigma = min(sigma, 1 / LEAST)  # its square is finite, and less noise has the larger ε
    if bound == "exact" or (bound == "prv" and rate == 1):
        return _gaussian(sqrt(steps) / sigma, delta)
    return _numeric(sigma, rate, steps, delta) if bound == "prv" else _renyi(sigma, rate, steps, delta, bound)


@functools.cache
def _of_one_step(sigma: float, rate: float) -> np.ndarray:
    """Rényi divergence of one step, by ORDERS; that of many steps is their number times it."""
    from opacus.accountants.analysis.rdp import compute_rdp

    a = np.array(ORDERS)
    of_gaussian = a / (2 * sigma**2)  # with a rate of 1; a lower one never makes it larger
    if rate == 1:
        return of_gaussian
    whole = sorted({*np.floor(a).astype(int).tolist(), *np.ceil(a).astype(int).tolist()} - {1})
    exact = np.maximum(0, compute_rdp(q=rate, noise_multiplier=sigma, steps=1, orders=whole))
    most = np.interp(a, [1, *whole], [0, *(np.array(whole) - 1) * exact]) / (a - 1)
    found, least = most, np.interp(np.floor(a), [1, *whole], [0, *exact])
    if TRUSTED[0] <= sigma <= TRUSTED[1]:
        found = np.array(compute_rdp(q=rate, noise_multiplier=sigma, steps=1, orders=ORDERS))
    return np.minimum(np.where((least <= found) & (found <= most), found, most), of_gaussian)


def _renyi(sigma: float, rate: float, steps: int, delta: float, bound: str) -> float:
    a, rdp = np.array(ORDERS), float(steps) * _of_one_step(sigma, rate)
    if bound == "classic":
        bounds = rdp - log(delta) / (a - 1)
    else:
        bounds = rdp + np.log1p(-1 / a) - (log(delta) + np.log(a)) / (a - 1)
    return max(0.0, float(bounds.min()))


def _numeric(sigma: float, rate: float, steps: int, delta: float) -> float:
    from opacus.accountants import PRVAccountant

    other = _renyi(sigma, rate, steps, delta, "rdp")  # also an upper bound
    near = other <= MOST_EPSILON and steps <= MOST_STEPS and delta >= LEAST_DELTA
    if not (near and TRUSTED[0] <= sigma <= TRUSTED[1]):
        return other
    error = max(0.01, 0.005 * other)  # as fine is the grid, which costs time and memory
    accountant = PRVAccountant()
    accountant.history = [(sigma, rate, steps)]
    with warnings.catch_warnings(), contextlib.suppress(RuntimeError):  # "Cannot compute epsilon"
        warnings.simplefilter("ignore")
        found = float(accountant.get_epsilon(delta, eps_error=error))
        return found if 0 <= found <= other else other
    return other


def _gaussian(mu: float, delta: float) -> float:
    """The ε at which the δ of a Gaussian mechanism of sensitivity mu, noise 1, is `delta`."""
    from scipy.optimize import brentq
    from scipy.special import erfcx, ndtr

    def excess(z: float) -> float:  # at ε = μ²/2 + μz, where e^ε Φ(-μ/2 - ε/μ) = e^{-z²/2} erfcx((μ + z)/√2)/2
        return ndtr(-z) - exp(-(z**2) / 2) * erfcx((mu + z) / sqrt(2)) / 2 - delta

    z = max(-mu / 2, -40.0)  # Φ(40) is 1, as exactly as numbers go
    if excess(z) <= 0:
        return max(0.0, mu**2 / 2 + mu * z)
    return max(0.0, mu**2 / 2 + mu * float(brentq(excess, z, 40.0, xtol=1e-13)))
