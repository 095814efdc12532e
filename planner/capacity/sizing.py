"""The smallest cluster that reaches a throughput, or whose memory suffices: by bisection over the nodes of a group.

A size is judged by a search that ends as soon as it is decided. It is *rejected by proof* where the lower bound on the
step is above the target's step, or where the memory is proven too small; it is *accepted by a plan* that reaches the
target. What neither decides after a short search (no local search) is searched as long as `effort` says; where that
finds no such plan either, the size is rejected without proof, and the candidate says so.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from pydantic import ValidationError

from cost_models.model import CostModel
from cost_models.shards import BELOW_HBM, HOME_OF_TIER, PLACEMENT_TIERS, PlacementTier
from cost_models.workload.models import Workload
from planner.capacity.candidates import Candidate, descend
from planner.capacity.size_floor import size_floor
from planner.document.plan import Plan
from planner.formulation.formulation import Formulation
from planner.formulation.policy import Policy, offered, policy_document
from planner.formulation.question import Question
from planner.formulation.software import input_warnings, priced_as_run
from planner.planning.pipeline import Pipeline, Searched, Steps
from planner.problem.load_state import load_state
from planner.solvers.limits import SearchLimits
from topologies.cluster import Topology
from topologies.documents import Document, did_you_mean, validate
from topologies.errors import InputError
from topologies.units import format_seconds

DEFAULT_MAX_NODES = 128


@dataclass(frozen=True)
class Sizing:
    """The smallest size with some tiers allowed, and all sizes that were judged on the way, ascending."""

    label: str
    tiers: tuple[PlacementTier, ...]
    answer: Candidate | None
    """With the figures of `plan`."""
    plan: Plan | None
    """For the answer, searched and simulated as `planner plan` does."""
    candidates: tuple[Candidate, ...]
    notes: tuple[str, ...] = ()
    finished: bool = True
    """False where it was interrupted: then the answer is only the smallest size known to do."""


def size(
    topology: Topology,
    workload: Workload,
    *,
    target_samples_per_s: float | None = None,
    max_step_s: float | None = None,
    group: str | None = None,
    max_nodes: int = DEFAULT_MAX_NODES,
    policy: Policy | Document | str | Path | None = None,
    each_tier: bool = True,
    effort: int = 1,
    gap: float = 0.01,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> tuple[Sizing, ...]:
    """The smallest number of nodes that does, with all allowed tiers first, then without each memory below HBM.

    `target_samples_per_s` and the longest step `max_step_s` are by the estimate; both None: that the tables fit is
    enough. `group` names the node group that is sized (needed where there are several); its own count does not matter.
    Sizes are all within one scale-up domain, then whole domains, up to `max_nodes`. With `each_tier` the memories
    that the policy allows and the cluster has are left out one by one, then all of them.

    A fixed global batch is a fixed job (strong scaling); a batch per rank grows with the cluster.

    `stop` is asked now and then whether to end with what is known. Raises InputError for inputs that are wrong.
    """
    for subject, given, unit in (("target", target_samples_per_s, "samples/s"), ("longest step", max_step_s, "s")):
        if given is not None and not (math.isfinite(given) and given > 0):
            raise InputError.at(subject, f"{given} {unit} must be above 0 and finite")
    rules = policy if isinstance(policy, Document) else policy_document(policy)
    allowed = validate(rules, Policy)
    index = group_index(topology, group)
    if max_nodes < 1:
        raise InputError.at("max nodes", f"{max_nodes} is below 1")
    counts = topology.nodes[index].node_counts(max_nodes, is_alone=len(topology.nodes) == 1)
    if not counts:
        raise InputError.at("max nodes", f"{max_nodes} is below the nodes of one scale-up domain")
    tell, is_over = progress or (lambda _: None), stop or (lambda: False)
    longest_s = math.inf if max_step_s is None else max_step_s
    priced = priced_as_run(workload, allowed)
    searches = _SizeSearches(
        topology, priced, allowed, rules, index, target_samples_per_s, longest_s, effort, gap, seed, is_over
    )
    sizings: list[Sizing] = []
    floor, most_s = size_floor(topology, priced), searches.longest_target_s(max_nodes)
    if floor.seconds > most_s:
        label, tiers = next(iter(_variants(topology, allowed, each_tier=False)))
        return (Sizing(label, tiers, None, None, (), (*input_warnings(priced, allowed), floor.refutes(most_s))),)
    for label, tiers in _variants(topology, allowed, each_tier=each_tier):
        if sizings and is_over():
            break
        sizings.append(_sized(searches, label, tiers, counts, tell))
        if (
            len(sizings) == 1
            and searches.input_error
            and all(candidate.judged_by == "input" for candidate in sizings[0].candidates)
        ):
            raise searches.input_error
    return tuple(sizings)


def group_index(topology: Topology, group: str | None) -> int:
    """The number of the node group that is sized. Raises InputError where `group` does not say which."""
    names = [each.name for each in topology.nodes]
    if group is None and len(names) == 1:
        return 0
    if group is None:
        raise InputError.at("group", f"there are {len(names)} node groups; name the one to size: {', '.join(names)}")
    if group not in names:
        raise InputError.at("group", f"{group!r} is not a node group{did_you_mean(group, names)}")
    return names.index(group)


def resized(topology: Topology, index: int, nodes: int) -> Topology:
    """The cluster with another number of nodes in a group; not checked."""
    groups = list(topology.nodes)
    groups[index] = groups[index].model_copy(update={"count": nodes})
    return topology.model_copy(update={"nodes": tuple(groups)})


def _variants(
    topology: Topology, policy: Policy, *, each_tier: bool
) -> Iterator[tuple[str, tuple[PlacementTier, ...]]]:
    """Labels and tiers: all whose memory the cluster has; without each memory below HBM; HBM alone."""
    below = [name for name in BELOW_HBM if any(group.memory(name) is not None for group in topology.nodes)]
    there = tuple(tier for tier in policy.tiers if HOME_OF_TIER[tier] in ("hbm", *below))
    in_use = [name for name in below if any(HOME_OF_TIER[tier] == name for tier in there)]
    yield "all tiers", there or policy.tiers
    left_out = [(name,) for name in reversed(in_use)] + ([tuple(in_use)] if len(in_use) > 1 else [])
    for names in left_out if each_tier else ():
        tiers = tuple(tier for tier in there if HOME_OF_TIER[tier] not in names)
        if tiers:
            yield f"without {' and '.join(names)}", tiers


def _sized(
    searches: "_SizeSearches",
    label: str,
    tiers: tuple[PlacementTier, ...],
    counts: Sequence[int],
    tell: Callable[[str], None],
) -> Sizing:
    seen: dict[int, Candidate] = {}

    def suffices(position: int) -> bool:
        if position not in seen:
            if searches.is_over():
                raise _Interrupted
            tell(f"{label}: {_nodes(counts[position])}")
            seen[position] = searches.judge(tiers, counts[position])
        return seen[position].suffices

    notes = list(input_warnings(searches.workload, searches.policy))
    finished = True
    try:
        descend(suffices, seen, len(counts) - 1)
    except _Interrupted:
        finished = False
    least = min((position for position, candidate in seen.items() if candidate.suffices), default=None)
    answer, plan = None, None
    if least is not None:
        if finished:
            tell(f"{label}: the plan for {_nodes(counts[least])}")
        answer, plan = searches.finished(tiers, seen[least])
        notes += _oddities(seen, least)
        seen[least] = answer
    if not finished:
        notes.append("interrupted: not all sizes were judged")
    return Sizing(label, tiers, answer, plan, tuple(seen[key] for key in sorted(seen)), tuple(notes), finished)


def _nodes(count: int) -> str:
    return f"{count:,} node{'s' * (count != 1)}"


class _Interrupted(Exception):  # noqa: N818 - no error: the user has seen enough
    pass


def _oddities(seen: dict[int, Candidate], least: int) -> Iterable[str]:
    """Words for what a reader would not expect."""
    above = [
        candidate.nodes for position, candidate in sorted(seen.items()) if position > least and not candidate.suffices
    ]
    if above:
        yield f"more nodes do not always do: {', '.join(map(str, above))} are rejected"
    below = [candidate for position, candidate in sorted(seen.items()) if position < least and not candidate.is_proven]
    if below:
        nodes = ", ".join(str(candidate.nodes) for candidate in below)
        yield f"{nodes} nodes are rejected without proof: a longer search (--effort) may find that they do"


@dataclass
class _SizeWatch:
    """Hears of a search and ends it as soon as the target is met or proven out of reach."""

    target_s: float
    is_over: Callable[[], bool]
    whole_step_s: Callable[[float], float]
    """The step whose stages take so long together (see `CostModel`)."""
    best_s: float = math.inf
    bound_s: float = 0.0

    def hear(self, _step: str, best_s: float | None, bound_s: float | None) -> None:
        self.best_s = min(self.best_s, math.inf if best_s is None else self.whole_step_s(best_s))
        self.bound_s = max(self.bound_s, self.whole_step_s(bound_s or 0.0))

    def is_decided(self) -> bool:
        is_met = math.isfinite(self.best_s) and self.best_s <= self.target_s
        return is_met or self.bound_s > self.target_s or self.is_over()


@dataclass
class _SizeSearches:
    """Searches for sizes and tiers. What more tiers prove holds for fewer; so does a plan without the others."""

    topology: Topology
    workload: Workload
    policy: Policy
    rules: Document
    index: int
    target: float | None
    longest_s: float
    effort: int
    gap: float
    seed: int
    is_over: Callable[[], bool]
    input_error: InputError | None = None
    judged: list[tuple[frozenset[str], frozenset[str], Candidate]] = field(default_factory=list)
    """(allowed tiers, tiers that the plan uses, candidate)."""

    def judge(self, tiers: Sequence[PlacementTier], nodes: int) -> Candidate:
        """Whether so many nodes do."""
        for allowed, used, known in self.judged:
            if known.nodes != nodes or not set(tiers) <= allowed:
                continue
            if (known.suffices and used <= set(tiers)) or (not known.suffices and known.is_proven):
                return known
        try:
            formulation = self._formulation(tiers, nodes)
        except InputError as error:
            self.input_error = error
            return Candidate(nodes, 0, False, "input", reason=error.faults[0].message)
        model = formulation.model
        target_s = self._target_s(model)
        for effort in sorted({0, self.effort}):
            searched = self._decided(formulation, effort, _SizeWatch(target_s, self.is_over, model.whole_step_s))
            formulation = searched.formulation
            candidate = self._candidate(searched, nodes)
            if candidate.is_proven or self.is_over():
                break
        if candidate.judged_by == "search" and self.is_over():
            raise _Interrupted
        self.judged.append((frozenset(tiers), _tiers_used(searched), candidate))
        return candidate

    def _decided(self, formulation: Formulation, effort: int, watch: "_SizeWatch") -> Searched:
        """The search of a size until it is decided."""
        limits = SearchLimits(gap=0.0, effort=effort, seed=self.seed, stop=watch.is_decided)
        return Pipeline(self.policy, limits, Steps(finishes=False), watch.hear).solved(formulation)

    def finished(self, tiers: Sequence[PlacementTier], candidate: Candidate) -> tuple[Candidate, Plan]:
        """A size that does with its plan, as `planner plan` finds it: the search goes on beyond the target."""
        formulation = self._formulation(tiers, candidate.nodes)
        model = formulation.model
        target_s = self._target_s(model)
        limits = SearchLimits(gap=self.gap, effort=self.effort, seed=self.seed, stop=self.is_over)
        pipeline = Pipeline(self._policy(tiers), limits)
        searched = pipeline.solved(formulation)
        step_s = searched.outcome.step_s
        if step_s is None or model.whole_step_s(step_s) > target_s:  # ended by its gap, or by the user
            watch = _SizeWatch(target_s, lambda: False, model.whole_step_s)
            searched = self._decided(searched.formulation, self.effort, watch)
        final = pipeline.finished(searched, target_s)
        return self._candidate(final, candidate.nodes), pipeline.simulated(pipeline.assembled(final))

    def _target_s(self, model: CostModel) -> float:
        return self._target_of(model.cluster.world_size)

    def _target_of(self, ranks: int) -> float:
        target_s = math.inf if self.target is None else self.workload.batch(ranks) / self.target
        return min(target_s, self.longest_s)

    def longest_target_s(self, max_nodes: int) -> float:
        """The longest target of all sizes: that of the largest one, which has the largest batch."""
        return self._target_of(resized(self.topology, self.index, max_nodes).world_size)

    def _formulation(self, tiers: Sequence[PlacementTier], nodes: int) -> Formulation:
        cluster = self._grown(nodes)
        policy = offered(self._policy(tiers), cluster, Question.cost_model)
        question = Question(cluster, self.workload, policy, written_policy=self.rules)
        return Pipeline(policy, SearchLimits()).refined(question.formulation())

    def _policy(self, tiers: Sequence[PlacementTier]) -> Policy:
        """The policy with these tiers alone."""
        return self.policy.model_copy(update={"tiers": tuple(tiers)})

    def _grown(self, nodes: int) -> Topology:
        try:
            return Topology.model_validate(resized(self.topology, self.index, nodes).model_dump(mode="json"))
        except ValidationError as error:
            message = str(error.errors()[0]["msg"]).removeprefix("Value error, ")
            raise InputError.at(self.topology.name, message) from None

    def _candidate(self, searched: Searched, nodes: int) -> Candidate:
        model, outcome = searched.formulation.model, searched.outcome
        batch, target_s = self.workload.batch(model.cluster.world_size), self._target_s(model)
        step_s = None if outcome.step_s is None else model.whole_step_s(outcome.step_s)
        bound_s = None if outcome.bound_s is None else model.whole_step_s(outcome.bound_s)
        candidate = Candidate(
            nodes=nodes,
            ranks=model.cluster.world_size,
            suffices=step_s is not None and step_s <= target_s,
            judged_by="plan",
            status=outcome.status,
            step_s=step_s,
            samples_per_s=None if step_s is None else batch / step_s,
            lower_bound_s=bound_s,
            target_s=target_s if math.isfinite(target_s) else None,
            most_samples_per_s=batch / bound_s if bound_s else None,
            gap=step_s / bound_s - 1 if step_s is not None and bound_s else None,
        )
        if candidate.suffices:
            return candidate
        if outcome.status == "infeasible":
            why = Pipeline(self.policy, SearchLimits(seed=self.seed)).assembled(searched).infeasibility
            return replace(candidate, judged_by="memory", reason=why.summary if why else "nothing fits")
        if bound_s is not None and bound_s > target_s:
            reason = f"no step is shorter than {format_seconds(bound_s)} (proven), the target's is"
            reason += f" {format_seconds(target_s)}{_longest(searched)}"
            return replace(candidate, judged_by="bound", reason=reason)
        if step_s is None:
            return replace(
                candidate, judged_by="search", reason="no placement was found, nor a proof that there is none"
            )
        reason = f"the best plan found takes {format_seconds(step_s)}, the target's"
        reason += f" {format_seconds(target_s)}; the bound does not rule it out{_longest(searched)}"
        return replace(candidate, judged_by="search", reason=reason)


def _longest(searched: Searched) -> str:
    """Words for the stage that takes most of the plan's step, fixed costs aside: no cluster lowers these."""
    model, problem, outcome = searched.formulation.model, searched.formulation.problem, searched.outcome
    if outcome.placement is None or outcome.step_s is None:
        return ""
    if model.is_copy_time(outcome.step_s):
        return "; the copy of a batch to the devices takes as long"
    seconds = load_state(problem, outcome.placement).stage_seconds()
    stage = int(np.argmax(seconds - problem.stage_constants))
    return f"; {model.stages[stage]} takes {seconds[stage] / outcome.step_s:.0%} of the best plan found"


def _tiers_used(searched: Searched) -> frozenset[str]:
    outcome = searched.outcome
    if outcome.placement is None:
        return frozenset()
    codes = searched.formulation.tiers_of(outcome.placement.item_block)
    return frozenset(PLACEMENT_TIERS[code] for code in np.unique(codes).tolist())
