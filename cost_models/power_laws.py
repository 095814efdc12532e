"""What a batch reads of rows whose reads follow a power law: hit rates, distinct rows, rows beyond the hottest.

Row i of N is read with probability p_i = i^-a / H(N), where H(x) is the sum of i^-a up to x; a = 0 is uniform access.
The ids of a batch are taken as independent draws, so L of them read a row at least once with probability 1 - (1 - p)^L.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cost_models.elementary import exp, expm1, log, log1p, power

Floats = NDArray[np.float64]

HEAD = 8
"""The hottest ranks, summed one by one; a sum beyond them is an integral from i - 1/2 to i + 1/2."""
CERTAIN = 30.0
"""A row with more expected reads than this counts as read: 1 - e^-30."""
RARE = 1e-3
"""A row with fewer expected reads than this counts as p L rows: the next term is below 0.05 %."""
NODES, WEIGHTS = (np.round(each, 14) for each in np.polynomial.legendre.leggauss(24))  # LAPACK's last digit varies
"""Quadrature over the logarithm of the rank between the two, a range of at most ln(3e4) / a: six digits."""
STEEPEST = 10.0
"""The largest exponent that a profile may have."""


def hit_rate(rows: ArrayLike, zipf_alpha: ArrayLike, cached_rows: ArrayLike) -> Floats:
    """Share of the reads that go to the `cached_rows` hottest rows of a power law; broadcast."""
    rows, alpha, cached = _broadcast(rows, zipf_alpha, cached_rows)
    cached = np.clip(cached, 0.0, rows)
    return clip(harmonic(cached, alpha) / harmonic(rows, alpha), cached / rows, 1.0)


def unique_rows(rows: ArrayLike, zipf_alpha: ArrayLike, lookups: ArrayLike) -> Floats:
    """Expected distinct rows among `lookups` ids drawn from a power law; arguments are broadcast.

    Within 0.1 % of the exact sum up to an exponent of 2, 0.2 % beyond. A fraction of an id counts as that
    chance of one.
    """
    return unique_rows_and_slope(*_broadcast(rows, zipf_alpha, lookups))[0]


def _broadcast(*arguments: ArrayLike) -> tuple[Floats, Floats, Floats]:
    first, second, third = np.broadcast_arrays(*(np.asarray(each, np.float64) for each in arguments))
    return first, second, third


def clip(values: Floats, low: Floats | float, high: Floats | float) -> Floats:
    """Values between two bounds."""
    return np.asarray(np.clip(values, low, high), dtype=np.float64)


def unique_rows_and_slope(rows: Floats, alpha: Floats, lookups: Floats) -> tuple[Floats, Floats]:
    """Expected distinct rows U, and d ln U / d ln L; shapes are broadcast."""
    draws = np.maximum(lookups, 1.0)[..., None]
    n, a = rows[..., None], alpha[..., None]
    total = harmonic(n, a)
    ranks = np.arange(1.0, HEAD + 1)
    found, rate = chance_read(np.minimum(power(ranks, -a) / total, 1.0), draws)
    head, head_rate = (np.where(ranks <= n, each, 0.0).sum(axis=-1) for each in (found, rate))
    tail, tail_rate = (np.where(rows > HEAD, each, 0.0) for each in _tail(n, a, total, draws))
    unique = head + tail
    slope = (head_rate + tail_rate) * draws[..., 0] / unique
    return np.where(lookups < 1, lookups, np.minimum(unique, np.minimum(rows, lookups))), slope


def chance_read(probability: Floats, draws: Floats) -> tuple[Floats, Floats]:
    """Chance that a row is read, 1 - (1 - p)^L, and its derivative by L."""
    log_missed = log1p(-np.minimum(probability, 1 - 1e-15))
    chance = -expm1(draws * log_missed)
    return chance, -log_missed * (1 - chance)


def rows_beyond(rows: Floats, alpha: Floats, lookups: Floats, hottest: Floats) -> Floats:
    """[n] expected distinct rows among so many ids of power laws that are not among the `hottest` rows of each."""
    draws, n, a, k = np.maximum(lookups, 1.0)[:, None], rows[:, None], alpha[:, None], hottest[:, None]
    total = harmonic(n, a)
    ranks = np.arange(1.0, HEAD + 1)
    found = chance_read(np.minimum(power(ranks, -a) / total, 1.0), draws)[0]
    beyond = np.where(ranks <= n, np.clip(ranks - k, 0.0, 1.0), 0.0)
    tail = np.where(rows > HEAD, _tail(n, a, total, draws, k)[0], 0.0)
    return np.asarray((beyond * found).sum(axis=-1) + tail) * np.minimum(lookups, 1.0)


def _tail(
    rows: Floats, alpha: Floats, total: Floats, draws: Floats, hottest: Floats | float = 0.0
) -> tuple[Floats, Floats]:
    """Distinct rows beyond the head, and beyond the `hottest` rows, and their derivative by L; the arguments (only) end
    in an axis of 1."""
    low, high = log(np.maximum(hottest, HEAD) + 0.5), log(np.maximum(rows, HEAD) + 0.5)
    slope = np.maximum(alpha, 1e-9)
    certain = clip(log(draws / total / CERTAIN) / slope, low, high)
    rare = clip(log(draws / total / RARE) / slope, certain, high)
    between = np.zeros((2, *np.broadcast_shapes(rare.shape, alpha.shape, draws.shape)[:-1]))
    some = np.broadcast_to((rare > certain)[..., 0], between.shape[1:])
    between[:, some] = _between(*(_where(some, each) for each in (certain, rare, alpha, total, draws)))
    mass = _power_integral(exp(rare), exp(high), alpha) / total
    unique = exp(certain) - exp(low) + draws * mass
    return unique[..., 0] + between[0], mass[..., 0] + between[1]


def _where(some: NDArray[np.bool_], values: Floats) -> Floats:
    """[n, 1] of values [..., 1], broadcast, those where `some` is true."""
    return np.asarray(np.broadcast_to(values, (*some.shape, 1))[some])


def _between(certain: Floats, rare: Floats, alpha: Floats, total: Floats, draws: Floats) -> tuple[Floats, Floats]:
    """[n] distinct rows between two logarithms of ranks, and their derivative by L; the arguments are [n, 1]."""
    half = (rare - certain) / 2
    rank = (rare + certain) / 2 + half * NODES
    density = half * WEIGHTS * exp(rank)
    chance, rate = chance_read(exp(-alpha * rank) / total, draws)
    return (density * chance).sum(axis=-1), (density * rate).sum(axis=-1)


def of_head(alpha: Floats) -> Floats:
    """[..., HEAD] i^-alpha of the hottest ranks."""
    return power(np.arange(1.0, HEAD + 1), -alpha[..., None])


def harmonic(count: Floats, alpha: Floats, head_terms: Floats | None = None) -> Floats:
    """Sum of i^-alpha up to `count`: linear between the ranks of the head, smooth beyond; `head_terms` where known."""
    head_terms = of_head(alpha) if head_terms is None else head_terms
    head = np.zeros(np.broadcast_shapes(count.shape, alpha.shape))
    for rank in range(HEAD):
        head += np.clip(count - rank, 0.0, 1.0) * head_terms[..., rank]
    low, high = np.float64(HEAD + 0.5), np.maximum(count, HEAD) + 0.5
    # Midpoint rule with its first correction: the sum is the integral less (f'(high) - f'(low)) / 24.
    correction = alpha / 24 * (power(high, -alpha - 1) - power(low, -alpha - 1))
    return np.asarray(head + _power_integral(low, high, alpha) + correction, dtype=np.float64)


def _power_integral(low: Floats | np.float64, high: Floats, alpha: Floats) -> Floats:
    """Integral of x^-alpha from `low` to `high`; stable around alpha = 1."""
    slope, span = 1.0 - alpha, log(high / low)
    flat = np.abs(slope * span) < 1e-8
    safe = np.where(flat, 1.0, slope)
    return np.asarray(np.where(flat, span, expm1(safe * span) / safe) * power(low, slope), dtype=np.float64)


def fitted_alpha(rows: Floats, unique_fraction: Floats, lookups: Floats) -> Floats:
    """The exponent in its range under which `lookups` ids read `unique_fraction` x `lookups` rows."""
    low, high = np.zeros_like(rows), np.full_like(rows, STEEPEST)
    for _ in range(40 if rows.size else 0):
        middle = (low + high) / 2
        too_many = unique_rows(rows, middle, lookups) > unique_fraction * lookups
        low, high = np.where(too_many, middle, low), np.where(too_many, high, middle)
    return low
