"""Tables over nodes cut anew: what is offered is whole, and its step is what blocks can be shared out to."""

import itertools

import numpy as np
import pytest

from cost_models.shards import NODE
from cost_models.step import StepModel
from cost_models.workload import load_workload
from planner.formulation.options import build_problem, enumerate_options
from planner.formulation.policy import Policy
from planner.problem.arrays import Problem
from planner.problem.placement import Placement
from planner.solvers.improve.reach import Reach, _level
from planner.solvers.improve.wide import WideBlocks
from planner.solvers.limits import SearchLimits
from planner.solvers.search import solve
from tests.oracles.placements import faults
from topologies.loading import load_topology


@pytest.fixture(scope="module")
def start() -> tuple[Problem, Placement]:
    """26 tables on 32 ranks, as a search without passes leaves them: some are over nodes."""
    model = StepModel(load_topology("zionex-16", nodes=4), load_workload("dlrm-dcnv2"))
    problem = build_problem(model, enumerate_options(model, Policy(tiers=("hbm",))))
    placement = solve(problem, SearchLimits(effort=0)).placement
    assert placement is not None
    return problem, placement


def test_one_table_over_nodes_is_in_another_option(start: tuple[Problem, Placement]) -> None:
    """All else stays where it is, every table is there once, and its blocks are on nodes of their own."""
    problem, placement = start
    before = set(zip(placement.item_block.tolist(), placement.item_place.tolist(), strict=True))
    recuts = Reach(problem, WideBlocks(problem)).recuts(placement)
    is_over = problem.block_extent[placement.item_block] == NODE
    over_nodes, seen = set(problem.table_of_block[placement.item_block[is_over]].tolist()), set()
    assert over_nodes
    for recut in recuts:
        after = list(zip(recut.placement.item_block.tolist(), recut.placement.item_place.tolist(), strict=True))
        changed = {int(problem.table_of_block[block]) for block, _ in before ^ set(after)}
        assert len(changed) == 1
        assert changed <= over_nodes
        assert not faults(problem, recut.placement)
        new = [(block, node) for block, node in after if int(problem.table_of_block[block]) in changed]
        assert len({node for _, node in new}) == len(new)
        seen.add((changed.pop(), len(new)))
    assert {table for table, _ in seen} == over_nodes
    assert len({blocks for _, blocks in seen}) > 2
    steps = [recut.reach_s for recut in recuts]
    assert steps == sorted(steps)


@pytest.mark.parametrize("base", [[0.0, 0.0, 0.0], [0.5, 0.0, 2.25], [3.0, 0.1, 0.1], [1.5, 1.5, 0.5]])
def test_whole_amounts_end_on_a_level_that_they_can_reach(base: list[float]) -> None:
    """It is what trying all ways to share them out finds, or a step above where that leaves no room to spare; never
    below what can be poured."""
    for count in range(8):
        least = min(
            max(b + n for b, n in zip(base, shared, strict=True))
            for shared in itertools.product(range(count + 1), repeat=3)
            if sum(shared) == count
        )
        level_s = _level(np.array(base), float(count), 1.0)
        assert least - 1e-9 <= level_s <= least + 1 + 1e-9
        assert _level(np.array(base), float(count), 0.0) <= least + 1e-9
        assert _level(np.array(base), float(count), 0.0) >= max(*base, (sum(base) + count) / 3) - 1e-9
