"""Forward pass of a TBE by embedding width, 4 to 1024 columns: rows of torchrec's pull request 2365.

The device is not stated; its streaming rate (1.65 TB/s) is that of an 80 GB A100. One feature of ten ids is read per
sample; samples are dealt to all tables alike, which the kernel goes through one after the other, so that each has the
L2 cache to itself. The other two sets of the source are shown without a target: one is bound by launches from the CPU,
the other does not say how many features it reads.
"""

from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.accuracy.readable import measured, readable
from benchmarks.accuracy.rows import DataSet, frame, leave_one_group_out
from cost_models import lookup_terms as terms
from cost_models.calibration.robust import Fit, fit
from cost_models.coefficients import harness_coefficients
from cost_models.error_bars import band
from cost_models.lookup_rates import LookupRates

HARNESS, HBM_BYTES_PER_S, L2_BYTES, SECTOR_BYTES = "torchrec-pr-2365", 2.039e12, 40 * 2**20, 32
FITTED = ("lookup_efficiency", "l2_reach", "l2_speedup", "launch_s")
TORCHREC_BYTES_PER_S = 897 * 2**30


def cases(folder: Path) -> pd.DataFrame:
    """The rows of the sweep."""
    rows = measured(folder, "embedding_kernels.csv")
    rows = rows[rows.source.astype(str).str.contains("PR#2365")]
    rows = readable(rows, "dim_sweep", ("batch", "num_tables", "rows_per_table", "dim", "pooling", "time_ms"))
    rows["gated"] = rows.note.astype(str).str.contains("kernel-bound")
    return rows


def shipped() -> dict[str, float]:
    """The fitted coefficients as they are."""
    return {name: harness_coefficients(HARNESS)[name] for name in FITTED}


def seconds(rows: pd.DataFrame, values: dict[str, float]) -> np.ndarray:
    """Predicted seconds of each row."""
    rate = HBM_BYTES_PER_S * values["lookup_efficiency"]
    rates = LookupRates(
        hbm_bytes_per_s=rate,
        l2_bytes_per_s=rate * values["l2_speedup"],
        l2_reach_bytes=L2_BYTES * values["l2_reach"],
        pcie_bytes_per_s=31.5e9,
        sector_bytes=SECTOR_BYTES,
    )
    row_bytes = terms.in_sectors(rows.dim.to_numpy(float) * 4, SECTOR_BYTES)
    batch = rows.batch.to_numpy(float)
    reads = terms.Reads(
        lookups=batch * rows.pooling.to_numpy(float),
        unique=(rows.rows_per_table * rows.num_tables).to_numpy(float),
        id_bytes=8,
        row_bytes=row_bytes,
        output_bytes=batch * rows.dim.to_numpy(float) * 4,
        table_bytes=rows.rows_per_table.to_numpy(float) * row_bytes,
    )
    ids, outputs = terms.stream(reads, rates)
    return values["launch_s"] + ids + outputs + terms.read_rows(reads, rates)


def refit(rows: pd.DataFrame, start: dict[str, float], *, must_be_determined: bool = True) -> Fit:
    """The coefficients from the rows that a target holds for."""
    rows = rows[rows.gated]
    measured = rows.time_ms.to_numpy() * 1e-3
    return fit(lambda values: seconds(rows, dict(values)), start, measured, must_be_determined=must_be_determined)


def predict(folder: Path) -> pd.DataFrame:
    rows = cases(folder)
    out = frame([])
    out["label"] = [f"{n} x {batch} samples, {dim} columns" for n, batch, dim in _keys(rows)]
    out["group"] = [f"{dim} columns" for dim in rows.dim]
    out["measured_s"], out["predicted_s"] = rows.time_ms.to_numpy() * 1e-3, seconds(rows, shipped())
    out["low_s"], out["high_s"] = band(out.predicted_s, harness_coefficients(HARNESS)["band_90"])
    moved = rows.batch.to_numpy() * rows.pooling.to_numpy(float) * rows.dim.to_numpy() * 4
    out["naive_s"] = moved / HBM_BYTES_PER_S
    out["torchrec_s"] = moved / TORCHREC_BYTES_PER_S
    out["gated"] = rows.gated.to_numpy()
    return out.set_index(rows.index)


def held_out(folder: Path) -> pd.Series:
    """Each width predicted from a fit to the others."""
    rows = cases(folder)
    return leave_one_group_out(rows, rows.dim, _predicted)


def _predicted(others: pd.DataFrame, rows: pd.DataFrame) -> np.ndarray:
    """Seconds of some rows by coefficients that others give."""
    return seconds(rows, refit(others, shipped(), must_be_determined=False).values)


def _keys(rows: pd.DataFrame) -> list[tuple[int, int, int]]:
    return list(zip(rows.num_tables, rows.batch, rows.dim, strict=True))


DATA_SET = DataSet(
    name="dim_sweep",
    grouping="embedding width",
    predict=predict,
    held_out=held_out,
    coefficients=lambda: len(FITTED),
    note="TBE forward, 4 to 1024 columns; device unstated",
)
