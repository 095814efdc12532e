"""The benchmark of memories on a small model: nodes fall where bandwidth allows, and it says where it does not."""

import pytest

from benchmarks.mtrains import MEMORIES, Row, rows
from tests.oracles.instances import node_group, topology, workload

TABLES = [{"rows": 2_000_000 * (1 + i % 3), "dim": 64, "pooling_factor": 10, "zipf_alpha": 1.05} for i in range(6)]
MODEL = workload(TABLES, global_batch=8192)
"""Of 3 GB."""
CLUSTER = topology(node_group("a", hbm_bytes=0.3e9, ddr_bytes=1e9, scm_bytes=8e9, ssd_bytes=100e9))


def found(target: float) -> list[Row]:
    return list(rows(CLUSTER, MODEL, [target], most_nodes=32))


@pytest.mark.slow(seconds=15)
def test_a_modest_target_takes_four_times_fewer_nodes() -> None:
    """Each memory more never takes more nodes; estimate and simulation reach the target."""
    each = found(1e5)
    assert [row.memories for row in each] == [" + ".join(MEMORIES[:count]) for count in range(1, 5)]
    nodes = [row.nodes for row in each]
    assert all(nodes)
    assert nodes == sorted(nodes, reverse=True)
    assert each[0].factor == 1
    assert each[-1].factor >= 4
    assert [row.factor_of_ddr for row in each[1:]] == [nodes[1] / count for count in nodes[1:]]
    for row in each:
        assert row.samples_per_s >= 1e5
        # 6 tables cannot be alike on all ranks: those of a node fetch from different memories at times.
        assert row.samples_per_s * 0.97 <= row.simulated <= row.samples_per_s * 1.08


def test_a_target_out_of_reach_says_why() -> None:
    """None of the sizes does, and the reason is given."""
    for row in found(1e12):
        assert row.nodes is None
        assert row.factor is None
        assert "no step is shorter than" in row.held_up_by
