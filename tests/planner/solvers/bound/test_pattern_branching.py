"""Bounds by prices of rank patterns: above the fluid one, never above the optimum, proven as written."""

import pytest

from planner.certificates.pattern_proofs import pattern_faults
from planner.document.certificates import DividedCase, ProofPatterns, RefutedCase
from planner.verification.proof import write_proof
from planner.verification.proof_patterns import faults_of_patterns
from tests.oracles.packings import ROUNDING, Known, nine_tables, proven_s
from tests.oracles.patterns import known_patterns, priced
from tests.seeds import seeds


def _proven() -> Known:
    """One whose bound prices of patterns raise."""
    return next(
        known for known in known_patterns(0, 60) if priced(known.instance.problem, 2 * known.best.step_s)[1].patterns
    )


@pytest.mark.parametrize("first", seeds([0], range(0, 180, 30)))
def test_prices_never_prove_more_than_the_optimum(first: int) -> None:
    """Towards a plan a fifth above the optimum; the proof holds in the problem as it was, and gives as much."""
    better, at_optimum = 0, 0
    for each in known_patterns(first, first + 30):
        problem, step_s = each.instance.problem, each.best.step_s
        before, bound = priced(problem, step_s * 1.2)
        assert bound.seconds <= step_s * (1 + ROUNDING), each.instance.description
        if bound.patterns is not None:
            assert list(pattern_faults(problem, bound.patterns)) == [], each.instance.description
            assert proven_s(each.instance, bound) == pytest.approx(bound.seconds, rel=1e-6)
        better += bound.seconds > before.seconds * 1.001
        at_optimum += bound.seconds > step_s * 0.997
    assert better > 7
    assert at_optimum > 7


def test_blocks_that_share_no_rank_are_seen() -> None:
    """By their sum nine blocks take little more than one; below two of the shortest, no two are on one rank."""
    problem = nine_tables().problem
    shortest = sorted(problem.whole_load[0, :-1].max(axis=1).tolist())[:2]
    before, bound = priced(problem, 2 * sum(shortest))
    assert before.seconds < 0.8 * sum(shortest)
    assert sum(shortest) * 0.998 < bound.seconds <= sum(shortest)


def test_the_same_work_gives_the_same_proof() -> None:
    """Bit by bit; and more work proves no less."""
    each = _proven()
    model, problem, step_s = each.instance.model, each.instance.problem, 1.2 * each.best.step_s
    less, again, more = (priced(problem, step_s, work)[1] for work in (1e7, 1e7, 1e8))
    assert write_proof(model, problem, less) == write_proof(model, problem, again)
    assert less.seconds <= more.seconds


def test_a_document_that_is_no_proof_is_refused() -> None:
    """Blocks, tables and memories that do not exist, prices out of order, a threshold above what prices prove."""
    each = _proven()
    model, problem = each.instance.model, each.instance.problem
    _, bound = priced(problem, 1.2 * each.best.step_s)
    assert bound.patterns is not None
    right = write_proof(model, problem, bound).patterns
    assert right is not None
    leaf = next(case for case in right.cases if isinstance(case, RefutedCase))
    assert list(faults_of_patterns(right, model, problem)) == []
    assert list(faults_of_patterns(None, model, problem)) == []

    def fault(*cases: DividedCase | RefutedCase) -> str:
        return "".join(faults_of_patterns(ProofPatterns(cells=right.cells, cases=cases), model, problem))

    assert "which is none of" in fault(DividedCase(table="ghost", first=0, last=0), leaf, leaf)
    assert "which is none of" in fault(DividedCase(table=model.workload.tables[0].name, first=-1, last=0), leaf, leaf)
    for prices in (((1, 1.0), (0, 1.0)), ((0, 1.0), (0, 2.0)), ((10**9, 1.0),), ((-1, 1.0),)):
        assert "not in their order" in fault(leaf.model_copy(update={"prices": prices}))
    assert fault(leaf.model_copy(update={"threshold_s": 10 * leaf.threshold_s}))
    ghost = {"tier": "hbm", "group": "ghost", "seconds_per_byte": 1e-12, "ranks": None}
    assert "does not exist" in fault(RefutedCase.model_validate({**leaf.model_dump(), "memory_multipliers": [ghost]}))
    here = {**ghost, "group": model.topology.nodes[0].name}
    assert "a second memory" in fault(
        RefutedCase.model_validate({**leaf.model_dump(), "memory_multipliers": [here] * 2})
    )
