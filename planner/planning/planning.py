"""Planning in one call: the steps from a cluster and a workload to a plan document."""

import math
import numbers
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cost_models.model import CostModel
from cost_models.workload.loading import load_workload
from cost_models.workload.models import Workload
from planner.diagnosis.remedies import remedies
from planner.document.migration import DEFAULT_PAY_BACK_STEPS, Migration, migration_from
from planner.document.plan import Plan
from planner.document.reasons import Remedy
from planner.document.traffic import moves_of
from planner.formulation.formulation import Formulation
from planner.formulation.policy import Policy
from planner.formulation.question import Question, narrowed_policy
from planner.planning.assembly import with_moves
from planner.planning.pipeline import Pipeline, Searched, Steps, widened
from planner.planning.time_limit import TimeLimit
from planner.problem.relocation import Homes
from planner.solvers.front import MoveTerms
from planner.solvers.incumbent import Outcome, Progress
from planner.solvers.limits import SearchLimits
from planner.solvers.replan import Replanned, replan
from planner.verification.loading import expect_sound, load_plan
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
    progress: Progress | None = None,
    stop: Callable[[], bool] | None = None,
    previous: Plan | str | Path | None = None,
    max_move_bytes: int | None = None,
    pay_back_steps: int | None = None,
    lost_nodes: Sequence[int] = (),
    simulate: bool = True,
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

    Of the best step found at most 0.1 % is given up for ranks that are less full, and tables in fewer blocks.

    `previous` is a plan that this one follows, or its file: what can stay stays. At most `max_move_bytes` of weights
    and optimizer state move between ranks; or a move must pay for itself within `pay_back_steps` steps (10,000 where
    neither is given), by the time that the cluster's network takes for it. `lost_nodes` are nodes of the previous plan
    that are gone.

    `simulate` has the plan's step played by the simulator too, a judge that shares no formula with the costs.

    The status of the plan is `infeasible` with an explanation where nothing fits, or where more must move than may.
    Raises InputError for inputs that are wrong, limits among them.
    """
    _expect_limits(time_limit_s=time_limit_s, effort=effort, gap=gap, seed=seed)
    cluster = topology if isinstance(topology, Topology) else load_topology(topology)
    trained = workload if isinstance(workload, Workload) else load_workload(workload)
    question = Question.asked(cluster, trained, narrowed_policy(policy, tiers, shardings), cost_model)
    tell = progress or (lambda *_: None)
    formulation = question.formulation(tell)
    model = formulation.model
    migration = None if previous is None else _migration(previous, model, lost_nodes)
    if effort is None and time_limit_s is None:
        effort, time_limit_s = DEFAULT_EFFORT, DEFAULT_TIME_LIMIT_S
    clock = TimeLimit(time_limit_s, stop)
    tell("sizes of caches", None, None)
    steps = Steps(finishes=migration is None, simulates=simulate)
    heard = progress and _in_whole_steps(progress, model)
    pipeline = Pipeline(question.policy, SearchLimits(math.inf, gap, effort, seed, stop), steps, heard)
    former_fractions = None if migration is None else migration.cache_fractions()
    formulation = pipeline.refined(formulation, former_fractions, clock.has_time)
    pipeline = replace(pipeline, limits=replace(pipeline.limits, time_limit_s=clock.left_s()))
    helper = _Helper(model, question.policy, pipeline.limits, progress)
    if migration is None:
        tell("the relaxation", None, None)
        searched = pipeline.planned(formulation)
        helps = helper.remedies(searched.outcome)
        return pipeline.simulated(pipeline.assembled(searched, remedies=helps, ended_by_time=clock.ended))
    following = _Following(migration, max_move_bytes, pay_back_steps)
    return pipeline.simulated(following.planned(pipeline, formulation, helper, clock))


@dataclass(frozen=True)
class _Following:
    """A plan that follows another, on terms of what may move."""

    migration: Migration
    max_move_bytes: int | None
    pay_back_steps: int | None

    def planned(self, pipeline: Pipeline, formulation: Formulation, helper: "_Helper", clock: TimeLimit) -> Plan:
        """The plan document with what moves."""
        migration, terms, steps = self.migration, *self._terms(formulation.model)

        def search(formulation: Formulation) -> tuple[Homes, Replanned]:
            homes = migration.homes(formulation)
            return homes, replan(formulation.problem, homes, terms, pipeline.limits, pipeline.progress)

        formulation, (homes, replanned) = widened(formulation, search, lambda result: result[1].outcome.status)
        outcome = replanned.outcome
        is_memory = outcome.shortage is not None or self.max_move_bytes is None
        plan = pipeline.assembled(
            pipeline.finished(Searched(formulation, outcome, replanned.best_step_s)),
            homes=homes,
            remedies=helper.remedies(outcome) if is_memory else (),
            ended_by_time=clock.ended,
        )
        least, found = replanned.least_bytes, replanned.found_bytes
        return with_moves(plan, moves_of(migration, plan.tables, least, self.max_move_bytes, steps, found))

    def _terms(self, model: CostModel) -> tuple[MoveTerms, int | None]:
        """What moving costs, and the steps within which a move must pay for itself."""
        steps = self.pay_back_steps
        if self.max_move_bytes is None and steps is None and model.quantity == "step":
            steps = DEFAULT_PAY_BACK_STEPS
        price = 0.0 if steps is None else self.migration.seconds_per_byte() / steps
        return MoveTerms(self.max_move_bytes, price, model.whole_step_s(0.0)), steps


def _migration(previous: Plan | str | Path, model: CostModel, lost_nodes: Sequence[int]) -> Migration:
    """The way from a plan, or its file, to the inputs of a model."""
    source = "the previous plan" if isinstance(previous, Plan) else str(previous)
    former = expect_sound(previous, source) if isinstance(previous, Plan) else load_plan(previous)
    return migration_from(former, model, lost_nodes, source)


def _in_whole_steps(progress: Progress, model: CostModel) -> Progress:
    """Steps and bounds of the search, which knows nothing of the batch copy, as those of the plan."""

    def hear(step: str, best_s: float | None, bound_s: float | None) -> None:
        of_plan = [None if seconds is None else model.whole_step_s(seconds) for seconds in (best_s, bound_s)]
        progress(step, *of_plan)

    return hear


class _Helper:
    """Finds what would make the tables fit, after a search that starts now."""

    def __init__(self, model: CostModel, policy: Policy, limits: SearchLimits, progress: Progress | None) -> None:
        self._model, self._policy, self._limits, self._progress = model, policy, limits, progress
        self._began = time.monotonic()

    def remedies(self, outcome: Outcome) -> tuple[Remedy, ...]:
        """Nothing where there is a plan, or where the search ended for want of time and not of room."""
        is_stopped = self._limits.stop or (lambda: False)
        in_time = time.monotonic() - self._began < self._limits.time_limit_s and not is_stopped()
        if outcome.placement is not None or not (outcome.status == "infeasible" or in_time):
            return ()
        if self._progress:
            self._progress("what would make it fit", None, None)
        short = None if outcome.shortage is None else outcome.shortage.bytes_short
        return remedies(self._model, self._policy, short, is_stopped)


def _expect_limits(**given: object) -> None:
    """Raise InputError for every limit that is no number, not finite where it must be, or below 0."""
    faults = []
    for name, value in given.items():
        whole = name in {"effort", "seed"}
        if value is None and name in {"effort", "time_limit_s"}:
            continue
        if isinstance(value, bool) or not isinstance(value, numbers.Integral if whole else numbers.Real):
            faults.append(Fault(name, 0, 0, "", f"{shown(value)} is not a {'whole ' * whole}number"))
        elif math.isnan(value) or value < 0:
            faults.append(Fault(name, 0, 0, "", f"{shown(value)} must be at least 0"))
    if faults:
        raise InputError(faults)
