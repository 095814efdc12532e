"""The smallest cluster that reaches a throughput, or whose memory suffices: by bisection over the nodes of a group.

A size is judged by a search that ends as soon as it is decided. It is *rejected by proof* where the lower bound on the
step is above the target's step, or where the memory is proven too small; it is *accepted by a plan* that reaches the
target. What neither decides after a short search (effort 0) is searched as long as `effort` says; where that
finds no such plan either, the size is rejected without proof, and the candidate says so.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cost_models.shards import BELOW_HBM, HOME_OF_TIER, PlacementTier
from cost_models.towers import divides
from cost_models.workload.checkpoints import in_words
from cost_models.workload.models import Workload
from planner.capacity.candidates import Candidate, descend
from planner.capacity.size_floor import size_floor
from planner.capacity.size_searches import Interrupted, SizeSearches
from planner.capacity.sizes import Sizes, count_of_nodes
from planner.document.plan import Plan
from planner.formulation.dense_choices import expect_one_strategy
from planner.formulation.policy import Policy, policy_document
from planner.formulation.software import input_warnings, priced_as_run
from planner.planning.integer_solution import Solver, expect_solver
from planner.solvers.incumbent import Progress
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
    solver: Solver = "search",
    progress: Progress | None = None,
    stop: Callable[[], bool] | None = None,
) -> tuple[Sizing, ...]:
    """The smallest number of nodes that does, with all allowed tiers first, then without each memory below HBM.

    `target_samples_per_s` and the longest step `max_step_s` are by the estimate; both None: that the tables fit is
    enough. `group` names the node group that is sized (needed where there are several); its own count does not matter.
    Sizes are all within one scale-up domain, then whole domains, up to `max_nodes`; and, where the group is the only
    one, those between the smallest of these that does and the next below it that make equal domains of at least half
    of the nodes, as `--nodes` takes them. Of all of them those that a workload's towers divide. With `each_tier` the
    memories that the policy allows and the cluster has are left out one by one, then all of them.

    A fixed global batch is a fixed job (strong scaling); a batch per rank grows with the cluster.

    `solver` says what follows the longest search of a size that neither its plan nor its bound decides, and the search
    of the answer: `ilp` or `auto` the integer programme, as in `planner.planning.planning.plan`; `search` nothing. What
    its solver says of all plans rejects no size.

    `stop` is asked now and then whether to end with what is known. `progress` hears of every size as it is begun, with
    neither plan nor bound, and of the best plan and bound of its search. Raises InputError for inputs that are wrong.
    """
    for subject, given, unit in (("target", target_samples_per_s, "samples/s"), ("longest step", max_step_s, "s")):
        if given is not None and not (math.isfinite(given) and given > 0):
            raise InputError.at(subject, f"{given} {unit} must be above 0 and finite")
    expect_solver(solver)
    rules = policy if isinstance(policy, Document) else policy_document(policy)
    allowed = validate(rules, Policy)
    allowed.expect_nominal("sizes are those")
    expect_one_strategy(allowed.dense, "sizes are those")
    allowed.expect_no_moves()
    index = group_index(topology, group)
    if max_nodes < 1:
        raise InputError.at("max nodes", f"{max_nodes} is below 1")
    counts = topology.nodes[index].node_counts(max_nodes, is_alone=len(topology.nodes) == 1)
    if not counts:
        raise InputError.at("max nodes", f"{max_nodes} is below the nodes of one scale-up domain")
    counts = [nodes for nodes in counts if divides(workload, topology.resized(index, nodes))] or counts
    sizes = Sizes(topology, index, workload, tuple(counts), max_nodes)
    tell, is_over = progress or (lambda *_: None), stop or (lambda: False)
    longest_s = math.inf if max_step_s is None else max_step_s
    priced = priced_as_run(workload, allowed)
    searches = SizeSearches(
        topology,
        priced,
        allowed,
        rules,
        index,
        target_samples_per_s,
        longest_s,
        effort,
        gap,
        seed,
        is_over,
        solver,
        tell,
    )
    sizings: list[Sizing] = []
    floor, most_s = size_floor(topology, priced), searches.longest_target_s(max_nodes)
    if floor.seconds > most_s:
        label, tiers = next(iter(_variants(topology, allowed, each_tier=False)))
        return (
            Sizing(label, tiers, None, None, (), (*input_warnings(priced, allowed, topology), floor.refutes(most_s))),
        )
    for label, tiers in _variants(topology, allowed, each_tier=each_tier):
        if sizings and is_over():
            break
        sizings.append(_sized(searches, label, tiers, sizes, tell))
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
    searches: "SizeSearches",
    label: str,
    tiers: tuple[PlacementTier, ...],
    sizes: Sizes,
    tell: Progress,
) -> Sizing:
    judged: dict[int, Candidate] = {}
    finished = True
    try:
        _judge(searches, label, tiers, sizes, tell, judged)
    except Interrupted:
        finished = False
    least, answer, plan = _least(judged), None, None
    cluster = searches.topology if least is None else searches.topology.resized(searches.index, least)
    notes = list(input_warnings(searches.workload, searches.policy, cluster))
    if least is not None:
        if finished:
            tell(f"{label}: the plan for {count_of_nodes(least)}", None, None)
        answer, plan = searches.finished(tiers, judged[least])
        notes += [*sizes.words_of(least), *_oddities(judged, least)]
        if searches.policy.exchange == "auto":
            notes.append(_exchange_note(plan))
        if searches.policy.checkpointing == "auto" and plan.dense is not None:
            notes.append(f"checkpointing auto: {in_words(plan.dense.checkpointing)} at the answer")
        judged[least] = answer
    notes += sizes.words_of_skipped(least) if finished else ["interrupted: not all sizes were judged"]
    return Sizing(label, tiers, answer, plan, tuple(judged[key] for key in sorted(judged)), tuple(notes), finished)


def _judge(
    searches: "SizeSearches",
    label: str,
    tiers: tuple[PlacementTier, ...],
    sizes: Sizes,
    tell: Progress,
    judged: dict[int, Candidate],
) -> None:
    """Judge sizes until the smallest that does is known, by their number of nodes. Raises Interrupted."""

    def descend_among(counts: Sequence[int]) -> None:
        seen: dict[int, Candidate] = {}

        def suffices(position: int) -> bool:
            if position not in seen:
                if searches.is_over():
                    raise Interrupted
                tell(f"{label}: {count_of_nodes(counts[position])}", None, None)
                seen[position] = judged[counts[position]] = searches.judge(tiers, counts[position])
            return seen[position].suffices

        descend(suffices, seen, len(counts) - 1)

    descend_among(sizes.whole)
    if between := sizes.between(_least(judged)):
        descend_among(between)


def _least(judged: dict[int, Candidate]) -> int | None:
    """The smallest size that does."""
    return min((nodes for nodes, candidate in judged.items() if candidate.suffices), default=None)


def _oddities(judged: dict[int, Candidate], least: int) -> Iterable[str]:
    """Words for what a reader would not expect of sizes by their number of nodes."""
    above = [nodes for nodes, candidate in sorted(judged.items()) if nodes > least and not candidate.suffices]
    if above:
        yield f"more nodes do not always do: {', '.join(map(str, above))} are rejected"
    below = [each for nodes, each in sorted(judged.items()) if nodes < least and not each.is_proven]
    if below:
        nodes = ", ".join(str(candidate.nodes) for candidate in below)
        yield f"{nodes} nodes are rejected without proof: a longer search (--effort) may find that they do"


def _exchange_note(plan: Plan) -> str:
    """Which exchange of vectors the plan of the answer takes, and how the other one compares."""
    taken, other = plan.provenance.exchange, plan.other_exchange
    if other is None:
        return f"exchange auto: {taken}"
    return f"exchange auto: {taken} at the answer; with {other.exchange} its step takes {format_seconds(other.step_s)}"
