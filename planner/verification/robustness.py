"""A plan in scenarios: drawn, estimated and simulated; and whether a document says the same."""

from collections.abc import Iterator, Sequence

import numpy as np

from cost_models.model import CostModel
from cost_models.scenario_steps import ScenarioModels
from cost_models.scenarios import Scenario, draw_scenarios
from cost_models.shards import Floats, PlacedShards
from cost_models.simulator.conditions import Conditions
from cost_models.simulator.simulation import simulate
from planner.document.plan import Plan
from planner.document.planned import placed_shards
from planner.document.robustness import ScenarioFigures
from planner.formulation.robust_aim import RobustAim
from planner.problem.scenario_loads import quantile

TOLERANCE = 1e-9
"""Relative difference of seconds that two orders of summation may make."""
SIMULATED_TOLERANCE = 1e-6
"""Relative difference that rounding may make of a simulation: events may change places."""


def scenarios_of(aim: RobustAim, model: CostModel, *, held_back: bool) -> list[Scenario]:
    """The scenarios by which plans are compared, or those that are held back."""
    seed = aim.seed + held_back
    return draw_scenarios(model.workload, model.topology.world_size, aim.variance, aim.scenarios, seed)


def estimated(models: ScenarioModels, placed: PlacedShards, percent: float) -> ScenarioFigures:
    """What shards take over the scenarios, in closed form."""
    steps = models.of(placed)
    return _figures(steps.step_s, percent, int(steps.is_overfull.sum()))


def simulated(model: CostModel, scenarios: Sequence[Scenario], placed: PlacedShards, percent: float) -> ScenarioFigures:
    """The same as the simulator plays it."""
    steps = [
        simulate(
            model.topology,
            scenario.workload,
            placed,
            exchange=model.exchange,
            conditions=Conditions(slow_ranks={scenario.slow_rank: scenario.slow_factor}),
        ).step_s
        for scenario in scenarios
    ]
    return _figures(np.array(steps), percent)


def _figures(steps: Floats, percent: float, overfull: int | None = None) -> ScenarioFigures:
    return ScenarioFigures(mean_s=float(steps.mean()), quantile_s=quantile(steps, percent), overfull=overfull)


def faults_of_robustness(plan: Plan, model: CostModel) -> Iterator[str]:
    """What a document says of scenarios and another computation does not."""
    aim, said = plan.provenance.policy.robust, plan.robust
    if aim is None or said is None:
        if (aim is None) != (said is None):
            yield f"robust: {'missing, though' if said is None else 'there, though not what'} the policy asks for it"
        return
    expected = {"quantile": aim.quantile, **vars(aim.variance), "assumed": aim.assumed}
    for name, value in expected.items():
        if getattr(said, name) != value:
            yield f"robust: {name} is {value!r} by the policy, the document says {getattr(said, name)!r}"
    placed = placed_shards(plan)
    for name, held_back in (("sampled", False), ("held_back", True)):
        judged = getattr(said, name)
        if (judged.seed, judged.scenarios) != (aim.seed + held_back, aim.scenarios):
            yield f"robust: {name} is not of the policy's seed and number of scenarios"
            continue
        scenarios = scenarios_of(aim, model, held_back=held_back)
        again = estimated(ScenarioModels(model, scenarios), placed, aim.quantile)
        yield from _differences(name, judged.planned, again, TOLERANCE)
        if held_back and said.simulated is not None:
            yield from _simulated_faults(plan, model, scenarios[: aim.played], placed)
    if said.sampled.planned.quantile_s > said.sampled.nominal.quantile_s * (1 + TOLERANCE):
        yield "robust: the nominal plan has the smaller quantile"


def _simulated_faults(
    plan: Plan, model: CostModel, scenarios: Sequence[Scenario], placed: PlacedShards
) -> Iterator[str]:
    assert plan.robust is not None
    judged = plan.robust.simulated
    assert judged is not None
    if (judged.seed, judged.scenarios) != (plan.robust.held_back.seed, len(scenarios)):
        yield "robust: simulated is not of the scenarios that are held back, as many as the policy says"
        return
    again = simulated(model, scenarios, placed, plan.robust.quantile)
    yield from _differences("simulated", judged.planned, again, SIMULATED_TOLERANCE)


def _differences(name: str, stated: ScenarioFigures, again: ScenarioFigures, tolerance: float) -> Iterator[str]:
    for figure in ("mean_s", "quantile_s"):
        value, repeated = getattr(stated, figure), getattr(again, figure)
        if not np.isclose(value, repeated, rtol=tolerance, atol=0.0):
            yield f"robust: {name}.planned.{figure} is {value!r}; computed again, it is {repeated!r}"
    if stated.overfull != again.overfull:
        yield f"robust: {name}.planned.overfull is {stated.overfull!r}; counted again, it is {again.overfull!r}"
