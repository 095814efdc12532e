"""Bounds by cases of how long a stage lasts, or what option a table takes: above the fluid one, never above the
optimum, and proven as written."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError

from planner.certificates.multipliers import Bound, Cases
from planner.document.certificates import Proof
from planner.problem.arrays import Problem
from planner.problem.case_divisions import (
    Division,
    MemoryDivision,
    ReachDivision,
    StageDivision,
    has_reach,
    takes_memory,
)
from planner.problem.integrality import integrality_floors
from planner.solvers.bound.cutting_planes import solve_relaxation
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.stage_cases import REACHES, StageCaseSearch
from planner.verification.proof import faults_of_cases, recomputed_bound_s, write_proof
from tests.oracles.packings import ROUNDING, Known, known_optima, proven_s

ATTEMPTS = 8


def _divided(each: Known) -> tuple[StageCaseSearch, Bound]:
    """What a search makes of the fluid bound of an instance, with a plan a fifth above its optimum to reach."""
    problem = each.instance.problem
    fluid = Fluid(problem)
    relaxed = solve_relaxation(fluid)
    search = StageCaseSearch(fluid, relaxed, Bound(relaxed.bound_s, relaxed.multipliers, None))
    of_plan = each.stage_seconds()
    search.run_options(each.best.step_s * 1.2, ATTEMPTS)
    search.run(each.best.step_s * 1.2, of_plan * 1.2, ATTEMPTS)
    return search, search.whole.proven()


def _by_stage(bound: Bound) -> bool:
    return bound.cases is not None and isinstance(bound.cases.division, StageDivision)


def test_cases_never_prove_more_than_the_optimum() -> None:
    """The bound is that of the weakest case, its proof gives as much, and it is often above the fluid one."""
    better, divisions = 0, Counter[type[Division]]()
    for each in known_optima()[::2]:
        search, bound = _divided(each)
        assert bound.seconds <= each.best.step_s * (1 + ROUNDING), each.instance.description
        assert proven_s(each.instance, bound) == pytest.approx(max(bound.seconds, 0.0), rel=1e-6)
        assert (
            list(
                faults_of_cases(
                    write_proof(each.instance.model, each.instance.problem, bound),
                    each.instance.model,
                    each.instance.problem,
                )
            )
            == []
        )
        better += bound.cases is not None and bound.seconds > search.whole.bound.seconds * 1.001
        divisions.update([] if bound.cases is None else [type(bound.cases.division)])
    assert better > 5
    assert min(divisions[ReachDivision], divisions[MemoryDivision]) > 1, divisions


def test_any_multipliers_prove_something_true_of_a_case() -> None:
    """Divided anywhere, with multipliers of other cases, thresholds too: never more than the optimum."""
    random, matters = np.random.default_rng(3), {StageDivision: 0, ReachDivision: 0, MemoryDivision: 0}
    for each in known_optima()[::2]:
        problem, step_s = each.instance.problem, each.best.step_s
        fluid = Fluid(problem)
        best, nothing = solve_relaxation(fluid), fluid.no_multipliers()
        of_plan = each.stage_seconds()
        for division in _divisions(problem, of_plan, random):
            parts = []
            for part in division.parts(problem):
                inner = Fluid(part, integrality_floors(part))
                is_empty = bool(np.isinf(inner.price(nothing)[0]).any())
                own = nothing if is_empty else solve_relaxation(inner).multipliers
                threshold = float(step_s * random.uniform(0.9, 1.3))
                parts.append(Bound(0.0, own if random.random() < 0.7 else best.multipliers, threshold))
            plain = Bound(best.bound_s, best.multipliers, None)
            found = proven_s(each.instance, replace(plain, cases=Cases(division, *parts)))
            assert found <= step_s * (1 + ROUNDING), each.instance.description
            matters[type(division)] += found > proven_s(each.instance, plain) * (1 + 1e-6)
    assert min(matters.values()) > 2, matters


def _divisions(problem: Problem, of_plan: np.ndarray, random: np.random.Generator) -> Iterator[Division]:
    """Yield a few at random, by stages near their times in the optimum and by options of tables."""
    for _ in range(3):
        stage = int(random.integers(len(of_plan)))
        seconds = float(of_plan[stage] * random.choice([0.5, 0.9, 1.0, 1.1]))
        if seconds > 0:
            yield StageDivision(stage, seconds)
        yield ReachDivision(int(random.integers(problem.tables)), REACHES[random.integers(3)])
        yield MemoryDivision(int(random.integers(problem.tables)), int(random.integers(len(problem.pool_capacity))))


def test_every_option_has_one_reach() -> None:
    """The parts of a division by reach have every block that was allowed in just one of the two."""
    for each in known_optima():
        problem = each.instance.problem
        assert (np.stack([has_reach(problem, reach) for reach in REACHES]).sum(axis=0) == 1).all()
        for reach in REACHES:
            inside, outside = ReachDivision(0, reach).parts(problem)
            own = problem.table_of_block == 0
            assert (inside.allowed[:, ~own] == problem.allowed[:, ~own]).all()
            assert (outside.allowed[:, ~own] == problem.allowed[:, ~own]).all()
            assert ((inside.allowed ^ outside.allowed) == problem.allowed)[:, own].all()


def test_options_are_told_apart_by_the_memories_that_they_take() -> None:
    """Inside are the options of the table with bytes of the memory, outside its others; all of other tables in both."""
    for each in known_optima():
        problem = each.instance.problem
        for memory in range(len(problem.pool_capacity)):
            inside, outside = MemoryDivision(0, memory).parts(problem)
            for option in range(len(problem.option_table)):
                blocks = slice(problem.block_start[option], problem.block_start[option + 1])
                size = problem.bytes_fixed[:, blocks, memory] + problem.bytes_by_rows[:, blocks, memory]
                own, takes = problem.option_table[option] == 0, size.max() > 0
                assert takes_memory(problem, memory)[option] == takes
                kept = [own and not takes, own and takes]
                for part, is_barred in zip((inside, outside), kept, strict=True):
                    assert (part.allowed[:, blocks] == (problem.allowed[:, blocks] & (not is_barred))).all()


def test_cases_that_are_no_proof_are_refused() -> None:
    """Unknown stages, times that are none, what proves nothing of a case, and faults within one."""
    each, bound = next((each, found) for each in known_optima() if _by_stage(found := _divided(each)[1]))
    model, problem = each.instance.model, each.instance.problem
    proof = write_proof(model, problem, bound)
    assert proof.stage_cases is not None
    cases = proof.stage_cases.model_dump()

    def faults(**changes: object) -> str:
        changed = Proof.model_validate({**proof.model_dump(), "stage_cases": {**cases, **changes}})
        return "".join(faults_of_cases(changed, model, problem))

    assert faults() == ""
    assert "no such stage" in faults(stage="magic")
    for seconds in (0.0, -1.0):
        assert "no such stage or time" in faults(seconds=seconds)
    assert "proves nothing" in faults(below={**cases["below"], "exhaustive_search_s": 1.0})
    assert "proves nothing" in faults(above={**cases["above"], "protocols": {"output_dist": 1}})
    heavier = [{**weight, "share": 2.0} for weight in cases["above"]["weights"]]
    assert "above 1" in faults(above={**cases["above"], "weights": heavier})
    nested: dict[str, object] = {**proof.model_dump(), "stage_cases": None}
    for _ in range(60):
        nested = {
            **nested,
            "stage_cases": {**cases, "below": nested, "above": proof.model_dump() | {"stage_cases": None}},
        }
    assert "too many" in "".join(faults_of_cases(Proof.model_validate(nested), model, problem))


def test_cases_of_a_table_that_are_no_proof_are_refused() -> None:
    """Unknown tables, what proves nothing of a case, faults within one; swapped cases prove less than is said."""
    each, bound = next(
        (each, found)
        for each in known_optima()
        if (found := _divided(each)[1]).cases is not None and isinstance(found.cases.division, ReachDivision)
    )
    model, problem = each.instance.model, each.instance.problem
    proof = write_proof(model, problem, bound)
    assert proof.reach_cases is not None
    cases = proof.reach_cases.model_dump()

    def changed(**changes: object) -> Proof:
        return Proof.model_validate({**proof.model_dump(), "reach_cases": {**cases, **changes}})

    def faults(**changes: object) -> str:
        return "".join(faults_of_cases(changed(**changes), model, problem))

    assert faults() == ""
    assert "no such table" in faults(table="magic")
    assert "proves nothing" in faults(inside={**cases["inside"], "exhaustive_search_s": 1.0})
    heavier = [{**weight, "share": 2.0} for weight in cases["outside"]["weights"]]
    assert "above 1" in faults(outside={**cases["outside"], "weights": heavier})
    least = changed(inside={**cases["inside"], "weights": (), "table_weights": (), "reach_cases": None})
    assert recomputed_bound_s(least, model, problem) < bound.seconds * 0.999
    with pytest.raises(ValidationError):
        changed(reach="galaxy")
