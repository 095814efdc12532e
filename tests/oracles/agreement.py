"""How near the estimate of a plan is to its simulated step, which shares no formula with it."""

import pytest

from planner.document.plan import Plan


def steps_s(found: Plan) -> tuple[float, float]:
    """Seconds of a plan's step, estimated and simulated; it has both."""
    assert found.objective is not None
    assert found.simulated is not None
    return found.objective.step_s, found.simulated.step_s


def expect_near_simulation(found: Plan, share: float) -> None:
    """The estimate is off by this share of the simulated step at most."""
    estimated_s, simulated_s = steps_s(found)
    assert estimated_s == pytest.approx(simulated_s, rel=share)
