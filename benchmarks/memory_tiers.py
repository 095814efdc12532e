"""Models larger than HBM: `python -m benchmarks.memory_tiers [--workloads rm2,rm3] [--ranks 16] [--milp-times 10]`.

RecShard's RM1, RM2 and RM3 on accelerators with 24 GB of HBM and 128 GB of host memory each (nodes of 8, otherwise as
ZionEX). Our plan against greedy sharding over HBM and host memory, against one cache ratio for all tables, and against
RecShard's program, which gets so many times the processor time that our plan took. Steps by the closed form and by the
simulator; `lookups` are the stages that rows are read and written in, which is what RecShard reports.

A plan of RecShard's form is costed as it is (rows read in place) in closed form; the simulator plays it with the same
rows in a cache. Ours takes that form only where it is asked for, as no runtime has it: a line of its own. Set
OMP_NUM_THREADS=1: times are those of the process.
"""

import argparse
import time
from dataclasses import dataclass

import numpy as np

from benchmarks.hot_rows import LOOKED_UP, split_stages
from benchmarks.recshard import solve
from benchmarks.tier_greedy import GREEDY, greedy, on_ranks, one_ratio
from cost_models.shards import DDR_CACHED, Floats, PlacedShards
from cost_models.simulator.simulation import simulate
from cost_models.step import StepModel
from cost_models.workload.loading import load_workload
from cost_models.workload.models import Workload
from planner import plan
from planner.document.plan import Plan
from planner.document.planned import placed_shards
from planner.formulation.policy import Policy
from topologies.cluster import Topology
from topologies.loading import load_topology

WORKLOADS = ("rm1", "rm2", "rm3")
HBM_GB, HOST_GB, RANKS_PER_NODE = 24, 128, 8
RATIO = 0.2
"""TorchRec's."""


@dataclass(frozen=True)
class Row:
    """One way to place a workload."""

    name: str
    step_s: float
    lookup_s: float
    simulated_s: float | None
    cpu_s: float | None = None
    words: str = ""


def cluster(ranks: int) -> Topology:
    """Nodes of up to eight accelerators like ZionEX's, with little memory."""
    per_node = min(ranks, RANKS_PER_NODE)
    return load_topology(
        "zionex",
        nodes=ranks // per_node,
        overrides=[
            f"nodes.0.accelerators.count={per_node}",
            f"nodes.0.links.scale_out.count={per_node}",
            f"nodes.0.accelerators.hbm.capacity={HBM_GB}GB",
            f"nodes.0.host.ddr.capacity={HOST_GB * per_node}GB",
        ],
    )


def rows(workload: Workload, topology: Topology, effort: int, milp_times: float) -> tuple[Plan, list[Row]]:
    """Our plan, and every way to place the workload, ours first."""
    model = StepModel(topology, workload)
    began = time.process_time()
    ours = plan(topology, workload, effort=effort)
    cpu_s = time.process_time() - began
    assert ours.objective is not None
    found = [_row(model, "ours", placed_shards(ours), cpu_s, f"gap {ours.objective.gap:.2%}")]
    began = time.process_time()
    split = plan(topology, workload, tiers=(*Policy().tiers, "ddr_split"), effort=effort)
    cpu_s = time.process_time() - began
    assert split.objective is not None
    found.append(_row(model, "ours, with split tables", placed_shards(split), cpu_s, f"gap {split.objective.gap:.2%}"))
    for name, cost in GREEDY.items():
        placed = greedy(model, cost(model))
        if placed is not None:
            found.append(_row(model, f"{name}, greedy", placed))
    placed = one_ratio(model, RATIO)
    if placed is not None:
        found.append(_row(model, f"one cache ratio, {RATIO}", placed))
    if milp_times > 0:
        found += _recshard(model, topology, milp_times * cpu_s)
    return ours, found


def _row(model: StepModel, name: str, placed: PlacedShards, cpu_s: float | None = None, words: str = "") -> Row:
    costs = model.evaluate(placed)
    binding = [
        f"{stage} {resource}" for stage, resource in zip(model.stages, costs.binding, strict=True) if stage in LOOKED_UP
    ]
    played = simulate(model.topology, model.workload, placed)
    words = ", ".join([*([words] if words else []), *binding])
    return Row(name, costs.step_s, _looked_up(model, costs.stage_seconds), played.step_s, cpu_s, words)


def _recshard(model: StepModel, topology: Topology, limit_s: float) -> list[Row]:
    """The program's plan, rows in place; and the same rows in a cache."""
    split = solve(model, limit_s)
    if split is None:
        return [Row("RecShard's program", np.inf, np.inf, None, limit_s, "no plan in time")]
    stages = split_stages(model, topology, split)
    gap = split.slowest_s / split.bound_s - 1 if split.bound_s > 0 else np.inf
    as_it_is = Row(
        "RecShard's program",
        float(stages.sum()),
        _looked_up(model, stages),
        None,
        split.seconds,
        f"its own gap {gap:.2%}",
    )
    tier = np.where(split.hot < 1 - 1e-6, DDR_CACHED, 0)
    share = np.where(tier == DDR_CACHED, np.maximum(split.hot, 1e-4), 0.0)
    return [as_it_is, _row(model, "the same, its rows in a cache", on_ranks(model, tier, share, split.rank))]


def _looked_up(model: StepModel, stages: Floats) -> float:
    return float(sum(seconds for name, seconds in zip(model.stages, stages, strict=True) if name in LOOKED_UP))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory_tiers", description="Models larger than HBM.")
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--ranks", type=int, default=16)
    parser.add_argument("--effort", type=int, default=1)
    parser.add_argument("--milp-times", type=float, default=10.0, help="of our processor time; 0: not at all")
    wanted = parser.parse_args()
    topology = cluster(wanted.ranks)
    for name in wanted.workloads.split(","):
        ours, found = rows(load_workload(name), topology, wanted.effort, wanted.milp_times)
        tiers = {tier: sum(table.tier == tier for table in ours.tables) for tier in ("hbm", "ddr_cached", "ddr")}
        assert ours.objective is not None
        bound = f"bound {ours.objective.lower_bound_s * 1e3:.2f} ms"
        print(f"{name} on {wanted.ranks} ranks; tables by tier: {tiers}; {bound}")
        print(f"  {'':30}{'step':>9}{'x':>7}{'lookups':>9}{'x':>7}{'simulated':>11}{'x':>7}{'cpu':>8}")
        for row in found:
            played = "" if row.simulated_s is None else f"{row.simulated_s * 1e3:.2f}"
            times = "" if row.simulated_s is None else f"{row.simulated_s / found[0].simulated_s:.2f}"
            cpu = "" if row.cpu_s is None else f"{row.cpu_s:.1f}"
            print(
                f"  {row.name:30}{row.step_s * 1e3:9.2f}{row.step_s / found[0].step_s:7.2f}{row.lookup_s * 1e3:9.2f}"
                f"{row.lookup_s / found[0].lookup_s:7.2f}{played:>11}{times:>7}{cpu:>8}  {row.words}",
                flush=True,
            )


if __name__ == "__main__":
    main()
