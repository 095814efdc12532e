"""Bounds by cases of how long a stage lasts: above the fluid one, never above the optimum, and proven as written."""

from dataclasses import replace

import numpy as np
import pytest

from planner.certificates.multipliers import Bound, StageCases
from planner.document.certificates import Proof
from planner.problem.stage_limits import divided
from planner.solvers.bound.cutting_planes import solve_relaxation
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.stage_cases import StageCaseSearch
from planner.verification.proof import faults_of_cases, write_proof
from tests.oracles.packings import ROUNDING, Known, known_optima, proven_s

ATTEMPTS = 8


def _divided(each: Known) -> tuple[StageCaseSearch, Bound]:
    """What a search makes of the fluid bound of an instance, with a plan a fifth above its optimum to reach."""
    problem = each.instance.problem
    fluid = Fluid(problem)
    relaxed = solve_relaxation(fluid)
    search = StageCaseSearch(fluid, relaxed, Bound(relaxed.bound_s, relaxed.multipliers, None))
    of_plan = each.stage_seconds()
    search.run(each.best.step_s * 1.2, of_plan * 1.2, ATTEMPTS)
    return search, search.whole.proven()


def test_cases_never_prove_more_than_the_optimum() -> None:
    """The bound is that of the weakest case, its proof gives as much, and it is often above the fluid one."""
    better = 0
    for each in known_optima():
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
        better += bound.stage_cases is not None and bound.seconds > search.whole.bound.seconds * 1.001
    assert better > 5


def test_any_multipliers_prove_something_true_of_a_case() -> None:
    """Divided anywhere, with multipliers of other cases, thresholds too: never more than the optimum."""
    random, matters = np.random.default_rng(3), 0
    for each in known_optima():
        problem, step_s = each.instance.problem, each.best.step_s
        fluid = Fluid(problem)
        best, nothing = solve_relaxation(fluid), fluid.no_multipliers()
        of_plan = each.stage_seconds()
        for _ in range(3):
            stage = int(random.integers(len(of_plan)))
            seconds = float(of_plan[stage] * random.choice([0.5, 0.9, 1.0, 1.1]))
            if seconds <= 0:
                continue
            parts = []
            for part in divided(problem, stage, seconds):
                inner = Fluid(part, part.stage_limits.floors if part.stage_limits else None)
                is_empty = bool(np.isinf(inner.price(nothing)[0]).any())
                own = nothing if is_empty else solve_relaxation(inner).multipliers
                threshold = float(step_s * random.uniform(0.9, 1.3))
                parts.append(Bound(0.0, own if random.random() < 0.7 else best.multipliers, threshold))
            plain = Bound(best.bound_s, best.multipliers, None)
            found = proven_s(each.instance, replace(plain, stage_cases=StageCases(stage, seconds, *parts)))
            assert found <= step_s * (1 + ROUNDING), each.instance.description
            matters += found > proven_s(each.instance, plain) * (1 + 1e-6)
    assert matters > 5


def test_cases_that_are_no_proof_are_refused() -> None:
    """Unknown stages, times that are none, what proves nothing of a case, and faults within one."""
    each, bound = next((each, found) for each in known_optima() if (found := _divided(each)[1]).stage_cases is not None)
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
