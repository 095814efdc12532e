"""Why nothing fits: the growth that lets tables fit, and the ranks to blame."""

from dataclasses import replace

import numpy as np
import pytest

from planner.certificates.shortage import blamed_ranks, confined_regions, growth_for
from planner.formulation.allowed_choices import planning_model
from planner.formulation.options import build_problem, enumerate_options
from planner.formulation.policy import Policy
from planner.problem.arrays import Problem
from planner.problem.load_state import LoadState, place_block
from tests.oracles.instances import confined_instance, node_group, tiny_instance, topology, workload


def _large_table() -> Problem:
    """A table of 25.6 GB that is to be whole in HBM of 10 GB, beside a small one."""
    policy = Policy(tiers=("hbm",), shardings=("table_wise",))
    cluster = topology(node_group("n", nodes=2, ranks=2, hbm_bytes=10e9))
    tables = [{"rows": 50_000_000, "dim": 128}, {"rows": 1_000, "dim": 128}]
    model = planning_model("physical", cluster, workload(tables), policy)
    return build_problem(model, enumerate_options(model, policy))


def _fits_somewhere(problem: Problem, block: int) -> bool:
    for rank in range(problem.world):
        state = LoadState(problem)
        place_block(problem, state, block, rank)
        if state.overflow_bytes() <= 1e-3:
            return True
    return False


def test_a_table_fits_after_the_growth_and_not_before() -> None:
    """All pools of the tier alike; a hundredth less is too little. Other tiers do not help."""
    problem = _large_table()
    block = int(np.flatnonzero(problem.table_of_block == 0)[0])
    growth = growth_for(problem, np.array([0]))
    helpful = np.flatnonzero(np.isfinite(growth))
    assert len(helpful) == 1
    tier = int(helpful[0])
    for share, fits in ((0.0, False), (0.99, False), (1.0 + 1e-9, True)):
        factor = 1 + share * growth[tier] / problem.pool_capacity[tier].sum()
        capacity = [pools * factor if m == tier else pools for m, pools in enumerate(problem.pool_capacity)]
        assert _fits_somewhere(replace(problem, pool_capacity=tuple(capacity)), block) == fits


def test_tables_that_fit_need_no_growth() -> None:
    """Of every tier that a table may use, nothing more."""
    growth = growth_for(_large_table(), np.array([1]))
    assert growth[np.isfinite(growth)] == pytest.approx(0.0)


def test_only_confined_tables_have_ranks_to_blame() -> None:
    """The ranks of the one set on whose regions all prices lie; none where they lie on others, too, or nowhere."""
    blamed = 0
    for seed in range(60):
        plain = tiny_instance(seed).problem
        assert list(confined_regions(plain)) == []
        instance = confined_instance(seed)
        if not len(instance.options.table):
            continue
        problem = instance.problem
        nothing = np.zeros((len(problem.capacity_regions.kind), len(problem.pool_capacity)))
        assert blamed_ranks(problem, nothing) is None
        assert blamed_ranks(problem, nothing + 1.0) is None
        for mine in confined_regions(problem):
            ranks = blamed_ranks(problem, np.where(mine[:, None], 1.0, nothing))
            assert ranks is not None
            assert any((ranks == (own & problem.reach)).all() or (ranks == own).all() for own in problem.rank_sets)
            blamed += 1
    assert blamed > 5
