"""HugeCTR's rating against the plans that its submissions to MLPerf Training printed."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from cost_models.hugectr import HugeCTRModel, memory_communication_ratio
from cost_models.shards import (
    COLUMN_WISE,
    DATA_PARALLEL,
    DDR,
    GRID_SHARD,
    HBM,
    ROW_WISE,
    SHARDINGS,
    TABLE_WISE,
    Blocks,
    PlacedShards,
)
from cost_models.workload.loading import load_workload
from planner.planning.planning import plan
from planner.verification.verify import verify
from topologies.cluster import Topology
from topologies.loading import load_topology

PUBLISHED = json.loads(Path(__file__).with_name("hugectr_published_plans.json").read_text())["plans"]


def cluster(ranks: int, ratio: float, capacity: str = "60GB") -> Topology:
    """One node in which HBM is `ratio` times as fast as the links."""
    overrides = [
        f"nodes.0.accelerators.count={ranks}",
        f"nodes.0.accelerators.hbm.capacity={capacity}",
        f"nodes.0.accelerators.hbm.bandwidth={ratio * 400:g}GB/s",
        "nodes.0.links.scale_up.bandwidth=400GB/s",
        "nodes.0.reserve.hbm=0%",
    ]
    return load_topology("dgx-h100", overrides=overrides)


def placed(model: HugeCTRModel, published: dict) -> PlacedShards:
    """A published plan in our words: column_wise in as many equal blocks as GPUs list the table."""
    parts = Counter(table for tables in published["matrix"] for table in tables)
    held = [(table, rank) for rank, tables in enumerate(published["matrix"]) for table in tables]
    replicas = [(table, rank) for rank in range(len(published["matrix"])) for table in published["replicated"]]
    table, rank = np.array(held + replicas).T
    replicated = np.arange(len(table)) >= len(held)
    cut = np.array([parts.get(t, 1) for t in table.tolist()])
    sharding = np.where(replicated, DATA_PARALLEL, np.where(cut > 1, COLUMN_WISE, TABLE_WISE))
    zeros = np.zeros(len(table), dtype=np.int64)
    blocks = Blocks(table, sharding, zeros + HBM, model.tables.dim[table] // cut, zeros.astype(float))
    return PlacedShards(blocks, rank, model.tables.rows[table], ~replicated)


@pytest.mark.parametrize("published", PUBLISHED, ids=lambda p: p["submission"])
def test_rates_published_plans_as_hugectr_did(published):
    """Hotness, table cost and memory of every GPU are those in the submission's log."""
    ranks = len(published["matrix"])
    model = HugeCTRModel(cluster(ranks, published["mem_comm_bw_ratio"]), load_workload("dlrm-dcnv2"))
    found = model.evaluate(placed(model, published))
    expected = np.array(published["hot"]) + published["table_cost"]
    np.testing.assert_allclose(found.rank_stage_seconds[:, 0], expected, rtol=1e-12)
    assert found.step_s == pytest.approx(expected.max(), rel=1e-12)
    of_parts = found.rank_bytes[:, 0] - model.table_bytes[published["replicated"]].sum()
    np.testing.assert_allclose(of_parts / 1e9, published["mem_GB"], atol=5e-9)


def test_the_ratio_of_a_dgx_h100_is_the_default_of_hugectr():
    """train.py has 3.35e12 / 450e9; across nodes the cards count instead of the links."""
    one, two = load_topology("dgx-h100"), load_topology("dgx-h100", nodes=2)
    assert memory_communication_ratio(one, one.nodes[0]) == 3.35e12 / 450e9
    assert memory_communication_ratio(two, two.nodes[0]) == 3.35e12 / 50e9


def test_only_what_hugectr_runs_is_an_option():
    """Small tables may be replicated, columns stand for equal parts, and nothing leaves HBM."""
    model = HugeCTRModel(cluster(8, 7), load_workload("dlrm-dcnv2"))
    replicated = np.flatnonzero(model.is_option(DATA_PARALLEL, HBM, 1)).tolist()
    assert replicated == next(p for p in PUBLISHED if p["replicated"])["replicated"]
    assert model.is_option(COLUMN_WISE, HBM, 4).all()
    assert not model.is_option(COLUMN_WISE, HBM, 3).any()
    assert model.is_option(ROW_WISE, HBM, 1).all()
    assert not model.is_option(GRID_SHARD, HBM, 2).any()
    assert not model.is_option(TABLE_WISE, DDR, 1).any()


def test_a_plan_lists_no_table_twice_on_a_gpu():
    """The parts of a table are equal, on different ranks, and the document verifies."""
    found = plan(cluster(8, 7), "dlrm-dcnv2", cost_model="hugectr", effort=0)
    assert found.objective is not None
    assert found.provenance.cost_model == "hugectr"
    assert verify(found) == []
    for table in found.tables:
        assert table.tier == "hbm"
        assert table.sharding in {SHARDINGS[s] for s in (DATA_PARALLEL, TABLE_WISE, COLUMN_WISE, ROW_WISE)}
        assert len(set(table.shards.rank.tolist())) == len(table.shards)
        assert len(set(table.shards.columns.tolist())) == 1
