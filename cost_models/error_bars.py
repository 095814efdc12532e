"""The 90 % band around a prediction, from the residuals of its terms and how far the case lies outside their range."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from cost_models.coefficients import Evidence, Kind, Quantity, ValidRange
from cost_models.elementary import log2
from cost_models.shards import Floats

COVERAGE = 0.9
"""Share of what would be measured that a band holds."""
HELD_OUT = 1.35
"""A size that was not fitted errs by so much more than one that was (leave-one-size-out over the collectives)."""
PER_DOUBLING = 0.08
"""Relative error added for each doubling beyond the validity range (assumed)."""
ONE_SIDED_90 = 1.645
"""Half-width of the central 90 % of a normal distribution, in standard deviations."""
MEAN_TO_90 = ONE_SIDED_90 * np.sqrt(np.pi / 2)
"""From the mean absolute error of a normal distribution to that half-width."""
UNKNOWN_90: dict[Kind, float] = {"spec": 0.0, "measured": 0.1, "fitted": 0.1, "assumed": 0.5}
"""Error of a coefficient that states none (assumed). A data sheet's sector or element size is exact."""


def doublings_outside(value: ArrayLike, valid: tuple[float, float]) -> Floats:
    """How many times a value would have to be halved or doubled to lie in its validity range."""
    value = np.asarray(value, dtype=np.float64)
    return np.maximum(0.0, np.maximum(log2(valid[0] / value), log2(value / valid[1])))


def width(residual_90: ArrayLike, outside: ArrayLike = 0.0) -> Floats:
    """Relative half-width of a band: the residual, and what each doubling beyond the validity range adds."""
    return np.asarray(np.hypot(residual_90, PER_DOUBLING * np.asarray(outside)))


def band(seconds: ArrayLike, residual_90: ArrayLike, outside: ArrayLike = 0.0) -> tuple[Floats, Floats]:
    """(low, high) that hold 90 % of what would be measured.

    `residual_90` is the relative error that 90 % of the measurements stay within when the fit has not seen them (see
    HELD_OUT); `outside` counts doublings beyond their range. Factors, not differences: the low end stays positive.
    """
    seconds, wide = np.asarray(seconds, dtype=np.float64), width(residual_90, outside)
    return np.asarray(seconds / (1 + wide)), np.asarray(seconds * (1 + wide))


def outside(valid: Iterable[ValidRange], case: Mapping[Quantity, float]) -> float:
    """Doublings beyond the ranges of the quantities that a case states: the root of the sum of their squares."""
    known = [(case[each.quantity], each) for each in valid if case.get(each.quantity, 0.0) > 0]
    beyond = [float(doublings_outside(value, (each.low, each.high))) for value, each in known]
    return float(np.hypot.reduce(beyond)) if beyond else 0.0


def is_of(evidence: Evidence, device: str) -> bool:
    """Whether the data behind a number are of this device."""
    return not evidence.fitted_on or device in evidence.fitted_on


def error_90(evidence: Evidence, device: str, case: Mapping[Quantity, float]) -> float:
    """Relative error of the time that a coefficient governs, on a device and for a case."""
    residual = evidence.residual_90
    if not is_of(evidence, device) and evidence.elsewhere_90 is not None:
        residual = evidence.elsewhere_90
    if residual is None:
        residual = UNKNOWN_90[evidence.kind]
    return float(width(residual, outside(evidence.valid, case)))


@dataclass(frozen=True)
class Cause:
    """One source of error of a time: a coefficient, or a law."""

    name: str
    """What is uncertain; causes of one name err together."""
    source: str
    """The coefficient file."""
    share: float
    """The part of the time that it governs, between 0 and 1."""
    error_90: float
    """Relative error of that part."""
    kind: Kind
    """`spec`: no data of this hardware, only its data sheet and what others achieve of theirs."""
    evidence: Evidence | None = None
    """The number, with its source; None of laws, and of rates that the topology says."""


@dataclass(frozen=True)
class ErrorBand:
    """The 90 % band of a time, in relative terms, and what it rests on."""

    width: float
    """The band is from seconds / (1 + width) to seconds x (1 + width)."""
    basis: str
    spec_only: tuple[str, ...] = ()
    """What no data are of, in words."""

    def around(self, seconds: float) -> tuple[float, float]:
        """(low, high) in seconds."""
        return seconds / (1 + self.width), seconds * (1 + self.width)


@dataclass(frozen=True)
class ErrorBars:
    """Those of a step and of its stages, in their order."""

    step: ErrorBand
    stages: tuple[ErrorBand, ...]


def combined(causes: Iterable[Cause]) -> float:
    """Relative error of the whole: causes of one name add up, different ones are independent."""
    by_name: dict[str, float] = {}
    for cause in causes:
        by_name[cause.name] = by_name.get(cause.name, 0.0) + cause.share * cause.error_90
    return float(np.sqrt(sum(error**2 for error in by_name.values())))
