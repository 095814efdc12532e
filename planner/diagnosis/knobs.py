"""What of the inputs may be changed one by one, and by how much."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from pydantic import ValidationError

from cost_models.activations import is_checkpointable, kept_elements
from cost_models.dense_sharding import dense_bytes, is_shardable, sharding_of
from cost_models.dense_update import why_no_groups
from cost_models.model import CostModel
from cost_models.registry import why_no_stash
from cost_models.shards import HOME_OF_TIER, PLACEMENT_TIERS, SHARDINGS, STATE_PLACES, USUAL_SHARDINGS, MemoryTier
from cost_models.towers import divides
from cost_models.workload.checkpoints import in_words
from cost_models.workload.dense_part import Dtype
from cost_models.workload.dense_sharding import STRATEGY_WORDS, DenseSharding, DenseStrategyWord
from cost_models.workload.formats import FORMATS
from cost_models.workload.models import Workload
from cost_models.workload.optimizers import STATE, Optimizer
from planner.document.reasons import RemedyKind
from planner.formulation.checkpoint_choices import with_checkpointing
from planner.formulation.dense_choices import with_sharding
from planner.formulation.policy import USUAL_TIERS, Policy
from planner.formulation.runtimes import RUNTIMES
from planner.formulation.stash_words import AUTO, TIER_OF_WAY
from planner.problem.numbers import Floats
from topologies.cluster import MOST_RANKS, NodeGroup, Topology
from topologies.units import MOST_BYTES, format_bytes

MOST_GROWTH = 64
"""Times a cluster's nodes that are tried at most; of a memory, times its size, sixteen-fold again."""
FINEST_STEP = 32
"""A memory grows in steps of a power of two, at most one part in so many of its size; of 1 GiB from 4 GiB on."""
MIB, GIB = 1 << 20, 1 << 30
_WHAT: dict[MemoryTier, str] = {"hbm": "HBM per accelerator", "remote": "memory per remote host"}
DTYPES: tuple[Dtype, ...] = ("fp32", "fp16", "int8")
"""Storage types by size, one of each."""
OPTIMIZERS: tuple[Optimizer, ...] = ("adam", "adagrad", "rowwise_adagrad", "sgd")
"""Optimizers by the size of their state, one of each."""


@dataclass(frozen=True)
class PlanningInputs:
    """What a plan is asked for."""

    topology: Topology
    workload: Workload
    policy: Policy
    same_blocks: bool = False
    """Whether only capacities differ from the inputs that do not fit."""


@dataclass(frozen=True)
class Change:
    """The inputs with one thing changed, in words and as flags."""

    inputs: PlanningInputs
    value: str
    flags: str
    words: str


@dataclass(frozen=True)
class Knob:
    """One thing to turn: step n, from 1 to `most`, is a larger change than n - 1; `at` builds it, or None."""

    kind: RemedyKind
    group: str | None
    was: str
    most: int
    at: Callable[[int], Change | None]
    guess: int
    """A step near the first that suffices."""
    futile: str
    """What to say where no step suffices."""
    ordered: bool = True
    """Whether every step suffices after the first that does."""


def knobs_of(model: CostModel, policy: Policy, bytes_short: Floats) -> Iterator[Knob]:
    """Everything that may be turned, in the order in which it is told."""
    now = PlanningInputs(model.stated_topology, model.workload, policy)
    held_in = {"hbm", *(HOME_OF_TIER[tier] for tier in policy.tiers), *(policy.optimizer_state or ())}
    yield from _tiers(now)
    for index, group in enumerate(now.topology.nodes):
        yield from _nodes(now, index, group, bytes_short)
    for m, tier in enumerate(model.memories):
        for index, group in enumerate(now.topology.nodes):
            if tier in held_in and group.memory(tier) is not None:
                yield _memory(now, index, group, tier, float(bytes_short[m]))
                if getattr(group.reserve, tier) > 0:
                    yield _reserve(now, index, group, tier)
    yield from _dtype(now)
    yield from _optimizer(now)
    yield from _optimizer_state(now, model)
    yield from _stash(now, model)
    yield from _shardings(now)
    yield from _dense(now, model)
    yield from _checkpointing(now, model)


def _knob_of_changes(kind: RemedyKind, was: str, changes: list[Change], futile: str) -> Iterator[Knob]:
    """A knob with a step for each of `changes`; none where there is no change to make."""
    if changes:
        yield Knob(kind, None, was, len(changes), lambda n: changes[n - 1], 1, futile, ordered=False)


def _tiers(now: PlanningInputs) -> Iterator[Knob]:
    used = now.policy.tiers
    missing = [
        tier
        for tier in USUAL_TIERS
        if tier not in used and any(group.memory(HOME_OF_TIER[tier]) is not None for group in now.topology.nodes)
    ]
    changes = _allowing(now, "tiers", PLACEMENT_TIERS, used, missing, " and ".join)
    return _knob_of_changes("tiers", ",".join(used), changes, f"allowing {', '.join(missing)}")


def _shardings(now: PlanningInputs) -> Iterator[Knob]:
    used = now.policy.shardings or USUAL_SHARDINGS
    missing = [sharding for sharding in USUAL_SHARDINGS if sharding not in used]
    changes = _allowing(
        now, "shardings", SHARDINGS, used, missing, lambda added: added[0] if len(added) == 1 else "every sharding"
    )
    return _knob_of_changes("shardings", ",".join(used), changes, "allowing other shardings")


def _dense(now: PlanningInputs, model: CostModel) -> Iterator[Knob]:
    """The dense part sharded over all ranks so that it takes fewer bytes, where it may be, and where not every strategy
    is tried already."""
    own, choices = sharding_of(now.workload), now.policy.dense
    if not model.chooses_dtypes or (choices is not None and choices.settled is None):
        return iter(())
    is_stated = choices is None and now.workload.dense.sharding is not None
    now_bytes = dense_bytes(now.topology, now.workload)
    changes = []
    for word in STRATEGY_WORDS[1:]:
        workload = with_sharding(now.workload, DenseSharding(strategy=word))
        if is_shardable(now.topology, workload) and dense_bytes(now.topology, workload) < now_bytes:
            inputs = replace(now, workload=workload, policy=now.policy.model_copy(update={"dense": None}))
            flags, words = (
                f"--dense {word}",
                f"the dense part sharded ({word}); --dense auto finds the fastest strategy",
            )
            if is_stated:
                flags, words = _set_sharding(own, word), f"the dense part as {word} instead of {own.words}"
            changes.append(Change(inputs, word, flags, words))
    return _knob_of_changes("dense", own.words, changes, "sharding the dense part")


def _checkpointing(now: PlanningInputs, model: CostModel) -> Iterator[Knob]:
    """All layers of the dense part computed again in the backward pass, where less is kept then and not both ways are
    tried already."""
    own, choice = now.workload.dense.checkpointing, now.policy.checkpointing
    full = with_checkpointing(now.workload, "full")
    if not model.chooses_dtypes or choice == "auto" or not is_checkpointable(full):
        return iter(())
    if kept_elements(full) >= kept_elements(now.workload):
        return iter(())
    inputs = replace(now, workload=full, policy=now.policy.model_copy(update={"checkpointing": None}))
    is_stated = choice is None and own is not None
    flags = "--set workload.dense.checkpointing=full" if is_stated else "--checkpointing full"
    words = "the dense part computed again in the backward pass (checkpointing full)"
    was = in_words(own)
    return _knob_of_changes("checkpointing", was, [Change(inputs, "full", flags, words)], "checkpointing")


def _set_sharding(own: DenseSharding, word: DenseStrategyWord) -> str:
    """The flags that change what a workload states to a strategy over all ranks."""
    flags = f"--set workload.dense.sharding.strategy={word}"
    return flags if own.over == "world" else f"{flags} --set workload.dense.sharding.over=world"


def _dtype(now: PlanningInputs) -> Iterator[Knob]:
    """The change for the tables that have none of their own."""
    embedding = now.workload.embedding
    if all(table.dtype is not None for table in now.workload.tables):
        return iter(())
    changes = [
        _workload_change(now, "dtype", dtype, f"{dtype} embeddings instead of {embedding.dtype}")
        for dtype in DTYPES
        if FORMATS[dtype].bits_per_element < FORMATS[embedding.dtype].bits_per_element
    ]
    return _knob_of_changes("dtype", embedding.dtype, changes, f"{DTYPES[-1]} embeddings")


def _optimizer(now: PlanningInputs) -> Iterator[Knob]:
    """The change for the tables that have none of their own."""
    optimizer = now.workload.embedding.optimizer
    if now.workload.mode != "training" or all(table.optimizer is not None for table in now.workload.tables):
        return iter(())
    size = [(STATE[name].arrays, STATE[name].per_row) for name in (*OPTIMIZERS, optimizer)]
    changes = [
        _workload_change(now, "optimizer", name, f"{name} for the tables instead of {optimizer}")
        for name, own in zip(OPTIMIZERS, size, strict=False)
        if own < size[-1]
    ]
    return _knob_of_changes("optimizer", optimizer, changes, f"{OPTIMIZERS[-1]} as the optimizer of the tables")


def _optimizer_state(now: PlanningInputs, model: CostModel) -> Iterator[Knob]:
    """Apart from the rows, where the cluster has the memory, and cost model and runtime know how."""
    used = now.policy.optimizer_state or ("with_table",)
    every = np.arange(len(model.tables.rows))
    if not model.chooses_dtypes or not model.tables.row_state_bytes(every, model.tables.dim).any():
        return iter(())
    missing = [
        place
        for place in RUNTIMES[now.policy.runtime].state_places
        if place not in used and (place == "with_table" or any(group.memory(place) for group in now.topology.nodes))
    ]
    changes = _allowing(
        now, "optimizer_state", STATE_PLACES, used, missing, lambda added: f"optimizer state in {' or '.join(added)}"
    )
    return _knob_of_changes("optimizer_state", ",".join(used), changes, f"optimizer state in {' or '.join(missing)}")


def _stash(now: PlanningInputs, model: CostModel) -> Iterator[Knob]:
    """Rows and optimizer state out of HBM between the passes, table by table, where cost model, workload, runtime and
    cluster know how, and not every way is allowed already."""
    used, policy = now.policy.stash or ("none",), now.policy
    has_way = any(TIER_OF_WAY[way] in RUNTIMES[policy.runtime].tiers for way in TIER_OF_WAY if way != "none")
    has_room = any(group.memory("ddr") is not None for group in now.topology.nodes)
    if why_no_stash(model.name, now.workload, model.replicas) or not (has_way and has_room):
        return iter(())
    if set(used) == set(TIER_OF_WAY):
        return iter(())
    inputs = replace(now, policy=policy.model_copy(update={"stash": tuple(TIER_OF_WAY)}))
    words = "tables in DDR between the passes where that frees HBM for activations (stash auto)"
    changes = [Change(inputs, AUTO, f"--stash {AUTO}", words)]
    return _knob_of_changes("stash", ",".join(used), changes, "stashing tables between the passes")


def _allowing(
    now: PlanningInputs,
    key: str,
    every: Sequence[str],
    used: Sequence[str],
    missing: Sequence[str],
    words: Callable[[Sequence[str]], str],
) -> list[Change]:
    """Each of what is `missing` from a key of the policy allowed beside what is used, then all of it."""
    changes = []
    for added in [*([each] for each in missing), *([missing] if len(missing) > 1 else [])]:
        allowed = tuple(each for each in every if each in used or each in added)
        value = ",".join(allowed)
        inputs = replace(now, policy=now.policy.model_copy(update={key: allowed}))
        told = f"{words(added)} allowed beside {', '.join(used) or 'nothing'}"
        changes.append(Change(inputs, value, f"--{key.replace('_', '-')} {value}", told))
    return changes


def _workload_change(now: PlanningInputs, key: str, value: str, words: str) -> Change:
    embedding = now.workload.embedding.model_copy(update={key: value})
    inputs = replace(now, workload=now.workload.model_copy(update={"embedding": embedding}))
    return Change(inputs, value, f"--set workload.embedding.{key}={value}", words)


def _nodes(now: PlanningInputs, index: int, group: NodeGroup, bytes_short: Floats) -> Iterator[Knob]:
    topology, ranks = now.topology, group.accelerators.count
    most = group.count + min(group.count * (MOST_GROWTH - 1), (MOST_RANKS - topology.world_size) // ranks)
    alone = len(topology.nodes) == 1
    whole = set(group.node_counts(most, is_alone=alone))
    others = range(group.count + 1, most + 1) if alone else sorted(whole)
    counts = [count for count in others if count > group.count and (count in whole or group.equal_domain(count))]
    of = "" if alone else f" in group {group.name}"
    if now.workload.towers is not None or now.workload.trained_by_shampoo is not None:  # whose groups are alike
        grown_to = {count: topology.resized(index, count) for count in counts}
        counts = [count for count, grown in grown_to.items() if _divides(now.workload, grown)]
    if not counts:
        return

    def at(step: int) -> Change | None:
        count = counts[step - 1]
        try:
            grown = Topology.model_validate(topology.resized(index, count).model_dump(mode="json"))
        except ValidationError:
            return None
        flags = f"--nodes {count}" if alone else f"--set topology.nodes.{index}.count={count}"
        words = f"{count:,} nodes{of} instead of {group.count:,}"
        return Change(replace(now, topology=grown), str(count), flags, words)

    capacity = sum(each.count * each.memory_bytes("hbm") * each.accelerators.count for each in topology.nodes)
    share = float(bytes_short[0]) / max(capacity, 1)
    needed = group.count * (1 + share)
    guess = 1 if math.isnan(share) else sum(count < needed for count in (group.count, *counts))
    futile = f"more nodes{of} (not even {counts[-1]:,})"
    yield Knob("nodes", group.name, str(group.count), len(counts), at, guess, futile)


def _divides(workload: Workload, topology: Topology) -> bool:
    """Whether a cluster has towers of as many scale-up domains each, and the groups that share the dense optimizer."""
    return divides(workload, topology) and why_no_groups(topology, workload) is None


def _memory(now: PlanningInputs, index: int, group: NodeGroup, tier: MemoryTier, bytes_short: float) -> Knob:
    memory = group.memory(tier)
    assert memory is not None
    size = memory.capacity
    unit = _step_bytes(size)
    base, limit = size // unit, min(size * MOST_GROWTH * 16, MOST_BYTES)
    what = _WHAT.get(tier, f"{tier.upper()} per node")
    of = "" if len(now.topology.nodes) == 1 else f" in group {group.name}"
    path = f"nodes.{index}.{group.memory_path(tier)}.capacity"

    def at(step: int) -> Change:
        larger = (base + step) * unit
        value = f"{larger // GIB}GiB" if larger % GIB == 0 else f"{larger // MIB}MiB"
        of_more = memory.model_copy(update={"capacity": larger})
        holder, _, part = group.memory_path(tier).partition(".")
        holds = getattr(group, holder).model_copy(update={part: of_more}) if part else of_more
        grown = _with_group(now.topology, index, {holder: holds})
        words = f"{format_bytes(larger)} of {what}{of} instead of {format_bytes(size)}"
        return Change(replace(now, topology=grown, same_blocks=True), value, f"--set topology.{path}={value}", words)

    pools = _pools(group, tier) * (1 - getattr(group.reserve, tier))
    guess = 1 << 20 if math.isnan(bytes_short) else math.ceil(bytes_short / max(pools, 1e-9) / unit)
    most = max(int(limit // unit) - base, 1)
    return Knob(tier, group.name, format_bytes(size), most, at, guess, f"more {what}{of}")


def _reserve(now: PlanningInputs, index: int, group: NodeGroup, tier: MemoryTier) -> Knob:
    reserved = float(getattr(group.reserve, tier))
    most = math.ceil(reserved * 100 - 1e-9)
    of = "" if len(now.topology.nodes) == 1 else f" in group {group.name}"

    def at(step: int) -> Change:
        percent = most - step
        reserve = group.reserve.model_copy(update={tier: percent / 100})
        lowered = _with_group(now.topology, index, {"reserve": reserve})
        flags = f"--set topology.nodes.{index}.reserve.{tier}={percent}%"
        words = f"{percent}% of {tier.upper()}{of} in reserve instead of {_percent(reserved)}"
        return Change(replace(now, topology=lowered, same_blocks=True), f"{percent}%", flags, words)

    return Knob("reserve", group.name, _percent(reserved), most, at, most, f"no reserve of {tier.upper()}{of}")


def _percent(share: float) -> str:
    return f"{100 * share:g}%"


def _pools(group: NodeGroup, tier: MemoryTier) -> int:
    """How many memories of this capacity the group has: of accelerators, nodes or remote hosts."""
    if tier == "remote":
        return group.remote.count if group.remote else 0
    return group.count * (group.accelerators.count if tier == "hbm" else 1)


def _step_bytes(size: int) -> int:
    """The step in which a memory of `size` bytes grows."""
    step = max(1 << max((size // FINEST_STEP).bit_length() - 1, 0), MIB)
    return max(step, GIB) if size >= 4 * GIB else step


def _with_group(topology: Topology, index: int, update: dict[str, object]) -> Topology:
    groups = list(topology.nodes)
    groups[index] = groups[index].model_copy(update=update)
    return topology.model_copy(update={"nodes": tuple(groups)})
