"""TorchRec's own benchmark runs, by ratio: `python -m benchmarks.torchrec_runs`.

Its commit messages state run times of the train pipeline on two GPUs that most of them do not name, so ratios between
the configurations of one commit are predicted. The stand-in for an unnamed machine is, for each ratio, the system of
the catalog on which the batches of the other runs take the times that are nearest to what was measured. Configurations
are those of torchrec/distributed/benchmark/yaml at the commit: 32,768 samples a rank, uniform ids, SGD, a dense part in
fp32. A run is one of ten or twenty batches without any before it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from cost_models.shards import COLUMN_WISE, DDR, DDR_CACHED, HBM, ROW_WISE, TABLE_WISE, Blocks, PlacedShards
from cost_models.step import StepModel
from cost_models.workload.models import Workload
from topologies.cluster import Topology
from topologies.loading import load_topology

RUNS = Path(__file__).parent / "data" / "facts" / "measured" / "torchrec_benchmark_runs.csv"
STAND_INS = ("dgx-a100-80", "dgx-h100", "hgx-b200", "h100-pcie-8")
AIM = 0.15
"""Median error of the ratios, at most."""
WORLD, SAMPLES = 2, 32_768
PLAIN = {"numerical_features": 10, "bottom_mlp": [8], "top_mlp": [16] * 6, "dtype": "fp32"}
FLAT = {"numerical_features": 100, "bottom_mlp": [8], "top_mlp": [16], "dtype": "fp32"}
WIDE = {"numerical_features": 100, "bottom_mlp": [128] * 4, "top_mlp": [1024] * 6, "dtype": "fp32"}
DEEP = {"numerical_features": 1000, "bottom_mlp": [128, 128, 128, 1024], "top_mlp": [4096] * 11, "dtype": "fp32"}


@dataclass(frozen=True)
class Run:
    """A configuration: its tables of 256 columns, others beside them, how the large one is cut, and where they are."""

    unweighted: int
    weighted: int
    pooling: int
    dense: dict[str, object]
    pipeline: str = "sparse-dist"
    large: tuple[int, int, int] | None = None
    """Rows, columns and sharding of the table that is not like the others."""
    tier: int = HBM
    cached: float = 0.0
    all_below: bool = False
    """Whether all tables are in `tier`, not the large one alone."""
    mode: str = "training"
    half: tuple[int, int] = (512, TABLE_WISE)
    """Columns and sharding of the half-precision table of 100,000 rows."""
    sequences: tuple[int, ...] = ()
    """Rows of tables of 1,024 columns whose vectors are not pooled."""
    batches: int = 20
    """Of a run: `num_batches`, or `num_iters` where the file has it. That of sparse_data_dist_base was not found at its
    commit, which compares it with runs of 20."""


_LIGHT = Run(20, 20, 10, PLAIN, large=(1_000_000, 2048, COLUMN_WISE))
_BASE = Run(90, 80, 30, PLAIN, large=(1_000_000, 2048, COLUMN_WISE))
_EMO = Run(30, 40, 30, WIDE, large=(10_000_000, 512, ROW_WISE), batches=10)
_CACHED = replace(_EMO, pipeline="prefetch", tier=DDR_CACHED)
_EVAL = Run(50, 50, 30, DEEP, mode="inference", half=(256, ROW_WISE))
CONFIGURATIONS: dict[str, Run] = {
    "base_pipeline_light": replace(_LIGHT, pipeline="none"),
    "sparse_data_dist_light": _LIGHT,
    "sparse_data_dist_base": _BASE,
    "sparse_data_dist_base_wide": replace(_BASE, dense=WIDE),
    "sparse_data_dist_seq": Run(70, 0, 30, FLAT, sequences=(1_000_000, 2_000_000), half=(0, TABLE_WISE)),
    "eval_fused": _EVAL,
    "eval_fused_uvm": replace(_EVAL, tier=DDR, all_below=True),
    "emo_fused": _EMO,
    "emo_fused_uvm": replace(_EMO, tier=DDR),
    "emo_cached_0.4": replace(_CACHED, cached=0.4),
    "emo_cached_0.2": replace(_CACHED, cached=0.2),
}


def step_seconds(run: Run, cluster: Topology) -> float:
    """The predicted step of a configuration: whole tables by turns, the large one over both ranks."""
    like = {"rows": 100_000, "dim": 256, "pooling_factor": run.pooling}
    tables = [{**like, "name": f"u.{i}"} for i in range(run.unweighted)]
    tables += [{**like, "name": f"w.{i}", "weighted": True} for i in range(run.weighted)]
    tables += [
        {**like, "name": f"s.{i}", "rows": rows, "dim": 1024, "pooled": False} for i, rows in enumerate(run.sequences)
    ]
    tier = run.tier if run.all_below else HBM
    blocks = [(i, TABLE_WISE, tier, table["dim"], i % WORLD, table["rows"]) for i, table in enumerate(tables)]
    columns, sharding = run.half
    others = [] if not columns else [(100_000, columns, sharding, tier, "fp16")]
    others += [] if run.large is None else [(*run.large, run.tier, "fp32")]
    for rows, columns, sharding, tier, dtype in others:
        part = {TABLE_WISE: (columns, rows), COLUMN_WISE: (columns // WORLD, rows), ROW_WISE: (columns, rows // WORLD)}
        holders = range(1 if sharding == TABLE_WISE else WORLD)
        blocks += [(len(tables), sharding, tier, part[sharding][0], rank, part[sharding][1]) for rank in holders]
        tables.append({**like, "name": f"u.{dtype}", "rows": rows, "dim": columns, "dtype": dtype})
    workload = Workload.model_validate(
        {
            "name": "run",
            "batch_per_rank": SAMPLES,
            "tables": tables,
            "embedding": {"optimizer": "sgd"},
            "pipeline": run.pipeline if run.mode == "training" else "none",
            "dense": run.dense,
            "mode": run.mode,
        }
    )
    model = StepModel(cluster, workload)
    table, cut, tier, width, rank, rows = (np.array(part) for part in zip(*blocks, strict=True))
    opens = np.append(True, (np.diff(table) != 0) | (cut[1:] == COLUMN_WISE))
    held = np.where(tier == DDR_CACHED, run.cached, 0.0)
    return model.evaluate(PlacedShards(Blocks(table, cut, tier, width, held), rank, rows, opens)).step_s


def batch_times(names: Sequence[str] = STAND_INS) -> pd.DataFrame:
    """Seconds of a batch by configuration: predicted with each stand-in, and `measured` where the machine is unnamed,
    else empty."""
    runs = pd.read_csv(RUNS)
    unnamed = runs[runs.system.isna()]
    taken = dict(zip(unnamed.configuration, unnamed.run_ms, strict=True))
    taken |= dict(zip(unnamed.reference, unnamed.reference_ms, strict=True))
    found = pd.DataFrame(index=list(CONFIGURATIONS))
    found["measured"] = [taken.get(each, np.nan) / 1e3 / run.batches for each, run in CONFIGURATIONS.items()]
    for name in names:
        cluster = load_topology(name, nodes=1, overrides=[f"nodes.0.accelerators.count={WORLD}"])
        found[name] = [step_seconds(run, cluster) for run in CONFIGURATIONS.values()]
    return found


def ratios(times: pd.DataFrame) -> pd.DataFrame:
    """The published ratios, and those predicted with each stand-in that has batch times."""
    runs = pd.read_csv(RUNS)
    found = runs[["commit", "configuration", "reference", "system"]].copy()
    found["published"] = runs.run_ms / runs.reference_ms
    for name in times.columns.drop("measured"):
        found[name] = runs.configuration.map(times[name]) / runs.reference.map(times[name])
    return found


def left_out(found: pd.DataFrame, times: pd.DataFrame) -> pd.Series:
    """The stand-in of each ratio: that with the least median error of the batches of all others' configurations and
    references; of a system that its configuration names, that one."""
    errors = times.drop(columns="measured").div(times.measured, axis=0).map(np.log).abs()
    chosen = {}
    for row, ratio in found.iterrows():
        others = found[found.system.isna()].drop(index=row, errors="ignore")
        known = (set(others.configuration) | set(others.reference)) - {ratio.configuration}
        chosen[row] = ratio.system if pd.notna(ratio.system) else errors.loc[sorted(known)].median().idxmin()
    return pd.Series(chosen)


def errors() -> pd.DataFrame:
    """The ratios, each with its stand-in, as that predicts it, and its relative error."""
    times = batch_times()
    found = ratios(times)
    found["stand_in"] = left_out(found, times)
    found["left_out"] = [found.loc[row, name] for row, name in found.stand_in.items()]
    found["error"] = found.left_out / found.published - 1
    return found


def main() -> None:
    """Print the batches of unnamed machines, the ratios and their median error."""
    times = batch_times()
    print("ms of a batch")
    print((times[times.measured.notna()] * 1e3).round(0).to_string())
    found = errors()
    print(found.round(2).to_string(index=False))
    print(f"median error {found.error.abs().median():.1%}")


if __name__ == "__main__":
    main()
