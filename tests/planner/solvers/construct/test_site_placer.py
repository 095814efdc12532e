"""Group-wide blocks on sites as bins: the same places as rank by rank, in far fewer numbers."""

import numpy as np

from cost_models.registry import cost_model
from cost_models.shards import NODE
from planner.formulation.options import build_problem, enumerate_options
from planner.formulation.policy import Policy
from planner.problem.arrays import Problem
from planner.problem.load_state import LoadState, load_state
from planner.problem.placement import Placement
from planner.problem.site_bins import MANY, site_bins
from planner.solvers.construct.block_placer import BlockPlacer
from planner.solvers.construct.partial_placement import PartialPlacement
from planner.solvers.construct.potential import Potential
from tests.oracles.instances import node_group, topology, workload

TABLES = 96
RANKS = 8


def _problem(hbm_bytes: float = 1e9, nodes: int = MANY) -> Problem:
    tables = [{"rows": 80_000 * (1 + i * i % 11), "dim": 64, "pooling_factor": 1 + 3 * i % 8} for i in range(TABLES)]
    cluster = topology(node_group("a", nodes=nodes, ranks=RANKS, hbm_bytes=hbm_bytes))
    model = cost_model("physical", cluster, workload(tables))
    return build_problem(model, enumerate_options(model, Policy(tiers=("hbm",), shardings=("table_row_wise",))))


def _blocks(problem: Problem) -> list[int]:
    """One block of each table, the largest first."""
    wide = np.flatnonzero(problem.block_extent == NODE)
    blocks = wide[np.unique(problem.table_of_block[wide], return_index=True)[1]]
    order = np.argsort(-problem.extremes.peak_load(0, blocks).max(axis=1), kind="stable")
    return [int(block) for block in blocks[order]]


def _placed(problem: Problem, blocks: list[int], *, one_by_one: bool) -> tuple[Placement, LoadState] | None:
    partial = PartialPlacement(problem, None, None)
    tiers = np.ones(len(problem.pool_capacity), dtype=bool)
    potential = Potential(partial, problem.stage_constants + 1e-3, tiers, None)
    placer = BlockPlacer(partial, potential, one_by_one=one_by_one)
    return partial.finished() if placer.put_on_groups(blocks) else None


def _potential(problem: Problem, state: LoadState) -> float:
    return float(
        ((state.load / 1e-3) ** 8).sum() + ((1 - state.free / np.maximum(LoadState(problem).free, 1.0)) ** 8).sum()
    )


def test_sites_as_bins_level_as_well_as_ranks_do() -> None:
    """96 unlike tables on 32 nodes of 8 ranks: the potential is that of placing rank by rank, within 1 per cent, and
    the books are right."""
    problem = _problem()
    blocks = _blocks(problem)
    fast, slow = (_placed(problem, blocks, one_by_one=alone) for alone in (False, True))
    assert fast is not None
    assert slow is not None
    values = [_potential(problem, state) for _, state in (fast, slow)]
    assert values[0] <= values[1] * 1.01
    placement, state = fast
    assert sorted(placement.item_block.tolist()) == sorted(blocks)
    np.testing.assert_allclose(state.free, load_state(problem, placement).free)


def test_sites_are_never_overfilled() -> None:
    """With less and less memory either everything fits, or nothing is returned; and so it is rank by rank."""
    largest = None
    for hbm_bytes in (1e9, 0.08e9, 0.065e9, 0.05e9, 0.04e9):
        problem = _problem(hbm_bytes)
        found = _placed(problem, _blocks(problem), one_by_one=False)
        if found is not None:
            assert found[1].overflow_bytes() == 0
        elif largest is None:
            largest = hbm_bytes
            assert _placed(problem, _blocks(problem), one_by_one=True) is None
    assert largest is not None


def test_few_sites_are_no_bins() -> None:
    """Below so many nodes, blocks are placed rank by rank: plans of small clusters stay as they are."""
    for nodes, expected in ((MANY, True), (MANY - 1, False)):
        problem = _problem(nodes=nodes)
        assert (site_bins(problem, np.array(_blocks(problem))) is not None) is expected
