"""What the host does in an eager TorchRec step: processor time of a rank whose kernels have next to nothing to compute.

Rows of `python -m benchmarks.gloo.host`: two processes over gloo, 64 rows of 8 columns a table, 4 samples a rank. They
say how the host's time grows with modules, kinds of sharding, tables and layers; not how fast the host of a device is.
"""

from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.accuracy.readable import measured, readable
from benchmarks.accuracy.rows import DataSet, frame, leave_one_group_out, refitted
from cost_models.calibration.robust import Fit, fit
from cost_models.coefficients import host_coefficients
from cost_models.error_bars import band
from cost_models.software import HostCounts, host_parts

SOFTWARE = "torchrec"
FITTED = ("step_s", "module_s", "replicas_s", "table_s", "layer_s", "state_s")


def cases(folder: Path) -> pd.DataFrame:
    """The measured steps, one for each run of a model."""
    rows = measured(folder, "torchrec_host_steps.csv").fillna({"shardings": ""})
    return readable(rows, "torchrec_host", ("modules", "tables", "layers", "step_ms"))


def shipped() -> dict[str, float]:
    """The fitted coefficients as they are."""
    return {name: getattr(host_coefficients(SOFTWARE), name).value for name in FITTED}


def _counts(rows: pd.DataFrame) -> list[HostCounts]:
    found = []
    for row in rows.itertuples():
        kinds = row.shardings.split("+")[: row.tables]
        exchanging = row.modules * sum(kind != "data_parallel" for kind in kinds)
        stateful = row.layers * (row.optimizer != "sgd")
        replicas = row.modules * ("data_parallel" in kinds)
        found.append(HostCounts(exchanging, replicas, row.modules * row.tables, row.layers, stateful))
    return found


def seconds(rows: pd.DataFrame, values: dict[str, float]) -> np.ndarray:
    """Predicted seconds of each row."""
    host = host_coefficients(SOFTWARE)
    changed = host.model_copy(
        update={name: getattr(host, name).model_copy(update={"value": value}) for name, value in values.items()}
    )
    return np.array([sum(part.seconds for part in host_parts(changed, counts)) for counts in _counts(rows)])


def refit(rows: pd.DataFrame, start: dict[str, float], *, must_be_determined: bool = True) -> Fit:
    """The coefficients from these rows."""
    measured = rows.step_ms.to_numpy() * 1e-3
    return fit(lambda values: seconds(rows, dict(values)), start, measured, must_be_determined=must_be_determined)


def _groups(rows: pd.DataFrame) -> list[str]:
    return [
        f"{row.modules} x {row.tables} tables, {row.shardings}, {row.layers} layers, {row.optimizer}"
        for row in rows.itertuples()
    ]


def predict(folder: Path) -> pd.DataFrame:
    rows = cases(folder)
    out = frame([])
    out["label"] = out["group"] = _groups(rows)
    out["measured_s"], out["predicted_s"] = rows.step_ms.to_numpy() * 1e-3, seconds(rows, shipped())
    out["low_s"], out["high_s"] = band(out.predicted_s, host_coefficients(SOFTWARE).module_s.residual_90 or 0.0)
    out["naive_s"], out["torchrec_s"] = rows.step_ms.median() * 1e-3, np.nan
    out["gated"] = True
    return out.set_index(rows.index)


def held_out(folder: Path) -> pd.Series:
    """Each model predicted from a fit to the others."""
    rows = cases(folder)
    return leave_one_group_out(rows, _groups(rows), refitted(refit, shipped, seconds))


DATA_SET = DataSet(
    name="torchrec_host",
    grouping="model",
    predict=predict,
    held_out=held_out,
    coefficients=lambda: len(FITTED),
    note="processor time of TorchRec's host over gloo, by modules, shardings, tables and layers; line rate: one number",
)
