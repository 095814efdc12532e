"""Running what the registries list, and comparing it with its targets."""

import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.contest import Attempt, attempt
from benchmarks.figures import CommandRun, Format, Measure, Quantity, TinyInstances
from benchmarks.instances import MOST_TABLES, SOLVERS, instances

ROOT = Path(__file__).resolve().parents[1]
COMMAND = (sys.executable, "-m", "planner")
"""The command line of whatever `planner` this interpreter finds: the checkout's, or an installed one."""

WORDS: dict[Measure, str] = {"wall_s": "wall time", "cpu_s": "processor time", "peak_bytes": "peak memory"}


@dataclass(frozen=True)
class Outcome:
    """One figure beside its target."""

    figure: str
    target: float
    value: float
    ratio: float
    """value / target."""
    ok: bool
    format: Format
    is_exact: bool
    """Whether a miss is a wrong answer, rather than a slow machine."""


@dataclass(frozen=True)
class Usage:
    """What a process took, from its start to its end."""

    exit_code: int
    wall_s: float
    cpu_s: float
    """Processor seconds, with those of its children."""
    peak_bytes: int


def run_command(run: CommandRun) -> list[Outcome]:
    """Its exit code, and the figures it is held to."""
    with tempfile.TemporaryDirectory() as directory:
        *before, usage = (
            measure([*COMMAND, *(word.format(folder=directory) for word in words)])
            for words in (*run.before, run.words)
        )
    if failed := [each.exit_code for each in before if each.exit_code]:
        raise RuntimeError(f"{run.name}: what comes before it ended with {failed[0]}")
    as_expected = usage.exit_code == run.exit_code
    answer = Outcome(f"{run.name}, exit code", run.exit_code, usage.exit_code, 1.0, as_expected, "number", True)
    found = [] if as_expected and run.limits else [answer]
    for limit in run.limits:
        value = getattr(usage, limit.measure)
        name = f"{run.name}, {WORDS[limit.measure]}"
        unit: Format = "bytes" if limit.measure == "peak_bytes" else "seconds"
        is_met = as_expected and value <= limit.target
        found.append(Outcome(name, limit.target, value, value / limit.target, is_met, unit, False))
    return found


def measure(words: list[str]) -> Usage:
    """Run a command and wait for it, and for the most memory that it held at once; it talks to nobody."""
    began = time.perf_counter()
    process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall_s = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    unit = 1 if sys.platform == "darwin" else 1024
    return Usage(process.returncode, wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * unit)


def compute(quantity: Quantity) -> Outcome:
    """A number of the cost model."""
    from cost_models.dense_size import dense_size
    from cost_models.workload.loading import load_workload

    workload = load_workload(quantity.workload, overrides=quantity.overrides)
    if quantity.what == "training_flops":
        value = float(dense_size(workload).training_flops)
    else:
        from cost_models.tables import Tables

        tables = Tables.of(workload, 1)
        every = range(len(tables.rows))
        value = float(
            sum(
                int(tables.rows[t]) * int(tables.row_bytes(t, tables.dim[t]) + tables.row_state_bytes(t, tables.dim[t]))
                for t in every
            )
        )
    is_met = abs(value - quantity.target) <= quantity.tolerance * quantity.target
    return Outcome(
        quantity.name, quantity.target, value, value / quantity.target, is_met, quantity.format, is_exact=True
    )


def compare(tiny: TinyInstances) -> Outcome:
    """How many of the instances keep the order of bound, optimum and plan."""
    from planner.solvers.limits import SearchLimits
    from planner.solvers.search import solve
    from tests.oracles.brute_force import optimum
    from tests.oracles.instances import tiny_instance

    kept = 0
    for seed in range(tiny.count):
        problem = tiny_instance(seed).problem
        best, found = optimum(problem), solve(problem, SearchLimits(gap=0.0))
        if best is None:
            kept += found.placement is None
        elif found.bound_s is not None and found.step_s is not None:
            kept += found.bound_s <= best.step_s * (1 + 1e-12) and best.step_s <= found.step_s * (1 + 1e-12)
    return Outcome(tiny.name, tiny.count, kept, kept / tiny.count, kept == tiny.count, "number", is_exact=True)


def contests(names: Sequence[str], solvers: Sequence[str], seed: int, *, apart: bool) -> Iterator[list[Attempt]]:
    """The attempts on each instance, in the order of the solvers; each in a process of its own where they are `apart`.

    A solver that would take too long on an instance is left out.
    """
    for name in names:
        instance = instances()[name]
        tables = len(instance.workload().tables) if set(solvers) & set(MOST_TABLES) else 0
        able = [solver for solver in solvers if tables <= MOST_TABLES.get(solver, tables)]
        yield [_apart(name, solver, seed) if apart else _attempt(name, solver, seed) for solver in able]


def _apart(name: str, solver: str, seed: int) -> Attempt:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(_attempt, name, solver, seed).result()


def _attempt(name: str, solver: str, seed: int) -> Attempt:
    return attempt(instances()[name], solver, SOLVERS[solver], seed).without_plan()
