"""Tables over groups of ranks in cheaper options there, and the prices that say which are."""

from functools import cache

import numpy as np
import pytest

from cost_models.registry import cost_model
from planner.formulation.options import build_problem, enumerate_options
from planner.formulation.policy import Policy
from planner.problem.arrays import Problem
from planner.problem.integrality import integrality_floors
from planner.problem.load_state import load_state
from planner.problem.numbers import Bools, Ints
from planner.problem.placement import Placement
from planner.problem.site_bins import MANY
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.present_prices import present_prices
from planner.solvers.improve.improver import Improver
from planner.solvers.lower_bound import relaxed_optimum
from tests.oracles.instances import node_group, topology, workload

TABLES = 8 * MANY


@cache
def _problem(*tiers: str) -> Problem:
    """One table in eight is looked up ten times as much as the others."""
    tables: list[dict[str, object]] = [
        {"rows": 20_000 + 137 * i, "dim": 64, "pooling_factor": (1 + 3 * i % 8) * (10 if i % 8 == 0 else 1)}
        for i in range(TABLES)
    ]
    model = cost_model("physical", topology(node_group("a", nodes=MANY, ranks=2)), workload(tables))
    policy = Policy(tiers=tiers, shardings=("table_row_wise", "grid_shard"))
    return build_problem(model, enumerate_options(model, policy))


def _fluid(problem: Problem) -> Fluid:
    return Fluid(problem, integrality_floors(problem))


def _count(problem: Problem) -> Ints:
    """[O] blocks of each option."""
    return np.add.reduceat(problem.block_count, problem.block_start[:-1])


def _in_memory(problem: Problem, memory: int) -> Bools:
    """[O] options of which blocks keep rows in a memory."""
    return problem.bytes_by_rows[0, problem.block_start[:-1], memory] > 0


def _dealt(problem: Problem, possible: Bools) -> Placement:
    """Each table in the first of its options [O] that are possible, block after block on the next node."""
    options = np.flatnonzero(possible)
    _, first = np.unique(problem.option_table[options], return_index=True)
    starts = problem.block_start[options[first]]
    blocks = np.concatenate([problem.blocks_of_choice(int(start)) for start in starts])
    return Placement(blocks, np.arange(len(blocks)) % MANY)


def _balanced(problem: Problem, placement: Placement) -> Improver:
    improver = Improver(problem, placement, 0)
    for _ in range(8):
        improver.balance_sites()
    return improver


def _check_books(problem: Problem, improver: Improver) -> None:
    """Each table is in one option, whole; loads and bytes are those of the placement."""
    placement = improver.state.placement()
    state = load_state(problem, placement)
    assert np.allclose(state.load, improver.state.loads.load)
    assert state.overflow_bytes() == 0
    of_table = problem.table_of_block[placement.item_block]
    for table in range(problem.tables):
        own = placement.item_block[of_table == table].tolist()
        assert sorted(own) == sorted(problem.blocks_of_choice(own[0])), table


def test_tables_take_fewer_blocks_or_another_memory_and_the_step_gets_shorter() -> None:
    """Tables in four column blocks come together; tables that are in host memory come to HBM, of which they take more
    bytes then."""
    flat, tiered = _problem("hbm"), _problem("hbm", "ddr")
    starts = [(flat, _count(flat) == 4), (tiered, (_count(tiered) == 1) & _in_memory(tiered, 1))]
    for problem, possible in starts:
        improver = _balanced(problem, _dealt(problem, possible))
        before_s, fluid = improver.best_s, _fluid(problem)
        assert improver.convert_on_sites(fluid.choice_values(relaxed_optimum(fluid).multipliers))
        _check_books(problem, improver)
        after = improver.state.placement().option_of_table(problem)
        assert (possible[after]).mean() < 0.5
        for _ in range(10):
            improver.balance_sites()
        assert improver.best_s < 0.999 * before_s


def test_a_few_tables_take_more_blocks_where_values_say_so() -> None:
    """Whole tables are cut in two; no node is above what the stages' longest were by more than swaps leave."""
    problem = _problem("hbm")
    improver = _balanced(problem, _dealt(problem, _count(problem) == 1))
    before_s, few = improver.present_s, problem.option_table < MANY
    value = np.where(few & (_count(problem) == 2), 1e-3, 2e-3)[problem.block_option]
    assert improver.convert_on_sites(value)
    _check_books(problem, improver)
    after = improver.state.placement().option_of_table(problem)
    is_cut = _count(problem)[after] == 2
    assert is_cut[:MANY].any()
    assert not is_cut[MANY:].any()
    assert improver.present_s <= before_s * 1.002


def test_nothing_changes_where_no_option_is_cheaper() -> None:
    problem = _problem("hbm")
    improver = _balanced(problem, _dealt(problem, _count(problem) == 1))
    before = improver.state.placement()
    assert not improver.convert_on_sites(np.ones(len(problem.block_option)))
    assert (improver.state.placement().item_block == before.item_block).all()
    assert (improver.state.placement().item_place == before.item_place).all()


def test_prices_are_the_bounds_where_stages_are_level() -> None:
    """To the tolerance of the cutting planes: all blocks may be used, and they prove the same."""
    problem = _problem("hbm")
    fluid, best = _fluid(problem), _balanced(problem, _dealt(problem, _count(problem) == 1)).best()
    state = load_state(problem, best)
    level = state.load.mean(axis=1) >= 0.98 * state.load.max(axis=1)
    stages = np.unique(problem.stage_of_column[state.load.any(axis=1)])
    assert all(level[problem.stage_of_column == stage].any() for stage in stages)
    prices, usable = present_prices(fluid, best)
    assert usable.all()
    assert fluid.bound(prices)[0] == pytest.approx(relaxed_optimum(fluid).bound_s, rel=2e-5)


def test_seconds_that_are_idle_cost_nothing() -> None:
    """All tables on one node: no stage is level, so that seconds of none have a weight, and blocks that alone take
    longer than all of that are none to use."""
    problem = _problem("hbm")
    blocks = _dealt(problem, _count(problem) == 1).item_block
    crowded = Placement(blocks, np.zeros(len(blocks), dtype=np.int64))
    prices, usable = present_prices(_fluid(problem), crowded)
    assert not prices.weight[:, problem.moved_columns].any()
    assert usable[blocks].all()
    longest = load_state(problem, crowded).stage_seconds() - problem.stage_constants
    assert (usable == (problem.extremes.stage_peaks <= longest * (1 + 1e-9)).all(axis=1)).all()
