"""Tables from groups of ranks to all ranks, where that lets the groups' loads come down by a step."""

import numpy as np
import pytest

from cost_models.registry import cost_model
from planner.formulation.options import build_problem, enumerate_options
from planner.formulation.policy import Policy
from planner.problem.arrays import Problem
from planner.problem.integrality import integrality_floors
from planner.problem.load_state import load_state
from planner.problem.numbers import Floats
from planner.problem.placement import Placement
from planner.problem.site_bins import MANY
from planner.solvers.bound.fluid import Fluid
from planner.solvers.improve.improver import Improver
from planner.solvers.lower_bound import relaxed_optimum
from tests.oracles.instances import node_group, topology, workload

EACH = 12
SHARDINGS = ("table_row_wise", "data_parallel")


def _problem(more: int, shardings: tuple[str, ...] = SHARDINGS) -> Problem:
    """So many tables for each node and some `more`, all 64 columns wide: what nodes send comes in steps of a table.
    One in four is tiny, and looked up seldom."""
    tables: list[dict[str, object]] = [
        {"rows": 4 if i % 4 == 0 else 20_000 + 137 * i, "dim": 64, "pooling_factor": 1 if i % 4 == 0 else 8}
        for i in range(EACH * MANY + more)
    ]
    model = cost_model("physical", topology(node_group("a", nodes=MANY, ranks=2)), workload(tables))
    return build_problem(model, enumerate_options(model, Policy(tiers=("hbm",), shardings=shardings)))


def _value(problem: Problem) -> Floats:
    fluid = Fluid(problem, integrality_floors(problem))
    return fluid.choice_values(relaxed_optimum(fluid).multipliers)


def _levelled(problem: Problem, seed: int = 0) -> Improver:
    """Every table over one node, one after the other, after some rounds."""
    options = np.flatnonzero(problem.is_on_group[problem.block_start[:-1]])
    _, first = np.unique(problem.option_table[options], return_index=True)
    blocks = np.concatenate([problem.blocks_of_choice(int(problem.block_start[option])) for option in options[first]])
    improver = Improver(problem, Placement(blocks, np.arange(len(blocks)) % MANY), seed)
    _balance(improver)
    return improver


def _balance(improver: Improver) -> None:
    for _ in range(40):
        if not improver.balance_sites():
            return


@pytest.mark.parametrize("more", [3, MANY // 4])
def test_stages_come_down_by_a_step(more: int) -> None:
    """Some nodes have a table more than the others, whichever they swap: with about as many tables on all ranks none
    has, the loads are those of the placement, and the step is shorter."""
    problem = _problem(more)
    improver = _levelled(problem)
    before_s, tables = improver.best_s, problem.tables
    assert improver.spread_from_sites(_value(problem))
    placement = improver.state.placement()
    state = load_state(problem, placement)
    assert np.allclose(state.load, improver.state.loads.load)
    assert state.overflow_bytes() == 0
    assert len(np.unique(problem.table_of_block[placement.item_block])) == tables
    on_all = int(problem.is_world_wide[placement.item_block].sum())
    assert more <= on_all <= more + 0.4 * MANY
    _balance(improver)
    assert improver.best_s < 0.996 * before_s
    node = np.bincount(placement.item_place[placement.item_place >= 0], minlength=MANY)
    assert node.sum() + on_all == tables


def test_nothing_is_spread_where_all_stand_on_one_step() -> None:
    """The mean is on the step that all nodes are on; the next one is as many tables away as there are nodes."""
    problem = _problem(0)
    improver = _levelled(problem)
    value = np.where(problem.is_world_wide, 1.0, 0.0)
    before = improver.state.placement()
    assert not improver.spread_from_sites(value)
    assert (improver.state.placement().item_block == before.item_block).all()


def test_nothing_is_spread_without_such_options() -> None:
    problem = _problem(3, ("table_row_wise",))
    assert not _levelled(problem).spread_from_sites(_value(problem))
