"""The simulator beside measured steps: nothing is fitted to it, the coefficients are the estimate's."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.accuracy import distributed_embeddings, mad_max, mlperf
from benchmarks.accuracy.judges import simulated


@dataclass(frozen=True)
class Summary:
    """Relative errors of one data set."""

    name: str
    rows: int
    median: float
    worst: float
    held_out_median: float | None
    held_out_worst: float | None


def rows_of(folder: Path) -> pd.DataFrame:
    """Every measured row with what the simulator says: set, label, measured_s, simulated_s, held_out_s, gated."""
    parts = [found for read in (_mlperf, _model_i, _distributed_embeddings) if (found := read(folder)) is not None]
    if not parts:
        raise FileNotFoundError(f"{folder}: neither published.json nor measured/*.csv of steps")
    return pd.concat(parts, ignore_index=True)


def _mlperf(folder: Path) -> pd.DataFrame | None:
    if not (folder / "published.json").exists():
        return None
    rows = mlperf.cases(folder)
    if rows.empty:
        return None
    by_case = {case: mlperf.seconds(case, folder, judge=simulated) for case in dict.fromkeys(rows.configuration)}
    return pd.DataFrame(
        {
            "set": "MLPerf DLRM-DCNv2",
            "label": rows.label,
            "measured_s": rows.measured_s,
            "simulated_s": rows.configuration.map(by_case),
            "held_out_s": mlperf.held_out(folder, judge=simulated),
            "gated": rows.gated,
        }
    )


def _model_i(folder: Path) -> pd.DataFrame | None:
    if not (folder / "published.json").exists():
        return None
    rows = mad_max.predict(folder)
    return pd.DataFrame(
        {
            "set": "MAD-Max Model-I",
            "label": rows.label,
            "measured_s": rows.measured_s,
            "simulated_s": mad_max.step(simulated)[0],
            "held_out_s": np.nan,
            "gated": True,
        }
    )


def _distributed_embeddings(folder: Path) -> pd.DataFrame | None:
    try:
        estimates = distributed_embeddings.predict(folder)
    except FileNotFoundError:
        return None
    return pd.DataFrame(
        {
            "set": "distributed-embeddings",
            "label": estimates.label,
            "measured_s": estimates.measured_s,
            "simulated_s": distributed_embeddings.seconds(distributed_embeddings.cases(folder), judge=simulated),
            "held_out_s": np.nan,
            "gated": estimates.gated,
        }
    )


def summaries(rows: pd.DataFrame) -> list[Summary]:
    """Summaries of the rows that targets hold for."""
    found = []
    for name, own in rows[rows.gated].groupby("set", sort=False):
        error = (own.simulated_s / own.measured_s - 1).abs()
        held = (own.held_out_s / own.measured_s - 1).abs().dropna()
        kept = (float(held.median()), float(held.max())) if len(held) else (None, None)
        found.append(Summary(str(name), len(own), float(error.median()), float(error.max()), *kept))
    return found
