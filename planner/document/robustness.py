"""What a plan document says of scenarios: how much these vary, and what two plans take in them."""

from typing import Annotated

from pydantic import Field

from planner.formulation.robust_aim import Quantile
from topologies.documents import Record


class ScenarioFigures(Record):
    """What a plan takes over many scenarios."""

    mean_s: float
    """The mean step, in seconds."""
    quantile_s: float
    """The quantile of the step, in seconds."""
    overfull: Annotated[int | None, Field(exclude_if=lambda value: value is None)] = None
    """Scenarios in which some memory would hold more than it can, of an estimate: plans keep to the memory at the
    profiles' means."""


class JudgedPlans(Record):
    """Both plans in the same scenarios."""

    seed: int
    """That the scenarios were drawn with."""
    scenarios: int
    """How many were drawn."""
    nominal: ScenarioFigures
    """Of the plan whose step is shortest at the profiles' means."""
    planned: ScenarioFigures
    """Of this plan."""

    @property
    def price(self) -> float:
        """What this plan takes longer on the mean, as a share."""
        return self.planned.mean_s / self.nominal.mean_s - 1

    @property
    def gain(self) -> float:
        """What the quantile is shorter by, as a share."""
        return 1 - self.planned.quantile_s / self.nominal.quantile_s


class Robustness(Record):
    """How a plan was chosen by a quantile of the step."""

    quantile: Quantile
    """The quantile that was minimised, as p95."""
    pooling_drift: float
    """Standard deviation of a table's mean number of ids between scenarios, over that mean."""
    skew_drift: float
    """The same of the exponent of its access curve."""
    slow_rank: float
    """In every scenario the device of one rank, any of them, takes so many times as long."""
    assumed: tuple[str, ...]
    """Which of these three nobody stated."""
    nominal_step_s: float
    """The step, at the profiles' means, of the plan for which that is shortest. Of this plan: objective.step_s."""
    sampled: JudgedPlans
    """In the scenarios by which plans were compared, as estimated. No plan found has a smaller quantile that keeps
    to the memory in as many scenarios as the nominal one, which was among them."""
    held_back: JudgedPlans
    """In scenarios that no plan was chosen by, as estimated."""
    simulated: Annotated[JudgedPlans | None, Field(exclude_if=lambda value: value is None)] = None
    """In the first of those, as simulated."""
