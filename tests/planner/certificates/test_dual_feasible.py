"""Dual feasible functions: shares that fit on a rank fit transformed, and bounds are not above the optimum."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.instances import SHIPPED_CASES, torchrec_cases
from planner.certificates.dual_feasible import FAMILIES, PricedFunction, is_function, transformed
from planner.certificates.multipliers import Bound, Multipliers, PackingProof
from planner.document.certificates import Proof
from planner.formulation.allowed_choices import planning_model
from planner.formulation.options import build_problem, enumerate_options
from planner.formulation.policy import Policy
from planner.planning.planning import plan
from planner.problem.arrays import Problem
from planner.solvers.bound.cutting_planes import solve_relaxation
from planner.solvers.bound.dual_feasible_cuts import strengthen
from planner.solvers.bound.fluid import Fluid
from planner.verification.proof import faults_of_packing, recomputed_bound_s, write_proof
from planner.verification.verify import verify
from tests.oracles.brute_force import Optimum, optimum
from tests.oracles.instances import Instance, confined_instance, node_group, tiny_instance, topology, workload
from tests.properties.test_tiny_instances import random_prices

ROUNDING = 1e-12


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


@dataclass(frozen=True)
class Known:
    instance: Instance
    best: Optimum


@pytest.fixture(scope="module")
def known() -> list[Known]:
    """Tiny instances with tiers, policies and two kinds of rank, whose optimum is known by trying everything."""
    instances = [tiny_instance(seed) for seed in range(60)] + [confined_instance(seed) for seed in range(30)]
    pairs = [(each, optimum(each.problem)) for each in instances if len(each.options.table)]
    return [Known(each, best) for each, best in pairs if best is not None]


def random_functions(problem: Problem, random: np.random.Generator, step_s: float) -> tuple[PricedFunction, ...]:
    """Some functions of some resources, with prices of the order of the step."""
    found = []
    for _ in range(int(random.integers(1, 5))):
        family = str(random.choice(sorted(FAMILIES)))
        kind, column = int(random.integers(problem.kinds)), int(random.integers(len(problem.stage_of_column)))
        price = float(step_s * 10 ** random.uniform(-3, 0))
        found.append(PricedFunction(kind, column, family, parameter_of(family, float(random.random())), price))
    return tuple(found)


def proven_s(instance: Instance, bound: Bound) -> float:
    """What `verify` makes of a bound's proof."""
    return recomputed_bound_s(write_proof(instance.model, instance.problem, bound), instance.model, instance.problem)


@pytest.mark.slow
def test_any_functions_give_a_bound(known: list[Known]) -> None:
    """Whatever the functions, prices and threshold, nothing above the optimum is proven; they do matter."""
    random = np.random.default_rng(3)
    matters = 0
    for each in known:
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
            matters += abs(found - without) > 1e-9 * step_s
    assert matters > 100


def test_sharpening_never_exceeds_the_optimum(known: list[Known]) -> None:
    """The search for functions ends at most at the optimum, with a proof that gives as much; often above the fluid."""
    better = 0
    for each in known:
        fluid = Fluid(each.instance.problem)
        relaxed = solve_relaxation(fluid)
        before = Bound(relaxed.bound_s, relaxed.multipliers, None)
        after = strengthen(fluid, before, each.best.step_s * 1.2)
        assert before.seconds <= after.seconds <= each.best.step_s * (1 + ROUNDING), each.instance.description
        assert proven_s(each.instance, after) == pytest.approx(max(after.seconds, 0.0), rel=1e-6)
        better += after.seconds > before.seconds * 1.001
    assert better > 30


@pytest.fixture(scope="module")
def nine() -> Instance:
    """Nine whole tables of unlike sizes, each more than half as long as the longest, on eight ranks."""
    cluster = topology(node_group("a", nodes=4, ranks=2, hbm_bytes=40e9))
    tables = [{"rows": 100_000, "dim": 128, "pooling_factor": 20 + i} for i in range(9)]
    policy = Policy(shardings=("table_wise",), tiers=("hbm",))
    model = planning_model("torchrec", cluster, workload(tables), policy)
    options = enumerate_options(model, policy)
    return Instance(model, policy, options, build_problem(model, options), "nine tables on eight ranks")


def sharpened(instance: Instance, step_s: float) -> tuple[Bound, Bound]:
    """The fluid bound, and what functions make of it."""
    fluid = Fluid(instance.problem)
    relaxed = solve_relaxation(fluid)
    before = Bound(relaxed.bound_s, relaxed.multipliers, None)
    return before, strengthen(fluid, before, step_s)


def test_blocks_that_share_no_rank_are_seen(nine: Instance) -> None:
    """By their sum nine blocks take little more than one; below two of the shortest, no two are on one rank."""
    problem = nine.problem
    shortest = np.sort(problem.whole_load[0, :-1].max(axis=1))[:2].sum()
    before, after = sharpened(nine, 2 * float(shortest))
    assert before.seconds < 0.8 * shortest
    assert shortest * 0.999 < after.seconds <= shortest
    assert proven_s(nine, after) == pytest.approx(after.seconds, rel=1e-9)


def test_functions_that_are_no_proof_are_refused(nine: Instance) -> None:
    """Unknown resources and groups, parameters out of range, prices below 0; and for nothing they prove less."""
    _, after = sharpened(nine, 1.0)
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


def test_a_program_that_no_solver_ends_leaves_the_bound(nine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """Solvers that give up prove nothing, and are no crash."""
    fluid = Fluid(nine.problem)
    relaxed = solve_relaxation(fluid)
    before = Bound(relaxed.bound_s, relaxed.multipliers, None)
    monkeypatch.setattr("planner.solvers.bound.master.optimum", lambda *_: None)
    assert strengthen(fluid, before, 2 * before.seconds) is before


def test_a_plan_carries_the_proof() -> None:
    """100 tables on 128 ranks, two or three blocks on each: the document proves its bound by functions."""
    case = next(each for each in torchrec_cases(SHIPPED_CASES) if "n100_w128" in each.name)
    limits = {"tiers": case.tiers, "shardings": case.shardings, "effort": 1, "gap": 0.0}
    found = plan(case.topology(), case.workload(), cost_model=case.cost_model, **limits)
    assert found.proof is not None
    assert found.proof.packing is not None
    assert found.proof.packing.functions
    assert verify(found) == []
    assert found.objective is not None
    assert found.objective.lower_bound_s > 5.22e-3
