"""TorchRec's own benchmark runs, by ratio: `python -m benchmarks.torchrec_runs`.

Its commit messages state run times of the train pipeline on two GPUs that most of them do not name, so only ratios
between the configurations of one commit can be predicted. The stand-in for an unnamed machine is, for each ratio, the
system of the catalog that is nearest on the ratios of the other unnamed ones. Configurations are those of
torchrec/distributed/benchmark/yaml at the commit: 32,768 samples a rank, uniform ids, SGD, a dense part in fp32. A run
is one of ten or twenty batches without any before it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
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


_LIGHT = {"unweighted": 20, "weighted": 20, "pooling": 10, "dense": PLAIN, "large": (1_000_000, 2048, COLUMN_WISE)}
_EMO = {"unweighted": 30, "weighted": 40, "pooling": 30, "dense": WIDE, "large": (10_000_000, 512, ROW_WISE)}
_EVAL = {"unweighted": 50, "weighted": 50, "pooling": 30, "dense": DEEP, "mode": "inference", "half": (256, ROW_WISE)}
CONFIGURATIONS: dict[str, Run] = {
    "base_pipeline_light": Run(**_LIGHT, pipeline="none"),  # type: ignore[arg-type]
    "sparse_data_dist_light": Run(**_LIGHT),  # type: ignore[arg-type]
    "sparse_data_dist_base": Run(90, 80, 30, PLAIN, large=(1_000_000, 2048, COLUMN_WISE)),
    "sparse_data_dist_base_wide": Run(90, 80, 30, WIDE, large=(1_000_000, 2048, COLUMN_WISE)),
    "sparse_data_dist_seq": Run(70, 0, 30, FLAT, sequences=(1_000_000, 2_000_000), half=(0, TABLE_WISE)),
    "eval_fused": Run(**_EVAL),  # type: ignore[arg-type]
    "eval_fused_uvm": Run(**_EVAL, tier=DDR, all_below=True),  # type: ignore[arg-type]
    "emo_fused": Run(**_EMO),  # type: ignore[arg-type]
    "emo_fused_uvm": Run(**_EMO, tier=DDR),  # type: ignore[arg-type]
    "emo_cached_0.4": Run(**_EMO, pipeline="prefetch", tier=DDR_CACHED, cached=0.4),  # type: ignore[arg-type]
    "emo_cached_0.2": Run(**_EMO, pipeline="prefetch", tier=DDR_CACHED, cached=0.2),  # type: ignore[arg-type]
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


def ratios(names: Sequence[str] = STAND_INS) -> pd.DataFrame:
    """The published ratios, and those predicted with each stand-in."""
    runs = pd.read_csv(RUNS)
    found = runs[["commit", "configuration", "reference", "system"]].copy()
    found["published"] = runs.run_ms / runs.reference_ms
    for name in names:
        cluster = load_topology(name, nodes=1, overrides=[f"nodes.0.accelerators.count={WORLD}"])
        seconds = {each: step_seconds(run, cluster) for each, run in CONFIGURATIONS.items()}
        found[name] = runs.configuration.map(seconds) / runs.reference.map(seconds)
    return found


def left_out(found: pd.DataFrame, names: Sequence[str] = STAND_INS) -> pd.Series:
    """Each ratio as the stand-in predicts it that has the least median error on the others; that of a system which its
    configuration names, with that one, and it chooses for no other."""
    errors = _unnamed_errors(found, names)
    chosen = {row: errors.drop(index=row).median().idxmin() for row in errors.index}
    return pd.Series({row: found.loc[row, chosen.get(row, found.system[row])] for row in found.index})


def at_the_nearest(found: pd.DataFrame, names: Sequence[str] = STAND_INS) -> tuple[str, pd.Series]:
    """The stand-in that has the least median error on all ratios of unnamed machines, and each ratio as it predicts it;
    that of a system which its configuration names, with that one."""
    nearest = str(_unnamed_errors(found, names).median().idxmin())
    systems = found.system.where(found.system.notna(), nearest)
    return nearest, pd.Series({row: found.loc[row, name] for row, name in systems.items()})


def _unnamed_errors(found: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """The errors of the ratios of unnamed machines, by stand-in."""
    unnamed = found[found.system.isna()]
    return unnamed[list(names)].div(unnamed.published, axis=0).sub(1).abs()


def errors() -> pd.DataFrame:
    """The ratios, each as its stand-in predicts it, and its relative error."""
    found = ratios()
    found["left_out"] = left_out(found)
    found["error"] = found.left_out / found.published - 1
    return found


def main() -> None:
    """Print the ratios and the median error."""
    found = errors()
    print(found.round(2).to_string(index=False))
    nearest, predicted = at_the_nearest(found)
    print(f"median error {found.error.abs().median():.1%}")
    print(f"with {nearest} for all unnamed machines {(predicted / found.published - 1).abs().median():.1%}")


if __name__ == "__main__":
    main()
