"""Packed starts: plans that fit where ranks hold less than one block, shorter than those of the start portfolio."""

from functools import cache

import numpy as np
import pytest

from cost_models.model import CostModel
from cost_models.registry import cost_model
from cost_models.workload.loading import load_workload
from planner.formulation.options import build_problem, enumerate_options
from planner.formulation.policy import Policy
from planner.problem.arrays import Problem
from planner.problem.load_state import load_state
from planner.problem.placement import Placement
from planner.problem.sites import NOWHERE
from planner.solvers import packed_starts, start_portfolio
from planner.solvers.bound.cutting_planes import FluidSolution
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.roofs import best_roof
from planner.solvers.construct.beside import with_ranks_of_largest
from planner.solvers.incumbent import Incumbent
from planner.solvers.limits import SearchLimits
from planner.solvers.lower_bound import bound_of, relaxed_optimum
from planner.solvers.packed_starts import PackedStarts
from planner.solvers.search import solve
from planner.verification.proof import recomputed_bound_s, write_proof
from tests.oracles.placements import faults
from topologies.loading import load_topology

SEEDS = (3, 4)


@pytest.fixture(autouse=True)
def _few_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fifth of the moves, for the time that these tests take."""
    monkeypatch.setattr(packed_starts, "MOVES", 400)


@cache
def _model(seed: int, tables: int = 160, nodes: int = 40) -> CostModel:
    return cost_model(
        "physical", load_topology("zionex-16", nodes=nodes), load_workload(f"synthetic:{tables}@seed={seed}")
    )


@cache
def _problem(seed: int, tables: int = 160, nodes: int = 40) -> Problem:
    model = _model(seed, tables, nodes)
    return build_problem(model, enumerate_options(model, Policy()))


@cache
def _relaxed(seed: int) -> tuple[Fluid, FluidSolution]:
    fluid = Fluid(_problem(seed))
    return fluid, relaxed_optimum(fluid)


def _incumbent(relaxed: FluidSolution) -> Incumbent:
    return Incumbent(bound_of(relaxed), SearchLimits(gap=0.0), lambda *_: None)


@pytest.mark.parametrize("seed", SEEDS)
def test_packed_starts_are_placements_that_fit(seed: int) -> None:
    """Each with its step; the incumbent hears of the best."""
    fluid, relaxed = _relaxed(seed)
    incumbent = _incumbent(relaxed)
    packing = PackedStarts(fluid, relaxed, incumbent, 0)
    assert packing.are_possible
    starts = packing.starts()
    assert starts
    for placement, step_s in starts:
        assert faults(fluid.problem, placement) == []
        state = load_state(fluid.problem, placement)
        assert state.overflow_bytes() == 0
        assert state.step_s() == pytest.approx(step_s)
    assert incumbent.best_s == min(step_s for _, step_s in starts)
    assert incumbent.best_s >= relaxed.bound_s


def test_large_problems_of_few_blocks_end_nearer_to_their_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of problems that count as large the plan is shorter with packed starts than without, and the bound is one that
    its proof gives."""
    monkeypatch.setattr(start_portfolio, "STARTS_WORK", 1.0)
    gained = []
    for seed in SEEDS:
        problem, limits = _problem(seed), SearchLimits(gap=0.0, effort=0)
        packed = solve(problem, limits)
        with monkeypatch.context() as without:
            without.setattr(PackedStarts, "are_possible", False)
            other = solve(problem, limits)
        assert packed.step_s is not None
        assert other.step_s is not None
        assert packed.bound is not None
        assert packed.bound.seconds <= packed.step_s
        proof = write_proof(_model(seed), problem, packed.bound)
        assert recomputed_bound_s(proof, _model(seed), problem) == pytest.approx(packed.bound.seconds, rel=1e-6)
        gained.append(1 - packed.step_s / other.step_s)
    assert min(gained) >= 0, gained
    assert max(gained) > 0.02, gained


def test_where_sites_are_few_or_hold_many_blocks_nothing_is_packed() -> None:
    """Sixteen nodes are no bins; five hundred tables on forty nodes level out by swaps."""
    for tables, nodes in ((60, 16), (1200, 40)):
        fluid = Fluid(_problem(3, tables, nodes))
        relaxed = relaxed_optimum(fluid)
        assert not PackedStarts(fluid, relaxed, _incumbent(relaxed), 0).are_possible


@pytest.mark.parametrize("seed", SEEDS)
def test_a_roof_is_where_shorter_blocks_cost_more_than_they_save(seed: int) -> None:
    """Of all times above the optimum's, the one with the least sum of the stage and of the options whose blocks are as
    short, each time priced by itself."""
    fluid, relaxed = _relaxed(seed)
    problem = fluid.problem
    led = {stage for _, stage in relaxed.multipliers.of_table}
    assert led
    for stage in sorted(led):
        others = {pair: weight for pair, weight in relaxed.multipliers.of_table.items() if pair[1] != stage}
        weight = sum(relaxed.multipliers.of_table.values()) - sum(others.values())
        multipliers = type(relaxed.multipliers)(relaxed.multipliers.weight, relaxed.multipliers.byte, others)
        value = fluid.choice_values(multipliers)
        peaks = np.where(problem.is_world_wide, 0.0, fluid.peaks[:, stage])
        least_s = float(relaxed.stage_seconds[stage] - problem.stage_constants[stage])

        def total(roof: float) -> float:
            left = np.where(peaks <= roof * (1 + 1e-9), value, np.inf)  # noqa: B023
            return float(np.minimum.reduceat(left, problem.table_block_start[:-1]).sum()) + weight * roof  # noqa: B023

        times = [least_s, *np.unique(peaks[(peaks > least_s) & np.isfinite(value)]).tolist()]
        assert total(best_roof(fluid, relaxed, stage)) == pytest.approx(min(total(each) for each in times), rel=1e-5)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_rank_of_the_largest_block_has_what_all_ranks_have(seed: int) -> None:
    """The added column's mean is the load of one of the stage's resources, in a placement, of the rank that holds a
    table's largest block and nothing else but what all ranks have; other tables over nodes do not count."""
    fluid, relaxed = _relaxed(seed)
    problem = fluid.problem
    wider = with_ranks_of_largest(problem, relaxed)
    added = len(wider.stage_of_column) - len(problem.stage_of_column)
    assert added > 0
    of_wider = Fluid(wider)
    multipliers = of_wider.no_multipliers()
    _, choices = of_wider.price(multipliers)
    seconds, _ = of_wider.usage(multipliers, choices)
    mean = seconds[0, -added:] / of_wider.instances[0, -added:]
    is_wide = problem.is_world_wide[choices]
    on_all = Placement(choices[is_wide], np.full(is_wide.sum(), NOWHERE))
    others = [block for each in choices[~is_wide].tolist() for block in problem.blocks_of_choice(each)]
    beside = load_state(problem, on_all).load.mean(axis=1) + problem.everywhere[0, others].sum(axis=0)
    for column in range(added):
        at = len(problem.stage_of_column) + column
        own = np.flatnonzero((wider.fixed[0, :, at] > 0) & ~problem.is_world_wide)
        tables = np.unique(problem.table_of_block[own])
        assert len(tables) == 1
        peak = problem.extremes.peak_load(0, choices[tables])[0]
        of_stage = np.flatnonzero(problem.stage_of_column == wider.stage_of_column[at])
        assert np.isclose(beside[of_stage] + peak[of_stage], mean[column], rtol=1e-6, atol=0.0).any()
