"""Candidates a second of the cost oracle, and how near its figures are to planning anew.

    python -m benchmarks.oracle speed
    python -m benchmarks.oracle accuracy --candidates 160 --seed 1 --effort 1 --gap 0

Rows, widths and pooling of every table are drawn at random, in the words of a search: few values each. A candidate also
has a size of its own, so that steps differ as those of models do; where vectors need one width, it has one. Seconds are
of the processor, of one process.

Steps are the shortest that were found: of them a plan gives up to 0.1 % for other goals, and a search that may end at
a gap ends anywhere below it (`--gap 0.01` is that of `planner plan`), both more than many models of criteo-kaggle
differ by at its own batch. Plans have gaps, so that two of them prove which of two models is faster only where one's
bound is above the other's step: Kendall's tau is given of all pairs, and of those.
"""

import argparse
import functools
import math
import sys
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from cost_models.workload.models import Workload
from planner import load_topology, load_workload, plan
from planner.document.plan import Plan
from planner.document.planned import planned_inputs
from planner.formulation.policy import Policy, Runtime
from planner.oracle import Oracle

SPEED = (("zionex-16", "dlrm-dcnv2", 20_000), ("zionex-16", "synthetic:1000@seed=1", 2_000))
"""A cluster and a model, and how many candidates."""


class Case(NamedTuple):
    """A base beside which candidates are costed."""

    topology: str
    nodes: int
    model: str
    global_batch: int | None = None
    """None: the model's own."""
    runtime: Runtime = "any"
    share: float = 1.0
    """Of the candidates: fewer where planning one anew takes seconds."""

    @property
    def name(self) -> str:
        """What a line of results calls it."""
        batch = "" if self.global_batch is None else f", batch {self.global_batch:,}"
        return f"{self.model}{batch} on {self.nodes} x {self.topology}"

    def plan(self, effort: int, gap: float) -> Plan:
        """The base plan, found by so many passes, or as near to its bound."""
        cluster = load_topology(self.topology, nodes=self.nodes)
        workload = load_workload(self.model, global_batch=self.global_batch)
        return plan(cluster, workload, policy=Policy(runtime=self.runtime), effort=effort, gap=gap, simulate=False)


ACCURACY = (
    Case("dgx-h100", 1, "criteo-kaggle"),
    Case("dgx-h100", 1, "criteo-kaggle", 262_144, "hugectr", share=1.25),  # that of docs/how-to/search-a-model.md
    Case("dgx-a100-80", 2, "rm2", share=0.75),
    Case("zionex-16", 4, "dlrm-dcnv2", share=0.125),
)
SIZES, OF_TABLES = (0.25, 0.5, 1.0, 2.0), (0.5, 1.0, 2.0)
"""Factors of a candidate, and those of each of its tables beside them."""


def random_changes(
    base: Workload, count: int, seed: int, *, dims: bool, sizes: Sequence[float] = SIZES
) -> dict[str, list[Any]]:
    """Columns of random candidates, each with one of the `sizes`; vectors of one width, and the dense part with
    them, unless tables may have `dims` of their own."""
    random = np.random.default_rng(seed)
    pooling, width = random.choice(sizes, count), random.choice(sizes, count)
    columns: dict[str, list[Any]] = {}
    if not dims and base.dense.bottom_mlp:
        ends = _multiples_of_4(width * base.dense.bottom_mlp[-1]).tolist()
        columns["dense.bottom_mlp"] = [(*base.dense.bottom_mlp[:-1], end) for end in ends]
    for table in base.tables:
        there = random.random(count) < 0.9
        read = random.choice(OF_TABLES, count) * pooling * table.pooling_factor
        values: dict[str, np.ndarray] = {
            "rows": np.maximum(random.choice(OF_TABLES, count) * table.rows, 1).astype(int),
            "pooling_factor": np.maximum(np.round(read), 1.0),
        }
        if dims:
            values["dim"] = _multiples_of_4(random.choice(OF_TABLES, count) * width * table.dim)
        elif base.dense.bottom_mlp:
            values["dim"] = _multiples_of_4(width * table.dim)
        for name, of in values.items():
            columns[f"{table.name}.{name}"] = [v if has else None for v, has in zip(of.tolist(), there, strict=True)]
        columns[f"{table.name}.present"] = there.tolist()
    if base.dense.top_mlp:
        hidden = base.dense.top_mlp[:-1]
        widths = [(*(max(int(n * factor), 1) for n in hidden), base.dense.top_mlp[-1]) for factor in SIZES]
        columns["dense.top_mlp"] = [widths[n] for n in random.integers(0, len(widths), count)]
    return columns


def _multiples_of_4(widths: np.ndarray) -> np.ndarray:
    return np.asarray(np.maximum(widths.astype(int) // 4 * 4, 4))


def planned(topology: str, model: str, nodes: int | None = None, effort: int = 0) -> Plan:
    return plan(load_topology(topology, nodes=nodes), load_workload(model), effort=effort, simulate=False)


def varies_widths(base: Workload) -> bool:
    """Whether tables may have widths of their own."""
    return base.dense.interaction != "dot" and not base.dense.layers


def speed() -> None:
    for topology, model, count in SPEED:
        made = planned(topology, model)
        base = planned_inputs(made)[1]
        oracle = Oracle(made)
        columns, again = (random_changes(base, count, n, dims=varies_widths(base), sizes=(1.0,)) for n in (1, 2))
        first_s, profiles = _costed(oracle, columns)
        oracle.cost(oracle.candidates(again))
        known_s, _ = _costed(oracle, again)
        print(
            f"{model} on {topology}: {len(base.tables):,} tables, {count:,} candidates: {count / sum(known_s):,.0f} a"
            f" second, {known_s[0]:.2f} s of it to read their columns, once profiles are known; {profiles:,} new ones"
            f" take {sum(first_s) - sum(known_s):.1f} s"
        )


def _costed(oracle: Oracle, columns: dict[str, list[Any]]) -> tuple[tuple[float, float], int]:
    """Seconds of the processor to read columns and to cost their candidates, and how many profiles these have."""
    start = time.process_time()
    candidates = oracle.candidates(columns)
    read_s, start = time.process_time() - start, time.process_time()
    oracle.cost(candidates)
    return (read_s, time.process_time() - start), sum(map(len, candidates.profiles))


def accuracy(count: int, seed: int, effort: int, gap: float, named: str) -> None:
    for case in (case for case in ACCURACY if named in case.name):
        began, of_case = time.process_time(), math.ceil(count * case.share)
        made = case.plan(effort, gap)
        base = planned_inputs(made)[1]
        oracle = Oracle(made)
        columns = random_changes(base, of_case, seed, dims=varies_widths(base))
        tell = functools.partial(print, file=sys.stderr, flush=True)
        costs = oracle.exact(oracle.cost(columns), of_case, effort=effort, gap=gap, progress=tell)
        found = {number: of.objective for number, of in costs.plans.items() if of.objective is not None}
        numbers = np.array(sorted(found))
        step = np.array([found[number].best_step_s or found[number].step_s for number in numbers.tolist()])
        bound = np.array([found[number].lower_bound_s for number in numbers.tolist()])
        estimate = costs.estimate_s[numbers]
        told = np.isfinite(estimate)
        error = np.abs(estimate[told] / step[told] - 1)
        proven = is_proven(step[told], bound[told])
        print(
            f"{case.name}: {len(numbers)} of {of_case} candidates fit, {np.sum(~told)} of them"
            f" without an estimate; error of the estimate: median {np.median(error):.2%}, 95 % of them below"
            f" {np.quantile(error, 0.95):.2%};"
            f" Kendall tau {kendall_tau(estimate[told], step[told]):.3f},"
            f" {kendall_tau(estimate[told], step[told], proven):.3f} of the"
            f" {proven.sum() / (len(proven) * (len(proven) - 1)):.1%} of pairs that plans prove;"
            f" of the bounds planned anew {kendall_tau(bound[told], step[told]):.3f};"
            f" bound over the bound planned anew: median {np.median(costs.lower_bound_s[numbers] / bound):.4f},"
            f" highest {np.max(costs.lower_bound_s[numbers] / bound):.6f};"
            f" steps {step.min():.3g} to {step.max():.3g} s, gaps up to {np.max(step / bound - 1):.2%};"
            f" {time.process_time() - began:.0f} s of the processor",
            flush=True,
        )


def is_proven(step: np.ndarray, bound: np.ndarray) -> np.ndarray:
    """[n, n] whether plans prove which of two models is faster: the bound of one is above the step of the other."""
    faster = step[:, None] < bound
    return np.asarray(faster | faster.T)


def kendall_tau(first: np.ndarray, second: np.ndarray, among: np.ndarray | None = None) -> float:
    """Kendall's tau-a: pairs in the same order less those in another, over all pairs; or over those `among` [n, n]."""
    signs = np.sign(first[:, None] - first) * np.sign(second[:, None] - second)
    pairs = ~np.eye(len(first), dtype=bool) if among is None else among
    return float(signs[pairs].mean())


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.oracle", description=__doc__)
    parser.add_argument("what", choices=("speed", "accuracy"))
    parser.add_argument("--candidates", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--effort", type=int, default=1)
    parser.add_argument("--gap", type=float, default=0.0)
    parser.add_argument("--case", default="", help="a part of the names of the cases of accuracy; unset: all")
    given = parser.parse_args(words)
    if not any(given.case in case.name for case in ACCURACY):
        parser.error(f"--case: {given.case!r} is in none of: {'; '.join(case.name for case in ACCURACY)}")
    if given.what == "speed":
        speed()
    else:
        accuracy(given.candidates, given.seed, given.effort, given.gap, given.case)


if __name__ == "__main__":
    main()
