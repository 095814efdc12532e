"""Planning in one call: the steps from a cluster and a workload to a plan document."""

import itertools
import math
import numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cost_models.dense_sharding import is_shardable
from cost_models.model import CostModel
from cost_models.registry import COST_MODELS
from cost_models.replicas import groups_in_words
from cost_models.workload.dense_sharding import DenseSharding
from cost_models.workload.loading import load_workload
from cost_models.workload.models import Workload
from planner.document.dense import TrainedDense
from planner.document.plan import Plan
from planner.document.planned import planned_inputs, planned_replicas
from planner.formulation.dense_choices import with_sharding
from planner.formulation.policy import Policy
from planner.formulation.question import Question, narrowed_policy
from planner.planning.dense_choice import best_of_dense, best_of_robust
from planner.planning.exchanges import PlannedUnder, planned_under_each
from planner.planning.following import Following, FormerTerms
from planner.planning.integer_solution import Solver, expect_programme, expect_solver
from planner.planning.pipeline import Pipeline, Steps
from planner.planning.precision_caches import no_slower, planned_without
from planner.planning.question_bound import bound_of_question
from planner.planning.remedy_finder import RemedyFinder
from planner.planning.replica_choice import best_of_replicas, of_each_group
from planner.planning.robust_plan import robust
from planner.planning.time_limit import TimeLimit
from planner.solvers.incumbent import Progress
from planner.solvers.limits import SearchLimits
from planner.solvers.seeds import FurtherSeeds
from planner.verification.simulation import with_simulation
from topologies.cluster import Topology
from topologies.documents import Document
from topologies.errors import Fault, InputError, shown
from topologies.loading import load_topology

DEFAULT_TIME_LIMIT_S = 60.0
DEFAULT_EFFORT = 1


def plan(
    topology: Topology | str | Path,
    workload: Workload | str | Path,
    *,
    cost_model: str = "physical",
    policy: Policy | Document | str | Path | None = None,
    tiers: Sequence[str] | None = None,
    shardings: Sequence[str] | None = None,
    time_limit_s: float | None = None,
    effort: int | None = None,
    gap: float = 0.01,
    seed: int = 0,
    seeds: int = 1,
    workers: int | None = None,
    progress: Progress | None = None,
    stop: Callable[[], bool] | None = None,
    previous: Plan | str | Path | None = None,
    max_move_bytes: int | None = None,
    pay_back_steps: int | None = None,
    lost_nodes: Sequence[int] = (),
    simulate: bool = True,
    solver: Solver = "auto",
) -> Plan:
    """The best placement of a workload's tables on a cluster that is found within the limits, with its lower bound.

    `topology` and `workload` are models, catalog names or files. `cost_model` says what is best: `physical` (the
    time of a step), `torchrec` or `hugectr` (the ratings of those planners). `policy` is a model or a file and says
    what may be used; `tiers` and `shardings` narrow it. Its runtime is the software profile that times are those of,
    unless the workload chooses one (see `Workload.names_software`).

    The search ends at the relative distance `gap` from the bound, or after `effort` passes of local search: one, or
    as many as `time_limit_s` allows where that is given. A search that `effort` or `gap` ends repeats to the last byte
    for its `seed`. Where `effort` is given no clock decides anything, unless `time_limit_s` is given too; where neither
    is, the limit is 60 s. What a time limit ended is named in the plan's provenance. `stop` is asked now and then
    whether to end with the best plan so far; `progress` hears of every step.

    `seeds` is from how many seeds is searched, `seed` and those that follow it, until a plan is within `gap`: the first
    searches and raises the bound, the others search only, and of each search the fastest plan and the highest bound
    count. They go on side by side in at most `workers` processes, or as many as there are cores, which begin as those
    of `multiprocessing` do (a script that calls this keeps to `if __name__ == "__main__"`); unless a time limit ends
    the search, how many there are changes nothing in the plan.

    Of the best step found at most 0.1 %, or what the policy's `goals` say, is given up for ranks that are less full,
    and tables in fewer blocks; without such words never so much that a plan leaves the `gap` that was asked for.

    `previous` is a plan that this one follows, or its file: what can stay stays. At most `max_move_bytes` of weights
    and optimizer state move between ranks; or a move must pay for itself within `pay_back_steps` steps (10,000 where
    neither is given), by the time that the cluster's network takes for it. `lost_nodes` are nodes of the previous plan
    that are gone. A policy that says nothing of replicas leaves those of the previous plan, with their rules. In groups
    of ranks, every group moves as much: `max_move_bytes` is of all groups together.

    `solver` says what follows the search: `ilp` the integer programme, with the search's plan to begin with, up to
    20,000 variables (options, and pairs of a block and a rank or node); `auto` the same where it has 1,000 at most and
    the search did not come within `gap` of the bound; `search` nothing. For each pass of `effort` it looks at 10,000
    branch nodes, in `auto` at 1,000, and at none in `auto` with an `effort` of 0. What its solver proves is told as a
    solver's word, beside the bound.

    `simulate` also simulates the plan's step, event by event, with no formula of the estimate.

    The status of the plan is `infeasible` with an explanation where nothing fits, or where more must move than may.
    Raises InputError for inputs that are wrong, limits among them.
    """
    expect_solver(solver)
    if solver == "ilp" and previous is not None:
        raise InputError.at("solver", "a plan that follows another is searched for; leave out ilp")
    _expect_limits(time_limit_s=time_limit_s, effort=effort, gap=gap, seed=seed, seeds=seeds, workers=workers)
    if seeds == 1 and workers is not None:
        raise InputError.at("workers", "has no effect without seeds, from which they search")
    if seeds > 1 and previous is not None:
        raise InputError.at("seeds", "a plan that follows another begins with it, and is searched for from one seed")
    if effort is None and time_limit_s is None:
        effort, time_limit_s = DEFAULT_EFFORT, DEFAULT_TIME_LIMIT_S
    limits = SearchLimits(math.inf if time_limit_s is None else time_limit_s, gap, effort, seed, stop)
    terms = None if previous is None else FormerTerms(previous, tuple(lost_nodes), max_move_bytes, pay_back_steps)
    written_policy = narrowed_policy(policy, tiers, shardings)
    if terms is not None:
        terms.keep_groups(written_policy)
    question = _question(topology, workload, cost_model, written_policy)
    _expect_scenarios(question, follows=previous is not None)
    if previous is None:
        question.policy.expect_no_moves()
    strategies = question.choices_of_dense()
    if terms is not None:
        strategies = _with_strategy_of(terms, strategies)
    groups = [strategy.choices_of_replicas() for strategy in strategies]
    choices = list(itertools.chain.from_iterable(groups))
    if terms is not None:
        choices = _with_groups_of(terms, choices)
    with FurtherSeeds(seeds - 1, workers) as further:
        planner = _Planner(limits, terms, progress, solver, simulate, further if seeds > 1 else None)
        return planner.planned(choices[0]) if len(choices) == 1 else planner.best_of(strategies, choices)


def _expect_scenarios(question: Question, *, follows: bool) -> None:
    """Raise InputError for a robust plan of what is not known in scenarios."""
    if follows:
        question.policy.expect_nominal("plans that follow another are")
        question.policy.expect_stated_tables("plans that follow another are")
    if question.cost_model in COST_MODELS and COST_MODELS[question.cost_model].quantity != "step":
        question.policy.expect_nominal(f"the rating of {question.cost_model} is")
    if question.workload.towers is not None:
        question.policy.expect_nominal("plans of towers are")


def _with_strategy_of(terms: FormerTerms, strategies: list[Question]) -> list[Question]:
    """The strategy of the dense part that the plan has that is followed, or those of its layers; where that is no
    choice, the first."""
    was = TrainedDense.stated_by(planned_inputs(terms.former)[1])
    kept = [each for each in strategies if TrainedDense.stated_by(each.workload) == was][:1]
    first, sharding = strategies[0], DenseSharding(strategy=was.strategy, over=was.over, layers=was.layers)
    choices = first.policy.dense
    if kept or choices is None or not choices.allows(sharding):
        return kept or [first]
    alike = [each for each in strategies if TrainedDense.stated_by(each.workload).checkpointing == was.checkpointing]
    followed = (alike or [first])[0]
    workload = with_sharding(followed.workload, sharding)
    return [replace(followed, workload=workload) if is_shardable(first.topology, workload) else first]


def _with_groups_of(terms: FormerTerms, choices: list[Question]) -> list[Question]:
    """The choice of replicas that keeps the groups of the plan that is followed; where there is none, the first, which
    is refused with both."""
    was = planned_replicas(terms.former)
    return ([each for each in choices if each.groups == groups_in_words(was)] or choices)[:1]


def _question(
    topology: Topology | str | Path,
    workload: Workload | str | Path,
    cost_model: str,
    written_policy: Document,
) -> Question:
    """The question that the arguments of `plan` ask, with what they name loaded."""
    cluster = topology if isinstance(topology, Topology) else load_topology(topology)
    trained = workload if isinstance(workload, Workload) else load_workload(workload)
    return Question.asked(cluster, trained, written_policy, cost_model)


@dataclass(frozen=True)
class _Planner:
    """Plans questions, each as the caller of `plan` asks."""

    limits: SearchLimits
    terms: FormerTerms | None
    """The plan that is followed, and what may move, where one is."""
    progress: Progress | None
    solver: Solver
    simulates: bool
    seeds: FurtherSeeds | None = None

    def best_of(self, strategies: list[Question], choices: list[Question]) -> Plan:
        """The best of several strategies of the dense part, or of several choices of replicas for each: `choices` are
        all of these. Scenarios are simulated with each robust plan, a step with the best plan alone."""
        is_robust = choices[0].policy.robust is not None
        limits, progress = self.limits, self.progress
        each_simulates = self.simulates and is_robust

        def planned(each: Question, left: SearchLimits, tell: Progress) -> Plan:
            heard = _of_one_exchange(each, tell)
            return replace(self, limits=left, progress=heard, simulates=each_simulates).planned(each)

        def bounded(each: Question, tell: Progress) -> float | None:
            return bound_of_question(each, limits, tell)

        if len(strategies) == 1:
            best = best_of_replicas(choices, bounded, planned, limits, progress)
        elif is_robust:
            best = best_of_robust(choices, planned, limits, progress)
        elif len(choices) == len(strategies):
            best = best_of_dense(choices, bounded, planned, limits, progress)
        else:
            best = best_of_dense(strategies, *of_each_group(bounded, planned), limits, progress)
        return with_simulation(best) if self.simulates and not is_robust else best

    def planned(self, question: Question) -> Plan:
        """The plan for a question, following a former one on its terms where there is one."""

        def under(asked: Question, limits: SearchLimits, former: PlannedUnder | None) -> PlannedUnder:
            return replace(self, limits=limits).planned_under(asked, former)

        plan = planned_under_each(question, self.limits, under)
        steps = Steps(simulates=self.simulates)
        return Pipeline(question.policy, self.limits, steps, self.progress).simulated(plan)

    def planned_under(self, question: Question, former: PlannedUnder | None) -> PlannedUnder:
        """The plan under the one exchange that a question settles, not simulated: from the options of the `former`
        plan under another exchange, where there is one."""
        limits, progress = self.limits, self.progress
        tell = progress or (lambda *_: None)
        formulation = question.formulation(tell) if former is None else former.formulation.under(question.model())
        model = formulation.model
        following = None if self.terms is None else Following(self.terms, self.terms.migration(model))
        clock = TimeLimit(limits.time_limit_s, limits.stop)
        tell("sizes of caches", None, None)
        steps = Steps(finishes=following is None, simulates=self.simulates)
        start = None if former is None else former.searched
        heard = progress and _in_whole_steps(progress, model)
        pipeline = Pipeline(question.policy, limits, steps, heard, self.solver, self.seeds, start)
        former_fractions = None if following is None else following.migration.cache_fractions()
        plain = None if following is not None or former is not None else planned_without(formulation, pipeline)
        if former is None:
            wide, more = formulation, former_fractions
            if plain is not None:
                wide, more = formulation.with_cuts(plain.formulation.options.cuts), plain.formulation.options.fractions
            formulation = pipeline.refined(wide, more, clock.has_time)
        pipeline = replace(pipeline, limits=replace(limits, time_limit_s=clock.left_s()))
        remedies = RemedyFinder(model, question.policy, pipeline.limits, progress)
        if following is not None:
            plan = following.planned(pipeline, formulation, remedies, clock.ended)
            return PlannedUnder(plan, formulation, None)
        expect_programme(formulation, self.solver)
        tell("the relaxation", None, None)
        searched, robustness = pipeline.planned(formulation), None
        if plain is not None:
            searched = no_slower(searched, plain)
        if question.policy.robust is not None:
            searched, robustness = robust(searched, question.policy.robust, pipeline)
        helpful = remedies.of(searched.outcome)
        plan = pipeline.assembled(searched, remedies=helpful, ended_by_time=clock.ended)
        plan = plan.model_copy(update={"robust": robustness})
        return PlannedUnder(plan, searched.formulation, searched)


def _of_one_exchange(question: Question, progress: Progress) -> Progress:
    """The same without bounds where several exchanges are open: each is one under one of them."""
    if len(question.exchanges) == 1:
        return progress
    return lambda step, best_s, _: progress(step, best_s, None)


def _in_whole_steps(progress: Progress, model: CostModel) -> Progress:
    """Steps and bounds of the search, which knows nothing of its floor, as those of the plan."""

    def hear(step: str, best_s: float | None, bound_s: float | None) -> None:
        of_plan = [None if seconds is None else model.whole_step_s(seconds) for seconds in (best_s, bound_s)]
        progress(step, *of_plan)

    return hear


COUNTS = {"effort": 0, "seed": 0, "seeds": 1, "workers": 1}
"""Limits that are whole numbers, each with the least that it may be."""
OPTIONAL = {"time_limit_s", "effort", "workers"}


def _expect_limits(**given: object) -> None:
    """Raise InputError for every limit that is no number, not finite where it must be, or below its least."""
    faults = []
    for name, value in given.items():
        whole, least = name in COUNTS, COUNTS.get(name, 0)
        if value is None and name in OPTIONAL:
            continue
        if isinstance(value, bool) or not isinstance(value, numbers.Integral if whole else numbers.Real):
            faults.append(Fault(name, 0, 0, "", f"{shown(value)} is not a {'whole ' * whole}number"))
        elif math.isnan(value) or value < least:
            faults.append(Fault(name, 0, 0, "", f"{shown(value)} must be at least {least}"))
    if faults:
        raise InputError(faults)
