"""Cases with weights on what is beside tables' largest blocks: never above the optimum, and far above without them."""

from dataclasses import replace
from functools import cache

import pytest

from planner.certificates.multipliers import Bound
from planner.document.certificates import Proof, TableWeight
from planner.problem.case_divisions import ReachDivision, StageDivision
from planner.problem.rounding import ROUNDING
from planner.solvers.bound.cutting_planes import solve_relaxation
from planner.solvers.bound.few_block_cases import FewBlockCases, divided_like, has_weights_beside
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.largest_blocks import fullest_instances
from planner.solvers.lower_bound import relaxed_optimum
from planner.verification.proof import faults_of, faults_of_cases, write_proof
from tests.oracles.brute_force import optimum
from tests.oracles.instances import tiny_instance
from tests.oracles.packings import Known, known_optima, proven_s


@cache
def _alike() -> list[Known]:
    """Tiny instances of ranks of one kind, with their optima."""
    found = [each for each in map(tiny_instance, range(140)) if each.problem.kinds == 1 and len(each.options.table)]
    pairs = [(each, optimum(each.problem)) for each in found]
    return [Known(each, best) for each, best in pairs if best is not None]


def _divided(each: Known) -> tuple[FewBlockCases, Bound]:
    """What cases make of the fluid bound of an instance, with a plan a fifth above its optimum to reach."""
    fluid = Fluid(each.instance.problem)
    cases = FewBlockCases(fluid, relaxed_optimum(fluid), each.best.step_s * 1.2)
    cases.run(each.stage_seconds() * 1.2, each.best.step_s * 1.2)
    return cases, cases.whole.proven()


def test_cases_never_prove_more_than_the_optimum() -> None:
    """The bound is that of the weakest case, its proof gives as much; often it is above the fluid one, some cases have
    weights beside largest blocks, and they divide by both."""
    better, weighted, divisions = 0, 0, set()
    for each in _alike():
        cases, bound = _divided(each)
        assert bound.seconds <= each.best.step_s * (1 + ROUNDING), each.instance.description
        assert proven_s(each.instance, bound) == pytest.approx(max(bound.seconds, 0.0), rel=1e-6)
        leaves = list(cases.whole.leaves())
        assert bound.seconds == pytest.approx(
            max(min(leaf.bound.seconds for leaf in leaves), cases.whole.bound.seconds)
        )
        better += bound.seconds > cases.whole.bound.seconds * 1.001
        weighted += any(leaf.bound.multipliers.beside for leaf in leaves)
        divisions |= {type(cases.whole.parts[0])} if cases.whole.parts else set()
    assert better > 4
    assert weighted > 8
    assert divisions == {ReachDivision, StageDivision}


def test_what_is_beside_the_largest_block_raises_the_bound() -> None:
    """One table loads a rank for longer than all others do on the mean, and every rank holds copies of those."""
    raised = []
    for each in _alike():
        fluid = Fluid(each.instance.problem)
        relaxed = relaxed_optimum(fluid)
        more = fullest_instances(fluid, relaxed)
        if not more:
            continue
        beside = solve_relaxation(fluid, lone=relaxed.lone, beside=more)
        assert beside.bound_s <= each.best.step_s * (1 + ROUNDING)
        assert beside.bound_s >= relaxed.bound_s * (1 - 1e-3)
        raised.append(beside.bound_s / relaxed.bound_s - 1)
    assert len(raised) > 15
    assert max(raised) > 0.02


def test_weights_beside_blocks_are_read_in_cases_alone() -> None:
    """Of a resource of the stage, where ranks are alike; a stage's weights sum to one at most, with them."""
    for each in _alike():
        model, problem = each.instance.model, each.instance.problem
        proof = write_proof(model, problem, _divided(each)[1])
        if proof.stage_cases is not None and any(one.resource for one in proof.stage_cases.above.table_weights):
            break
    cases = proof.stage_cases.model_dump()  # type: ignore[union-attr]
    weights = cases["above"]["table_weights"]

    def faults(**changes: object) -> str:
        changed = [{**one, **(changes if one.get("resource") else {})} for one in weights]
        above = {**cases["above"], "table_weights": changed}
        whole = Proof.model_validate({**proof.model_dump(), "stage_cases": {**cases, "above": above}})
        return "".join(faults_of_cases(whole, model, problem))

    assert faults() == ""
    assert "does not exist" in faults(resource="magic")
    assert "does not exist" in faults(table="magic")
    assert "does not exist" in faults(share=-0.1)
    assert "above 1" in faults(share=2.0)
    outside = Proof.model_validate({**proof.model_dump(), "stage_cases": None, "table_weights": weights})
    assert "does not exist" in "".join(faults_of(outside, model, problem))
    two = next(each.instance for each in known_optima() if each.instance.problem.kinds > 1)
    stated = write_proof(two.model, two.problem, Bound(0.0, Fluid(two.problem).no_multipliers(), None))
    column = two.model.columns[0]
    entry = TableWeight(
        stage=two.model.stages[column.stage],
        table=two.model.workload.tables[0].name,
        share=0.5,
        resource=str(column.resource),
    )
    unlike = stated.model_copy(update={"table_weights": (entry,)})
    assert "does not exist" in "".join(faults_of(unlike, two.model, two.problem, is_case=True))


def test_cases_prove_as_much_of_problems_that_are_nearly_the_same() -> None:
    """Of the same one what they prove there; of one whose loads differ no more than its optimum, though hardly less."""
    lost, compared = [], 0
    for each in _alike():
        _, bound = _divided(each)
        if not has_weights_beside(bound):
            continue
        problem, nothing = each.instance.problem, Fluid(each.instance.problem).no_multipliers()
        again = divided_like(problem, Bound(0.0, nothing, None), bound)
        assert again.seconds == pytest.approx(bound.seconds, rel=1e-6)
        other = replace(problem, fixed=problem.fixed * 1.1, everywhere=problem.everywhere * 0.9)
        best = optimum(other)
        found = divided_like(other, Bound(0.0, nothing, None), bound)
        assert best is not None
        assert found.seconds <= best.step_s * (1 + ROUNDING)
        lost.append(1 - found.seconds / bound.seconds)
        compared += 1
    assert compared > 3
    assert max(lost) < 0.2
