"""Tables over groups of ranks in more blocks, where a large one leaves its site less full than others."""

import numpy as np
import pytest

from cost_models.registry import cost_model
from planner.formulation.options import build_problem, enumerate_options
from planner.formulation.policy import Policy
from planner.problem.arrays import Problem
from planner.problem.integrality import integrality_floors
from planner.problem.load_state import load_state
from planner.problem.numbers import Floats, Ints
from planner.problem.placement import Placement
from planner.problem.site_bins import MANY
from planner.solvers.bound.fluid import Fluid
from planner.solvers.improve.improver import Improver
from planner.solvers.improve.site_splitting import _unused
from planner.solvers.lower_bound import relaxed_optimum
from tests.oracles.instances import node_group, topology, workload

TABLES = 16 * MANY


def _problem(most: int) -> Problem:
    """All tables are alike but for the first, narrow one, of which `most` ids are looked up at once."""
    tables: list[dict[str, object]] = [
        {"rows": 20_000 + 137 * i, "dim": 512 if i else 256, "pooling_factor": 10 * (4 + i % 8) if i else 10 * most}
        for i in range(TABLES)
    ]
    model = cost_model("physical", topology(node_group("a", nodes=MANY, ranks=2, hbm_bytes=16e9)), workload(tables))
    policy = Policy(tiers=("hbm",), shardings=("table_row_wise", "grid_shard"))
    return build_problem(model, enumerate_options(model, policy))


def _among_others() -> tuple[Problem, Placement]:
    """A narrow table of many ids whole on the first node, beside it as many others as on every node: elsewhere of many
    ids, here of few, so that only what is sent is level."""
    each = 24
    tables: list[dict[str, object]] = [{"rows": 20_000, "dim": 256, "pooling_factor": 1200}]
    tables += [{"rows": 20_000 + 137 * i, "dim": 512, "pooling_factor": 10 * (1 + i % 3)} for i in range(each)]
    tables += [
        {"rows": 20_000 + 137 * i, "dim": 512, "pooling_factor": 10 * (4 + i % 8)} for i in range(each * (MANY - 1))
    ]
    model = cost_model("physical", topology(node_group("a", nodes=MANY, ranks=2, hbm_bytes=16e9)), workload(tables))
    policy = Policy(tiers=("hbm",), shardings=("table_row_wise", "grid_shard"))
    problem = build_problem(model, enumerate_options(model, policy))
    blocks = _whole(problem)
    elsewhere = 1 + np.arange(len(blocks)) % (MANY - 1)
    return problem, Placement(blocks, np.where(problem.table_of_block[blocks] > each, elsewhere, 0))


def _whole(problem: Problem) -> Ints:
    """The block of each table that is whole on a node."""
    first = problem.block_start[:-1]
    count = np.add.reduceat(problem.block_count, first)
    return first[(count == 1) & problem.is_on_group[first]]


def _value(problem: Problem) -> Floats:
    fluid = Fluid(problem, integrality_floors(problem))
    return fluid.choice_values(relaxed_optimum(fluid).multipliers)


def _alone(problem: Problem) -> Improver:
    """Every table whole on a node: the first one alone on the first node, all others on the next one each."""
    blocks = _whole(problem)
    places = 1 + np.arange(len(blocks)) % (MANY - 1)
    return Improver(problem, Placement(blocks, np.where(problem.table_of_block[blocks] > 0, places, 0)), 0)


def _blocks(problem: Problem, placement: Placement, table: int) -> list[int]:
    return placement.item_block[problem.table_of_block[placement.item_block] == table].tolist()


def test_a_large_block_is_cut_and_the_step_gets_shorter() -> None:
    """Beside the table of many ids its node has nothing else; in more blocks it lets all nodes be as full. It stays so
    where coarser cuts are looked for, and the books are right."""
    problem = _problem(120)
    improver = _alone(problem)
    before_s, value = improver.best_s, _value(problem)
    assert improver.split_cuts(value)
    placement = improver.state.placement()
    blocks = _blocks(problem, placement, 0)
    assert len(blocks) > 1
    assert len({int(problem.block_option[block]) for block in blocks}) == 1
    assert sorted(blocks) == sorted(problem.blocks_of_choice(blocks[0]))
    assert all(len(_blocks(problem, placement, table)) == 1 for table in range(1, TABLES))
    state = load_state(problem, placement)
    assert np.allclose(state.load, improver.state.loads.load)
    assert state.overflow_bytes() == 0
    for _ in range(20):
        improver.balance_sites()
    assert improver.best_s < 0.999 * before_s
    improver.merge_cuts(value)
    assert len(_blocks(problem, improver.state.placement(), 0)) == len(blocks)


def test_small_blocks_beside_a_large_one_go_where_its_other_part_comes_from() -> None:
    """Swaps of single blocks do not level the nodes: what the first one has too many of is of few ids and wide."""
    problem, placement = _among_others()
    improver = Improver(problem, placement, 0)
    before_s = improver.best_s
    assert improver.split_cuts(_value(problem))
    state = load_state(problem, improver.state.placement())
    assert np.allclose(state.load, improver.state.loads.load)
    assert state.overflow_bytes() == 0
    for _ in range(20):
        improver.balance_sites()
    assert improver.best_s < 0.99 * before_s


def test_what_a_site_leaves_to_others_is_of_the_resource_that_is_fullest_on_average() -> None:
    """Another one that is full there alone does not hide it."""
    problem = _problem(120)
    state = _alone(problem).state
    extent = int(problem.block_extent[state.group_block[0]])
    before_s, longest = _unused(state, extent)
    assert before_s.argmax() == 0
    mean = state.loads.load.mean(axis=1)
    for stage in np.unique(problem.stage_of_column).tolist():
        columns = np.flatnonzero(problem.stage_of_column == stage)
        emptier = columns[mean[columns] < 0.9 * mean[columns].max()]
        state.loads.load[emptier[:1], :2] = longest[stage]
    after_s, _ = _unused(state, extent)
    assert np.allclose(after_s, before_s)


@pytest.mark.parametrize(("most", "more_s"), [(4, 0.0), (120, 1.0)])
def test_nothing_is_cut_where_that_costs_more_than_it_gains(most: int, more_s: float) -> None:
    """Where no block is large; or where values say that more blocks cost as much as a node."""
    problem = _problem(most)
    improver = _alone(problem)
    count = np.add.reduceat(problem.block_count, problem.block_start[:-1])
    value = _value(problem) + more_s * (count > 1)[problem.block_option]
    before = improver.state.placement()
    assert not improver.split_cuts(value)
    after = improver.state.placement()
    assert (after.item_block == before.item_block).all()
    assert (after.item_place == before.item_place).all()
