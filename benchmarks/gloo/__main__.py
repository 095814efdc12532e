"""Predicted against measured steps: TorchRec on CPU processes over gloo, a few workloads by good and bad plans.

    python -m benchmarks.gloo [--processes 2,4] [--rounds N] [--coefficients DIR] [--docs] [--check]

Calibrates this machine first (`planner calibrate --device cpu`, kernels and collectives), unless a folder has the
coefficients already. Needs torch and torchrec. A step is measured by the work of the processes (`gloo.clock`): as long
as it would be with a core for each rank, whatever else the machine does; the time by the clock stands beside it.
"""

import argparse
import logging
import os
import platform
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median

import numpy as np
from scipy.stats import kendalltau

from benchmarks.gloo.clock import step_seconds
from benchmarks.gloo.model import Tables
from benchmarks.gloo.processes import Processes
from benchmarks.gloo.training import SHARDERS, WIDTH, step_times
from benchmarks.running import COMMAND
from cost_models.coefficients import USER_DIRECTORY
from cost_models.workload.models import Workload
from planner.api import plan
from planner.document import Plan
from planner.exporters.torchrec import torchrec_plan
from planner.importers.adoption import Inputs, adopted
from planner.importers.torchrec import parameters_of, torchrec_tables
from planner.policy import Policy
from topologies.cluster import Topology
from topologies.documents import Document, validate
from topologies.units import format_seconds

DEVICE, TAU = "gloo-cpu", 0.7
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "trainers.md"
TORCHREC, OURS = "TorchRec's planner", "ours"
KEEP_PAGES = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**40), "MALLOC_TOP_PAD_": str(2**26)}
"""For glibc's allocator: it gives large blocks back when they are freed, and getting their pages anew took up to half
of a step. Trainers on CPU run on an allocator that keeps them."""


@dataclass(frozen=True)
class Race:
    """A workload on some processes: predicted and measured seconds by plan."""

    workload: str
    ranks: int
    predicted: dict[str, float]
    measured: dict[str, list[float]]
    """By plan, of each round."""
    by_clock: dict[str, list[float]]
    shardings: dict[str, int]
    """How many tables our plan holds in which way."""

    @property
    def tau(self) -> float:
        """Kendall's, between predicted and measured steps."""
        names = list(self.predicted)
        measured = [min(self.measured[name]) for name in names]
        return float(kendalltau([self.predicted[name] for name in names], measured).statistic)

    @property
    def of_torchrec(self) -> float:
        """Our step over that of TorchRec's plan: the median of the rounds."""
        pairs = zip(self.measured[OURS], self.measured[TORCHREC], strict=True)
        return median(ours / theirs for ours, theirs in pairs)


def workloads() -> Iterator[Workload]:
    """Three models: ids that decide, vectors that decide, and tables of all kinds."""
    sizes = {
        "many ids": (12, (16, 32, 64), (20, 40, 80), 1024, (4.0, 5.3)),
        "wide vectors": (16, (128, 256), (2, 5, 10), 1024, (3.7, 4.7)),
        "mixed": (24, (16, 32, 64, 128), (1, 5, 20, 60), 1024, (3.5, 5.3)),
    }
    for seed, (name, (count, dims, pooling, batch, rows)) in enumerate(sizes.items()):
        draw = np.random.default_rng(seed)
        tables = [
            {
                "name": f"t{i}",
                "rows": int(10 ** draw.uniform(*rows)),
                "dim": int(draw.choice(dims)),
                "pooling_factor": int(draw.choice(pooling)),
            }
            for i in range(count)
        ]
        parameters = (sum(table["dim"] for table in tables) + 2) * WIDTH + 1
        yield Workload.model_validate(
            {
                "name": name,
                "batch_per_rank": batch,
                "tables": tables,
                "embedding": {"optimizer": "sgd"},
                "dense": {"macs_per_sample": parameters, "parameters": parameters, "dtype": "fp32"},
                "pipeline": "none",
            }
        )


def topology(ranks: int) -> Topology:
    """The processes as one node: every byte crosses the same loopback."""
    node = {
        "name": "cpu",
        "count": 1,
        "accelerators": {
            "count": ranks,
            "device": DEVICE,
            "hbm": {"capacity": "4GB", "bandwidth": "20GB/s"},
            "flops": {"fp32": "100GFLOP/s"},
        },
        "links": {
            "pcie": {"bandwidth": "10GB/s", "accelerators_per_switch": 1},
            "scale_up": {"kind": "gloo", "bandwidth": "10GB/s"},
        },
        "reserve": {"hbm": 0.0, "ddr": 0.0, "ssd": 0.0},
    }
    document = {"name": f"gloo-{ranks}", "description": "Processes of one machine", "nodes": [node]}
    return validate(Document(document, "gloo"), Topology)


def policies(workload: Workload) -> dict[str, Policy]:
    """Ours, free to choose, and bad ones."""
    by_ids = sorted(workload.tables, key=lambda table: -table.pooling_factor * table.dim)
    heavy = [table.name for i, table in enumerate(by_ids) if i % 3 < 2]
    light = [table.name for table in by_ids if table.name not in heavy]
    lopsided = [{"match": heavy, "ranks": "0"}, {"match": light, "forbid_ranks": "0"}]
    limits: dict[str, dict[str, object]] = {
        OURS: {},
        "all on one rank": {"shardings": ["table_wise"], "ranks": "0"},
        "two thirds on one rank": {"shardings": ["table_wise"], "tables": lopsided},
        "columns over all": {"shardings": ["column_wise"]},
        "rows over all": {"shardings": ["row_wise"]},
        "replicated": {"shardings": ["data_parallel"]},
    }
    return {name: Policy.model_validate({"runtime": "torchrec", **own}) for name, own in limits.items()}


def of_torchrec(workload: Workload, cluster: Topology) -> Plan:
    """TorchRec's default planner on the same model, imported."""
    from torchrec.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints
    from torchrec.distributed.planner import Topology as Theirs

    batch = round(workload.batch(cluster.world_size) / cluster.world_size)
    planner = EmbeddingShardingPlanner(
        topology=Theirs(world_size=cluster.world_size, local_world_size=cluster.world_size, compute_device="cpu"),
        batch_size=batch,
        constraints={
            table.name: ParameterConstraints(pooling_factors=[table.pooling_factor]) for table in workload.tables
        },
    )
    theirs = planner.plan(Tables(workload, "meta"), [sharder() for sharder in SHARDERS])
    told = Inputs(cluster, workload, "physical", Policy(runtime="torchrec"))
    held = torchrec_tables(parameters_of(theirs._serialize(), TORCHREC), told, TORCHREC)
    return adopted(held, told, "torchrec", TORCHREC, simulate=False)


def race(workload: Workload, processes: Processes, rounds: int) -> Race:
    """All plans of a workload, which take turns."""
    cluster = topology(processes.world)
    plans = {TORCHREC: of_torchrec(workload, cluster)}
    for name, policy in policies(workload).items():
        plans[name] = plan(cluster, workload, policy=policy, effort=1, simulate=False)
    files = [torchrec_plan(found, modules=["tables"], compute_device="cpu") for found in plans.values()]
    batch = round(workload.batch(cluster.world_size) / cluster.world_size)
    of_ranks = processes.run(step_times, workload.model_dump_json(), files, batch, rounds)
    measured: dict[str, list[float]] = {name: [] for name in plans}
    by_clock: dict[str, list[float]] = {name: [] for name in plans}
    for number in range(rounds):
        for which, name in enumerate(plans):
            steps = [own[number][which] for own in of_ranks]
            measured[name].append(step_seconds([events for events, _ in steps]))
            by_clock[name].append(max(seconds for _, seconds in steps))
    ways = [table.sharding for table in plans[OURS].tables]
    predicted = {name: found.objective.step_s for name, found in plans.items() if found.objective is not None}
    return Race(
        workload.name, cluster.world_size, predicted, measured, by_clock, {way: ways.count(way) for way in ways}
    )


def calibrate(folder: Path, ranks: Sequence[int]) -> None:
    """Coefficients of this machine, as a user makes them."""
    command = [*COMMAND, "calibrate", "--device", "cpu", "--name", DEVICE]
    among = ["--processes", ",".join(map(str, ranks))]
    for name, more in (("kernels", []), ("collectives", among)):
        subprocess.run(
            [*command, *more, "-o", str(folder / f"{name}.yaml")],
            check=True,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )


HEAD = """# Steps of trainers

Written by `python -m benchmarks.gloo --docs`. TorchRec {torchrec}, torch {torch}, fbgemm-gpu-cpu {fbgemm}, Python
{python}, {cores} cores; {rounds} rounds in which the plans take turns. The machine was calibrated with
`planner calibrate --device cpu`, kernels and collectives ([how](../how-to/calibrate.md)).

A step is measured by the work of the processes, as long as it is where each rank has a core of its own
([why](../decisions/0015-steps-of-trainers.md)); the time by the clock, on fewer cores and beside other work, stands
next to it. All numbers are ratios to the plan of TorchRec's default planner in the same run; the fastest of the rounds.

`ours` is free to choose. The others are bad on purpose.

"""


def page(races: Sequence[Race], rounds: int) -> str:
    """The page of the documentation."""
    head = HEAD.format(
        torchrec=version("torchrec"),
        torch=version("torch"),
        fbgemm=version("fbgemm_gpu-cpu"),
        cores=os.cpu_count(),
        python=platform.python_version(),
        rounds=rounds,
    )
    return head + "\n".join(lines(races)) + "\n"


def lines(races: Sequence[Race]) -> Iterator[str]:
    """The page: a table by workload and number of ranks, in times of TorchRec's plan."""
    yield "| workload, ranks | plan | predicted | measured | by the clock |"
    yield "| --- | --- | --- | --- | --- |"
    for one in races:
        base = one.predicted[TORCHREC], min(one.measured[TORCHREC]), min(one.by_clock[TORCHREC])
        for name in sorted(one.predicted, key=lambda each: min(one.measured[each])):
            own = one.predicted[name], min(one.measured[name]), min(one.by_clock[name])
            ratios = " | ".join(f"{value / whole:.2f}" for value, whole in zip(own, base, strict=True))
            yield f"| {one.workload}, {one.ranks} | {name} | {ratios} |"
    yield ""
    yield "| workload, ranks | tau | ours / TorchRec's | TorchRec's step: predicted, measured | our shardings |"
    yield "| --- | --- | --- | --- | --- |"
    for one in races:
        held = ", ".join(f"{count} {way}" for way, count in one.shardings.items())
        steps = f"{format_seconds(one.predicted[TORCHREC])}, {format_seconds(min(one.measured[TORCHREC]))}"
        yield f"| {one.workload}, {one.ranks} | {one.tau:.2f} | {one.of_torchrec:.3f} | {steps} | {held} |"
    yield ""
    yield f"Ours over TorchRec's, median of all: {median([one.of_torchrec for one in races]):.3f}."


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gloo", description=__doc__.splitlines()[0])
    parser.add_argument("--processes", default="2,4")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--coefficients", type=Path)
    parser.add_argument("--docs", action="store_true", help=f"write {PAGE.name}")
    parser.add_argument("--check", action="store_true", help="exit with 1 where a target is missed")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    ranks = [int(count) for count in arguments.processes.split(",")]
    races: list[Race] = []
    os.environ |= KEEP_PAGES
    with tempfile.TemporaryDirectory() as folder:
        os.environ[USER_DIRECTORY] = str(arguments.coefficients or folder)
        if arguments.coefficients is None:
            calibrate(Path(folder), ranks)
        for count in ranks:
            with Processes(count, count) as processes:
                for workload in workloads():
                    races.append(race(workload, processes, arguments.rounds))
                    print(f"{workload.name}, {count}: tau {races[-1].tau:.2f}", file=sys.stderr, flush=True)
    print("\n".join(lines(races)))
    all_below = median([one.of_torchrec for one in races])
    if arguments.docs:
        PAGE.write_text(page(races, arguments.rounds))
    return 1 if arguments.check and (all_below > 1 or min(one.tau for one in races) < TAU) else 0


if __name__ == "__main__":
    sys.exit(main())
