"""The prices of rank patterns of a proof, as the document carries them."""

from collections.abc import Iterator

import numpy as np

from cost_models.model import CostModel
from planner.certificates.pattern_proofs import pattern_faults
from planner.certificates.pattern_trees import Division, PatternPrices, PatternTree
from planner.document.certificates import DividedCase, MemoryMultiplier, ProofPatterns, RefutedCase
from planner.formulation.variants import memory_names
from planner.problem.arrays import Problem
from planner.problem.numbers import Floats
from planner.verification.proof_places import memory_multipliers, places_of


def written_patterns(model: CostModel, problem: Problem, tree: PatternTree) -> ProofPatterns:
    """A solver's tree in the document's words."""
    cases: list[DividedCase | RefutedCase] = []
    for case in tree.cases:
        if isinstance(case, Division):
            name = model.workload.tables[int(problem.table_of_block[case.first])].name
            cases.append(DividedCase(table=name, first=case.first, last=case.last))
        else:
            byte = memory_multipliers(model, problem, case.byte)
            cases.append(RefutedCase(threshold_s=case.threshold_s, prices=_runs(case.blocks), memory_multipliers=byte))
    return ProofPatterns(cells=tree.cells, cases=tuple(cases))


def faults_of_patterns(proof: ProofPatterns | None, model: CostModel, problem: Problem) -> Iterator[str]:
    """What keeps the prices of rank patterns, if there are any, from being a proof."""
    if proof is None:
        return
    try:
        tree = _read(proof, model, problem)
    except ValueError as error:
        yield f"rank patterns: {error}"
        return
    yield from pattern_faults(problem, tree)


def patterns_bound_s(proof: ProofPatterns) -> float:
    """What prices of rank patterns without faults prove."""
    return min(case.threshold_s for case in proof.cases if isinstance(case, RefutedCase))


def _read(proof: ProofPatterns, model: CostModel, problem: Problem) -> PatternTree:
    """The tree of a document. Raises ValueError for what does not exist in the plan's inputs."""
    cases: list[Division | PatternPrices] = []
    for number, case in enumerate(proof.cases):
        if isinstance(case, RefutedCase):
            blocks = _filled(case.prices, len(problem.block_option), number)
            byte = _bytes(case.memory_multipliers, model, problem, number)
            cases.append(PatternPrices(case.threshold_s, blocks, byte))
            continue
        is_there = 0 <= case.first < len(problem.block_option)
        if not is_there or model.workload.tables[int(problem.table_of_block[case.first])].name != case.table:
            raise ValueError(f"case {number} is divided by block {case.first}, which is none of {case.table}")
        cases.append(Division(case.first, case.last))
    return PatternTree(proof.cells, tuple(cases))


def _bytes(multipliers: tuple[MemoryMultiplier, ...], model: CostModel, problem: Problem, number: int) -> Floats:
    """[D, M]"""
    places, memories = places_of(model, problem), memory_names(model, len(problem.pool_capacity))
    byte = np.zeros((len(places), len(problem.pool_capacity)))
    for entry in multipliers:
        if (entry.group, entry.ranks) not in places or entry.tier not in memories:
            raise ValueError(f"case {number} has a memory multiplier of {entry.tier} on {entry.group}: does not exist")
        at = places.index((entry.group, entry.ranks)), memories.index(entry.tier)
        if byte[at]:
            raise ValueError(f"case {number} has a second memory multiplier of {entry.tier} on {entry.group}")
        byte[at] = entry.seconds_per_byte
    return byte


def _runs(prices: Floats) -> tuple[tuple[int, float], ...]:
    """(first block, price) of each run of equal prices, without a first one of 0."""
    opens = np.flatnonzero(np.diff(prices, prepend=0.0))
    return tuple((int(block), float(prices[block])) for block in opens)


def _filled(runs: tuple[tuple[int, float], ...], blocks: int, number: int) -> Floats:
    """[B] the prices of `_runs`. Raises ValueError where blocks do not ascend, or there are none such."""
    starts = [block for block, _ in runs]
    if starts != sorted(set(starts)) or (starts and not 0 <= starts[0] <= starts[-1] < blocks):
        raise ValueError(f"case {number} has prices of blocks that do not exist, or not in their order")
    values = np.append(0.0, [price for _, price in runs])
    lengths = np.diff(np.array([0, *starts, blocks]))
    return np.repeat(values, lengths)
