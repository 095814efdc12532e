"""Exponentials, logarithms and powers whose last digit does not depend on the processor.

numpy computes those of doubles by other routines where a processor has AVX-512, and these differ in the last digit. A
plan search takes the better of two nearly equal placements, so that this digit can decide over a whole plan. Computed
in extended precision and rounded once, they are the same on all x86-64 machines; where extended precision is none
(arm64 of Apple, Windows), they are what numpy computes there.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def exp(x: ArrayLike) -> Floats:
    """Return e^x."""
    return _rounded(np.exp(_extended(x)))


def expm1(x: ArrayLike) -> Floats:
    """Return e^x - 1."""
    return _rounded(np.expm1(_extended(x)))


def log(x: ArrayLike) -> Floats:
    """Return ln x."""
    return _rounded(np.log(_extended(x)))


def log1p(x: ArrayLike) -> Floats:
    """Return ln (1 + x)."""
    return _rounded(np.log1p(_extended(x)))


def log2(x: ArrayLike) -> Floats:
    """Return the binary logarithm of x."""
    return _rounded(np.log2(_extended(x)))


def power(x: ArrayLike, exponent: ArrayLike) -> Floats:
    """Return x^exponent of positive x, broadcast."""
    return _rounded(np.exp(_extended(exponent) * np.log(_extended(x))))


def _extended(x: ArrayLike) -> Any:
    return np.asarray(x, dtype=np.longdouble)


def _rounded(value: Any) -> Floats:
    """An array of doubles; of a scalar one double, as numpy returns it."""
    rounded: Floats = np.asarray(value, dtype=np.float64)[()]
    return rounded
