"""Tables from all ranks back to groups of ranks, as many as have room below the step that their loads come in."""

import numpy as np

from cost_models.registry import cost_model
from planner.formulation.options import build_problem, enumerate_options
from planner.formulation.policy import Policy
from planner.problem.arrays import Problem
from planner.problem.integrality import integrality_floors
from planner.problem.load_state import load_state
from planner.problem.numbers import Floats
from planner.problem.placement import Placement
from planner.problem.site_bins import MANY
from planner.problem.sites import NOWHERE
from planner.solvers.bound.fluid import Fluid
from planner.solvers.improve.improver import Improver
from planner.solvers.lower_bound import relaxed_optimum
from tests.oracles.instances import node_group, topology, workload

EACH, MISSING, SPARED = 12, 10, 3
"""Tables of a node; nodes that have one less; and nodes on which none comes back, so that swaps have room."""


def _problem() -> Problem:
    """Enough tables for all nodes, all 64 columns wide: what nodes send comes in steps of a table."""
    tables: list[dict[str, object]] = [
        {"rows": 20_000 + 137 * i, "dim": 64, "pooling_factor": 8} for i in range(EACH * MANY)
    ]
    model = cost_model("physical", topology(node_group("a", nodes=MANY, ranks=2)), workload(tables))
    policy = Policy(tiers=("hbm",), shardings=("table_row_wise", "data_parallel"))
    return build_problem(model, enumerate_options(model, policy))


def _value(problem: Problem) -> Floats:
    fluid = Fluid(problem, integrality_floors(problem))
    return fluid.choice_values(relaxed_optimum(fluid).multipliers)


def _spread(problem: Problem, on_all: int) -> Improver:
    """The last tables on all ranks, every other one over a node, after some rounds."""
    first = problem.block_start[:-1]
    options = np.flatnonzero(
        np.where(
            problem.option_table < problem.tables - on_all, problem.is_on_group[first], problem.is_world_wide[first]
        )
    )
    _, of_table = np.unique(problem.option_table[options], return_index=True)
    blocks = np.concatenate([problem.blocks_of_choice(int(first[option])) for option in options[of_table]])
    place = np.where(problem.is_world_wide[blocks], NOWHERE, np.arange(len(blocks)) % MANY)
    improver = Improver(problem, Placement(blocks, place), 0)
    _balance(improver)
    return improver


def _balance(improver: Improver) -> None:
    for _ in range(40):
        if not improver.balance_sites():
            return


def test_tables_come_back_where_nodes_have_room_below_the_step() -> None:
    """One table for each node that has one less than the others, but for a few nodes: no node has more than before, the
    loads are those of the placement, and the step is shorter."""
    problem = _problem()
    improver = _spread(problem, MISSING)
    before_s = improver.best_s
    assert improver.return_to_sites(_value(problem))
    placement = improver.state.placement()
    state = load_state(problem, placement)
    assert np.allclose(state.load, improver.state.loads.load)
    assert state.overflow_bytes() == 0
    assert len(np.unique(problem.table_of_block[placement.item_block])) == problem.tables
    assert problem.is_world_wide[placement.item_block].sum() == SPARED
    node = np.bincount(placement.item_place[placement.item_place >= 0], minlength=MANY)
    assert node.max() == EACH
    _balance(improver)
    assert improver.best_s < 0.999 * before_s


def test_no_table_comes_back_where_that_costs_more_or_no_node_has_room() -> None:
    """Values say that nodes are dear; or all nodes have as many tables."""
    problem = _problem()
    dear = np.where(problem.is_on_group, 1.0, 0.0)
    full = _spread(problem, MANY)
    for improver, value in ((_spread(problem, MISSING), dear), (full, _value(problem))):
        before = improver.state.placement()
        assert not improver.return_to_sites(value)
        assert (improver.state.placement().item_block == before.item_block).all()
        assert (improver.state.placement().item_place == before.item_place).all()
