"""What kernels beside products take, fitted kind by kind to rows of `elementwise.py`: in bytes of an H100's memory."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from benchmarks.one_gpu.laws import FOLDER, LAUNCHED_S, off
from benchmarks.one_gpu.models import one_h100
from cost_models.calibration.robust import fit
from cost_models.shards import Floats

ITEM_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4}
SUM_LAUNCHED_S = 6.6e-6
"""What a sum over all samples takes however few there are: two kernels, one after the other. In no law, as launches
are not."""
PASSES = 1.15
"""Time of a byte that is read or written, over that of the data sheet's bandwidth."""


@dataclass(frozen=True)
class Fitted:
    """A number of a kind of kernel."""

    value: float
    median_off: float
    median_left_out: float
    """Of each format, by the number that the others give."""


def streamed() -> pd.DataFrame:
    """Contiguous numbers, of rows that do not fit a cache, but for what is widened, which takes 1.5 times that."""
    rows = pd.read_csv(FOLDER / "streamed.csv")
    rows = rows[(rows.width > 1000) & (rows.what != "to 32 bits")]
    return rows.assign(moved=rows.bytes, beyond=0.0, launched_s=0.0)


def turned() -> pd.DataFrame:
    """Numbers across layouts, of 27 vectors and more: transposed copies and sums, heads in order."""
    rows = pd.read_csv(FOLDER / "strided.csv")
    rows = rows[(rows.vectors >= 27) & (rows.seconds >= 2e-5) & ~rows.what.isin(["slice", "parts stacked"])]
    numbers = rows.bytes / rows.dtype.map(ITEM_BYTES)
    return rows.assign(moved=rows.bytes, beyond=numbers, launched_s=LAUNCHED_S)


def sums() -> pd.DataFrame:
    """Sums of all rows."""
    rows = pd.read_csv(FOLDER / "column_sums.csv")
    moved = rows.rows * rows.width * rows.dtype.map(ITEM_BYTES)
    return rows.assign(moved=moved, beyond=rows.rows, launched_s=SUM_LAUNCHED_S)


def norms() -> pd.DataFrame:
    """Layer norms forward."""
    rows = pd.read_csv(FOLDER / "norms.csv")
    rows = rows[rows.width <= 2048]
    moved = 2 * rows.rows * rows.width * rows.dtype.map(ITEM_BYTES)
    return rows.assign(seconds=rows.forward_s, moved=moved, beyond=rows.rows, launched_s=LAUNCHED_S)


def norm_gradients() -> pd.DataFrame:
    """Their gradients, of half a million rows: fewer take 0.2 to 0.3 ms, however few."""
    rows = pd.read_csv(FOLDER / "norms.csv")
    rows = rows[rows.rows >= 500_000]
    moved = 5 * rows.rows * rows.width * rows.dtype.map(ITEM_BYTES)
    return rows.assign(seconds=rows.backward_s, moved=moved, beyond=rows.rows, launched_s=LAUNCHED_S)


ROWS: dict[str, Callable[[], pd.DataFrame]] = {
    "counted_passes": streamed,
    "turned_number_bytes": turned,
    "summed_row_bytes": sums,
    "counted_norm_row_bytes": norms,
    "norm_gradient_row_bytes": norm_gradients,
}
"""The rows that each coefficient of software comes from."""


def fitted(name: str) -> Fitted:
    """The number whose errors are least in the median, as far above as below."""
    rows = ROWS[name]().reset_index(drop=True)
    value = _least(rows, name)
    left_out = [
        off(_seconds(part, name, _least(rows.drop(part.index), name)), part.seconds.to_numpy())
        for _, part in rows.groupby("dtype")
    ]
    errors = off(_seconds(rows, name, value), rows.seconds.to_numpy())
    return Fitted(value, float(np.median(errors)), float(np.median(np.concatenate(left_out))))


def _seconds(rows: pd.DataFrame, name: str, value: float) -> Floats:
    bandwidth = one_h100().nodes[0].accelerators.hbm.bandwidth
    passes, beyond = (value, 0.0) if name == "counted_passes" else (PASSES, value)
    return np.asarray(rows.launched_s + (passes * rows.moved + beyond * rows.beyond) / bandwidth)


def _least(rows: pd.DataFrame, name: str) -> float:
    measured, start = rows.seconds.to_numpy(), {"value": 1.0 if name == "counted_passes" else 1000.0}
    start = {"value": 2.0} if name == "turned_number_bytes" else start
    found = fit(lambda values: _seconds(rows, name, values["value"]), start, measured, must_be_determined=False)
    return float(found.values["value"])
