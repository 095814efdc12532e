"""Coefficients of a step from measured steps and what is known without them; which steps nothing explains.

Both are guarded against single rows (docs/decisions/0046-absurd-rows-and-drifting-ranks.md).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cost_models.coefficients import Place
from cost_models.shards import Floats

NOISE = 0.02
"""Relative error that the model is held to where the priors are silent; repeated submissions differ by 1 %."""
BOUNDED_BEYOND = 3.0
"""Times the noise beyond which a step pulls no harder (Huber 1964)."""
DOUBTFUL_BEYOND = 5.0
"""Standard deviations of what the priors allow beyond which a step is a slip: one in 25 of any distribution at most."""
_PASSES = 100
_SETTLED = 1e-12


@dataclass(frozen=True)
class Prior:
    """What is known of some coefficients without the steps, on a logarithmic scale."""

    centre: Floats
    spread: Floats
    """Standard deviations."""

    @classmethod
    def of(cls, known: Mapping[Place, tuple[float, float]]) -> "Prior":
        """From values and the standard deviations of their logarithms."""
        value, spread = (np.array([each[i] for each in known.values()]) for i in (0, 1))
        return cls(np.log(value), spread)


@dataclass(frozen=True)
class Linear:
    """Predicted seconds of n steps and their derivatives by the logarithms of the coefficients, around some values."""

    at: dict[Place, float]
    seconds: Floats
    """[n]"""
    slopes: Floats
    """[n, coefficients] of ln(seconds)."""

    @property
    def log_at(self) -> Floats:
        """[coefficients]"""
        return np.log(list(self.at.values()))


def deviations(model: Linear, prior: Prior, measured: Floats) -> Floats:
    """[n] how far each measured step is from what the priors alone say, in standard deviations of that."""
    expected = np.log(model.seconds) + model.slopes @ (prior.centre - model.log_at)
    spread = np.sqrt(np.square(model.slopes * prior.spread).sum(axis=1) + NOISE**2)
    return np.asarray((np.log(measured) - expected) / spread)


def solve(model: Linear, prior: Prior, measured: Floats, kept: NDArray[np.bool_]) -> dict[Place, float]:
    """The coefficients that meet the kept steps and their priors best.

    Relative errors count squared up to BOUNDED_BEYOND times the noise, in proportion beyond, so that the sum is convex
    and no step pulls harder than that.
    """
    slopes, gap = model.slopes[kept] / NOISE, np.log(measured / model.seconds)[kept] / NOISE
    known, from_prior = np.diag(1 / prior.spread), (prior.centre - model.log_at) / prior.spread
    weight, change = np.ones(len(gap)), np.zeros(len(prior.centre))
    for _ in range(_PASSES):
        before, root = change, np.sqrt(weight)
        rows = np.vstack([slopes * root[:, None], known])
        change = np.linalg.lstsq(rows, np.concatenate([gap * root, from_prior]), rcond=None)[0]
        if np.abs(change - before).max() < _SETTLED:
            break
        weight = BOUNDED_BEYOND / np.maximum(np.abs(gap - slopes @ change), BOUNDED_BEYOND)
    return dict(zip(model.at, np.exp(model.log_at + change).tolist(), strict=True))


def predictive_spread(model: Linear, prior: Prior, kept: NDArray[np.bool_]) -> Floats:
    """[n] standard deviations of the logarithms of all steps that come of the coefficients alone, as well as the kept
    steps and the priors tell them: those of a step with hardware of its own are as wide as its prior."""
    slopes = model.slopes[kept] / NOISE
    precision = slopes.T @ slopes + np.diag(prior.spread**-2)
    return np.asarray(np.sqrt((model.slopes * np.linalg.solve(precision, model.slopes.T).T).sum(axis=1)))
