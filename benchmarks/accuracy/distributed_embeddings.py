"""Training steps of NVIDIA's distributed-embeddings on DGX A100, by the planner's own step, its placement emulated.

The library balances bytes: a table above 1280 x 2^20 elements is halved by columns until it is below, the slices are
sorted by (size, table), descending, and dealt to the ranks to and fro (`memory_balanced` of its DistEmbeddingStrategy).
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.accuracy.judges import Judge, estimated
from benchmarks.accuracy.readable import measured, readable
from benchmarks.accuracy.rows import DataSet, frame
from benchmarks.accuracy.systems import UnknownSystemError, topology_of
from cost_models.calibration.robust import Fit, fit
from cost_models.coefficients import Place, replaced, software_coefficients
from cost_models.dense_size import dense_size
from cost_models.shards import HBM, TABLE_WISE, Blocks, PlacedShards
from cost_models.step import StepModel
from cost_models.workload.loading import load_workload
from topologies.errors import InputError

SOFTWARE = "distributed-embeddings"
MEMORY = "80GB"
LARGEST_SLICE = 1280 * 2**20
FITTED = ("step_overhead_s", "vector_s", "backward_passes")


def cases(folder: Path) -> pd.DataFrame:
    """The rows whose model and cluster are known; the others are listed on standard error."""
    rows = measured(folder, "e2e_steps_distributed_embeddings.csv").fillna({"system": "", "model": ""})
    rows = readable(rows, "distributed_embeddings", ("gpus", "global_batch", "step_ms"))
    reasons = [_reason(row) for row in rows.itertuples()]
    for row, reason in zip(rows.itertuples(), reasons, strict=True):
        if reason:
            print(f"distributed_embeddings: {row.model} on {row.gpus} left out: {reason}", file=sys.stderr)
    return rows[[not reason for reason in reasons]].reset_index(drop=True)


def _reason(row: Any) -> str:
    """Why a row cannot be predicted; empty where it can."""
    if row.gpus > 8 and row.gpus % 8:
        return f"{row.gpus} GPUs are no whole nodes of eight"
    try:
        model_of(row.system, row.model, row.gpus, row.global_batch)
    except UnknownSystemError as error:
        return str(error)
    except InputError as error:
        return error.faults[0].message
    return ""


def model_of(system: str, name: str, gpus: int, batch: int) -> StepModel:
    """The step of one of its synthetic models on so many of a system's accelerators; with 80 GB each unless it says."""
    nodes, each = max(1, gpus // 8), min(gpus, 8)
    workload = load_workload(
        f"nv-{name.lower()}", global_batch=batch, overrides=[f"software={SOFTWARE}", "pipeline=none"]
    )
    return StepModel(topology_of(f"{system} {MEMORY}", nodes, each), workload)


def placed(model: StepModel) -> PlacedShards:
    """Its placement."""
    world, rows, dim = len(model.kind_of_rank), model.tables.rows, model.tables.dim
    slices = []
    for table in range(len(rows)):
        count = 1
        while rows[table] * dim[table] / count > LARGEST_SLICE and 2 * count <= min(world, dim[table]):
            count *= 2
        slices += [(rows[table] * dim[table] // count, table, dim[table] // count)] * count
    slices.sort(reverse=True)
    turn = np.arange(len(slices)) % (2 * world)
    rank = np.where(turn < world, turn, 2 * world - 1 - turn)
    _, table, columns = (np.array(column) for column in zip(*slices, strict=True))
    n = len(slices)
    blocks = Blocks(table, np.full(n, TABLE_WISE), np.full(n, HBM), columns, np.zeros(n))
    return PlacedShards(blocks, rank, rows[table], np.ones(n, dtype=bool))


def seconds(
    rows: pd.DataFrame, values: Mapping[str, float] = MappingProxyType({}), judge: Judge = estimated
) -> np.ndarray:
    """Predicted seconds of each row, with the shipped coefficients or others in place of some."""
    places: dict[Place, float] = {("software", SOFTWARE, name): value for name, value in values.items()}
    with replaced(places):
        models = [model_of(row.system, row.model, row.gpus, row.global_batch) for row in rows.itertuples()]
        return np.array([judge(model, placed(model)) for model in models])


def shipped() -> dict[str, float]:
    """The fitted coefficients as they are."""
    software = software_coefficients(SOFTWARE)
    plain = {name: getattr(software, name).value for name in FITTED[:-1]}
    return {**plain, FITTED[-1]: software.backward_passes.by_optimizer["adagrad"]}


@dataclass(frozen=True)
class Straight:
    """Seconds as a straight line in the coefficients: exact as long as no other rank becomes the slowest."""

    constant: np.ndarray
    """[rows]"""
    slopes: np.ndarray
    """[rows, coefficients]"""

    def seconds(self, values: Mapping[str, float]) -> np.ndarray:
        """[rows]"""
        return self.constant + self.slopes @ np.array([values[name] for name in FITTED])


def straight(rows: pd.DataFrame) -> Straight:
    """Around the shipped coefficients, by differences of 5 %."""
    at = shipped()
    here = seconds(rows, at)
    slopes = np.stack(
        [(seconds(rows, {**at, name: 1.05 * value}) - here) / (0.05 * value) for name, value in at.items()], axis=1
    )
    return Straight(here - slopes @ np.array(list(at.values())), slopes)


def refit(
    rows: pd.DataFrame,
    line: Straight | None = None,
    kept: np.ndarray | None = None,
    *,
    must_be_determined: bool = True,
) -> Fit:
    """The coefficients from the kept rows."""
    line = line or straight(rows)
    kept = np.ones(len(rows), dtype=bool) if kept is None else kept
    measured = rows.step_ms.to_numpy()[kept] * 1e-3
    return fit(lambda values: line.seconds(values)[kept], shipped(), measured, must_be_determined=must_be_determined)


def predict(folder: Path) -> pd.DataFrame:
    rows = cases(folder)
    out = frame([])
    out["label"] = [f"{row.model} {row.gpus} A100" for row in rows.itertuples()]
    out["group"] = rows.model + " " + rows.gpus.astype(str)
    out["measured_s"], out["predicted_s"] = rows.step_ms * 1e-3, seconds(rows)
    models = [model_of(row.system, row.model, row.gpus, row.global_batch) for row in rows.itertuples()]
    bars = [model.error_bars(placed(model)).step for model in models]
    ends = [bar.around(predicted) for bar, predicted in zip(bars, out.predicted_s, strict=True)]
    out["low_s"], out["high_s"] = zip(*ends, strict=True) if ends else ([], [])
    out["naive_s"] = [_naive_seconds(row.system, row.model, row.gpus, row.global_batch) for row in rows.itertuples()]
    out["gated"] = True
    out["alike"] = rows.model + " " + rows.global_batch.astype(str)
    return out


def held_out(folder: Path, by: Sequence[str] = ("model", "gpus")) -> pd.Series:
    """Each row, or each model, predicted from a fit to the others."""
    rows = cases(folder)
    line, found = straight(rows), pd.Series(np.nan, index=rows.index)
    for _, out in rows.groupby(list(by)):
        left_out = rows.index.isin(out.index)
        found[left_out] = line.seconds(refit(rows, line, ~left_out, must_be_determined=False).values)[left_out]
    return found


def _naive_seconds(system: str, name: str, gpus: int, batch: int) -> float:
    """Everything spread evenly, at the data sheet's rates."""
    model = model_of(system, name, gpus, batch)
    group, tables, world = model.topology.nodes[0], model.tables, gpus
    row_bytes = float((tables.lookups_per_sample * tables.dim).sum()) * 4
    sent = float((tables.outputs_per_sample * tables.dim).sum()) * 4 * batch / world * (world - 1) / world
    port = 25e9 if world > 8 else 300e9
    return (
        batch / world * dense_size(model.workload).training_flops / (group.accelerators.flops.tf32 or 1)
        + 2 * batch / world * row_bytes / group.accelerators.hbm.bandwidth
        + 2 * sent / port
    )


DATA_SET = DataSet(
    name="distributed_embeddings",
    grouping="model and number of GPUs",
    predict=predict,
    held_out=held_out,
    coefficients=lambda: len(FITTED),
    note="training steps of distributed-embeddings on DGX A100, 1 to 128 GPUs; its placement emulated",
)
