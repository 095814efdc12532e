"""The 90 % band around a prediction, from the residuals of its terms and how far the case lies outside their range."""

import numpy as np
from numpy.typing import ArrayLike

from cost_models.shards import Floats

HELD_OUT = 1.35
"""A size that was not fitted errs by so much more than one that was (leave-one-size-out over the collectives)."""
PER_DOUBLING = 0.08
"""Relative error added for each doubling beyond the validity range (assumed)."""
ONE_SIDED_90 = 1.645
"""Half-width of the central 90 % of a normal distribution, in standard deviations."""
MEAN_TO_90 = ONE_SIDED_90 * np.sqrt(np.pi / 2)
"""From the mean absolute error of a normal distribution to that half-width."""


def doublings_outside(value: ArrayLike, valid: tuple[float, float]) -> Floats:
    """How many times a value would have to be halved or doubled to lie in its validity range."""
    value = np.asarray(value, dtype=np.float64)
    return np.maximum(0.0, np.maximum(np.log2(valid[0] / value), np.log2(value / valid[1])))


def band(seconds: ArrayLike, residual_90: ArrayLike, outside: ArrayLike = 0.0) -> tuple[Floats, Floats]:
    """(low, high) that hold 90 % of what would be measured.

    `residual_90` is the relative error that 90 % of the measurements behind the term stay within; `outside` counts
    doublings beyond their range. Factors, not differences: the low end stays positive.
    """
    seconds = np.asarray(seconds, dtype=np.float64)
    width = np.hypot(HELD_OUT * np.asarray(residual_90), PER_DOUBLING * np.asarray(outside))
    return np.asarray(seconds / (1 + width)), np.asarray(seconds * (1 + width))
