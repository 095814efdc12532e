"""The proof of a lower bound, as the document carries it: written from a solver's multipliers, recomputed without one.

Weak duality (Lagrange): give every stage weights over its resources that sum to one, and every memory a price per
byte. The step of any placement is at least the weighted loads plus the constants; a table's part of those, and of the
priced bytes, is at least that of its cheapest option; and all placements together pay at most the price of the whole
memory. A threshold z (Hochbaum & Shmoys, JACM 34(1), 1987) leaves out the blocks that alone make the step z long: a
plan with one of them takes z anyway.
"""

from collections.abc import Iterator

import numpy as np

from cost_models.model import CostModel
from cost_models.shards import MEMORY_TIERS
from planner.cases import tree_bound_s, tree_faults
from planner.document import BytePrice, Proof, ResourceWeight
from planner.problem import NODE, RANK, WORLD, Bools, Floats, Problem
from planner.proof_cases import read_cases, write_cases
from planner.solvers.prices import Bound

ROUNDING = 1e-9
"""Relative amount by which a recomputed bound is rounded down: above the rounding of sums of 10^5 doubles."""


def write_proof(model: CostModel, problem: Problem, bound: Bound) -> Proof:
    """The multipliers of a solver's bound in the document's words."""
    groups = [group.name for group in model.topology.nodes]
    instances, shared = _instances(problem)
    weights = []
    for c, column in enumerate(model.columns):
        for k, group in enumerate(groups if not shared[c] else [None]):
            share = float(bound.prices.weight[k, c] * instances[k, c])
            if share > 0:
                stage = model.stages[column.stage]
                weights.append(ResourceWeight(stage=stage, resource=column.resource, group=group, share=share))
    prices = byte_prices(model, bound.prices.byte)
    branching = None if bound.tree is None else write_cases(model, bound.tree)
    return Proof(threshold_s=bound.threshold_s, weights=tuple(weights), byte_prices=prices, branching=branching)


def byte_prices(model: CostModel, byte: Floats) -> tuple[BytePrice, ...]:
    """The prices [K, M] that are not 0, in the document's words."""
    return tuple(
        BytePrice(tier=tier, group=group.name, seconds_per_byte=float(byte[k, m]))
        for m, tier in enumerate(MEMORY_TIERS)
        for k, group in enumerate(model.topology.nodes)
        if byte[k, m] > 0
    )


def is_infeasible(prices: tuple[BytePrice, ...], model: CostModel, problem: Problem) -> bool:
    """Whether no placement fits: a table has no option, or the prices put the need above all memory."""
    claim = Proof(threshold_s=None, weights=(), byte_prices=prices)
    if any(faults_of(claim, model)):
        return False
    weight, byte = _multipliers(claim, model, problem)
    usable: Bools = np.asarray(problem.allowed.any(axis=0))
    return _value(problem, weight, byte, usable) > float(problem.stage_constants.sum())


def faults_of(proof: Proof, model: CostModel) -> Iterator[str]:
    """What makes the multipliers no proof at all, whatever they sum up to."""
    groups = {group.name for group in model.topology.nodes}
    known = {(model.stages[column.stage], column.resource) for column in model.columns}
    for weight in proof.weights:
        if weight.share < 0 or (weight.stage, weight.resource) not in known or weight.group not in {None, *groups}:
            yield f"weight on {weight.resource} of {weight.stage}: negative, or of something that does not exist"
    for stage in model.stages:
        total = sum(weight.share for weight in proof.weights if weight.stage == stage)
        if total > 1 + ROUNDING:
            yield f"weights of stage {stage} sum to {total!r}, above 1"
    for price in proof.byte_prices:
        if price.seconds_per_byte < 0 or price.group not in groups:
            yield f"price of {price.tier} on {price.group}: negative, or of a group that does not exist"


def recomputed_bound_s(proof: Proof, model: CostModel, problem: Problem) -> float:
    """The bound that the multipliers prove, by plain sums over every option of every table, rounded down."""
    weight, byte = _multipliers(proof, model, problem)
    usable: Bools = np.asarray(problem.allowed.any(axis=0))
    if proof.threshold_s is not None:
        usable &= _step_of_block(problem, weight) < proof.threshold_s
    value = _value(problem, weight, byte, usable)
    simple = value if proof.threshold_s is None else min(value, proof.threshold_s)
    if proof.branching is None:
        return simple
    return max(simple, tree_bound_s(problem, read_cases(proof.branching, model, problem), _least(problem, weight)))


def faults_of_cases(proof: Proof, model: CostModel, problem: Problem) -> Iterator[str]:
    """What keeps the cases, if there are any, from being a proof; for multipliers without faults."""
    if proof.branching is None:
        return
    try:
        tree = read_cases(proof.branching, model, problem)
    except ValueError as error:
        yield str(error)
        return
    weight, _ = _multipliers(proof, model, problem)
    yield from tree_faults(problem, tree, _least(problem, weight))


def _instances(problem: Problem) -> tuple[Floats, Bools]:
    """[K, C] instances of each column's resource that ranks of a kind use, or of all kinds where they share; [C]."""
    count = np.zeros((problem.kinds, len(problem.stage_of_column)))
    shared = np.zeros(len(problem.stage_of_column), dtype=bool)
    for c, instance in enumerate(problem.resource_of_rank):
        used = [np.unique(instance[problem.kind_of_rank == k]) for k in range(problem.kinds)]
        everyone = np.unique(instance)
        shared[c] = sum(map(len, used)) > len(everyone)
        count[:, c] = len(everyone) if shared[c] else [len(of_kind) for of_kind in used]
    return count, shared


def _multipliers(proof: Proof, model: CostModel, problem: Problem) -> tuple[Floats, Floats]:
    """Weight [K, C] of a second on the resource of one rank, price [K, M] of a byte."""
    groups = [group.name for group in model.topology.nodes]
    instances, _ = _instances(problem)
    index = {(model.stages[column.stage], column.resource): c for c, column in enumerate(model.columns)}
    weight = np.zeros_like(instances)
    for entry in proof.weights:
        c = index[entry.stage, entry.resource]
        for k in range(problem.kinds) if entry.group is None else [groups.index(entry.group)]:
            weight[k, c] += entry.share / instances[k, c]
    byte = np.zeros((problem.kinds, len(MEMORY_TIERS)))
    for price in proof.byte_prices:
        byte[groups.index(price.group), MEMORY_TIERS.index(price.tier)] = price.seconds_per_byte
    return weight, byte


def _value(problem: Problem, weight: Floats, byte: Floats, usable: Bools) -> float:
    """The Lagrangian: cheapest options of all tables and the base, less the price of the memory, plus the constants."""
    counts = problem.ranks_of_kind.astype(float)
    block = _block_values(problem, weight, byte, counts)
    block[~usable] = np.inf
    cheapest = np.full(problem.tables, np.inf)
    option_value = np.full(len(problem.option_table), np.inf)
    for free in (False, True):
        options = np.flatnonzero((problem.option_units > 0) == free)
        members = np.flatnonzero(problem.block_is_free == free)
        owner = problem.block_option[members]
        if free:
            parts = problem.option_units[owner] / problem.block_units[members]
            np.minimum.at(option_value, owner, block[members] * parts)
        elif len(options):
            total = np.bincount(
                owner, weights=block[members] * problem.block_count[members], minlength=len(option_value)
            )
            option_value[options] = total[options]
    np.minimum.at(cheapest, problem.option_table, option_value)
    if np.isinf(cheapest).any():
        return float("inf")
    base = float((problem.base_loads * counts[:, None] * weight).sum())
    memory = float((byte * _capacity(problem)).sum())
    total_s = float(cheapest.sum()) + base - memory + float(problem.stage_constants.sum())
    return total_s - ROUNDING * (float(cheapest.sum()) + base + memory)


def _block_values(problem: Problem, weight: Floats, byte: Floats, counts: Floats) -> Floats:
    """[B] the least that one block of each type adds, on the kind of rank where that is least."""
    extent = problem.block_extent
    rows = problem.table_rows[problem.option_table[problem.block_option]]
    size = -(-rows // problem.world)
    least = np.full(len(extent), np.inf)
    everywhere, world_wide = np.zeros(len(extent)), np.zeros(len(extent))
    for k in range(problem.kinds):
        ranks = np.flatnonzero(problem.kind_of_rank == k)
        held = np.zeros(len(extent))
        for first, last in _runs(ranks):
            held += np.minimum(rows, (last + 1) * size) - np.minimum(rows, first * size)
        share = np.where(problem.block_replicated, counts[k], held / rows)
        holders = np.select([extent == RANK, extent == NODE], [1, problem.node_ranks_of_kind[k]], counts[k])
        row_parts = np.where(extent == WORLD, share, 1.0)
        fixed = problem.fixed[k] @ weight[k] + problem.bytes_fixed[k] @ byte[k]
        by_rows = problem.by_rows[k] @ weight[k] + problem.bytes_by_rows[k] @ byte[k]
        local = fixed * holders + by_rows * row_parts
        least = np.minimum(least, np.where(problem.allowed[k], local, np.inf))
        world_wide += np.where(problem.allowed[k], local, np.inf)
        everywhere += counts[k] * (problem.everywhere[k] @ weight[k])
    return np.where(extent == WORLD, world_wide, least) + everywhere


def _runs(ranks: np.ndarray) -> Iterator[tuple[int, int]]:
    """First and last of each run of consecutive ranks."""
    breaks = np.flatnonzero(np.diff(ranks) != 1)
    starts = np.concatenate([ranks[:1], ranks[breaks + 1]])
    ends = np.concatenate([ranks[breaks], ranks[-1:]])
    return zip(starts.tolist(), ends.tolist(), strict=True)


def _capacity(problem: Problem) -> Floats:
    """[K, M] bytes that tables may use in the pools of each kind together."""
    found = np.zeros((problem.kinds, len(problem.pool_capacity)))
    for k in range(problem.kinds):
        ranks = problem.kind_of_rank == k
        for m, capacity in enumerate(problem.pool_capacity):
            pools = np.unique(problem.pool_of_rank[m][ranks])
            found[k, m] = capacity[pools].sum() - ranks.sum() * problem.base_bytes[m]
    return found


def _least(problem: Problem, weight: Floats) -> Floats:
    """[S] seconds that each stage takes at least, by its own weights alone."""
    constants = float(problem.stage_constants.sum())
    nothing = np.zeros((problem.kinds, len(problem.pool_capacity)))
    anything: Bools = np.asarray(problem.allowed.any(axis=0))
    of_stage = [
        _value(problem, np.where(problem.stage_of_column == s, weight, 0.0), nothing, anything) - constants
        for s in range(len(problem.stage_constants))
    ]
    return np.maximum(of_stage, 0.0)


def _step_of_block(problem: Problem, weight: Floats) -> Floats:
    """[B] what a step takes at least if a plan holds the block: stage by stage the block's own load, or what the
    weights of that stage alone prove."""
    stages = range(len(problem.stage_constants))
    constants = float(problem.stage_constants.sum())
    least = _least(problem, weight)
    blocks = np.arange(len(problem.block_option))
    found = np.full(len(blocks), np.inf)
    for k in range(problem.kinds):
        load = problem.peak_load(k, blocks) + problem.base_loads[k]
        step = np.full(len(blocks), constants)
        for s in stages:
            of_stage = load[:, problem.stage_of_column == s]
            step += np.maximum(of_stage.max(axis=1, initial=0.0), least[s])
        found = np.where(problem.allowed[k], np.minimum(found, step), found)
    found[problem.block_extent == WORLD] = float(least.sum()) + constants
    return found * (1 - ROUNDING)
