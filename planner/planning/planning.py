"""Planning in one call: the steps from a cluster and a workload to a plan document."""

import math
import numbers
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from cost_models.model import CostModel
from cost_models.shards import PLACEMENT_TIERS, SHARDINGS
from cost_models.workload.loading import load_workload
from cost_models.workload.models import Workload
from planner.diagnosis.remedies import remedies
from planner.document.migration import DEFAULT_PAY_BACK_STEPS, Migration, migration_from
from planner.document.origin import Provenance, TimedWork
from planner.document.plan import Plan
from planner.document.provenance import provenance
from planner.document.reasons import Remedy
from planner.formulation.allowed_choices import planning_model
from planner.formulation.choice_rules import permits_of
from planner.formulation.formulation import Formulation
from planner.formulation.options import enumerate_options
from planner.formulation.policy import Policy, narrow, policy_document
from planner.formulation.software import priced_as_run
from planner.planning.assembly import document, with_moves
from planner.planning.caches import with_own_fractions
from planner.planning.pipeline import searched
from planner.solvers.front import MoveTerms
from planner.solvers.incumbent import Outcome, Progress
from planner.solvers.limits import SearchLimits
from planner.solvers.replan import replan
from planner.verification.loading import expect_sound, load_plan
from planner.verification.simulation import with_simulation
from topologies.cluster import Topology
from topologies.documents import Document, did_you_mean, validate
from topologies.errors import Fault, InputError, shown
from topologies.loading import load_topology

DEFAULT_TIME_LIMIT_S = 60.0
DEFAULT_EFFORT = 1
CACHE_SIZES_SHARE = 0.5
"""Of the time limit that finding cache sizes may take: sizes that are a little off cost less than places that are."""


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
    rules = _narrowed(policy, tiers, shardings)
    allowed = validate(rules, Policy)
    tell = progress or (lambda *_: None)
    tell("ways to hold each table", None, None)
    model = planning_model(cost_model, cluster, priced_as_run(trained, allowed), allowed)
    options = enumerate_options(model, permits_of(model, allowed, rules))
    tell("what each way costs", None, None)
    formulation = Formulation.of_options(model, options)
    migration = None if previous is None else _migration(previous, model, lost_nodes)
    former_fractions = None if migration is None else migration.cache_fractions()
    if effort is None and time_limit_s is None:
        effort, time_limit_s = DEFAULT_EFFORT, DEFAULT_TIME_LIMIT_S
    watch = _Watch(math.inf if time_limit_s is None else time_limit_s, stop)
    tell("sizes of caches", None, None)
    formulation = with_own_fractions(formulation, former_fractions, watch.has_time)
    limits = SearchLimits(watch.left_s(), gap, effort, seed, stop)
    helpful = _Helper(model, allowed, limits, progress)
    heard = progress and _in_whole_steps(progress, model)
    judged = partial(_played, tell=tell) if simulate else _as_it_is
    if migration is None:
        tell("the relaxation", None, None)
        final = searched(formulation, limits, heard)
        origin = watch.noted(provenance(final.formulation, allowed, seed))
        helps = helpful(final.outcome)
        new = document(final.formulation, final.outcome, origin, remedies=helps, best_step_s=final.best_step_s)
        return judged(new)
    homes = migration.homes(formulation)
    if max_move_bytes is None and pay_back_steps is None and model.quantity == "step":
        pay_back_steps = DEFAULT_PAY_BACK_STEPS
    price = 0.0 if pay_back_steps is None else migration.seconds_per_byte() / pay_back_steps
    terms = MoveTerms(max_move_bytes, price, model.whole_step_s(0.0))
    found = replan(formulation.problem, homes, terms, limits, heard)
    if found.outcome.status == "infeasible" and not formulation.has_every_cut:
        formulation = formulation.with_every_cut()
        homes = migration.homes(formulation)
        found = replan(formulation.problem, homes, terms, limits, heard)
    origin = watch.noted(provenance(formulation, allowed, seed))
    is_memory = found.outcome.shortage is not None or max_move_bytes is None
    helps = helpful(found.outcome) if is_memory else ()
    new = document(formulation, found.outcome, origin, homes, helps, found.best_step_s)
    moves = migration.measure(new.tables, found.least_bytes, max_move_bytes, pay_back_steps, found.found_bytes)
    return judged(with_moves(new, moves))


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


class _Watch:
    """The time limit of a plan: that of cache sizes and of the search together."""

    def __init__(self, limit_s: float, stop: Callable[[], bool] | None) -> None:
        self._limit_s, self._stop, self._began = limit_s, stop or (lambda: False), time.monotonic()
        self._ended: tuple[TimedWork, ...] = ()

    def has_time(self, seconds: float) -> bool:
        """Whether so many seconds more for cache sizes leave the search what it needs."""
        used_s = time.monotonic() - self._began
        if used_s + seconds > CACHE_SIZES_SHARE * self._limit_s:
            self._ended = ("cache sizes",)
            return False
        return not self._stop()

    def noted(self, origin: Provenance) -> Provenance:
        """The provenance with what there was no time for."""
        return origin.model_copy(update={"ended_by_time": self._ended})

    def left_s(self) -> float:
        """At least 0."""
        return max(self._limit_s - (time.monotonic() - self._began), 0.0)


class _Helper:
    """Finds what would make the tables fit, after a search that starts now."""

    def __init__(self, model: CostModel, policy: Policy, limits: SearchLimits, progress: Progress | None) -> None:
        self._model, self._policy, self._limits, self._progress = model, policy, limits, progress
        self._began = time.monotonic()

    def __call__(self, outcome: Outcome) -> tuple[Remedy, ...]:
        """Nothing where there is a plan, or where the search ended for want of time and not of room."""
        is_stopped = self._limits.stop or (lambda: False)
        in_time = time.monotonic() - self._began < self._limits.time_limit_s and not is_stopped()
        if outcome.placement is not None or not (outcome.status == "infeasible" or in_time):
            return ()
        if self._progress:
            self._progress("what would make it fit", None, None)
        short = None if outcome.shortage is None else outcome.shortage.bytes_short
        return remedies(self._model, self._policy, short, is_stopped)


def _played(found: Plan, tell: Progress) -> Plan:
    tell("playing the step", None, None)
    return with_simulation(found)


def _as_it_is(found: Plan) -> Plan:
    return found


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


def _narrowed(
    policy: Policy | Document | str | Path | None, tiers: Sequence[str] | None, shardings: Sequence[str] | None
) -> Document:
    """The policy with the names given as further limits. Raises InputError for an unknown one."""
    named = (("tiers", "tier", tiers, PLACEMENT_TIERS), ("shardings", "sharding", shardings, SHARDINGS))
    unknown = [
        fault
        for _, what, names, known in named
        for word in names or ()
        if word not in known
        for fault in InputError.at(word, f"is not a {what}{did_you_mean(word, known)}").faults
    ]
    if unknown:
        raise InputError(unknown)
    document = policy if isinstance(policy, Document) else policy_document(policy)
    for key, _, names, _ in named:
        if names is not None:
            narrow(document, key, list(names), f"{key}={','.join(names)}")
    return document
