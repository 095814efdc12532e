"""Measured rows beside predicted ones, and their summary."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from cost_models.calibration.robust import Fit
from cost_models.coefficients import device_coefficients

COLUMNS = ("label", "group", "measured_s", "predicted_s", "low_s", "high_s", "naive_s", "torchrec_s", "gated", "alike")
"""Of every data set's frame: what the row is, what it is held out by, seconds measured, predicted, the 90 % band's
ends, by the naive model and by TorchRec's constants (NaN where they have no answer), whether a target holds for it, and
what it shares with rows that differ in plan or system only (NaN: there are none)."""


@dataclass(frozen=True)
class DataSet:
    """One data set: how its rows are predicted from the shipped coefficients, and with a group left out."""

    name: str
    grouping: str
    """What leave-one-group-out leaves out."""
    predict: Callable[[Path], pd.DataFrame]
    """All rows of a folder, without fitting anything."""
    held_out: Callable[[Path], pd.Series] | None
    """Predicted seconds of each row, from coefficients fitted without its group; index as `predict`."""
    coefficients: Callable[[], int]
    """Number of fitted numbers behind the predictions."""
    metrics: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Summary:
    """Absolute relative errors of a data set."""

    dataset: str
    rows: int
    coefficients: int
    grouping: str
    mean: float | None
    """None, like all errors, without rows that a target holds for."""
    median: float | None
    worst: float | None
    inside_90: float | None
    """Share of the rows inside the 90 % band."""
    held_out_mean: float | None
    held_out_median: float | None
    held_out_worst: float | None
    held_out_inside_90: float | None
    naive_mean: float | None
    torchrec_mean: float | None


def frame(records: Iterable[dict[str, object]]) -> pd.DataFrame:
    """Records as a frame with the columns of every data set."""
    return pd.DataFrame(list(records), columns=list(COLUMNS))


def device_values(device: str, names: Iterable[str]) -> dict[str, float]:
    """Coefficients of a device, by name."""
    coefficients = device_coefficients(device)
    return {name: getattr(coefficients, name).value for name in names}


def leave_one_group_out(
    rows: pd.DataFrame,
    groups: Sequence[object] | pd.Series,
    predicted: Callable[[pd.DataFrame, pd.DataFrame], np.ndarray],
) -> pd.Series:
    """Seconds of each row, predicted from the rows of the other groups: `predicted` takes those, then the row's own."""
    group_of_row = pd.Series(groups, index=rows.index)
    found = pd.Series(np.nan, index=rows.index)
    for group in group_of_row.unique():
        out = group_of_row == group
        found[out] = predicted(rows[~out], rows[out])
    return found


def refitted(
    refit: Callable[..., Fit],
    shipped: Callable[[], dict[str, float]],
    seconds: Callable[[pd.DataFrame, dict[str, float]], np.ndarray],
) -> Callable[[pd.DataFrame, pd.DataFrame], np.ndarray]:
    """For `leave_one_group_out`: seconds of some rows by the coefficients that a fit to others gives.

    `refit(rows, start, must_be_determined=…)` is the data set's own fit.
    """

    def predicted(others: pd.DataFrame, rows: pd.DataFrame) -> np.ndarray:
        return seconds(rows, refit(others, shipped(), must_be_determined=False).values)

    return predicted


def summarise(dataset: DataSet, rows: pd.DataFrame, held_out: pd.Series | None) -> Summary:
    """The summary of the rows that a target holds for."""
    gated = rows[rows.gated]
    error = (gated.predicted_s / gated.measured_s - 1).abs()
    inside = _inside(gated, gated.predicted_s) if len(gated) else None
    others: list[float | None] = [None] * 4
    if held_out is not None and len(gated):
        kept = held_out.loc[gated.index].dropna()  # what could be fitted without its group
        away = (kept / gated.measured_s[kept.index] - 1).abs()
        others = [*_errors(away), _inside(gated.loc[kept.index], kept) if len(kept) else None]
    return Summary(
        dataset.name,
        len(gated),
        dataset.coefficients(),
        dataset.grouping,
        *_errors(error),
        inside,
        *others,
        _mean_error(gated.naive_s, gated.measured_s),
        _mean_error(gated.torchrec_s, gated.measured_s),
    )


def _errors(error: pd.Series) -> list[float | None]:
    return [float(each) if len(error) else None for each in (error.mean(), error.median(), error.max())]


def _inside(rows: pd.DataFrame, centre: pd.Series) -> float:
    low, high = centre * rows.low_s / rows.predicted_s, centre * rows.high_s / rows.predicted_s
    return float(((rows.measured_s >= low) & (rows.measured_s <= high)).mean())


def _mean_error(predicted: pd.Series, measured: pd.Series) -> float | None:
    error = (predicted / measured - 1).abs().astype(float)
    return None if np.isnan(error).all() else float(error.mean())
