"""Tables over groups of ranks in fewer blocks, once the groups are level."""

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

TABLES = 16 * MANY
SHARDINGS = ("table_row_wise", "grid_shard")


def _problem(policy: Policy) -> Problem:
    """One table in eight is looked up ten times as much as the others."""
    tables: list[dict[str, object]] = [
        {"rows": 20_000 + 137 * i, "dim": 64, "pooling_factor": (1 + 3 * i % 8) * (10 if i % 8 == 0 else 1)}
        for i in range(TABLES)
    ]
    model = cost_model("physical", topology(node_group("a", nodes=MANY, ranks=2)), workload(tables))
    return build_problem(model, enumerate_options(model, policy))


def _value(problem: Problem) -> Floats:
    fluid = Fluid(problem, integrality_floors(problem))
    return fluid.choice_values(relaxed_optimum(fluid).multipliers)


def _cut_in_four(problem: Problem) -> Placement:
    """Every table in four column blocks, each on the next node."""
    count = np.add.reduceat(problem.block_count, problem.block_start[:-1])
    options = np.flatnonzero(count == 4)
    blocks = np.concatenate([problem.blocks_of_choice(int(problem.block_start[option])) for option in options.tolist()])
    return Placement(blocks, np.arange(len(blocks)) % MANY)


def _levelled(problem: Problem, seed: int) -> Improver:
    improver = Improver(problem, _cut_in_four(problem), seed)
    for _ in range(5):
        improver.balance_sites()
    return improver


def _blocks_of_tables(problem: Problem, placement: Placement) -> list[tuple[int, ...]]:
    table = problem.table_of_block[placement.item_block]
    return [tuple(placement.item_block[table == number].tolist()) for number in range(problem.tables)]


@pytest.mark.parametrize("seed", [0, 1])
def test_tables_come_together_and_the_step_gets_shorter(seed: int) -> None:
    """All tables are whole in the plan after it, each in one option; it fits, the step is that of the placement, and
    levelled it is shorter than before."""
    problem = _problem(Policy(tiers=("hbm",), shardings=SHARDINGS))
    improver = _levelled(problem, seed)
    before_s = improver.best_s
    assert improver.merge_cuts(_value(problem))
    merged = improver.state.placement()
    state = load_state(problem, merged)
    assert state.step_s() == pytest.approx(improver.state.loads.step_s())
    assert np.allclose(state.load, improver.state.loads.load)
    assert state.overflow_bytes() == 0
    for table, blocks in enumerate(_blocks_of_tables(problem, merged)):
        options = set(problem.block_option[list(blocks)].tolist())
        assert len(options) == 1, table
        assert sorted(blocks) == sorted(problem.blocks_of_choice(int(problem.block_start[options.pop()])))
    assert len(merged.item_block) < 0.5 * 4 * TABLES
    for _ in range(10):
        improver.balance_sites()
    assert improver.best_s < 0.999 * before_s


def test_confined_tables_stay_as_they_are() -> None:
    """Two tables that may use half of the nodes: neither is cut less, nor moved."""
    rules = [{"match": name, "nodes": f"0-{MANY // 2 - 1}"} for name in ("t0", "t8")]
    limits = {"tiers": ["hbm"], "shardings": list(SHARDINGS), "tables": rules}
    problem = _problem(Policy.model_validate(limits))
    confined = np.flatnonzero(~problem.rank_sets[problem.table_rank_set].all(axis=1))
    assert confined.tolist() == [0, 8]
    improver = _levelled(problem, 0)
    before = improver.state.placement()
    assert improver.merge_cuts(_value(problem))
    places = []
    for placement in (before, improver.state.placement()):
        own = np.isin(problem.table_of_block[placement.item_block], confined)
        places.append(list(zip(placement.item_block[own].tolist(), placement.item_place[own].tolist(), strict=True)))
    assert len(places[0]) == 8
    assert places[0] == places[1]


def test_nothing_comes_together_where_it_does_not_cost_less() -> None:
    """By values that say so."""
    problem = _problem(Policy(tiers=("hbm",), shardings=SHARDINGS))
    improver = _levelled(problem, 0)
    before = improver.state.placement()
    assert not improver.merge_cuts(np.ones(len(problem.block_option)))
    after = improver.state.placement()
    assert (after.item_block == before.item_block).all()
    assert (after.item_place == before.item_place).all()
