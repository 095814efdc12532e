"""FBGEMM's TBE on a B200: three commands of its benchmark with two tables of a few hundred ids, of a commit message.

So few ids leave nothing but the launches of the kernels. Tables are those of the commands that the message shows; rows
of fp32 and SGD are assumed, to no effect. Bags of batches that differ by table (`vbe`) take kernels of their own in the
forward pass, which no workload has: shown without a target.
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

DEVICE, SOFTWARE, OPTIMIZER = "B200-SXM-180GB", "torchrec", "sgd"
HBM_BYTES_PER_S, SECTOR_BYTES = 8e12, 32
FITTED = ("lookup_launch_s", "update_launch_s")
TABLES = {
    "device": ((1000, 64, 32, 10), (1000, 64, 32, 10)),
    "device_with_spec": ((1000, 64, 32, 10), (2000, 128, 32, 20)),
    "vbe": ((1000, 64, 32, 10), (2000, 128, 64, 20)),
}
"""Rows, columns, samples and ids to a bag of each table of a command."""
TORCHREC_BYTES_PER_S = 897 * 2**30


def cases(folder: Path) -> pd.DataFrame:
    """The rows, one for each command and pass."""
    rows = measured(folder, "fbgemm_b200_tbe.csv")
    return readable(rows, "tbe_b200", ("time_us",), device=("gpu", "B200"), known={"command": TABLES})


def shipped() -> dict[str, float]:
    """The fitted coefficients as they are."""
    return device_values(DEVICE, FITTED)


def _reads(command: str) -> terms.Reads:
    """What each table of a command reads; [tables]."""
    rows, columns, samples, ids = (np.array(part, dtype=float) for part in zip(*TABLES[command], strict=True))
    row_bytes = terms.in_sectors(4 * columns, SECTOR_BYTES)
    lookups = samples * ids
    unique = rows * -np.expm1(lookups * np.log1p(-1 / rows))
    return terms.Reads(lookups, unique, 8, row_bytes, samples * 4 * columns, rows * row_bytes)


def seconds(rows: pd.DataFrame, values: dict[str, float]) -> np.ndarray:
    """Predicted seconds of each row."""
    rate = HBM_BYTES_PER_S * device_coefficients(DEVICE).lookup_efficiency.value
    rates, software = LookupRates(rate, rate, 0.0, 1.0, SECTOR_BYTES), software_coefficients(SOFTWARE)
    passes = software.backward_passes.by_optimizer[OPTIMIZER]
    found = []
    for command, direction in zip(rows.command, rows["pass"], strict=True):
        reads = _reads(command)
        if direction == "forward":
            parts = (*terms.stream(reads, rates), terms.read_rows(reads, rates))
        else:
            parts = (terms.backward(reads, passes, rates, software), terms.id_sort(reads.lookups, rates, software))
        launch = values["lookup_launch_s" if direction == "forward" else "update_launch_s"]
        found.append(launch + sum(float(np.sum(part)) for part in parts))
    return np.array(found)


def _gated(rows: pd.DataFrame) -> pd.Series:
    return rows.command != "vbe"


def refit(rows: pd.DataFrame, start: dict[str, float], *, must_be_determined: bool = True) -> Fit:
    """The coefficients from the rows that a target holds for."""
    rows = rows[_gated(rows)]
    measured = rows.time_us.to_numpy() * 1e-6
    return fit(lambda values: seconds(rows, dict(values)), start, measured, must_be_determined=must_be_determined)


def predict(folder: Path) -> pd.DataFrame:
    rows = cases(folder)
    out = frame([])
    out["label"] = [
        f"{row.command}, {direction}" for row, direction in zip(rows.itertuples(), rows["pass"], strict=True)
    ]
    out["group"] = rows.command
    out["measured_s"], out["predicted_s"] = rows.time_us.to_numpy() * 1e-6, seconds(rows, shipped())
    device = device_coefficients(DEVICE)
    error = {"forward": device.lookup_launch_s, "backward": device.update_launch_s}
    errors = rows["pass"].map({name: error_90(each, DEVICE, {}) for name, each in error.items() if each is not None})
    out["low_s"], out["high_s"] = band(out.predicted_s, errors.to_numpy(float))
    moved = rows.command.map({name: float(np.sum(_reads(name).lookups * _reads(name).row_bytes)) for name in TABLES})
    moved = moved * rows["pass"].map({"forward": 1, "backward": 2})
    out["naive_s"], out["torchrec_s"] = moved / HBM_BYTES_PER_S, moved / TORCHREC_BYTES_PER_S
    out["gated"] = _gated(rows)
    return out.set_index(rows.index)


def held_out(folder: Path) -> pd.Series:
    """Each command predicted from a fit to the others."""
    rows = cases(folder)
    return leave_one_group_out(rows, rows.command, refitted(refit, shipped, seconds))


DATA_SET = DataSet(
    name="tbe_b200",
    grouping="command",
    predict=predict,
    held_out=held_out,
    coefficients=lambda: len(FITTED),
    note="FBGEMM's kernels on a B200 with next to nothing to do, forward and backward: their launches",
)
