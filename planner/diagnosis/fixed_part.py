"""What no placement changes of a step, and where the constant in it comes from."""

from dataclasses import dataclass

from cost_models.coefficients import Coefficient
from cost_models.coefficients_used import StepCoefficients
from cost_models.model import CostModel
from planner.document.plan import Objective

NEGLIGIBLE = 1e-6
"""Share of a bound that is nothing but rounding."""


@dataclass(frozen=True)
class FixedPart:
    """What no placement changes of a step, and what that leaves of the gap."""

    seconds: float
    gap_of_rest: float | None
    """How far the step is from the bound, over what of the bound the placement decides; None where that is nothing."""


def fixed_part(objective: Objective, model: CostModel) -> FixedPart | None:
    """The fixed part of a plan's step; None for ratings."""
    if model.quantity != "step":
        return None
    decided_s = objective.lower_bound_s - model.fixed_step_s
    is_some = decided_s > NEGLIGIBLE * objective.lower_bound_s
    gap = (objective.step_s - objective.lower_bound_s) / decided_s if is_some else None
    return FixedPart(model.fixed_step_s, gap)


@dataclass(frozen=True)
class FixedCost:
    """A constant of a stage and where it comes from."""

    stage: str
    seconds: float
    coefficient: str
    of: str
    """The file of coefficients: a software profile."""
    evidence: Coefficient


def fixed_costs(model: CostModel) -> tuple[FixedCost, ...]:
    """The step's fixed overhead; none of ratings."""
    used, name = model.coefficients, "step_overhead_s"
    if not isinstance(used, StepCoefficients):
        return ()
    evidence = used.software.step_overhead_s
    return (FixedCost("overhead", evidence.value, name, used.software.name, evidence),)
