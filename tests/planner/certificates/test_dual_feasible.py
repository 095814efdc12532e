"""Dual feasible functions: shares that fit on a rank fit transformed, and bounds are not above the optimum."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.certificates.dual_feasible import (
    FAMILIES,
    PricedFunction,
    have_own_instances,
    is_function,
    packed_rows,
    transformed,
)
from planner.certificates.multipliers import Bound, Multipliers, PackingProof
from planner.document.certificates import Proof
from planner.problem.arrays import Problem
from planner.solvers.bound.cutting_planes import solve_relaxation
from planner.solvers.bound.fluid import Fluid
from planner.verification.proof import faults_of_packing, recomputed_bound_s, write_proof
from tests.oracles.packings import (
    ROUNDING,
    known_optima,
    nine_tables,
    nine_tables_in_stages,
    proven_s,
    strengthened,
    tables_of_two_fifths,
)
from tests.properties.test_tiny_instances import random_prices

SEVERAL = 0.6
"""Chance that a function is of several columns, and that a stage is among theirs."""


def parameter_of(family: str, draw: float) -> float:
    """One in the family's range, for a number from 0 to 1."""
    if family == "martello_toth":
        return draw / 2
    return float(1 + int(draw * 12)) if family == "fekete_schepers" else 1 + 12 * draw


@settings(max_examples=400, deadline=None, derandomize=True)
@given(
    family=st.sampled_from(sorted(FAMILIES)),
    draw=st.floats(0, 1),
    parts=st.lists(st.floats(0, 1), min_size=1, max_size=9),
    grid=st.sampled_from([0, 2, 3, 4, 5, 6, 7, 12]),
)
def test_shares_that_sum_to_one_do_so_transformed(family: str, draw: float, parts: list[float], grid: int) -> None:
    """Any shares of a room, equal parts of it among them, rounded down as the bound does."""
    shares = np.full(grid, 1 / grid) if grid else np.array(parts) / max(1.0, sum(parts))
    parameter = parameter_of(family, draw)
    assert is_function(family, parameter)
    assert transformed(family, parameter, shares * (1 - 1e-9)).sum() <= 1 + ROUNDING


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_no_function_decreases(family: str) -> None:
    """A share that is rounded down counts for no more."""
    shares = np.linspace(0, 1, 5001)
    for draw in np.linspace(0, 1, 41):
        values = transformed(family, parameter_of(family, float(draw)), shares)
        assert (np.diff(values) >= -ROUNDING).all()
        assert values.min() >= 0
        assert values.max() <= 1


def test_what_is_no_function_is_refused() -> None:
    """Unknown families, parameters out of range, parts of a whole number."""
    assert not is_function("unknown", 1.0)
    assert not is_function("martello_toth", 0.6)
    assert not is_function("burdett_johnson", 0.5)
    assert not is_function("fekete_schepers", 1.5)
    assert not is_function("burdett_johnson", float("nan"))


def several_columns(problem: Problem, random: np.random.Generator) -> tuple[int, ...]:
    """Columns of some stages, of resources that each rank has one of."""
    own = np.flatnonzero(have_own_instances(problem))
    columns = (random.choice(own[problem.stage_of_column[own] == s]) for s in np.unique(problem.stage_of_column[own]))
    return tuple(int(column) for column in columns if random.random() < SEVERAL)


def random_functions(problem: Problem, random: np.random.Generator, step_s: float) -> tuple[PricedFunction, ...]:
    """Some functions of some resources and memory tiers, with prices of the order of the step."""
    found = []
    for _ in range(int(random.integers(1, 5))):
        family = str(random.choice(sorted(FAMILIES)))
        kind, columns = int(random.integers(problem.kinds)), (int(random.integers(packed_rows(problem))),)
        if random.random() < SEVERAL:
            columns = several_columns(problem, random) or columns
        price = float(step_s * 10 ** random.uniform(-3, 0))
        found.append(PricedFunction(kind, columns, family, parameter_of(family, float(random.random())), price))
    return tuple(found)


@pytest.mark.slow
def test_any_functions_give_a_bound() -> None:
    """Whatever the functions, prices and threshold, nothing above the optimum is proven; they do matter."""
    random = np.random.default_rng(3)
    matters, together = 0, 0
    for each in known_optima():
        problem, step_s = each.instance.problem, each.best.step_s
        fluid = Fluid(problem)
        best, nothing = solve_relaxation(fluid).multipliers, fluid.no_multipliers()
        for _ in range(8):
            threshold = step_s * float(1 + 10 ** random.uniform(-8, 0))
            multipliers = best if random.random() < 0.7 else random_prices(problem, random, step_s)
            own = Multipliers(multipliers.weight, multipliers.byte)
            least = best if random.random() < 0.5 else nothing
            plain = PackingProof(threshold, own, ())
            packed = PackingProof(threshold, own, random_functions(problem, random, step_s))
            found, without = (proven_s(each.instance, Bound(0.0, least, None, bound)) for bound in (packed, plain))
            assert found <= step_s * (1 + ROUNDING), each.instance.description
            changes = abs(found - without) > 1e-9 * step_s
            matters += changes
            together += changes and any(len(function.columns) > 1 for function in packed.functions)
    assert matters > 100
    assert together > 30


def test_functions_of_memory_that_are_no_proof_are_refused() -> None:
    """Unknown tiers and groups, parameters out of range, prices below 0; and for nothing they prove less."""
    five = tables_of_two_fifths()
    _, after = strengthened(five, 1.0)
    proof = write_proof(five.model, five.problem, after)
    assert proof.packing is not None
    assert proof.packing.memory_functions
    assert list(faults_of_packing(proof, five.model, five.problem)) == []

    def changed(**changes: object) -> Proof:
        functions = [{**entry.model_dump(), **changes} for entry in proof.packing.memory_functions]
        packing = {**proof.packing.model_dump(), "memory_functions": functions}
        return Proof.model_validate({**proof.model_dump(), "packing": packing})

    for changes in (
        {"tier": "tape"},
        {"group": "b"},
        {"parameter": 0.7, "family": "burdett_johnson"},
        {"seconds": -1.0},
    ):
        assert "does not exist" in "".join(faults_of_packing(changed(**changes), five.model, five.problem))
    for changes in ({"seconds": 0.0}, {"tier": "ddr"}):
        assert recomputed_bound_s(changed(**changes), five.model, five.problem) < 0.99 * after.seconds


def test_functions_of_several_stages_that_are_no_proof_are_refused() -> None:
    """Of resources that do not exist, of one stage twice, or of what ranks share; without the other stages each proves
    less."""
    nine = nine_tables_in_stages()
    _, after = strengthened(nine, 0.0157)
    proof = write_proof(nine.model, nine.problem, after)
    assert proof.packing is not None
    assert list(faults_of_packing(proof, nine.model, nine.problem)) == []
    entry = next(each for each in proof.packing.functions if each.beside)

    def changed(beside: list[dict[str, str]]) -> Proof:
        functions = [entry.model_dump() | {"beside": beside}]
        packing = {**proof.packing.model_dump(), "functions": functions}
        return Proof.model_validate({**proof.model_dump(), "packing": packing})

    own = [each.model_dump() for each in entry.beside]
    shared = next(
        {"stage": nine.model.stages[column.stage], "resource": str(column.resource)}
        for column, instance in zip(nine.model.columns, nine.problem.resource_of_rank, strict=True)
        if len(np.unique(instance)) < len(instance) and nine.model.stages[column.stage] != entry.stage
    )
    for beside, said in (
        ([*own, {"stage": "overhead", "resource": "magic"}], "does not exist"),
        ([*own, {"stage": entry.stage, "resource": entry.resource}], "of one stage"),
        ([shared], "that ranks share"),
    ):
        assert said in "".join(faults_of_packing(changed(beside), nine.model, nine.problem))
    assert list(faults_of_packing(changed(own), nine.model, nine.problem)) == []
    assert recomputed_bound_s(changed([]), nine.model, nine.problem) < 0.95 * after.seconds


def test_functions_that_are_no_proof_are_refused() -> None:
    """Unknown resources and groups, parameters out of range, prices below 0; and for nothing they prove less."""
    nine = nine_tables()
    _, after = strengthened(nine, 1.0)
    proof = write_proof(nine.model, nine.problem, after)
    assert proof.packing is not None
    assert list(faults_of_packing(proof, nine.model, nine.problem)) == []

    def changed(**changes: object) -> Proof:
        functions = [{**entry.model_dump(), **changes} for entry in proof.packing.functions]
        return Proof.model_validate(
            {**proof.model_dump(), "packing": {**proof.packing.model_dump(), "functions": functions}}
        )

    for changes in (
        {"resource": "magic"},
        {"group": "b"},
        {"parameter": 0.7, "family": "carlier_clautiaux_moukrim"},
        {"seconds": -1.0},
    ):
        assert "does not exist" in "".join(faults_of_packing(changed(**changes), nine.model, nine.problem))
    cheap = changed(seconds=0.0)
    assert recomputed_bound_s(cheap, nine.model, nine.problem) < 0.99 * after.seconds
    heavier = [{**entry.model_dump(), "share": 2 * entry.share} for entry in proof.packing.weights]
    packing = {**proof.packing.model_dump(), "weights": heavier}
    found = "".join(
        faults_of_packing(Proof.model_validate({**proof.model_dump(), "packing": packing}), nine.model, nine.problem)
    )
    assert "above 1" in found
