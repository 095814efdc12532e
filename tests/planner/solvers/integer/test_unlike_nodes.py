"""Plans of two sorts of nodes: whole, within memory, faster than plans whose nodes all hold the same; and how the ranks
of a node share its blocks."""

import itertools

import numpy as np
import pytest

from planner.problem.load_state import LoadState, load_state
from planner.problem.numbers import Bools, Ints
from planner.problem.placement import Placement
from planner.problem.table_classes import table_classes
from planner.solvers.bound.fluid import Fluid
from planner.solvers.integer import unlike_nodes
from planner.solvers.integer.dealt_ranks import dealt
from planner.solvers.integer.node_choices import asked, node_choices, tables_of_classes
from planner.solvers.integer.node_sorts import NodeContents
from planner.solvers.integer.uniform_nodes import UniformNodes
from planner.solvers.integer.unlike_nodes import UnlikeNodes, _Found
from planner.solvers.limits import Clock, SearchLimits
from tests.oracles.placements import faults
from tests.planner.solvers.integer.test_uniform_nodes import ALIKE, ENDLESS, problem_of


@pytest.mark.parametrize("number", [84, 100, 108])
def test_ranks_that_differ_hold_numbers_that_ranks_do_not_divide(number: int) -> None:
    """Two classes of whole tables, half a table too many of either for each of eight ranks: where all ranks hold the
    same they hold half a table of each in vain. Whatever is found is whole, within memory, and as fast as it says."""
    small = {"rows": 20_000, "dim": 64, "pooling_factor": 10}
    tables = [small] * number + [{**small, "pooling_factor": 11}] * number
    problem = problem_of(tables, shardings=("table_wise",), tiers=("hbm",))
    fluid = Fluid(problem)
    value = fluid.choice_values(fluid.no_multipliers())
    uniform = UniformNodes(problem)
    known = uniform.plan(value, np.inf, np.inf, ENDLESS)
    assert known is not None
    stage_s = load_state(problem, known[0]).stage_seconds()
    plans = list(UnlikeNodes(problem, uniform.tables, value, np.inf, stage_s, ENDLESS).plans(known[1]))
    assert plans
    assert [step_s for _, step_s in plans] == sorted((step_s for _, step_s in plans), reverse=True)
    for placement, step_s in plans:
        assert faults(problem, placement) == []
        state = load_state(problem, placement)
        assert state.step_s() == step_s < known[1]
        assert state.overflow_bytes() <= 0


def test_no_other_way_to_share_a_node_is_faster() -> None:
    """Two ranks, three classes of tables: every way to divide them, by enumeration; what is even is halved."""
    problem = problem_of(
        [{**ALIKE, "rows": 90_000, "dim": 96}] * 8 + [{**ALIKE, "rows": 70_000}] * 8 + [{**ALIKE, "rows": 50_000}] * 8
    )
    fluid = Fluid(problem)
    classes = tables_of_classes(problem)
    choices = node_choices(problem, classes, fluid.choice_values(fluid.no_multipliers()), np.inf, None)
    _, asks = asked(problem, choices)
    single = np.flatnonzero(problem.is_on_rank[choices.block])
    held = np.zeros(len(choices.block), dtype=np.int64)
    held[single] = [3, 2, 5, 1, 4, 2]
    even = np.zeros(len(held), dtype=bool)
    even[single[5]] = True
    empty, columns = LoadState(problem), len(problem.stage_of_column)
    nothing = np.zeros(asks.shape[1])
    found = dealt(problem, empty, held, even, asks, nothing, np.zeros(len(problem.stage_constants)), ENDLESS)
    assert found is not None
    assert (found.sum(axis=1) == held).all()
    assert found[single[5]].tolist() == [1, 1]

    def step_s(first: np.ndarray) -> float:
        loads = empty.load[:, :2].copy()
        for rank, mine in enumerate((first, held - first)):
            of_rank = mine @ asks
            if (of_rank[columns:] > empty.free[:, rank]).any():
                return np.inf
            for column in range(columns):
                of = problem.resource_of_rank[column, :2]
                loads[column, of == of[rank]] += of_rank[column]
        worst = loads.max(axis=1)
        return float(
            sum(
                worst[problem.stage_of_column == stage].max(initial=0.0)
                for stage in range(len(problem.stage_constants))
            )
        )

    best = np.inf
    for shared in itertools.product(*(range(int(held[block]) + 1) for block in single[:5])):
        first = np.zeros_like(held)
        first[single[:5]], first[single[5]] = shared, 1
        best = min(best, step_s(first))
    assert step_s(found[:, 0]) == pytest.approx(best, rel=1e-6)


def test_what_no_rank_has_room_for_is_not_dealt() -> None:
    """Three blocks of 60 % of a rank's HBM on two ranks."""
    problem = problem_of([ALIKE] * 8, shardings=("table_wise",), tiers=("hbm",))
    fluid = Fluid(problem)
    choices = node_choices(problem, tables_of_classes(problem), fluid.choice_values(fluid.no_multipliers()), np.inf, 1)
    _, asks = asked(problem, choices)
    asks[:, len(problem.stage_of_column)] = LoadState(problem).free[0, 0] * 0.6
    held = np.where(problem.is_on_rank[choices.block], 3, 0)
    assert held.any()
    none = np.zeros(asks.shape[1])
    even = np.zeros(len(held), dtype=bool)
    assert (
        dealt(problem, LoadState(problem), held, even, asks, none, np.zeros(len(problem.stage_constants)), ENDLESS)
        is None
    )


def test_uneven_cuts_count_their_widest_part() -> None:
    """Three parts of a table are among the ways to hold it only where cuts may be uneven; the first ones are kept."""
    problem = problem_of(
        [{**ALIKE, "rows": 100_000, "dim": 128}] * 8, shardings=("table_wise", "column_wise"), tiers=("hbm",)
    )
    fluid = Fluid(problem)
    value, classes = fluid.choice_values(fluid.no_multipliers()), tables_of_classes(problem)
    even = node_choices(problem, classes, value, np.inf, None)
    every = node_choices(problem, classes, value, np.inf, None, uneven=True)
    assert table_classes(problem).max() == 0
    assert set(even.block.tolist()) < set(every.block.tolist())
    for block, count in zip(every.block.tolist(), every.count.tolist(), strict=True):
        if problem.block_units[block]:
            parts = problem.blocks_of_choice(block)
            assert len(parts) == count
            assert problem.block_units[parts].max() == problem.block_units[block]
    is_cut = np.zeros(len(every.of_class), dtype=bool)
    is_cut[every.choice] = problem.block_units[every.block] > 0
    some = every.only(every.first(is_cut, 3))
    assert len(some.of_class) == 3
    assert some.choice.max() == 2
    assert (problem.block_units[some.block] > 0).all()


def test_attempts_end_after_two_in_vain_and_neighbourhoods_after_three(monkeypatch: pytest.MonkeyPatch) -> None:
    """One in vain between two better plans does not end them; a plan that is no better is in vain, as is none. Where no
    attempt found anything there is no neighbourhood."""
    problem = problem_of([ALIKE] * 16)
    fluid = Fluid(problem)
    value = fluid.choice_values(fluid.no_multipliers())
    nodes = UnlikeNodes(
        problem, tables_of_classes(problem), value, np.inf, np.ones(len(problem.stage_constants)), ENDLESS
    )
    nothing = Placement(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
    empty = NodeContents(*np.zeros((2, 1), dtype=np.int64), np.zeros(1))

    def steps_of(attempts: list[float | None], near: list[float | None]) -> tuple[list[float], int, int]:
        left, left_near = iter(attempts), iter(near)

        def found(sizes: Ints, usable: Bools, among: Bools, branch_nodes: int, best: object = None) -> _Found | None:
            step_s = next(left) if best is None else next(left_near)
            return None if step_s is None else _Found(sizes, usable, empty, nothing, step_s)

        monkeypatch.setattr(nodes, "_found", found)
        steps = [step_s for _, step_s in nodes.plans(10.0)]
        return steps, len(attempts) - len(list(left)), len(near) - len(list(left_near))

    three: list[float | None] = [None, None, None]
    assert steps_of([9.0, None, 8.0, 8.0], three) == ([9.0, 8.0], 4, 3)
    assert steps_of([9.0, 9.5, None, 1.0], [*three, 1.0]) == ([9.0], 3, 3)
    assert steps_of([None, None, 1.0, 1.0], three) == ([], 2, 0)
    assert steps_of([11.0, None, 1.0, 1.0], [10.5, 10.4999, 9.9, 9.95, *three]) == ([9.9], 2, 6)


@pytest.mark.slow
def test_neighbourhoods_come_to_ways_that_the_attempts_lack(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts that know one way of each class are far from those that know twenty; plans with ways that are drawn are
    as fast as these, the same for the same seed, whole and within memory."""
    small = {"rows": 20_000, "dim": 64, "pooling_factor": 10}
    ways = ("table_wise", "column_wise", "table_row_wise", "row_wise")
    problem = problem_of([small] * 21 + [{**small, "pooling_factor": 11}] * 21, shardings=ways)
    fluid = Fluid(problem)
    value = fluid.choice_values(fluid.no_multipliers())
    stage_s = np.ones(len(problem.stage_constants))

    def found(most: int, in_vain: int) -> list[tuple[Placement, float]]:
        monkeypatch.setattr(unlike_nodes, "MOST_CHOICES", most)
        monkeypatch.setattr(unlike_nodes, "NEAR_IN_VAIN", in_vain)
        return list(UnlikeNodes(problem, tables_of_classes(problem), value, np.inf, stage_s, ENDLESS, 0).plans(np.inf))

    plans = found(1, 3)
    steps = [step_s for _, step_s in plans]
    few, many = (min(step_s for _, step_s in found(most, 0)) for most in (1, 20))
    assert few > 1.05 * many
    assert min(steps) == pytest.approx(many, rel=1e-3)
    assert steps == sorted(steps, reverse=True) == [step_s for _, step_s in found(1, 3)]
    for placement, step_s in plans:
        assert faults(problem, placement) == []
        assert load_state(problem, placement).step_s() == step_s


def test_nothing_is_looked_for_once_somebody_says_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programmes that the solver is at are left alone, and no others are made."""
    problem = problem_of([ALIKE] * 40, shardings=("table_wise",), tiers=("hbm",))
    asked_for: list[float] = []

    def stop() -> bool:
        asked_for.append(1.0)
        return len(asked_for) > 1

    value = Fluid(problem).choice_values(Fluid(problem).no_multipliers())
    clock, stage_s = Clock(SearchLimits(stop=stop)), np.ones(len(problem.stage_constants))
    monkeypatch.setattr(unlike_nodes.NodeSorts, "contents", _fail)
    nodes = UnlikeNodes(problem, tables_of_classes(problem), value, np.inf, stage_s, clock)
    clock.is_over()
    assert clock.is_over()
    assert list(nodes.plans(np.inf)) == []


def _fail(*_: object) -> None:
    raise AssertionError("nobody waits for this")
