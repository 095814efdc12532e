"""Exponentials, logarithms and powers whose last digit does not depend on the processor.

numpy computes those of doubles by other routines where a processor has AVX-512, and these differ in the last digit. A
plan search takes the better of two nearly equal placements, so that this digit can decide over a whole plan. Here they
are sums, products and quotients of doubles, which IEEE 754 fixes to the last bit, one numpy operation after the other
so that no compiler joins two of them: the argument is reduced to a small range as in FreeBSD's libm (msun), and a power
series ends where its terms are below the last digit. Results are within three units of the last digit, those of powers
within a relative 1e-15 for each unit of their exponent's logarithm.
"""

from collections.abc import Callable
from math import factorial

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

LN2, LN2_REST = 6.93147180369123816490e-01, 1.90821492927058770002e-10
"""ln 2 as a double whose products with small whole numbers are exact, and what it lacks."""
PER_LN2 = 1.44269504088896338700
LARGEST, SMALLEST = 709.782712893384, -746.0
"""e^x is infinite above the one and 0 below the other."""
OF_EXP = [np.array(1.0 / factorial(i)) for i in range(14, 0, -1)]
"""Of (e^r - 1) / r for |r| <= ln 2 / 2, the highest power first."""
OF_LOG = [np.array(2.0 / (2 * i + 1)) for i in range(11, -1, -1)]
"""Of ln ((1 + s) / (1 - s)) / s in powers of s^2, for |s| <= 0.172."""
BLOCK = 1 << 13
"""Numbers that are worked on at once: what is computed stays in a core's cache."""


def exp(x: ArrayLike) -> Floats:
    """Return e^x."""
    return _in_blocks(_exp, x)


def expm1(x: ArrayLike) -> Floats:
    """Return e^x - 1."""
    return _in_blocks(_expm1, x)


def log(x: ArrayLike) -> Floats:
    """Return ln x; minus infinity of 0, NaN of less."""
    return _in_blocks(_log, x)


def log1p(x: ArrayLike) -> Floats:
    """Return ln (1 + x); minus infinity of -1, NaN of less."""
    return _in_blocks(_log1p, x)


def log2(x: ArrayLike) -> Floats:
    """Return the binary logarithm of x: exact for powers of two."""
    return _in_blocks(_log2, x)


def power(x: ArrayLike, exponent: ArrayLike) -> Floats:
    """Return x^exponent of positive x, broadcast."""
    return exp(np.asarray(exponent, dtype=np.float64) * log(x))


def _in_blocks(function: Callable[[Floats], Floats], x: ArrayLike) -> Floats:
    """The function of every number; of a scalar one double, as numpy returns it."""
    every = np.asarray(x, dtype=np.float64)
    flat, values = every.reshape(-1), np.empty(every.size)
    with np.errstate(all="ignore"):
        for begin in range(0, every.size, BLOCK):
            values[begin : begin + BLOCK] = function(flat[begin : begin + BLOCK])
    shaped: Floats = values.reshape(every.shape)[()]
    return shaped


def _exp(x: Floats) -> Floats:
    grown, times = _parts(x)
    grown += 1.0
    return _beyond(x, np.ldexp(grown, times), 0.0)


def _expm1(x: Floats) -> Floats:
    grown, times = _parts(x)
    scale = np.ldexp(1.0, times - 1)  # in halves: 2^1024 is no double
    return _beyond(x, 2.0 * (scale * grown + (scale - 0.5)), -1.0)


def _parts(x: Floats) -> tuple[Floats, NDArray[np.int32]]:
    """e^r - 1 and k of x = k ln 2 + r."""
    inside = np.fmax(np.fmin(x, LARGEST), SMALLEST)
    whole = np.rint(inside * PER_LN2)
    rest = inside - whole * LN2
    rest -= whole * LN2_REST
    grown = rest * OF_EXP[0]
    for factor in OF_EXP[1:]:
        grown += factor
        grown *= rest
    return grown, whole.astype(np.int32)


def _beyond(x: Floats, value: Floats, least: float) -> Floats:
    if ((x <= LARGEST) & (x >= SMALLEST)).all():  # which NaN is not, either
        return value
    value[x > LARGEST] = np.inf
    value[x < SMALLEST] = least
    value[np.isnan(x)] = np.nan
    return value


def _log(x: Floats) -> Floats:
    return _special(x, _log_of(x, np.zeros_like(x)))


def _log1p(x: Floats) -> Floats:
    more = 1.0 + x
    # What the sum has lost, to first order: nothing of a larger one.
    lost = np.where(np.abs(x) < 1.0, x - (more - 1.0), 1.0 - (more - x)) / more
    return _special(more, _log_of(more, lost))


def _log_of(x: Floats, more: Floats) -> Floats:
    """ln x + `more`, which is small."""
    part, times = np.frexp(x)
    low = part < 0.70710678118654752440
    part[low] *= 2.0
    whole = (times - low).astype(np.float64)
    part -= 1.0
    ratio = part / (2.0 + part)
    square = ratio * ratio
    series: Floats = square * OF_LOG[0]
    for factor in OF_LOG[1:-1]:
        series += factor
        series *= square
    # ln (1 + f) = f - (f - s S) s, as f = 2 s + s f: what is rounded is small beside f.
    value = part - ratio * (part - series)
    rest = whole * LN2_REST
    rest += more
    value += rest
    value += whole * LN2
    return value


def _log2(x: Floats) -> Floats:
    part, times = np.frexp(x)
    low = part < 0.70710678118654752440
    part[low] *= 2.0
    value = _log_of(part, np.zeros_like(part)) * PER_LN2
    value += times - low
    return _special(x, value)


def _special(x: Floats, value: Floats) -> Floats:
    if not ((x > 0) & (x < np.inf)).all():  # which NaN is not, either
        value[x == 0] = -np.inf
        value[x < 0] = np.nan
        value[x == np.inf] = np.inf
        value[np.isnan(x)] = np.nan
    return value
