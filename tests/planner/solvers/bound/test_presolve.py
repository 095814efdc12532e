"""Joint blocks: what they promise is what the blocks that they are made of take."""

from dataclasses import replace

import numpy as np
import pytest

from planner.problem.arrays import Problem
from planner.problem.load_state import load_state
from planner.solvers.bound.presolve import presolve
from tests.oracles.instances import tiny_instance
from tests.oracles.placements import random_placements

SEEDS = range(120)


@pytest.fixture(scope="module")
def problems() -> list[Problem]:
    return [each.problem for each in map(tiny_instance, SEEDS) if len(each.options.table)]


def with_dear_width(problem: Problem) -> Problem:
    """Twice the columns ask for more than twice as much of everything, ids among it."""
    dear = np.maximum(problem.block_units, 1)[:, None] ** 1.4
    names = ("fixed", "by_rows", "everywhere", "bytes_fixed", "bytes_by_rows")
    return replace(problem, **{name: getattr(problem, name) * dear for name in names})


def test_joint_blocks_cost_what_their_parts_do(problems: list[Problem]) -> None:
    """Taken apart, a placement takes the seconds and bytes it promised: never more than the blocks as they were."""
    changed = 0
    for problem in map(with_dear_width, problems):
        joint = presolve(problem)
        for placement in random_placements(problem):
            promised, before = load_state(joint.problem, placement), load_state(problem, placement)
            apart = joint.postsolved(placement)
            held = load_state(problem, apart)
            assert held.step_s() == pytest.approx(promised.step_s(), rel=1e-12)
            assert held.free == pytest.approx(promised.free, rel=1e-9, abs=1e-3)
            assert held.step_s() <= before.step_s() * (1 + 1e-12)
            assert (held.free >= before.free - 1e-3).all()
            changed += len(apart.item_block) > len(placement.item_block)
    assert changed > 1
