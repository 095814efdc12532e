"""Robust plans: of the plans that are found, the one whose step has the smallest quantile over scenarios.

The plan for the profiles' means is always a candidate, so that none is worse than it in the scenarios that are sampled.
Others come from it: the search of steps improves the mean over scenarios of the tail (`mean_problem`), and a descent
lowers the quantile itself over all scenarios (`planner.solvers.scenario_descent`). Every candidate is judged by the
laws of the cost model in the same scenarios. Work is counted, not timed.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from cost_models.model import CostModel
from cost_models.scenario_steps import ScenarioModels, ScenarioSteps
from planner.document.robustness import JudgedPlans, Robustness, ScenarioFigures
from planner.formulation.formulation import Formulation
from planner.formulation.options import uncapped_problem
from planner.formulation.robust_aim import RobustAim
from planner.planning.pipeline import Pipeline, Searched
from planner.planning.protocols import at_own_protocols, shards_of
from planner.problem.load_state import load_state
from planner.problem.numbers import Floats, Ints
from planner.problem.placement import Placement
from planner.problem.scenario_loads import ScenarioCosts, ScenarioLoads, quantile, quantile_index
from planner.solvers.limits import SearchLimits
from planner.solvers.scenario_descent import descended
from planner.solvers.search import resumed
from planner.solvers.tail_problem import mean_problem
from planner.verification.robustness import estimated, scenarios_of, simulated

ROUNDS = 3
"""Descents from the best plan so far, at most."""
TAIL = 4
"""Scenarios of the tail that the search improves the mean of."""
TAIL_SHARE = 0.2
"""The longest steps, as a share of all, that these are taken from."""
LONGER = 0.4
"""Share of the scenarios, those with the longest steps, that a descent looks at."""
TAIL_TIMES = 2
"""Of these it lowers the mean of so many times as many as are at the quantile or beyond."""
MOST_NUMBERS = 3e7
"""Numbers of an array of costs (240 MB) or of a problem's; what would be larger is left out."""


@dataclass(frozen=True)
class Candidate:
    """A plan with its steps in the scenarios that are sampled."""

    placement: Placement
    steps: ScenarioSteps
    quantile_s: float

    @property
    def rank(self) -> tuple[float, float]:
        """What candidates are compared by: the quantile, then the mean."""
        return self.quantile_s, float(self.steps.step_s.mean())


@dataclass(frozen=True)
class RobustSearch:
    """The search for a plan with a small quantile, from one for the profiles' means."""

    formulation: Formulation
    aim: RobustAim
    limits: SearchLimits

    @cached_property
    def models(self) -> ScenarioModels:
        """The costs in the scenarios that are sampled."""
        return ScenarioModels(self.formulation.model, scenarios_of(self.aim, self.formulation.model, held_back=False))

    def best_from(self, nominal: Placement) -> Candidate:
        """The best candidate; the nominal plan where no other has a smaller quantile."""
        first = best = self._candidate(nominal)
        if self._is_told_to_stop():
            return first
        found = [self._descended(first), *self._of_tail(first)]
        for _ in range(ROUNDS):
            allowed = [each for each in found if each.steps.is_overfull.sum() <= first.steps.is_overfull.sum()]
            better = min([best, *allowed], key=lambda each: each.rank)
            if better is best or self._is_told_to_stop():
                return better
            best, found = better, [self._descended(better)]
        return best

    def _candidate(self, placement: Placement) -> Candidate:
        steps = self.models.of(shards_of(self.formulation, placement))
        return Candidate(placement, steps, quantile(steps.step_s, self.aim.quantile))

    def _of_tail(self, candidate: Candidate) -> list[Candidate]:
        """What the search makes of a candidate in the scenarios of its tail, before and after a descent."""
        own = at_own_protocols(self.formulation, candidate.placement)
        if TAIL * own.problem.fixed.size > MOST_NUMBERS:
            return []
        models = [self._model(own, number) for number in self._tail(candidate.steps.step_s)]
        mean = mean_problem(own.problem, [uncapped_problem(model, own.options) for model in models])
        limits = replace(self.limits, gap=0.0, branch_nodes=0)
        placement = resumed(mean, candidate.placement, limits).placement
        if placement is None:
            return []
        found = self._candidate(placement)
        return [found, self._descended(found)]

    def _tail(self, step_s: Floats) -> list[int]:
        """Scenarios of the longest steps, evenly from the first beyond the quantile's share of them to the longest."""
        order = np.argsort(step_s, kind="stable")
        first = min(quantile_index(100 * (1 - TAIL_SHARE), len(order)), quantile_index(self.aim.quantile, len(order)))
        return [int(order[place]) for place in np.unique(np.linspace(first, len(order) - 1, TAIL).round().astype(int))]

    def _model(self, formulation: Formulation, number: int) -> CostModel:
        return self.models.models[number].at_protocols(formulation.model.protocols)

    def _descended(self, candidate: Candidate) -> Candidate:
        """What a descent makes of a candidate in its longer scenarios, at the protocols of its stages at the means."""
        own = at_own_protocols(self.formulation, candidate.placement)
        count = len(candidate.steps.step_s)
        longer = np.argsort(candidate.steps.step_s, kind="stable")[-max(round(LONGER * count), 1) :]
        loads = self._loads(own, candidate.placement, longer)
        if loads is None:
            return candidate
        return self._candidate(descended(own.problem, candidate.placement, loads, self._is_told_to_stop))

    def _is_told_to_stop(self) -> bool:
        """Whether somebody wants what was found so far."""
        return self.limits.stop is not None and self.limits.stop()

    def _loads(self, own: Formulation, placement: Placement, scenarios: Ints) -> ScenarioLoads | None:
        """The loads of some scenarios; None where they are too many numbers."""
        problem, placed = own.problem, shards_of(own, placement)
        blocks: Ints = np.unique(placement.item_block[problem.is_on_rank[placement.item_block]])
        columns = len(problem.stage_of_column)
        if len(scenarios) * columns * max(problem.world, problem.kinds * len(blocks)) > MOST_NUMBERS:
            return None
        models = [self._model(own, number) for number in scenarios.tolist()]
        slowness, taken = self.models.slowness[scenarios], own.options.blocks.take(blocks)
        parts = [[model.block_costs(taken, kind) for kind in range(problem.kinds)] for model in models]
        costs = ScenarioCosts(
            stage_of_column=problem.stage_of_column,
            resource_of_rank=problem.resource_of_rank,
            kind_of_rank=problem.kind_of_rank,
            constants=np.array([model.constants.sum() for model in models]),
            least_s=np.array([model.whole_step_s(0.0) for model in models]),
            blocks=blocks,
            whole_load=np.array([[cost.fixed + cost.by_rows for cost in kinds] for kinds in parts]),
            slowness=slowness,
            is_device=own.model.is_device,
        )
        loads = [
            model.instance_loads(model.rank_loads(placed, slow)[0]).T
            for model, slow in zip(models, slowness, strict=True)
        ]
        beyond = self.aim.scenarios - quantile_index(self.aim.quantile, self.aim.scenarios)
        return ScenarioLoads(costs, np.array(loads), min(TAIL_TIMES * beyond, len(scenarios)))


def robust(searched: Searched, aim: RobustAim, pipeline: Pipeline) -> tuple[Searched, Robustness | None]:
    """The plan with the smallest quantile that is found from what a search found, with both in scenarios; nothing
    changes where nothing was found."""
    formulation, outcome = searched.formulation, searched.outcome
    if outcome.placement is None:
        return searched, None
    if pipeline.progress is not None:
        pipeline.progress(f"{aim.scenarios:,} scenarios", None, None)
    search = RobustSearch(formulation, aim, pipeline.limits)
    best = search.best_from(outcome.placement)
    judged = robustness(search, outcome.placement, best.placement, simulates=pipeline.steps.simulates)
    if best.placement is outcome.placement:
        return searched, judged
    step_s = load_state(formulation.problem, best.placement).step_s()
    return Searched(formulation, replace(outcome, placement=best.placement, step_s=step_s), None), judged


def robustness(search: RobustSearch, nominal: Placement, planned: Placement, *, simulates: bool) -> Robustness:
    """What the document says of both plans: in the scenarios that are sampled, in others, and as simulated."""
    aim, model, formulation = search.aim, search.formulation.model, search.formulation
    pair = [shards_of(formulation, each) for each in (nominal, planned)]
    beside = scenarios_of(aim, model, held_back=True)

    def judged(seed: int, figures: list[ScenarioFigures], count: int = aim.scenarios) -> JudgedPlans:
        return JudgedPlans(seed=seed, scenarios=count, nominal=figures[0], planned=figures[1])

    held_back = ScenarioModels(model, beside)
    played = beside[: aim.played]
    return Robustness(
        quantile=aim.quantile,
        **vars(aim.variance),
        assumed=aim.assumed,
        nominal_step_s=model.evaluate(pair[0]).step_s,
        sampled=judged(aim.seed, [estimated(search.models, each, aim.quantile) for each in pair]),
        held_back=judged(aim.seed + 1, [estimated(held_back, each, aim.quantile) for each in pair]),
        simulated=judged(aim.seed + 1, [simulated(model, played, each, aim.quantile) for each in pair], len(played))
        if simulates and played
        else None,
    )
