"""Cubics between points of a rising curve."""

import numpy as np
from numpy.typing import NDArray

from cost_models.power_laws import clip

Floats = NDArray[np.float64]

NEWTON_STEPS = 7
"""Steps that find the place on a cubic first; one in a thousand is left for bisection, where the cubic is flat."""


def crossing(rise: Floats, step: Floats, first: Floats, last: Floats) -> Floats:
    """[n] where from 0 to 1 a rising cubic from 0 to `step`, of these slopes, has risen so far: by Newton's method,
    within an interval that shrinks (Press et al., Numerical Recipes, section 9.4)."""
    square, cube = 3 * step - 2 * first - last, first + last - 2 * step
    low, high = np.zeros_like(rise), np.ones_like(rise)
    t = np.clip(rise / np.maximum(step, 1e-300), 0.0, 1.0)
    for _ in range(NEWTON_STEPS):
        excess = t * (first + t * (square + t * cube)) - rise
        low, high = np.where(excess <= 0, t, low), np.where(excess > 0, t, high)
        slope = first + t * (2 * square + 3 * t * cube)
        with np.errstate(divide="ignore", invalid="ignore"):
            then = t - excess / slope
        t = np.where((then >= low) & (then <= high), then, (low + high) / 2)
    return np.where(rise >= step, 1.0, t)


def rising_slopes(values: Floats, slopes: Floats) -> Floats:
    """Slopes [K, G] of rising `values`, cut back so that the cubic rises too (Fritsch & Carlson 1980)."""
    steps = np.maximum(np.diff(values, axis=1), 0.0)
    before = np.pad(steps, ((0, 0), (1, 0)), mode="edge")
    after = np.pad(steps, ((0, 0), (0, 1)), mode="edge")
    return clip(slopes, 0.0, 3 * np.minimum(before, after))
