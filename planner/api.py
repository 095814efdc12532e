"""Planning in one call: the steps from a cluster and a workload to a plan document."""

import math
import numbers
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from cost_models.registry import cost_model as cost_model_of
from cost_models.shards import PLACEMENT_TIERS, SHARDINGS, PlacementTier, Sharding
from cost_models.workload.loading import load_workload
from cost_models.workload.models import Workload
from planner.build import document
from planner.document import Plan, Remedy
from planner.options import Policy, build_problem, enumerate_options
from planner.provenance import provenance
from planner.remedies import remedies
from planner.solvers.search import Limits, Progress, solve
from topologies.cluster import Topology
from topologies.documents import did_you_mean
from topologies.errors import Fault, InputError, shown
from topologies.loading import load_topology

DEFAULT_TIME_LIMIT_S = 60.0
DEFAULT_EFFORT = 1


def plan(
    topology: Topology | str | Path,
    workload: Workload | str | Path,
    *,
    cost_model: str = "physical",
    tiers: Sequence[str] | None = None,
    shardings: Sequence[str] | None = None,
    time_limit_s: float | None = None,
    effort: int | None = None,
    gap: float = 0.01,
    seed: int = 0,
    progress: Progress | None = None,
    stop: Callable[[], bool] | None = None,
) -> Plan:
    """The best placement of a workload's tables on a cluster that is found within the limits, with its lower bound.

    `topology` and `workload` are models, catalog names or files. `cost_model` says what is best: `physical` (the
    time of a step), `torchrec` or `hugectr` (the ratings of those planners). `tiers` and `shardings` limit what may be
    used.

    The search ends at the relative distance `gap` from the bound, or after `effort` passes of local search: one, or
    as many as `time_limit_s` allows where that is given. A search that `effort` or `gap` ends repeats to the last byte
    for its `seed`; one that time ends (after 60 s at the latest, where nothing is given) does not. `stop` is asked now
    and then whether to end with the best plan so far; `progress` hears of every step.

    The status of the plan is `infeasible` with an explanation where nothing fits. Raises InputError for inputs that
    are wrong, limits among them.
    """
    _expect_limits(time_limit_s=time_limit_s, effort=effort, gap=gap, seed=seed)
    cluster = topology if isinstance(topology, Topology) else load_topology(topology)
    trained = workload if isinstance(workload, Workload) else load_workload(workload)
    model = cost_model_of(cost_model, cluster, trained)
    policy = make_policy(tiers, shardings)
    options = enumerate_options(model, policy)
    problem = build_problem(model, options)
    if effort is None and time_limit_s is None:
        effort = DEFAULT_EFFORT
    limits = Limits(DEFAULT_TIME_LIMIT_S if time_limit_s is None else time_limit_s, gap, effort, seed, stop)
    began = time.monotonic()
    outcome = solve(problem, limits, progress)
    in_time = time.monotonic() - began < limits.time_limit_s and not (stop and stop())
    helps: tuple[Remedy, ...] = ()
    if outcome.placement is None and (outcome.status == "infeasible" or in_time):
        if progress:
            progress("what would make it fit", None, None)
        short = None if outcome.shortage is None else outcome.shortage.bytes_short
        helps = remedies(model, policy, short, stop or (lambda: False))
    return document(model, options, problem, outcome, provenance(model, policy, seed), helps)


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


def make_policy(tiers: Sequence[str] | None, shardings: Sequence[str] | None) -> Policy:
    """The policy of the names given; all of a kind where none is. Raises InputError for an unknown one."""
    unknown = [
        InputError.at(word, f"is not a {what}{did_you_mean(word, known)}")
        for what, names, known in (("tier", tiers, PLACEMENT_TIERS), ("sharding", shardings, SHARDINGS))
        for word in names or ()
        if word not in known
    ]
    if unknown:
        raise InputError([fault for error in unknown for fault in error.faults])
    allowed_tiers: tuple[PlacementTier, ...] = tuple(t for t in PLACEMENT_TIERS if tiers is None or t in tiers)
    allowed_shardings: tuple[Sharding, ...] = tuple(s for s in SHARDINGS if shardings is None or s in shardings)
    return Policy(allowed_tiers, allowed_shardings)
