"""The proof of a lower bound, as the document carries it: written from a solver's multipliers, recomputed without one.

Weak duality (Lagrange): give every stage weights that sum to one at most, over its resources and over tables, and every
memory a multiplier per byte. A stage lasts at least as long as the load of each resource and as the largest block of
each table, also together with what every resource like the one that the block loads most has of all tables. The step of
any placement is at least the weighted sum of these plus the constants; a table's part of it, and of its bytes times the
multipliers, is at least that of its cheapest option; and the bytes of any placement times the multipliers are at most
the capacities times the multipliers. Where the weights of a stage sum to less than one, the
rest counts the seconds that whole multiples of one load make the stage take in any case
(`planner.problem.integrality`). A threshold z (Hochbaum & Shmoys, JACM 34(1), 1987) leaves out the blocks that alone
make the step z long: a plan with one of them takes z anyway.
"""

from collections.abc import Iterator, Sequence
from typing import TypedDict

import numpy as np

from cost_models.costs_at_lines import CostsAtLines
from cost_models.model import CostModel
from planner.certificates.branch_trees import tree_bound_s, tree_faults
from planner.certificates.dual_feasible import cheapest_wholes, priced_shares, stage_rooms
from planner.certificates.exhaustive_search import proven_s, search_exhaustively
from planner.certificates.lagrangian import (
    block_values,
    dual_value_s,
    instances_of_columns,
    lagrangian_s,
    least_stage_s,
    least_step_of_block_s,
)
from planner.certificates.multipliers import Bound, Cases, Multipliers, PackingProof, ProtocolBound
from planner.certificates.tilings import option_tilings
from planner.document.certificates import (
    Proof,
    ProofCases,
    ProofMemoryCases,
    ProofPacking,
    ProofReachCases,
    ResourceWeight,
    TableWeight,
)
from planner.formulation.variants import memory_names
from planner.problem.arrays import Problem
from planner.problem.case_divisions import MemoryDivision, ReachDivision, StageDivision
from planner.problem.integrality import integrality_floors
from planner.problem.numbers import Bools, Floats
from planner.problem.rounding import ROUNDING
from planner.verification.proof_functions import faults_of_functions, read_functions, written_functions
from planner.verification.proof_nodes import read_tree, written_tree
from planner.verification.proof_patterns import patterns_bound_s, written_patterns
from planner.verification.proof_places import memory_multipliers, places_of

MOST_CASES = 50
"""Cases within cases that a proof may have."""


def write_proof(model: CostModel, problem: Problem, bound: Bound, elsewhere: Sequence[ProtocolBound] = ()) -> Proof:
    """The multipliers of a solver's bound in the document's words; beside it the bounds at other protocols that do not
    follow from the same multipliers."""
    others = [each for each in elsewhere if not _follows(each.bound, bound)]
    branching = None if bound.tree is None else written_tree(model, bound.tree)
    return Proof(
        threshold_s=bound.threshold_s,
        weights=_resource_weights(model, problem, bound.multipliers.weight),
        memory_multipliers=memory_multipliers(model, problem, bound.multipliers.byte),
        table_weights=tuple(_table_weights(model, bound.multipliers)),
        packing=None if bound.packing is None else _written_packing(model, problem, bound.packing),
        branching=branching,
        exhaustive_search_s=bound.exhaustive_search_s,
        patterns=None if bound.patterns is None else written_patterns(model, problem, bound.patterns),
        **({} if bound.cases is None else _written_cases(model, problem, bound.cases)),
        protocols=_written_protocols(model),
        at_other_protocols=tuple(write_proof(model.at_protocols(at.protocols), problem, at.bound) for at in others),
    )


def _table_weights(model: CostModel, multipliers: Multipliers) -> Iterator[TableWeight]:
    """The weights on tables' largest blocks that are not 0: those of blocks alone, then those with what is beside."""
    names = [table.name for table in model.workload.tables]
    for (table, stage), share in sorted(multipliers.of_table.items()):
        if share > 0:
            yield TableWeight(stage=model.stages[stage], table=names[table], share=share)
    for (table, c), share in sorted(multipliers.beside.items()):
        column = model.columns[c]
        if share > 0:
            words = {"stage": model.stages[column.stage], "resource": str(column.resource)}
            yield TableWeight(table=names[table], share=share, **words)


def _follows(other: Bound, bound: Bound) -> bool:
    """Whether a bound at other protocols is what the multipliers of the one at a proof's own prove there."""
    proves_more = any(
        each is not None for each in (other.packing, other.tree, other.patterns, other.exhaustive_search_s, other.cases)
    )
    same_blocks = other.threshold_s in (None, bound.threshold_s)
    return other.multipliers is bound.multipliers and same_blocks and not proves_more


def _written_protocols(model: CostModel) -> dict[str, int]:
    """The protocols of a model, where it has a choice of them."""
    is_bent = isinstance(model, CostsAtLines) and model.has_bent_laws
    if len(model.all_protocols) == 1 or (model.protocols == model.all_protocols[0] and not is_bent):
        return {}
    return dict(zip(model.protocol_stages, model.protocols, strict=True))


class _WrittenCases(TypedDict, total=False):
    stage_cases: ProofCases
    reach_cases: ProofReachCases
    memory_cases: ProofMemoryCases


def _written_cases(model: CostModel, problem: Problem, cases: Cases) -> _WrittenCases:
    """What is proven of two cases, in the document's words."""
    first, second = (
        write_proof(model, part, bound).model_copy(update={"protocols": {}})
        for part, bound in zip(cases.division.parts(problem), (cases.first, cases.second), strict=True)
    )
    if isinstance(cases.division, StageDivision):
        stage, seconds = model.stages[cases.division.stage], cases.division.seconds
        return {"stage_cases": ProofCases(stage=stage, seconds=seconds, below=first, above=second)}
    table = model.workload.tables[cases.division.table].name
    if isinstance(cases.division, MemoryDivision):
        tier = memory_names(model, len(problem.pool_capacity))[cases.division.memory]
        return {"memory_cases": ProofMemoryCases(table=table, tier=tier, inside=first, outside=second)}
    return {
        "reach_cases": ProofReachCases(table=table, reach=cases.division.reach, inside=first, outside=second),
    }


def _written_packing(model: CostModel, problem: Problem, packing: PackingProof) -> ProofPacking:
    """What refutes a threshold, in the document's words."""
    functions, of_memory = written_functions(model, problem, packing.functions)
    return ProofPacking(
        threshold_s=packing.threshold_s,
        weights=_resource_weights(model, problem, packing.multipliers.weight),
        memory_multipliers=memory_multipliers(model, problem, packing.multipliers.byte),
        functions=functions,
        memory_functions=of_memory,
    )


def _resource_weights(model: CostModel, problem: Problem, value: Floats) -> tuple[ResourceWeight, ...]:
    """The weights [D, C] that are not 0, as shares of their stages."""
    instances, shared = instances_of_columns(problem)
    weights = []
    for c, column in enumerate(model.columns):
        for d, (group, ranks) in enumerate(places_of(model, problem)):
            share = float(value[d, c] * instances[d, c])
            if share > 0 and not (shared[c] and d):
                name = None if shared[c] else group
                stage, resource = model.stages[column.stage], str(column.resource)
                weights.append(ResourceWeight(stage=stage, resource=resource, group=name, share=share, ranks=ranks))
    return tuple(weights)


def faults_of(proof: Proof, model: CostModel, problem: Problem, *, is_case: bool = False) -> Iterator[str]:
    """What makes the multipliers no proof at all, whatever they sum up to; weights on what is beside a table's largest
    block are known to proofs of cases alone."""
    places: set[tuple[str | None, tuple[int, ...] | None]] = set(places_of(model, problem))
    columns = {(model.stages[column.stage], str(column.resource)): c for c, column in enumerate(model.columns)}
    _, shared = instances_of_columns(problem)
    for weight in proof.weights:
        c, place = columns.get((weight.stage, weight.resource)), (weight.group, weight.ranks)
        there = c is not None and (place == (None, None) if shared[c] else place in places)
        if weight.share < 0 or not there:
            yield f"weight on {weight.resource} of {weight.stage}: negative, or of something that does not exist"
    tables = {table.name for table in model.workload.tables}
    for entry in proof.table_weights:
        is_there = entry.stage in model.stages and entry.table in tables
        if entry.resource is not None:
            is_there &= (entry.stage, entry.resource) in columns and is_case and problem.kinds == 1
        if entry.share < 0 or not is_there:
            yield f"weight on table {entry.table} of {entry.stage}: negative, or of something that does not exist"
    for stage in model.stages:
        total = sum(weight.share for weight in proof.weights if weight.stage == stage)
        total += sum(entry.share for entry in proof.table_weights if entry.stage == stage)
        if total > 1 + ROUNDING:
            yield f"weights of stage {stage} sum to {total!r}, above 1"
    seen: set[object] = set()
    memories = memory_names(model, len(problem.pool_capacity))
    for multiplier in proof.memory_multipliers:
        place = (multiplier.group, multiplier.ranks)
        is_there = place in places and multiplier.tier in memories and (multiplier.tier, place) not in seen
        if multiplier.seconds_per_byte < 0 or not is_there:
            fault = "negative, a second one, or of a place that does not exist"
            yield f"memory multiplier of {multiplier.tier} on {multiplier.group}: {fault}"
        seen.add((multiplier.tier, place))


def faults_of_packing(proof: Proof, model: CostModel, problem: Problem) -> Iterator[str]:
    """What keeps the packing's multipliers, if there are any, from being a proof."""
    if proof.packing is None:
        return
    yield from faults_of(_plain(proof.packing), model, problem)
    yield from faults_of_functions(proof.packing, model, problem)


def _plain(packing: ProofPacking) -> Proof:
    """The weights and multipliers of a packing as a proof of their own."""
    return Proof(threshold_s=None, weights=packing.weights, memory_multipliers=packing.memory_multipliers)


def read_proof(proof: Proof, model: CostModel, problem: Problem) -> tuple[Multipliers, Bools]:
    """The multipliers of a proof, and [B] the blocks that a plan below its threshold may hold."""
    multipliers = _multipliers(proof, model, problem)
    usable: Bools = np.asarray(problem.allowed.any(axis=0))
    if proof.threshold_s is not None:
        usable &= least_step_of_block_s(problem, multipliers) < proof.threshold_s
    return multipliers, usable


def multipliers_bound_s(proof: Proof, model: CostModel, problem: Problem) -> float:
    """What the multipliers of a proof prove, by plain sums over every option of every table, rounded down: over all
    blocks, or over those that a plan below the threshold may hold."""
    multipliers, usable = read_proof(proof, model, problem)
    floors = integrality_floors(problem)
    value = lagrangian_s(problem, multipliers, np.asarray(problem.allowed.any(axis=0)), floors)
    if proof.threshold_s is not None:
        value = max(value, min(lagrangian_s(problem, multipliers, usable, floors), proof.threshold_s))
    return value


def recomputed_bound_s(proof: Proof, model: CostModel, problem: Problem) -> float:
    """The bound that a proof proves at the protocols of the model."""
    multipliers = _multipliers(proof, model, problem)
    simple = multipliers_bound_s(proof, model, problem)
    if np.isinf(simple):  # of a case that no plan is of
        return simple
    if proof.packing is not None:
        simple = max(simple, _packed_s(proof.packing, multipliers, model, problem))
    if proof.branching is not None:
        tree = read_tree(proof.branching, model, problem)
        simple = max(simple, tree_bound_s(problem, tree, least_stage_s(problem, multipliers)))
    if proof.patterns is not None:
        simple = max(simple, patterns_bound_s(proof.patterns))
    if proof.exhaustive_search_s is not None:
        simple = max(simple, proven_s(proof.exhaustive_search_s))
    for two in _cases(proof, model, problem):
        simple = max(simple, min(recomputed_bound_s(each, model, part) for each, part in two))
    return simple


def _cases(proof: Proof, model: CostModel, problem: Problem) -> Iterator[list[tuple[Proof, Problem]]]:
    """The proofs of two cases, of each division that a proof has without faults, each with the problem of its plans."""
    if proof.stage_cases is not None:
        by_stage = StageDivision(model.stages.index(proof.stage_cases.stage), proof.stage_cases.seconds)
        two = proof.stage_cases.below, proof.stage_cases.above
        yield list(zip(two, by_stage.parts(problem), strict=True))
    number_of = {table.name: number for number, table in enumerate(model.workload.tables)}
    if proof.memory_cases is not None:
        row = memory_names(model, len(problem.pool_capacity)).index(proof.memory_cases.tier)
        by_memory = MemoryDivision(number_of[proof.memory_cases.table], row)
        two = proof.memory_cases.inside, proof.memory_cases.outside
        yield list(zip(two, by_memory.parts(problem), strict=True))
    if proof.reach_cases is not None:
        number = number_of[proof.reach_cases.table]
        by_reach = ReachDivision(number, proof.reach_cases.reach)
        two = proof.reach_cases.inside, proof.reach_cases.outside
        yield list(zip(two, by_reach.parts(problem), strict=True))


def faults_of_cases(proof: Proof, model: CostModel, problem: Problem, depth: int = 0) -> Iterator[str]:
    """What keeps the cases, if there are any, from being a proof."""
    unknown = [*_unknown_cases(proof, model, memory_names(model, len(problem.pool_capacity)), depth)]
    yield from unknown
    two = [] if unknown else _cases(proof, model, problem)
    for each, part in (case for cases in two for case in cases):
        if (
            each.branching
            or each.patterns
            or each.protocols
            or each.at_other_protocols
            or each.exhaustive_search_s is not None
        ):
            yield "a case: is proven by what proves nothing of a case"
        faults = [*faults_of(each, model, part, is_case=True), *faults_of_packing(each, model, part)]
        yield from faults or faults_of_cases(each, model, part, depth + 1)


def _unknown_cases(proof: Proof, model: CostModel, memories: Sequence[str], depth: int) -> Iterator[str]:
    """Divisions by what does not exist, and any within too many others."""
    stage = proof.stage_cases
    if stage is not None and (stage.stage not in model.stages or not 0 < stage.seconds < np.inf or depth >= MOST_CASES):
        yield f"cases of {stage.stage} at {stage.seconds!r} s: of no such stage or time, or too many"
    tables = {each.name for each in model.workload.tables}
    for table in (proof.reach_cases, proof.memory_cases):
        if table is not None and (table.table not in tables or depth >= MOST_CASES):
            yield f"cases of table {table.table}: there is no such table, or too many"
    if proof.memory_cases is not None and proof.memory_cases.tier not in memories:
        yield f"cases of memory {proof.memory_cases.tier}: there is no such memory"


def _packed_s(packing: ProofPacking, least: Multipliers, model: CostModel, problem: Problem) -> float:
    """What a packing proves: its threshold, or less where its multipliers do not reach that."""
    functions = read_functions(packing, model, problem)
    rooms = stage_rooms(problem, packing.threshold_s, least_stage_s(problem, least))
    placed, anywhere, paid = priced_shares(problem, functions, rooms)
    multipliers = _multipliers(_plain(packing), model, problem)
    values = block_values(problem, multipliers.weight, multipliers.byte, placed) + anywhere
    usable = np.asarray(problem.allowed.any(axis=0)) & (least_step_of_block_s(problem, least) < packing.threshold_s)
    cheapest, _, _ = cheapest_wholes(problem, np.where(usable, values, np.inf), option_tilings(problem))
    value = dual_value_s(problem, multipliers, cheapest, integrality_floors(problem)) - paid * (1 + ROUNDING)
    return min(value, packing.threshold_s)


def faults_of_exhaustive_search(proof: Proof, model: CostModel, problem: Problem) -> Iterator[str]:
    """A plan that is faster than all that was tried, if that is claimed; for multipliers without faults."""
    if proof.exhaustive_search_s is None:
        return
    multipliers = _multipliers(proof, model, problem)
    tried = search_exhaustively(problem, proof.exhaustive_search_s, multipliers.weight, multipliers.byte)
    if tried is None:
        yield f"there are too many plans below {proof.exhaustive_search_s!r} s to try them all"
    elif tried.placement is not None:
        yield f"a plan takes {tried.step_s!r} s, and all below {proof.exhaustive_search_s!r} s are said to be tried"


def faults_of_branching(proof: Proof, model: CostModel, problem: Problem) -> Iterator[str]:
    """What keeps the branch nodes, if there are any, from being a proof; for multipliers without faults."""
    if proof.branching is None:
        return
    try:
        tree = read_tree(proof.branching, model, problem)
    except ValueError as error:
        yield str(error)
        return
    yield from tree_faults(problem, tree, least_stage_s(problem, _multipliers(proof, model, problem)))


def _multipliers(proof: Proof, model: CostModel, problem: Problem) -> Multipliers:
    """The multipliers of a proof without faults."""
    places = places_of(model, problem)
    instances, _ = instances_of_columns(problem)
    index = {(model.stages[column.stage], str(column.resource)): c for c, column in enumerate(model.columns)}
    weight = np.zeros_like(instances)
    for entry in proof.weights:
        c = index[entry.stage, entry.resource]
        for d in range(problem.kinds) if entry.group is None else [places.index((entry.group, entry.ranks))]:
            weight[d, c] += entry.share / instances[d, c] if instances[d, c] else 0.0
    byte = np.zeros((len(places), len(problem.pool_capacity)))
    memories = memory_names(model, len(problem.pool_capacity))
    for multiplier in proof.memory_multipliers:
        place = places.index((multiplier.group, multiplier.ranks))
        byte[place, memories.index(multiplier.tier)] = multiplier.seconds_per_byte
    of_table: dict[tuple[int, int], float] = {}
    beside: dict[tuple[int, int], float] = {}
    number = {table.name: t for t, table in enumerate(model.workload.tables)}
    for lone in proof.table_weights:
        if not lone.share:
            continue
        is_alone = lone.resource is None
        of = model.stages.index(lone.stage) if is_alone else index[lone.stage, str(lone.resource)]
        pair, known = (number[lone.table], of), of_table if is_alone else beside
        known[pair] = known.get(pair, 0.0) + lone.share
    return Multipliers(weight, byte, of_table, beside)
