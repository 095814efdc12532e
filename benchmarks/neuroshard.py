"""NeuroShard's protocol: random sharding tasks on 4 and 8 GPUs, for our planner, its baselines and its own search.

    python -m benchmarks.neuroshard [--tasks 100] [--devices 4,8] [--max-dims 4,8,…] [--effort N]
                                    [--time-limit 0.55s] [--seed N] [--json] [--check]

Taken from Zha et al., "Pre-train and Search" (MLSys 2023, arXiv:2305.01868) and its code (github.com/daochenzha/
neuroshard, tools/gen_tasks.py, eval.py): 100 tasks for each number of GPUs and largest dimension; a task draws 10 to 59
tables for 4 GPUs, 20 to 119 for 8, from the 856 of Meta's 2021 set, with repetition, none below 100 rows; each gets a
dimension of 4, 8, … up to the largest; the draw is repeated until its fp32 weights take at most 15 GiB (31 GiB for 8),
of 4 GiB on each GPU; SGD; a global batch of 65,536; whole tables and column-wise splits in HBM. A plan that overflows
a GPU fails.

What differs, because Meta's batches are not at hand or nothing is run here:

* Pooling factors of single tables are not known. They are drawn log-normally (sigma 1, as in the generator of synthetic
  workloads) and scaled to the mean of the set, 15.8 ids per sample and table; an empty one has 0.01.
* Access follows a power law with the exponent 1.05, under which the set's share of distinct ids comes out (0.145).
* The cost is that of the `physical` cost model on GPUs of a DGX A100 instead of a measurement on RTX 2080 Ti: the
  stages of the embeddings alone, without the dense part, latencies and the overhead of a step, which no plan changes.
  The step is the sum of the slowest ranks of all stages, NeuroShard's the slowest rank's sum.
* Memory counts weights alone, as theirs does: 7 of the 11 GB of their GPUs are left to everything else.
"""

import argparse
import json
import math
import sys
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from statistics import NormalDist, fmean, geometric_mean
from typing import Any

import numpy as np

from benchmarks.baselines import BASELINES
from benchmarks.contest import Attempt, Instance, Search, attempt
from cost_models.amounts import NO_RESERVE, Reserve
from cost_models.cost_arrays import BlockCosts
from cost_models.registry import COST_MODELS
from cost_models.replicas import Replicas
from cost_models.shards import MEMORY_HBM, Blocks, Floats
from cost_models.stages import VectorExchange
from cost_models.step import StepModel
from cost_models.workload.embedding import Embedding
from cost_models.workload.models import Workload
from cost_models.workload.table_profile import TableProfile
from topologies.cluster import Topology
from topologies.loading import load_topology
from topologies.units import parse_quantity

POOL = Path(__file__).parent / "data" / "meta_t856_rows.json"
DEVICES = {4: ((10, 60), 15), 8: ((20, 120), 31)}
"""GPUs → (tables from, to below), most GiB of a task."""
MAX_DIMS = (4, 8, 16, 32, 64, 128)
GPU_GIB = 4
TOPOLOGY = "dgx-a100-40"
FEWEST_ROWS = 100
EMPTY_POOLING = 0.01
POOLING_SIGMA = 1.0
ZIPF_ALPHA = 1.05
POOL_SEED = 0
SHARDINGS = ("table_wise", "column_wise")
EXCESS, SECONDS = 0.015, 1.0
"""Targets: mean distance from the bound; time of one task, from its tables to the plan document."""
GAP = 0.005
"""Our search ends this close to the bound."""
TIME_LIMIT = "0.55s"
"""Time limit of our search: reading a task, its costs and the document take another tenth of a second."""
OURS = "ours"


class EmbeddingsAlone(StepModel):
    """The physical cost model, less what the protocol leaves out: constants of the stages, copies of batches, bytes in
    flight."""

    name = "embeddings alone"

    def __init__(
        self,
        topology: Topology,
        workload: Workload,
        reserve: Reserve = NO_RESERVE,
        exchange: VectorExchange = "flat",
        *,
        replicas: Replicas | None = None,
        copy_meets_rows: bool | None = False,
        stashes: bool = False,
    ) -> None:
        ways = {"replicas": replicas, "copy_meets_rows": copy_meets_rows, "stashes": stashes}
        super().__init__(topology, workload, reserve, exchange, **ways)
        self._take_lines(self.all_protocols[0])
        self.base_bytes = np.zeros_like(self.base_bytes)
        self.floor = None

    def _take_lines(self, protocols: tuple[int, ...]) -> None:
        super()._take_lines(protocols)
        self.constants = np.zeros_like(self.constants)

    @property
    def all_protocols(self) -> tuple[tuple[int, ...], ...]:
        """The last line of each exchange alone, which has the highest rate: without latencies none ends before it."""
        lines = {} if self.exchanged is None else self.exchanged.usual
        return (tuple(len(lines.get(stage, self.lines_of(stage))) - 1 for stage in self.protocol_stages),)

    def block_costs(self, blocks: Blocks, kind: int) -> BlockCosts:
        """With the bytes of the weights only."""
        costs = super().block_costs(blocks, kind)
        weights = np.zeros_like(costs.bytes_by_rows)
        rows = self.tables.rows[blocks.table].astype(float)
        weights[:, MEMORY_HBM] = rows * self.tables.row_bytes(blocks.table, blocks.columns)
        return replace(costs, bytes_fixed=np.zeros_like(weights), bytes_by_rows=weights)


COST_MODELS[EmbeddingsAlone.name] = EmbeddingsAlone


@cache
def pool() -> tuple[Floats, Floats, int]:
    """Rows and pooling factors of the 856 tables, and the batch."""
    data = json.loads(POOL.read_text())
    rows = np.array(data["rows"])
    draws = np.clip(np.random.Generator(np.random.PCG64(POOL_SEED)).random(len(rows)), 1e-12, 1 - 1e-12)
    pooling = np.exp(POOLING_SIGMA * np.array([NormalDist().inv_cdf(share) for share in draws]))
    pooling[rows == 1] = 0.0
    pooling *= data["ids_per_sample"] / pooling.sum()
    return np.maximum(rows, FEWEST_ROWS), np.maximum(pooling, EMPTY_POOLING).round(2), data["batch"]


@cache
def gpus(devices: int) -> Topology:
    """So many GPUs of one server, with the memory that the protocol gives to tables."""
    limits = [f"accelerators.count={devices}", f"accelerators.hbm.capacity={GPU_GIB}GiB", "reserve.hbm=0%"]
    return load_topology(TOPOLOGY, overrides=[f"nodes.0.{limit}" for limit in limits])


def task(devices: int, max_dim: int, seed: int, number: int) -> Workload:
    """Task `number` of a seed: it follows from these four figures alone, on every machine."""
    rows, pooling, batch = pool()
    random = np.random.Generator(np.random.PCG64([seed, devices, max_dim, number]))
    (fewest, end), most_gib = DEVICES[devices]
    dims = np.array([dim for dim in MAX_DIMS if dim <= max_dim])
    count = fewest + int(random.random() * (end - fewest))
    while True:
        chosen = (random.random(count) * len(rows)).astype(int)
        dim = dims[(random.random(count) * len(dims)).astype(int)]
        if (rows[chosen] * dim * 4).sum() <= most_gib * 2**30:
            break
    tables = tuple(
        TableProfile(
            name=f"{i}: t{t}", rows=int(rows[t]), dim=int(dim[i]), pooling_factor=pooling[t], zipf_alpha=ZIPF_ALPHA
        )
        for i, t in enumerate(chosen.tolist())
    )
    return Workload(
        name=f"neuroshard: {devices} GPUs, max dim {max_dim}, seed {seed}, task {number}",
        global_batch=batch,
        tables=tables,
        embedding=Embedding(dtype="fp32", optimizer="sgd"),
    )


def instance(devices: int, max_dim: int, seed: int, number: int) -> Instance:
    """A task as an instance of the registry, called `neuroshard/8x128/seed.number`."""
    return Instance(
        f"neuroshard/{devices}x{max_dim}/{seed}.{number}",
        lambda: gpus(devices),
        lambda: task(devices, max_dim, seed, number),
        cost_model=EmbeddingsAlone.name,
        tiers=("hbm",),
        shardings=SHARDINGS,
    )


@dataclass(frozen=True)
class Summary:
    """All tasks of one kind, by one solver."""

    devices: int
    max_dim: int
    solver: str
    tasks: int
    success: float
    """Share of the tasks with a plan that fits."""
    mean_excess: float | None
    """Mean of objective / bound - 1 over the tasks with a plan; the bound is our planner's."""
    worst_excess: float | None
    over_ours: float | None
    """Geometric mean of the objective over our planner's, over the tasks in which both have a plan."""
    mean_cpu_s: float
    max_cpu_s: float
    mean_wall_s: float
    max_wall_s: float


def solve(devices: int, max_dim: int, seed: int, tasks: int, search: Search) -> list[list[Attempt]]:
    """For each task the attempts of our planner and of every baseline, in this order."""
    found = []
    for number in range(tasks):
        each = instance(devices, max_dim, seed, number)
        ours = attempt(each, OURS, search, seed)
        found.append([ours, *(attempt(each, name, None, seed) for name in BASELINES)])
    return found


def summaries(devices: int, max_dim: int, rows: list[list[Attempt]]) -> list[Summary]:
    """One of each solver."""
    ours = [row[0] for row in rows]
    found = []
    for of_solver in zip(*rows, strict=True):
        pairs = [(a.objective, b.objective, b.bound) for a, b in zip(of_solver, ours, strict=True)]
        excess = [own / bound - 1 for own, _, bound in pairs if own is not None and bound is not None]
        ratios = [own / best for own, best, _ in pairs if own is not None and best is not None]
        cpu, wall = [a.cpu_s for a in of_solver], [a.wall_s for a in of_solver]
        found.append(
            Summary(
                devices=devices,
                max_dim=max_dim,
                solver=of_solver[0].solver,
                tasks=len(rows),
                success=sum(a.objective is not None for a in of_solver) / len(rows),
                mean_excess=fmean(excess) if excess else None,
                worst_excess=max(excess) if excess else None,
                over_ours=geometric_mean(ratios) if ratios else None,
                mean_cpu_s=fmean(cpu),
                max_cpu_s=max(cpu),
                mean_wall_s=fmean(wall),
                max_wall_s=max(wall),
            )
        )
    return found


def overall(parts: list[Summary], solver: str) -> Summary:
    """One solver over all kinds of tasks, each task counting alike."""
    own = [part for part in parts if part.solver == solver]
    excess = [(part.mean_excess, part.success) for part in own if part.mean_excess is not None]
    ratios = [(part.over_ours, part.success) for part in own if part.over_ours is not None]
    placed = sum(share for _, share in excess)
    return Summary(
        devices=0,
        max_dim=0,
        solver=solver,
        tasks=sum(part.tasks for part in own),
        success=fmean(part.success for part in own),
        mean_excess=sum(mean * share for mean, share in excess) / placed if excess else None,
        worst_excess=max((part.worst_excess for part in own if part.worst_excess is not None), default=None),
        over_ours=math.exp(sum(math.log(mean) * share for mean, share in ratios) / placed) if ratios else None,
        mean_cpu_s=fmean(part.mean_cpu_s for part in own),
        max_cpu_s=max(part.max_cpu_s for part in own),
        mean_wall_s=fmean(part.mean_wall_s for part in own),
        max_wall_s=max(part.max_wall_s for part in own),
    )


def missed(ours: Summary) -> list[str]:
    """The targets that our planner does not keep to; time is processor time, which a busy machine leaves alone."""
    found = []
    if ours.success < 1:
        found.append(f"{ours.success:.1%} of the tasks have a plan, not all")
    if ours.mean_excess is None or ours.mean_excess > EXCESS:
        found.append(f"{ours.mean_excess or math.inf:.2%} above the bound on average, not {EXCESS:.1%}")
    if ours.max_cpu_s > SECONDS:
        found.append(f"{ours.max_cpu_s:.2f} s for one task, not {SECONDS:g} s")
    return found


def main() -> int:
    """Run the tasks and print what came out."""
    parser = argparse.ArgumentParser(description="NeuroShard's protocol, for our planner and its rivals.")
    parser.add_argument("--tasks", type=int, default=100, metavar="N", help="of each kind (default 100)")
    parser.add_argument("--devices", type=_whole, default=tuple(DEVICES), metavar="4,8")
    parser.add_argument("--max-dims", type=_whole, default=MAX_DIMS, metavar="4,8,…")
    parser.add_argument("--effort", type=int, default=1, metavar="N", help="passes of our search (default 1)")
    parser.add_argument(
        "--time-limit", default=TIME_LIMIT, metavar="TIME", help=f"of each of our searches (default {TIME_LIMIT})"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the tasks and of every random choice")
    parser.add_argument("--json", action="store_true", help="print one JSON document, with every task in it")
    parser.add_argument("--check", action="store_true", help="exit with 1 where a target is missed")
    given = parser.parse_args()
    if unknown := [count for count in given.devices if count not in DEVICES]:
        parser.error(f"the protocol knows 4 and 8 devices, not {unknown[0]}")
    search = Search(parse_quantity(given.time_limit, "second", TIME_LIMIT), given.effort, GAP)
    parts: list[Summary] = []
    tasks: list[dict[str, Any]] = []
    if not given.json:
        print(_HEADER)
    for devices in given.devices:
        for max_dim in given.max_dims:
            rows = solve(devices, max_dim, given.seed, given.tasks, search)
            own = summaries(devices, max_dim, rows)
            parts += own
            tasks += [each.record() for row in rows for each in row]
            if not given.json:
                print("\n".join(map(_line, own)), flush=True)
    whole = [overall(parts, solver) for solver in (OURS, *BASELINES)]
    faults = missed(whole[0])
    if given.json:
        document = {"kinds": parts, "overall": whole}
        plain = {key: [asdict(part) for part in value] for key, value in document.items()}
        print(json.dumps({"seed": given.seed, **plain, "tasks": tasks, "missed": faults}, indent=1))
    else:
        print("\n".join([*map(_line, whole), *(f"missed: {fault}" for fault in faults)]))
    return int(given.check and bool(faults))


_HEADER = "{:<10}{:<12}{:>8}{:>12}{:>10}{:>10}{:>10}{:>10}".format(
    "tasks", "solver", "success", "above bound", "worst", "over ours", "cpu mean", "cpu max"
)


def _line(part: Summary) -> str:
    kind = f"{part.devices}x{part.max_dim}" if part.devices else "all"
    excess = "" if part.mean_excess is None else f"{part.mean_excess:.2%}"
    worst = "" if part.worst_excess is None else f"{part.worst_excess:.2%}"
    ratio = "" if part.over_ours is None else f"{part.over_ours:.3f}"
    times = f"{part.mean_cpu_s:>8.2f} s{part.max_cpu_s:>8.2f} s"
    return f"{kind:<10}{part.solver:<12}{part.success:>8.1%}{excess:>12}{worst:>10}{ratio:>10}{times}"


def _whole(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


if __name__ == "__main__":
    sys.exit(main())
