"""Backward kernels of FBGEMM's TBE on an AMD MI350: its ten production configurations, of commit messages.

Kernels alone, without the sorting of ids before them; fp16 rows, row-wise Adagrad, uniform ids, 20 to a bag, 2,048
samples. They take far longer than their bytes: for each distinct row, whatever its width. Rows with FBGEMM's
experimental kernels for ROCm switched on (`flag`) are shown without a target.
"""

from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.accuracy.readable import measured, readable
from benchmarks.accuracy.rows import DataSet, device_values, frame, leave_one_group_out, refitted
from cost_models import lookup_terms as terms
from cost_models.calibration.robust import Fit, fit
from cost_models.coefficients import device_coefficients, software_coefficients
from cost_models.error_bars import band, error_90
from cost_models.lookup_rates import LookupRates
from cost_models.power_laws import unique_rows
from cost_models.workload.loading import WORKLOADS, load_workload

DEVICE, SOFTWARE, OPTIMIZER = "MI350X-288GB", "torchrec", "rowwise_adagrad"
HBM_BYTES_PER_S, SECTOR_BYTES, BATCH = 8e12, 32, 2048
FITTED = ("update_launch_s", "update_distinct_row_s")
TORCHREC_BYTES_PER_S = 897 * 2**30


def cases(folder: Path) -> pd.DataFrame:
    """The rows, one for each run of a configuration."""
    rows, known = measured(folder, "fbgemm_mi350_backward.csv"), {"configuration": WORKLOADS.names()}
    return readable(rows, "tbe_mi350", ("time_us",), device=("gpu", "MI350"), known=known)


def shipped() -> dict[str, float]:
    """The fitted coefficients as they are."""
    return device_values(DEVICE, FITTED)


def _reads(configuration: str) -> terms.Reads:
    """What the update of each table of a configuration reads; [tables]."""
    tables = load_workload(configuration).tables
    rows = np.array([table.rows for table in tables], dtype=float)
    lookups = np.array([BATCH * table.pooling_factor for table in tables])
    width = np.array([2.0 * table.dim for table in tables])
    row_bytes = terms.in_sectors(width, SECTOR_BYTES)
    return terms.Reads(lookups, unique_rows(rows, 0.0, lookups), 8, row_bytes, BATCH * width, rows * row_bytes)


def seconds(rows: pd.DataFrame, values: dict[str, float]) -> np.ndarray:
    """Predicted seconds of each row."""
    rate = HBM_BYTES_PER_S * device_coefficients(DEVICE).lookup_efficiency.value
    rates, software = LookupRates(rate, rate, 0.0, 1.0, SECTOR_BYTES), software_coefficients(SOFTWARE)
    passes = software.backward_passes.by_optimizer[OPTIMIZER]
    found = {}
    for name in rows.configuration.unique():
        reads = _reads(name)
        by_row = values["update_distinct_row_s"] * float(np.sum(reads.unique))
        found[name] = values["update_launch_s"] + by_row + float(terms.backward(reads, passes, rates, software).sum())
    return rows.configuration.map(found).to_numpy(float)


def refit(rows: pd.DataFrame, start: dict[str, float], *, must_be_determined: bool = True) -> Fit:
    """The coefficients from the rows that a target holds for."""
    rows = rows[rows.flag == "off"]
    measured = rows.time_us.to_numpy() * 1e-6
    return fit(lambda values: seconds(rows, dict(values)), start, measured, must_be_determined=must_be_determined)


def predict(folder: Path) -> pd.DataFrame:
    rows = cases(folder)
    out = frame([])
    out["label"] = [f"{row.configuration}, flag {row.flag}" for row in rows.itertuples()]
    out["group"] = rows.configuration
    out["measured_s"], out["predicted_s"] = rows.time_us.to_numpy() * 1e-6, seconds(rows, shipped())
    error = error_90(device_coefficients(DEVICE).update_distinct_row_s, DEVICE, {})
    out["low_s"], out["high_s"] = band(out.predicted_s, error)
    moved = {name: float(np.sum(_reads(name).lookups * _reads(name).row_bytes)) for name in rows.configuration.unique()}
    out["naive_s"] = 2 * rows.configuration.map(moved) / HBM_BYTES_PER_S
    out["torchrec_s"] = 2 * rows.configuration.map(moved) / TORCHREC_BYTES_PER_S
    out["gated"] = rows.flag == "off"
    return out.set_index(rows.index)


def held_out(folder: Path) -> pd.Series:
    """Each configuration predicted from a fit to the others."""
    rows = cases(folder)
    return leave_one_group_out(rows, rows.configuration, refitted(refit, shipped, seconds))


DATA_SET = DataSet(
    name="tbe_mi350",
    grouping="configuration",
    predict=predict,
    held_out=held_out,
    coefficients=lambda: len(FITTED),
    note="FBGEMM's backward kernels on an AMD MI350: ten production configurations, each of 2 to 22 tables",
)
