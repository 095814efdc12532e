"""Predicted against measured steps: TorchRec on CPU processes over gloo, a few workloads by good and bad plans.

    python -m benchmarks.gloo [--processes 2,4] [--rounds N] [--seed N] [--coefficients DIR] [--save FILE]
                              [--docs] [--check]

Calibrates this machine first (`planner calibrate --device cpu`, kernels and collectives), unless a folder has the
coefficients already. Needs torch and torchrec. A step is measured by the work of the processes (`gloo.clock`): as long
as it would be with a core for each rank, whatever else the machine does; the time by the clock stands beside it.
"""

import argparse
import json
import logging
import os
import platform
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from itertools import permutations
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
from planner.document.plan import Plan
from planner.exporters.torchrec import torchrec_plan
from planner.formulation.policy import Policy
from planner.importers.adoption import AdoptionInputs, adopted
from planner.importers.torchrec import parameters_of, torchrec_tables
from planner.planning.planning import plan
from topologies.cluster import Topology
from topologies.documents import Document, validate
from topologies.units import format_seconds

DEVICE, TAU, SLOWER = "gloo-cpu", 0.8, 1.02
"""Targets: Kendall's tau over pairs that the rounds tell apart; our step over that of TorchRec's plan."""
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "trainers.md"
TORCHREC, OURS, COLUMNS = "TorchRec's planner", "ours", "all column-wise"
LEAST_COLUMNS = 4
"""Columns of the narrowest block: TorchRec's kernels take multiples of it."""
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
    """Seconds of every round of each plan."""
    by_clock: dict[str, list[float]]
    shardings: dict[str, int]
    """How many tables our plan holds in which way."""

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Plans that the rounds tell apart, the faster first: the middle halves of their steps do not overlap."""
        halves = {name: np.quantile(steps, (0.25, 0.75)) for name, steps in self.measured.items()}
        return [(a, b) for a, b in permutations(halves, 2) if halves[a][1] < halves[b][0]]

    @property
    def tau(self) -> float:
        """Kendall's over these pairs: those predicted in the measured order less the others, over all."""
        right = [np.sign(self.predicted[slow] - self.predicted[fast]) for fast, slow in self.pairs]
        return float(np.mean(right))

    @property
    def tau_of_all(self) -> float:
        """The same over all pairs, by the medians, whatever the rounds say of them."""
        measured = [median(self.measured[name]) for name in self.predicted]
        return float(kendalltau(list(self.predicted.values()), measured).statistic)

    @property
    def of_torchrec(self) -> float:
        """Our step over that of TorchRec's plan: the median of the rounds."""
        pairs = zip(self.measured[OURS], self.measured[TORCHREC], strict=True)
        return median(ours / theirs for ours, theirs in pairs)


def workloads(first_seed: int) -> Iterator[Workload]:
    """Three models: short bags of many tables, long bags of few, and tables of all kinds; each has its own seed."""
    sizes = {
        "short bags": (30, (8, 16, 32), (1, 2, 4), 2048, (3.0, 5.7)),
        "long bags": (10, (32, 64, 128), (10, 40, 100), 512, (4.0, 5.3)),
        "varied": (20, (8, 32, 64, 192), (1, 4, 16, 48), 1024, (2.5, 5.5)),
    }
    for seed, (name, (count, dims, pooling, batch, rows)) in enumerate(sizes.items(), start=first_seed):
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


def policies(workload: Workload, ranks: int) -> dict[str, Policy]:
    """Ours, free to choose, and bad ones."""
    by_ids = sorted(workload.tables, key=lambda table: -table.pooling_factor * table.dim)
    heavy = [table.name for i, table in enumerate(by_ids) if i % 3 < 2]
    light = [table.name for table in by_ids if table.name not in heavy]
    round_robin = [{"match": table.name, "ranks": str(i % ranks)} for i, table in enumerate(workload.tables)]
    third = [table.name for table in by_ids[: len(by_ids) // 3]]
    thirds = [
        {"match": table.name, "shardings": ["row_wise" if table.name in third else "table_wise"]}
        for table in workload.tables
    ]
    lopsided = [{"match": heavy, "ranks": "0"}, {"match": light, "forbid_ranks": "0"}]
    limits: dict[str, dict[str, object]] = {
        OURS: {},
        "all on one rank": {"shardings": ["table_wise"], "ranks": "0"},
        "two thirds on one rank": {"shardings": ["table_wise"], "tables": lopsided},
        "round robin": {"shardings": ["table_wise"], "tables": round_robin},
        "heaviest third row-wise": {"tables": thirds},
        "all row-wise": {"shardings": ["row_wise"]},
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
    told = AdoptionInputs(cluster, workload, "physical", Policy(runtime="torchrec"))
    held = torchrec_tables(parameters_of(theirs._serialize(), TORCHREC), told, TORCHREC)
    return adopted(held, told, "torchrec", TORCHREC, simulate=False)


def columns_over_all(workload: Workload, cluster: Topology) -> Plan:
    """Every table cut into one block of columns for each rank, of 4 columns or more."""
    world = cluster.world_size
    parameters: dict[tuple[str, str], dict[str, object]] = {}
    for i, table in enumerate(workload.tables):
        ranks = [(i + part) % world for part in range(min(world, table.dim // LEAST_COLUMNS))]
        cut = {"sharding_type": "column_wise", "compute_kernel": "fused", "ranks": ranks}
        parameters["tables", table.name] = cut
    told = AdoptionInputs(cluster, workload, "physical", Policy(runtime="torchrec"))
    return adopted(torchrec_tables(parameters, told, COLUMNS), told, "torchrec", COLUMNS, simulate=False)


def predicted_s(found: Plan) -> float:
    """The step of a plan, with what its kinds of sharding take beyond the sums over tables."""
    assert found.objective is not None
    return found.objective.step_s + (found.objective.mixing_s or 0.0)


def race(workload: Workload, processes: Processes, rounds: int) -> Race:
    """All plans of a workload, which take turns."""
    cluster = topology(processes.world)
    plans = {TORCHREC: of_torchrec(workload, cluster)}
    plans[COLUMNS] = columns_over_all(workload, cluster)
    for name, policy in policies(workload, processes.world).items():
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
    predicted = {name: predicted_s(found) for name, found in plans.items()}
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
{python}, {cores} cores; seed {seed}; {rounds} rounds in which the plans take turns. The machine was calibrated with
`planner calibrate --device cpu`, kernels and collectives ([how](../how-to/calibrate.md)).

A step is measured as the work of the processes: the time that it takes where each rank has a core of its own
([why](../decisions/0015-steps-of-trainers.md)). Beside it is the wall-clock time, on fewer cores and with other work on
the machine. All numbers are ratios to the plan of TorchRec's default planner in the same run; medians of the rounds.

`ours` is free to choose; the other plans follow a rule, most of them a bad one. Predictions are made before anything
is measured. Two plans count as different where the middle halves of their rounds do not overlap: *tau* is Kendall's
over these pairs; the next columns give their number and the tau of all pairs. The aim is a tau of 0.8, and a plan of
ours that is never more than 2 % slower than TorchRec's. The rounds, and the measurements of the calibration, are in
[benchmarks/data](../../benchmarks/data/README.md).

"""


def page(races: Sequence[Race], rounds: int, seed: int) -> str:
    """The page of the documentation."""
    head = HEAD.format(
        torchrec=version("torchrec"),
        torch=version("torch"),
        fbgemm=version("fbgemm_gpu-cpu"),
        cores=os.cpu_count(),
        python=platform.python_version(),
        rounds=rounds,
        seed=seed,
    )
    return head + "\n".join(lines(races)) + "\n"


def saved(races: Sequence[Race], seed: int) -> dict[str, object]:
    """What was measured, and with what."""
    packages = {name: version(name) for name in ("torch", "torchrec", "fbgemm_gpu-cpu")}
    machine = {"platform": platform.platform(), "cores": os.cpu_count(), "python": platform.python_version()}
    return {"seed": seed, **machine, "packages": packages, "races": [asdict(one) for one in races]}


def lines(races: Sequence[Race]) -> Iterator[str]:
    """The page: a table by workload and number of ranks, in times of TorchRec's plan."""
    yield "| workload, ranks | plan | predicted | measured | wall clock |"
    yield "| --- | --- | --- | --- | --- |"
    for one in races:
        base = one.predicted[TORCHREC], median(one.measured[TORCHREC]), median(one.by_clock[TORCHREC])
        for name in sorted(one.predicted, key=lambda each: median(one.measured[each])):
            own = one.predicted[name], median(one.measured[name]), median(one.by_clock[name])
            ratios = " | ".join(f"{value / whole:.2f}" for value, whole in zip(own, base, strict=True))
            yield f"| {one.workload}, {one.ranks} | {name} | {ratios} |"
    yield ""
    yield (
        "| workload, ranks | tau | pairs that differ | tau of all pairs | ours / TorchRec's"
        " | TorchRec's step: predicted, measured | our shardings |"
    )
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for one in races:
        held = ", ".join(f"{count} {way}" for way, count in one.shardings.items())
        steps = f"{format_seconds(one.predicted[TORCHREC])}, {format_seconds(median(one.measured[TORCHREC]))}"
        plans = len(one.predicted)
        apart = f"{len(one.pairs)} of {plans * (plans - 1) // 2}"
        figures = f"{one.tau:.2f} | {apart} | {one.tau_of_all:.2f} | {one.of_torchrec:.3f}"
        yield f"| {one.workload}, {one.ranks} | {figures} | {steps} | {held} |"
    yield ""
    yield f"Ours over TorchRec's, median of all: {median([one.of_torchrec for one in races]):.3f}."
    yield f"Missed: {'; '.join(missed(races)) or 'nothing'}."


def missed(races: Sequence[Race]) -> list[str]:
    """The targets that are not kept."""
    taus = [f"{one.workload}, {one.ranks}: tau {one.tau:.2f}" for one in races if one.tau < TAU]
    slow = [
        f"{one.workload}, {one.ranks}: ours {one.of_torchrec:.3f} of TorchRec's"
        for one in races
        if one.of_torchrec > SLOWER
    ]
    return taus + slow


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gloo", description=__doc__.splitlines()[0])
    parser.add_argument("--processes", default="2,4")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seed", type=int, default=300, help="of the first model; the next ones have the next")
    parser.add_argument("--coefficients", type=Path, help="made by `planner calibrate`; left out: made first")
    parser.add_argument("--save", type=Path, help="write every round of every plan here, as JSON")
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
                for workload in workloads(arguments.seed):
                    races.append(race(workload, processes, arguments.rounds))
                    found = f"tau {races[-1].tau:.2f}, ours {races[-1].of_torchrec:.3f} of TorchRec's"
                    print(f"{workload.name}, {count}: {found}", file=sys.stderr, flush=True)
    print("\n".join(lines(races)))
    if arguments.save:
        arguments.save.write_text(json.dumps(saved(races, arguments.seed), indent=1) + "\n")
    if arguments.docs:
        PAGE.write_text(page(races, arguments.rounds, arguments.seed))
    return int(arguments.check and bool(missed(races)))


if __name__ == "__main__":
    sys.exit(main())
