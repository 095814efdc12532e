"""The gap to the bound that is proven by then while the search goes on: `python -m benchmarks.gap_over_time [options]`.

Seconds are those of the process (`time.process_time`), so that other work on the machine does not count. Set
OMP_NUM_THREADS=1.

    python -m benchmarks.gap_over_time --workload synthetic:10000@seed=7 --nodes 128 --seconds 60
"""

import argparse
import resource
import time

from cost_models.registry import cost_model
from cost_models.workload.loading import load_workload
from planner.cli.allocator import tune_memory
from planner.formulation.options import build_problem, enumerate_options
from planner.formulation.policy import Policy
from planner.solvers.limits import SearchLimits
from planner.solvers.search import solve
from topologies.loading import load_topology

MARKS = (3.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0)


def gaps(workload: str, topology: str, nodes: int | None, objective: str, seconds: float, seed: int) -> None:
    """Print the gap at each mark, when the first plan came, and the memory that all took."""
    began = time.process_time()
    model = cost_model(objective, load_topology(topology, nodes=nodes), load_workload(workload))
    problem = build_problem(model, enumerate_options(model, Policy()))
    searched = time.process_time()
    history: list[tuple[float, float, float]] = []

    def hear(_: str, best_s: float | None, bound_s: float | None) -> None:
        if best_s is not None and bound_s is not None:
            history.append((time.process_time() - searched, best_s, bound_s))

    found = solve(problem, SearchLimits(seconds, 0.0, None, seed, clock=time.process_time), hear)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{workload} x {problem.world} ranks, seed {seed}: options {searched - began:.1f} s, {peak:.2f} GiB", end="")
    if not history:
        print(f", {found.status}")
        return
    print(f", first plan {history[0][0]:.1f} s")
    for mark in [mark for mark in MARKS if mark < seconds] + [seconds]:
        known = [(step_s, bound_s) for at, step_s, bound_s in history if at <= mark]
        if known:
            step_s, bound_s = known[-1]
            print(f"  {mark:6.0f} s  {step_s / bound_s - 1:8.3%}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gap_over_time", description="The gap over time.")
    parser.add_argument("--workload", default="synthetic:1000")
    parser.add_argument("--topology", default="zionex-16")
    parser.add_argument("--nodes", type=int)
    parser.add_argument("--cost-model", default="physical")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    wanted = parser.parse_args()
    tune_memory()
    gaps(wanted.workload, wanted.topology, wanted.nodes, wanted.cost_model, wanted.seconds, wanted.seed)


if __name__ == "__main__":
    main()
