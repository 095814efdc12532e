"""Values found in a hash table on an A100 over PCIe, in HBM alone and in HBM with host memory: HierarchicalKV's README.

Finding the slot of a key and moving its value overlap, so the time of a key is the root of the sum of their squares.
Of a table larger than its HBM the share that is in host memory is read in place over PCIe.
"""

from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.accuracy.readable import measured, readable
from benchmarks.accuracy.rows import DataSet, frame, leave_one_group_out, refitted
from cost_models import lookup_terms as terms
from cost_models.calibration.robust import Fit, fit
from cost_models.coefficients import device_coefficients, harness_coefficients
from cost_models.error_bars import band

HARNESS, DEVICE = "hkv", "A100-SXM4-80GB"
HBM_BYTES_PER_S, PCIE_BYTES_PER_S, SECTOR_BYTES = 1.935e12, 31.5e9, 32
FITTED = ("probe_s", "host_passes")
TORCHREC_BYTES_PER_S = (897 * 2**30, 32 * 2**30 / 10)
"""TorchRec 1.8.0, constants.py: bytes/s of rows in HBM, and in host memory."""


def cases(folder: Path) -> pd.DataFrame:
    """The rows of `find`, which copies values out."""
    rows = measured(folder, "hkv_a100_ops.csv")
    rows = readable(rows[rows.op == "find"], "hkv", ("dim", "hbm_gb", "billion_kv_per_s"), device=("gpu", "A100"))
    rows["hmem_gb"] = pd.to_numeric(rows.hmem_gb, errors="coerce")
    rows["host_share"] = rows.hmem_gb / (rows.hbm_gb + rows.hmem_gb)
    rows["seconds"] = 1e-9 / rows.billion_kv_per_s
    return rows


def shipped() -> dict[str, float]:
    """The fitted coefficients as they are."""
    return {name: harness_coefficients(HARNESS)[name] for name in FITTED}


def seconds(rows: pd.DataFrame, values: dict[str, float]) -> np.ndarray:
    """Predicted seconds of one key of each row."""
    device = device_coefficients(DEVICE)
    rate = HBM_BYTES_PER_S * device.lookup_efficiency.value
    value_bytes = terms.in_sectors(rows.dim.to_numpy(float) * 4, SECTOR_BYTES)
    host = rows.host_share.to_numpy()
    on_device = np.hypot(values["probe_s"], (value_bytes * (2 - host) + 8) / rate)
    return on_device + values["host_passes"] * host * value_bytes / (PCIE_BYTES_PER_S * device.pcie_efficiency.value)


def refit(rows: pd.DataFrame, start: dict[str, float], *, must_be_determined: bool = True) -> Fit:
    """The coefficients from these rows."""
    measured = rows.seconds.to_numpy()
    return fit(lambda values: seconds(rows, dict(values)), start, measured, must_be_determined=must_be_determined)


def predict(folder: Path) -> pd.DataFrame:
    rows = cases(folder)
    out = frame([])
    out["label"] = [f"dim {row.dim}, {row.tier}, load {row.load_factor}" for row in rows.itertuples()]
    out["group"] = _groups(rows)
    out["measured_s"], out["predicted_s"] = rows.seconds.to_numpy(), seconds(rows, shipped())
    out["low_s"], out["high_s"] = band(out.predicted_s, harness_coefficients(HARNESS)["band_90"])
    moved, host = rows.dim.to_numpy() * 4, rows.host_share.to_numpy()
    out["naive_s"] = moved * (2 - host) / HBM_BYTES_PER_S + moved * host / PCIE_BYTES_PER_S
    out["torchrec_s"] = moved * (1 - host) / TORCHREC_BYTES_PER_S[0] + moved * host / TORCHREC_BYTES_PER_S[1]
    out["gated"] = True
    out["alike"] = [f"dim {row.dim}, load {row.load_factor}" for row in rows.itertuples()]
    return out.set_index(rows.index)


def held_out(folder: Path) -> pd.Series:
    """Each configuration predicted from a fit to the others."""
    rows = cases(folder)
    return leave_one_group_out(rows, _groups(rows), refitted(refit, shipped, seconds))


def _groups(rows: pd.DataFrame) -> list[str]:
    return [f"dim {row.dim}, {row.hbm_gb} + {row.hmem_gb} GB" for row in rows.itertuples()]


DATA_SET = DataSet(
    name="hkv",
    grouping="width and memory",
    predict=predict,
    held_out=held_out,
    coefficients=lambda: len(FITTED),
    note="keys found in a hash table on an A100 over PCIe, values in HBM and in host memory",
)
