"""Neo's Model-I on 128 A100: the throughput that MAD-Max quotes, by the planner's own step; nothing is fitted to it."""

import json
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.accuracy.judges import Judge, estimated
from benchmarks.accuracy.rows import DataSet, frame
from cost_models.error_bars import ErrorBand
from cost_models.model import CostModel
from cost_models.shards import HBM, TABLE_WISE, Blocks, PlacedShards
from cost_models.step import StepModel
from cost_models.workload.loading import load_workload
from topologies.loading import load_topology

SYSTEM, METRIC, TOPOLOGY, WORKLOAD = "Neo Model-I", "qps_128gpu", "zionex-16", "model-i"


def dealt(model: CostModel) -> PlacedShards:
    """Whole tables in HBM, dealt to the ranks in turn."""
    table = np.arange(len(model.tables.rows))
    n = len(table)
    blocks = Blocks(table, np.full(n, TABLE_WISE), np.full(n, HBM), model.tables.dim, np.zeros(n))
    rank = table % len(model.kind_of_rank)
    return PlacedShards(blocks, rank, model.tables.rows, np.ones(n, dtype=bool))


def step(judge: Judge = estimated, name: str = WORKLOAD) -> tuple[float, ErrorBand]:
    """Seconds of the step with whole tables dealt evenly to the ranks, and their band."""
    model = StepModel(load_topology(TOPOLOGY), load_workload(name))
    placed = dealt(model)
    return judge(model, placed), model.error_bars(placed).step


def predict(folder: Path) -> pd.DataFrame:
    facts = json.loads((folder / "published.json").read_text())["facts"]
    rates = [float(fact["value"]) for fact in facts if (fact["system"], fact["metric"]) == (SYSTEM, METRIC)]
    out = frame([])
    workload = load_workload(WORKLOAD)
    out["measured_s"] = [workload.batch(128) / rate for rate in rates]
    out["label"], out["group"], out["gated"] = "Model-I, 128 A100", "Model-I", True
    predicted, bar = step()
    out["predicted_s"] = predicted
    out["low_s"], out["high_s"] = bar.around(predicted)
    return out


DATA_SET = DataSet(
    name="mad_max",
    grouping="–",
    predict=predict,
    held_out=None,
    coefficients=lambda: 0,
    note="a training step of Neo's Model-I on 128 A100",
)
