"""Robust least squares in relative errors, with a refusal where the data cannot tell a coefficient."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from cost_models.shards import Floats
from topologies.sentences import counted

SOFT_RELATIVE_ERROR = 0.03
"""Relative errors beyond this weigh less than their square (soft L1): outliers do not pull the fit."""
TOLERANCE = 1e-12
"""The tolerance of the search, so that a fit begun at its own result stays there."""
FARTHEST = np.log(1e4)
"""How far a coefficient may move from where it starts; one that goes to the end is not determined."""
LARGEST_UNCERTAINTY = 0.5
"""A coefficient whose standard error is larger than this share of it is not determined."""


class UndeterminedError(ValueError):
    """The data cannot tell some coefficients; says which, and what data would."""

    def __init__(self, names: tuple[str, ...], rows: int) -> None:
        self.names = names
        listed = ", ".join(names)
        told = f"{counted(rows, 'measurement')} {'does' if rows == 1 else 'do'} not determine {listed}"
        super().__init__(f"{told}; add rows in which this part of the time is larger")


@dataclass(frozen=True)
class Fit:
    """Coefficients with what the data say about them."""

    values: dict[str, float]
    uncertainty: dict[str, float]
    """Standard error as a share of the value."""
    relative_errors: Floats
    """[rows] predicted over measured, less 1."""

    @property
    def mean_error(self) -> float:
        """Mean absolute relative error."""
        return float(np.abs(self.relative_errors).mean())

    @property
    def band_90(self) -> float:
        """Relative error that 90 % of the rows stay within."""
        return float(np.quantile(np.abs(self.relative_errors), 0.9))


def fit(
    predict: Callable[[Mapping[str, float]], Floats],
    start: Mapping[str, float],
    measured: Floats,
    *,
    must_be_determined: bool = True,
) -> Fit:
    """Positive coefficients under which `predict` meets `measured` [rows], both in seconds, in relative terms.

    Coefficients move on a logarithmic scale from `start`, so each stays positive. Raises UndeterminedError where the
    data leave a coefficient open, unless `must_be_determined` is False.
    """
    from scipy.optimize import least_squares  # heavy; only calibration needs it

    names = tuple(start)
    if len(measured) < len(names):
        raise UndeterminedError(names, len(measured))

    def errors(point: Floats) -> Floats:
        return np.log(predict(dict(zip(names, np.exp(point), strict=True))) / measured)

    begin = np.log([start[name] for name in names])
    solution = least_squares(
        errors,
        begin,
        loss="soft_l1",
        f_scale=SOFT_RELATIVE_ERROR,
        x_scale="jac",
        ftol=TOLERANCE,
        xtol=TOLERANCE,
        gtol=TOLERANCE,
        bounds=(begin - FARTHEST, begin + FARTHEST),
    )
    values = dict(zip(names, np.exp(solution.x).tolist(), strict=True))
    logarithms = errors(solution.x)
    relative = np.expm1(logarithms)
    uncertainty = _uncertainty(solution.jac, logarithms, names)
    at_end = dict(zip(names, np.abs(solution.x - begin) > FARTHEST - 0.1, strict=True))
    open_ones = tuple(name for name in names if at_end[name] or not uncertainty[name] < LARGEST_UNCERTAINTY)
    if must_be_determined and open_ones:
        raise UndeterminedError(open_ones, len(measured))
    return Fit(values, uncertainty, relative)


def _uncertainty(jacobian: Floats, errors: Floats, names: tuple[str, ...]) -> dict[str, float]:
    """Standard errors of the logarithms of the coefficients: the sandwich of an M-estimator (Huber 1967).

    `jacobian` is scipy's, whose rows are scaled so that its square is the curvature of the soft L1 loss. What each row
    pulls with is bounded by that loss, so that outliers do not count in full here either.
    """
    spare = max(len(errors) - len(names), 1)
    softness = 1 + np.square(errors / SOFT_RELATIVE_ERROR)
    pull = errors / np.sqrt(softness)
    variance = max(float(np.square(pull).sum()) / spare, 1e-12)
    curvature = jacobian.T @ jacobian
    singular = np.linalg.eigvalsh(curvature)
    if singular[0] <= 1e-9 * singular[-1]:
        blind = np.abs(np.linalg.eigh(curvature)[1][:, 0]) > 0.3
        return {name: float("inf") if is_blind else 0.0 for name, is_blind in zip(names, blind, strict=True)}
    unscaled = jacobian * softness[:, None] ** 0.75
    inverse = np.linalg.inv(curvature)
    spread = np.sqrt(variance * np.diag(inverse @ (unscaled.T @ unscaled) @ inverse))
    return dict(zip(names, spread.tolist(), strict=True))
