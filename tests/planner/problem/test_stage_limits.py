"""Plans divided by how long a stage lasts: every plan is of one of the two problems."""

import numpy as np

from planner.problem.integrality import integrality_floors
from planner.problem.stage_limits import divided
from tests.oracles.packings import known_optima


def test_a_plan_keeps_to_the_limits_of_its_side() -> None:
    """A stage that is shorter holds allowed blocks alone; one that is not lasts as long as its floor. Twice over."""
    random, sides = np.random.default_rng(1), [0, 0]
    for each in known_optima():
        problem, placement = each.instance.problem, each.placement
        seconds = each.stage_seconds()
        part = problem
        for _ in range(2):
            stage = int(random.integers(len(seconds)))
            at = float(seconds[stage] * random.choice([0.5, 1.0 - 1e-9, 1.0, 1.0 + 1e-9, 1.5]))
            is_above = bool(seconds[stage] >= at)
            part = divided(part, stage, at)[is_above]
            sides[is_above] += 1
        assert part.stage_limits is not None
        assert (integrality_floors(part) <= seconds * (1 + 1e-9)).all()
        assert (seconds < part.stage_limits.roofs).all()
        assert part.allowed[:, placement.item_block].any(axis=0).all()
    assert min(sides) > 20


def test_limits_add_up() -> None:
    """Dividing what was divided keeps the tighter limits, and leaves the problem as it was."""
    problem = known_optima()[0].instance.problem
    inner = divided(divided(problem, 0, 2.0)[0], 0, 1.0)[1]
    assert inner.stage_limits is not None
    assert (inner.stage_limits.floors[0], inner.stage_limits.roofs[0]) == (1.0, 2.0)
    loose = divided(divided(inner, 0, 3.0)[0], 0, 0.5)[1]
    assert loose.stage_limits is not None
    assert (loose.stage_limits.floors[0], loose.stage_limits.roofs[0]) == (1.0, 2.0)
    assert problem.stage_limits is None
