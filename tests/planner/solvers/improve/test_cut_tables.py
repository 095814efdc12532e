"""Tables cut anew between paired ranks: loads, memory and widths stay right, and the step falls."""

import numpy as np
import pytest

from planner.formulation.policy import Policy
from planner.problem.load_state import load_state
from planner.solvers.improve.cut_tables import cut_tables
from planner.solvers.improve.improver import Improver
from planner.solvers.improve.smoothing import Smoothing
from tests.oracles.local_searches import ROUNDS, check, middling


@pytest.mark.parametrize("tight", [False, True])
def test_cuts_alone_keep_the_books(tight: bool) -> None:
    """Tables are divided between ranks and joined again; loads, memory and widths stay right.

    With memory to spare the step falls, too.
    """
    problem, start = middling(Policy(tiers=("hbm",)), tight=tight)
    improver = Improver(problem, start, 0)
    before = improver.state.items
    step_s = np.inf
    for _ in range(ROUNDS):
        cut_tables(improver.state, Smoothing(problem, improver.state.loads, 4))
        step_s = min(step_s, improver.state.loads.step_s())
    check(problem, start, improver)
    assert len(before.units) != len(improver.state.items.units) or (before.units != improver.state.items.units).any()
    assert tight or step_s < load_state(problem, start).step_s()
