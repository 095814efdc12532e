"""A trainer whose vectors go through towers, four processes as two hosts of two, or as two towers of two hosts of one:
it computes what the unsharded model computes, and sends what the simulator says."""

import numpy as np
import pytest

from benchmarks.gloo.processes import Processes
from planner import plan
from planner.document.plan import Plan
from planner.formulation.policy import Policy, TableRule
from planner.verification.simulation import simulate_plan
from tests.oracles.instances import node_group, topology, workload
from tests.torchrec_package.tower_trainer import IDS, Job, Shard, step

SAMPLES, WORLD, LOCAL = 6, 4, 2
"""Of a rank, of all, of a tower."""
SHAPES = ((50, 8), (31, 16), (40, 8), (23, 4), (64, 12))
SHARDINGS = ("table_wise", "column_wise", "table_row_wise", "row_wise", "grid_shard")


OF_RANKS = ("table_wise", "column_wise", "table_wise", "table_wise", "column_wise")
"""Without those whose rows several ranks share: here none are of one node, and tables stay in their towers."""


@pytest.fixture(scope="module", params=[2, 1])
def planned(request: pytest.FixtureRequest) -> Plan:
    """A table of each sharding that goes through towers, and one that all ranks cut; on hosts of so many ranks."""
    ranks = request.param
    tables = [{"rows": rows, "dim": dim, "pooling_factor": IDS} for rows, dim in SHAPES]
    rules = tuple(
        TableRule(match=(f"t{number}",), shardings=(sharding,))  # type: ignore[arg-type]
        for number, sharding in enumerate(SHARDINGS if ranks > 1 else OF_RANKS)
    )
    towers = {} if ranks == LOCAL else {"towers": {"count": WORLD // LOCAL}}
    trained = workload(tables, global_batch=SAMPLES * WORLD, pipeline="none", **towers)
    policy = Policy(exchange="sptt", tables=rules)
    return plan(topology(node_group("a", nodes=WORLD // ranks, ranks=ranks)), trained, policy=policy, tiers=["hbm"])


@pytest.fixture(scope="module")
def job(planned: Plan) -> Job:
    """The plan's shards."""
    shards = [
        Shard(number, table.sharding, *map(int, row[:5]))
        for number, table in enumerate(planned.tables)
        for row in table.shards.as_matrix()
    ]
    return Job(SHAPES, tuple(shards), SAMPLES, LOCAL)


def test_towers_compute_what_the_unsharded_model_computes(job: Job, four_ranks: Processes) -> None:
    """The vectors of every sample, and every weight after a step; to the rounding of sums in another order."""
    found = four_ranks.run(step, job)
    weights, ids, gradients = job.weights(), job.ids(WORLD), job.gradients(WORLD)
    for number, (table, rows) in enumerate(zip(weights, ids, strict=True)):
        expected = table[rows].sum(axis=1)
        got = np.concatenate([vectors[number] for vectors, _, _ in found])
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)
    for table, rows, gradient in zip(weights, ids, gradients, strict=True):
        for bag in range(IDS):
            np.add.at(table, rows[:, bag], -gradient)
    for rank, (_, after, _) in enumerate(found):
        own = [shard for shard in job.shards if shard.rank == rank]
        for shard, weight in zip(own, after, strict=True):
            rows, columns = slice(shard.row_start, shard.row_start + shard.rows), shard.column_start
            expected = weights[shard.table][rows, columns : columns + shard.columns]
            np.testing.assert_allclose(weight, expected, rtol=1e-12, atol=1e-12)


def test_ranks_send_what_is_simulated(planned: Plan, job: Job, four_ranks: Processes) -> None:
    """Bytes inside the hosts and among peers, rank by rank. The trainer reduces the sums of two ranks by exchanging
    halves, as a ring of two does."""
    simulation = simulate_plan(planned)
    tasks = {task.name: task for task in simulation.program.tasks if task.step == simulation.fill}
    slower = simulation.network.kinds[0].sums_slowdown
    assert slower == 1.0
    sent = [numbers for _, _, numbers in four_ranks.run(step, job)]
    for hop in ("intra-host", "peers"):
        expected = tasks[f"output dist ({hop})"].sent_bytes
        assert expected is not None
        assert [4 * numbers[hop] for numbers in sent] == pytest.approx(expected.tolist())
