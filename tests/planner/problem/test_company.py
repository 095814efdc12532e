"""Tables that every rank holds a part of: of all placements that keep to limits on stages, none shows otherwise."""

import numpy as np
import pytest

from cost_models.registry import cost_model
from planner.formulation.formulation import Formulation
from planner.formulation.policy import Policy
from planner.problem.arrays import Problem
from planner.problem.company import company, have_one_each, roofs_of_company
from planner.problem.load_state import load_state
from planner.problem.placement import Placement
from planner.problem.stage_limits import divided
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.stage_cases import StageCaseSearch
from planner.solvers.lower_bound import bound_of, relaxed_optimum
from planner.verification.proof import recomputed_bound_s, write_proof
from tests.oracles.instances import node_group, topology, workload
from tests.oracles.placements import random_placement

CLUSTER = topology(node_group("a", nodes=4, ranks=2))
ONE_CARD = topology(node_group("a", nodes=4, ranks=2, cards=1))
TABLES = [
    {"rows": 900_001, "dim": 16, "pooling_factor": 60},
    {"rows": 40_000, "dim": 4, "pooling_factor": 1},
    {"rows": 40_000, "dim": 8, "pooling_factor": 2},
]
"""One that is looked up far more often than the others."""
BATCH = 32768
"""So many samples that vectors of one block of the busy table on a node take longer than sums around all ranks wait
for their ring, which hides what is shorter."""
SHARDINGS = ("column_wise", "table_row_wise", "grid_shard", "row_wise")
DRAWN = 1000


@pytest.fixture(scope="module", params=[CLUSTER, ONE_CARD], ids=["a card each", "one card"])
def problem(request: pytest.FixtureRequest) -> Problem:
    model = cost_model("physical", request.param, workload(TABLES, global_batch=BATCH))
    return Formulation.of(model, Policy(shardings=SHARDINGS, tiers=("hbm",))).problem


@pytest.fixture(scope="module")
def placements(problem: Problem) -> list[Placement]:
    """Many, with the busy table over all nodes in most, and the others on all ranks or anywhere, as other ways to hold
    it keep to no limit."""
    random, drawn = np.random.default_rng(7), []
    option = int(np.flatnonzero(have_one_each(problem) & (problem.option_table == 0))[0])
    each_node = np.full(4, problem.block_start[option])
    for number in range(DRAWN):
        placement = random_placement(problem, random)
        others = problem.table_of_block[placement.item_block] > 0
        if number % 4:
            places = np.arange(4) if number % 2 else random.integers(4, size=4)
            blocks, sites = placement.item_block[others], placement.item_place[others]
            if number % 3:
                first = problem.table_block_start[1:-1]
                blocks = first + [int(problem.is_world_wide[at:].argmax()) for at in first.tolist()]
                sites = np.full(len(blocks), -1)
            placement = Placement(np.append(each_node, blocks), np.append(places, sites))
        drawn.append(placement)
    return drawn


def loads_of(problem: Problem, placement: Placement, table: int) -> np.ndarray:
    """[C, W] what the ranks have of one table, from the definition of a block's loads."""
    loads = np.zeros((len(problem.stage_of_column), problem.world))
    for block, place in zip(placement.item_block.tolist(), placement.item_place.tolist(), strict=True):
        if problem.table_of_block[block] != table:
            continue
        sites = problem.sites_of(block)
        ranks = np.arange(problem.world) if sites.reach == "world" else np.flatnonzero(sites.of_rank == place)
        rows, whole = int(problem.block_rows[block]), len(ranks)
        size = -(-rows // whole)
        held = [max(0, min(size, rows - i * size)) / rows for i in range(whole)]
        share = np.ones(whole) if problem.block_replicated[block] else np.array(held)
        loads[:, ranks] += problem.fixed[0, block][:, None] + problem.by_rows[0, block][:, None] * share
        loads += problem.everywhere[0, block][:, None]
    return loads


def test_no_placement_within_the_limits_shows_otherwise(problem: Problem, placements: list[Placement]) -> None:
    """Whatever stage is limited, to the time at which the busy table is everywhere or to any other: all ranks have as
    much of a table as is said, and no block is barred that some placement holds."""
    kept, held = 0, 0
    seconds = np.array([load_state(problem, each).stage_seconds() for each in placements]) - problem.stage_constants
    for table, stage in np.argwhere(roofs_of_company(problem) > 0).tolist():
        for times in (1.0, 1.02, 1.3, 2.0):
            roof = roofs_of_company(problem)[table, stage] * times * (1 - 1e-6)
            below = divided(problem, stage, roof)[0]
            least = company(below)
            for number in np.flatnonzero(seconds[:, stage] < roof).tolist():
                assert below.allowed[0, placements[number].item_block].all()
                kept, held = kept + 1, held + bool(least.any())
                for other in np.flatnonzero(least.any(axis=1)).tolist():
                    held_s = loads_of(problem, placements[number], other)
                    assert (held_s >= least[other][:, None] * (1 - 1e-9)).all()
    assert kept > 1000
    assert held > 20


def test_blocks_that_are_too_long_beside_a_table_are_barred() -> None:
    """By themselves they would keep to the limit."""
    model = cost_model("physical", CLUSTER, workload(TABLES, global_batch=BATCH))
    problem = Formulation.of(model, Policy(shardings=SHARDINGS, tiers=("hbm",))).problem
    barred = 0
    for table, stage in np.argwhere(roofs_of_company(problem) > 0).tolist():
        roof = roofs_of_company(problem)[table, stage] * (1 - 1e-6)
        below = divided(problem, stage, roof)[0]
        alone = problem.allowed & (problem.extremes.stage_peaks_of_kind[:, :, stage] < roof)
        found = np.flatnonzero((alone & ~below.allowed)[0])
        for block in found[problem.is_on_rank[found]].tolist():
            columns = problem.stage_of_column == stage
            beside = company(below)[problem.table_of_block[block] != np.arange(problem.tables)].sum(axis=0)
            load = problem.fixed[0, block] + problem.by_rows[0, block] + problem.base_loads[0] + beside
            assert load[columns].max() >= roof * (1 - 1e-9)
        barred += len(found)
    assert barred > 5


def test_nothing_is_said_of_plans_without_limits(problem: Problem) -> None:
    assert not company(problem).any()


def test_a_table_that_may_leave_a_node_is_no_company(problem: Problem) -> None:
    """Where two blocks of one node are as long as the limit allows, or another option keeps to it."""
    stage = int(np.flatnonzero(roofs_of_company(problem)[0])[0])
    roof = float(roofs_of_company(problem)[0, stage])
    assert company(divided(problem, stage, roof * (1 - 1e-6))[0])[0].any()
    assert not company(divided(problem, stage, roof * (1 + 1e-6))[0])[0].any()


def test_the_bound_rises_and_is_proven_as_written() -> None:
    model = cost_model("physical", CLUSTER, workload(TABLES, global_batch=BATCH))
    problem = Formulation.of(model, Policy(shardings=SHARDINGS, tiers=("hbm",))).problem
    fluid = Fluid(problem)
    relaxed = relaxed_optimum(fluid)
    search = StageCaseSearch(fluid, relaxed, bound_of(relaxed))
    search.run_company(np.inf, 4)
    bound = search.whole.proven()
    assert bound.cases is not None
    assert bound.seconds > relaxed.bound_s * 1.0002
    assert recomputed_bound_s(write_proof(model, problem, bound), model, problem) == pytest.approx(bound.seconds)
