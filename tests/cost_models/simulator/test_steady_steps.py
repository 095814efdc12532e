"""Counted steps are steps among others: whatever goes on beside them in a long run does so in a short one."""

import numpy as np
import pytest

from cost_models.shards import DDR, HBM, TABLE_WISE, Blocks, PlacedShards
from cost_models.simulator.simulation import simulate
from tests.oracles.instances import node_group, topology, workload


@pytest.mark.parametrize("pipeline", ["none", "sparse-dist", "prefetch"])
def test_one_step_is_as_long_as_those_of_a_long_run(pipeline: str) -> None:
    """Two ranks behind one switch: while the first updates rows in DDR, the second copies a batch of the next step."""
    cluster = topology(node_group("a", ranks=2, ranks_per_switch=2, ddr_bytes=1e12))
    tables = [{"rows": 10_000_000, "dim": 64, "pooling_factor": pooling} for pooling in (20, 1)]
    model = workload([*tables, {"rows": 100, "dim": 4, "pooling_factor": 200}], pipeline=pipeline, dense={})
    of_table, none = np.arange(3), np.zeros(3, dtype=np.int64)
    width = np.array([64, 64, 4])
    blocks = Blocks(of_table, none + TABLE_WISE, np.array([DDR, HBM, HBM]), width, np.zeros(3))
    rows = np.array([table.rows for table in model.tables])
    placed = PlacedShards(blocks, np.array([0, 1, 1]), rows, np.ones(3, dtype=bool))
    alone, several = (simulate(cluster, model, placed, steps=steps) for steps in (1, 6))
    assert several.step_seconds == pytest.approx(several.step_s, rel=1e-6)
    assert alone.step_s == pytest.approx(several.step_s, rel=1e-6)
