"""Extraction of cached rows on V100: rows of UGache's logs that split their bytes into local, remote and host."""

from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.accuracy.readable import measured, readable
from benchmarks.accuracy.rows import DataSet, frame, leave_one_group_out, refitted
from cost_models import lookup_terms as terms
from cost_models.calibration.robust import Fit, fit
from cost_models.coefficients import device_coefficients, harness_coefficients
from cost_models.error_bars import band
from cost_models.lookup_rates import LookupRates

HARNESS, DEVICE = "ugache", "V100-SXM2-32GB"
HBM_BYTES_PER_S, PCIE_BYTES_PER_S, NVLINK_BYTES_PER_S = 0.9e12, 15.75e9, 150e9
FITTED = ("lookup_efficiency", "mps_launch_s", "mps_host_passes", "sm_launch_s", "sm_host_passes")
NAIVE_LATENCY_S = 10e-6
TORCHREC = (897 * 2**30, 32 * 2**30 / 10)
"""TorchRec 1.8.0, constants.py: bytes/s of rows in HBM, and in host memory."""


def cases(folder: Path) -> pd.DataFrame:
    """The runs on four V100 whose log splits the bytes."""
    rows = measured(folder, "ugache_cache_extraction.csv")
    misses = pd.to_numeric(rows.miss_bytes, errors="coerce") > 0
    rows["remote_bytes"] = pd.to_numeric(rows.remote_bytes, errors="coerce")
    numbers = ("rows", "dim", "feature_bytes", "miss_bytes", "cache_feat_copy_s")
    return readable(rows[(rows.platform == "4v100") & misses].fillna({"path": ""}), "ugache", numbers)


def shipped() -> dict[str, float]:
    """The fitted coefficients as they are."""
    return {name: harness_coefficients(HARNESS)[name] for name in FITTED}


def seconds(rows: pd.DataFrame, values: dict[str, float]) -> np.ndarray:
    """Predicted seconds: all rows are written, the local and the remote ones read at the device's pace, the host's
    ones over PCIe. Remote reads (at most 15 % here) run beside the local ones, on links that are not the bottleneck."""
    is_mps = rows.path.str.contains("MPSPhase").to_numpy()
    rates = LookupRates(
        hbm_bytes_per_s=HBM_BYTES_PER_S * values["lookup_efficiency"],
        l2_bytes_per_s=HBM_BYTES_PER_S,
        l2_reach_bytes=0.0,
        pcie_bytes_per_s=PCIE_BYTES_PER_S * device_coefficients(DEVICE).pcie_efficiency.value,
        sector_bytes=32,
    )
    row_bytes = rows.dim.to_numpy(float) * 4
    device_rows = (rows.feature_bytes - rows.miss_bytes).to_numpy() / row_bytes
    reads = terms.Reads(
        lookups=device_rows,
        unique=device_rows,
        id_bytes=0,
        row_bytes=row_bytes,
        output_bytes=rows.feature_bytes.to_numpy(),
        table_bytes=rows.rows.to_numpy() * row_bytes,
    )
    launch = np.where(is_mps, values["mps_launch_s"], values["sm_launch_s"])
    host = np.where(is_mps, values["mps_host_passes"], values["sm_host_passes"]) * rows.miss_bytes.to_numpy()
    _, outputs = terms.stream(reads, rates)
    return launch + outputs + terms.read_rows(reads, rates) + host / rates.pcie_bytes_per_s


def refit(rows: pd.DataFrame, start: dict[str, float], *, must_be_determined: bool = True) -> Fit:
    """The coefficients from these rows."""
    measured = rows.cache_feat_copy_s.to_numpy()
    return fit(lambda values: seconds(rows, dict(values)), start, measured, must_be_determined=must_be_determined)


def predict(folder: Path) -> pd.DataFrame:
    rows = cases(folder)
    out = frame([])
    out["label"] = [Path(path).name.removesuffix(".log") for path in rows.path]
    out["group"] = _groups(rows)
    out["measured_s"], out["predicted_s"] = rows.cache_feat_copy_s.to_numpy(), seconds(rows, shipped())
    out["low_s"], out["high_s"] = band(out.predicted_s, harness_coefficients(HARNESS)["band_90"])
    local = (rows.feature_bytes - rows.miss_bytes - rows.remote_bytes).to_numpy()
    slow = (rows.remote_bytes / NVLINK_BYTES_PER_S + rows.miss_bytes / PCIE_BYTES_PER_S).to_numpy()
    out["naive_s"] = local / HBM_BYTES_PER_S + slow + NAIVE_LATENCY_S
    out["torchrec_s"] = (rows.feature_bytes - rows.miss_bytes).to_numpy() / TORCHREC[0] + rows.miss_bytes / TORCHREC[1]
    out["gated"] = True
    out["alike"] = rows.workload.to_numpy()
    return out.set_index(rows.index)


def held_out(folder: Path) -> pd.Series:
    """Each workload predicted from a fit to the others."""
    rows = cases(folder)
    return leave_one_group_out(rows, _groups(rows), refitted(refit, shipped, seconds))


def _groups(rows: pd.DataFrame) -> list[str]:
    return list(rows.workload)


DATA_SET = DataSet(
    name="ugache",
    grouping="workload",
    predict=predict,
    held_out=held_out,
    coefficients=lambda: len(FITTED),
    note="extraction through a distributed cache, 4 x V100",
)
