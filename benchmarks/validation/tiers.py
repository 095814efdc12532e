"""Estimate and simulation where tables are in many memories: `python -m benchmarks.validation.tiers [--planned]`.

Random placements by the tiers that they mix, on clusters that have every memory, with tables dealt out evenly or
skewed over the ranks; how far the estimate is from the simulated step, and which stages make the difference. With
`--planned` the planner's placements instead, where HBM has room for a third of the tables. Drives, hosts and caches are
such that no memory alone makes the step.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from cost_models.shards import (
    DDR,
    DDR_CACHED,
    DDR_SPLIT,
    HBM,
    IS_CACHED,
    IS_SPLIT,
    IS_STASHED,
    PLACEMENT_TIERS,
    REMOTE_CACHED,
    SCM,
    SCM_CACHED,
    SSD_CACHED,
    TABLE_WISE,
    Blocks,
    PlacedShards,
)
from cost_models.simulator.simulation import simulate
from cost_models.step import StepModel
from cost_models.workload.models import Workload
from planner.diagnosis.drift import STAGE_OF_TASKS
from planner.document.planned import placed_shards
from planner.planning import planning as api
from topologies.cluster import Topology

MIXES: dict[str, tuple[int, ...]] = {
    "hbm": (HBM,),
    "hbm, ddr_cached": (HBM, DDR_CACHED),
    "hbm, ddr_cached, ddr": (HBM, DDR_CACHED, DDR),
    "ssd_cached, remote_cached": (SSD_CACHED, REMOTE_CACHED),
    "every cache": (DDR_CACHED, SSD_CACHED, SCM_CACHED, REMOTE_CACHED),
    "in place": (DDR, SCM, DDR_SPLIT),
    "every tier": tuple(tier for tier in range(len(PLACEMENT_TIERS)) if not IS_STASHED[tier]),
}
"""Tiers that the tables of a placement are in; stashed ones need costs of their own, and have tests of their own."""
TABLES = 24
SHAPES = (((2, 2, 1),), ((3, 4, 2),), ((2, 4, 2), (1, 2, 1)))
"""Node groups of the clusters, each as (nodes, ranks of a node, ranks of a PCIe switch)."""
SKEW = 0.7
"""Parameter of the Dirichlet distribution of tables over ranks, where they are not dealt out evenly."""


@dataclass(frozen=True)
class Case:
    """One placement."""

    model: StepModel
    placed: PlacedShards

    def played(self) -> tuple[float, dict[str, float]]:
        """Estimate over simulated step, less 1; and what each stage adds to that, against the played critical path."""
        evaluation = self.model.evaluate(self.placed)
        found = simulate(self.model.topology, self.model.workload, self.placed, steps=1)
        stages = dict(zip(self.model.stages, evaluation.stage_seconds.tolist(), strict=True))
        for share in found.critical_path():
            stage = next((of for begin, of in STAGE_OF_TASKS.items() if share.task.startswith(begin)), "dense")
            if stage not in stages:  # a part of one
                stage = "input_dist" if stage == "copy to device" and "input_dist" in stages else "dense"
            stages[stage] -= share.seconds
        return evaluation.step_s / found.step_s - 1, {name: rest / found.step_s for name, rest in stages.items()}


def cluster(shape: Sequence[tuple[int, int, int]], bytes_of: dict[str, float] | None = None) -> Topology:
    """One with every memory, or with those of `bytes_of` [memory: of an accelerator, a node or all remote hosts]."""
    size = {"hbm": 1e12, "ddr": 1e13, "ssd": 1e14, "scm": 1e13, "remote": 1e14} if bytes_of is None else bytes_of
    return Topology.model_validate({"name": "tiers", "nodes": [_group(i, *each, size) for i, each in enumerate(shape)]})


def _group(number: int, nodes: int, ranks: int, ranks_per_switch: int, size: dict[str, float]) -> dict[str, object]:
    capacity = {memory: {"capacity": f"{value:.0f}B"} for memory, value in size.items()}
    speeds: dict[str, dict[str, object]] = {
        "ddr": {"bandwidth": "200GB/s"},
        "ssd": {"read_bandwidth": "60GB/s", "write_bandwidth": "40GB/s", "iops": "12MIOPS", "block_size": "512B"},
        "scm": {"read_bandwidth": "40GB/s", "write_bandwidth": "10GB/s", "latency": "350ns", "access_size": "256B"},
        "remote": {"count": 1, "bandwidth": "200GB/s", "kind": "ethernet", "network_bandwidth": "100GB/s"},
    }
    found = {memory: capacity[memory] | speed for memory, speed in speeds.items() if memory in capacity}
    remote = {"remote": found.pop("remote")} if "remote" in found else {}
    return {
        "name": f"g{number}",
        "count": nodes,
        "accelerators": {
            "count": ranks,
            "device": "A100-SXM4-40GB",
            "hbm": {**capacity["hbm"], "bandwidth": "1555GB/s"},
            "flops": {"fp32": "19.5TFLOP/s", "tf32": "156TFLOP/s"},
        },
        "host": found,
        **remote,
        "links": {
            "pcie": {"bandwidth": "31.5GB/s", "accelerators_per_switch": ranks_per_switch},
            "scale_up": {"kind": "nvlink3", "bandwidth": "300GB/s"},
            "scale_out": {"kind": "roce", "count": ranks, "bandwidth": "25GB/s"},
            "front_end": {"kind": "ethernet", "count": 2, "bandwidth": "25GB/s"},
        },
        "reserve": dict.fromkeys(size, 0),
    }


def workload(random: np.random.Generator, pipeline: str, tables: int = TABLES) -> Workload:
    """Tables of 10^4.5 to 10^6.5 rows."""
    profiles = [
        {
            "name": f"t{i}",
            "rows": int(10 ** random.uniform(4.5, 6.5)),
            "dim": int(random.choice([16, 32, 64, 128])),
            "pooling_factor": float(random.integers(1, 20)),
            "zipf_alpha": float(random.choice([0.6, 0.9, 1.05])),
        }
        for i in range(tables)
    ]
    embedding = {"optimizer": str(random.choice(["rowwise_adagrad", "adam"]))}
    return Workload.model_validate(
        {"name": "tiers", "global_batch": 65536, "tables": profiles, "embedding": embedding, "pipeline": pipeline}
    )


def random_case(seed: int, mix: Sequence[int], *, skewed: bool, pipeline: str = "none") -> Case:
    """Whole tables, each in a tier of the mix, on ranks in turn or skewed."""
    random = np.random.default_rng(seed)
    model = StepModel(cluster(SHAPES[seed % len(SHAPES)]), workload(random, pipeline))
    world, zeros = model.topology.world_size, np.zeros(TABLES, dtype=np.int64)
    weight = random.dirichlet(np.full(world, SKEW))
    rank = random.choice(world, TABLES, p=weight) if skewed else random.permutation(np.arange(TABLES) % world)
    tier = random.choice(np.array(mix), TABLES)
    share = np.where(IS_CACHED[tier] | IS_SPLIT[tier], random.choice([0.02, 0.05, 0.2], TABLES), 0.0)
    blocks = Blocks(np.arange(TABLES), zeros + TABLE_WISE, tier, model.tables.dim, share)
    return Case(model, PlacedShards(blocks, rank, model.tables.rows, np.ones(TABLES, dtype=bool)))


MEMORIES = {
    "hbm, ddr": {"ddr": 2.0},
    "every memory, ample": {"ddr": 2.0, "ssd": 2.0, "scm": 2.0, "remote": 2.0},
    "every memory, tight": {"ddr": 0.2, "ssd": 0.2, "scm": 0.2, "remote": 0.5},
    "hbm, ssd, remote": {"ssd": 0.4, "remote": 0.8},
}
"""Capacity below HBM of the clusters that are planned for: of a node, or of all remote hosts, over what tables take."""


def planned_case(seed: int, memories: dict[str, float], pipeline: str = "none") -> Case:
    """The planner's placement of more tables, on two nodes of four; HBM holds a third of what they take."""
    model_workload = workload(np.random.default_rng(seed), pipeline, 2 * TABLES)
    shape = [(2, 4, 2)]
    tables = StepModel(cluster(shape), model_workload).tables
    every = np.arange(len(tables.rows))
    held = tables.row_bytes(every, tables.dim) + tables.row_state_bytes(every, tables.dim)
    whole = float((tables.rows * held).sum())
    size = {"hbm": whole / 24 + 0.5e9, **{memory: share * whole for memory, share in memories.items()}}
    topology = cluster(shape, size)
    plan = api.plan(topology, model_workload, effort=1, simulate=False)
    if not plan.tables:
        raise ValueError(f"seed {seed}: {plan.status}")
    return Case(StepModel(topology, model_workload), placed_shards(plan))


def _line(name: str, cases: Iterator[Case]) -> str:
    found = [case.played() for case in cases]
    errors = np.array([error for error, _ in found])
    stages = {stage: float(np.mean([of[stage] for _, of in found])) for stage in found[0][1]}
    most = sorted(stages, key=lambda stage: -abs(stages[stage]))[:3]
    words = ", ".join(f"{stage} {stages[stage]:+.1%}" for stage in most if abs(stages[stage]) >= 0.001)
    spread = f"{errors.min():+8.1%}{errors.max():+8.1%}"
    return f"{name:34}{errors.mean():+8.1%}{np.abs(errors).mean():10.1%}{spread}  {words}"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.validation.tiers", description="Estimate against simulation over many memories."
    )
    parser.add_argument("--pipeline", default="none", help="none (default), sparse-dist or prefetch")
    parser.add_argument("--cases", type=int, default=24, help="placements of each kind")
    parser.add_argument("--planned", action="store_true", help="the planner's placements")
    wanted = parser.parse_args()
    print(f"{'estimate over simulation':34}{'mean':>8}{'absolute':>10}{'least':>8}{'most':>8}  stages that make it")
    if wanted.planned:
        for name, memories in MEMORIES.items():
            print(_line(name, (planned_case(seed, memories, wanted.pipeline) for seed in range(wanted.cases))))
        return
    for skewed in (False, True):
        for name, mix in MIXES.items():
            cases = (random_case(i, mix, skewed=skewed, pipeline=wanted.pipeline) for i in range(wanted.cases))
            print(_line(f"{name}{', skewed' if skewed else ''}", cases), flush=True)


if __name__ == "__main__":
    main()
