"""The arrays of a problem: blocks that fit nowhere, options named by their blocks."""

import numpy as np
import pytest

from cost_models.shards import RANK
from planner.problem.load_state import LoadState, place_block
from tests.oracles.instances import tiny_instance


def test_blocks_that_cannot_fit_on_empty_hardware_are_not_allowed() -> None:
    """A rank's or a node's block is allowed on a kind exactly where an otherwise empty one of them has room for it."""
    checked = 0
    for seed in range(60):
        problem = tiny_instance(seed).problem
        for block in np.flatnonzero(problem.block_extent != 2):
            for kind in range(problem.kinds):
                rank = int(np.flatnonzero(problem.kind_of_rank == kind)[0])
                place = rank if problem.block_extent[block] == RANK else int(problem.node_of_rank[rank])
                state = LoadState(problem)
                before = state.free[:, rank].copy()
                place_block(problem, state, int(block), place)
                taken = state.free[:, rank] < before
                fits = bool((state.free[:, rank][taken] >= -1e-6).all())
                if problem.allowed[kind, block]:
                    assert fits
                elif fits:  # then the kind lacks the memory that the tier lives in
                    assert (problem.pool_capacity[1][problem.pool_of_rank[1][rank]] == 0) or (
                        problem.pool_capacity[2][problem.pool_of_rank[2][rank]] == 0
                    )
                checked += not fits
    assert checked > 20


@pytest.mark.parametrize("seed", range(100))
def test_a_pick_is_a_complete_option(seed: int) -> None:
    """Whatever block names it: a fixed option as it is; a free one cut into as many equal parts as that width asks for.

    The parts are at most a unit apart; where the narrowest width does not let there be so many, there are fewer.
    """
    problem = tiny_instance(seed).problem
    for block in range(len(problem.block_option)):
        option = problem.block_option[block]
        types = np.flatnonzero(problem.block_option == option)
        taken = np.array(problem.blocks_of_choice(block))
        assert set(taken.tolist()) <= set(types.tolist())
        whole, width = int(problem.option_units[option]), int(problem.block_units[block])
        if not whole:
            assert taken.tolist() == np.repeat(types, problem.block_count[types]).tolist()
            continue
        units = problem.block_units[taken]
        assert units.sum() == whole
        assert np.ptp(units) <= 1
        assert len(taken) == min(-(-whole // width), whole // problem.block_units[types].min())
