"""Clusters of unlike nodes, end to end: what differs between node groups shows in the plan."""

import numpy as np
import pytest

from cost_models.shards import Floats
from planner import load_topology, load_workload, plan, verify
from planner.document.plan import Plan
from planner.document.planned import placed_shards, planned_inputs
from topologies.cluster import NodeGroup, Topology

WORKLOAD = "synthetic:60"
FEW_A100 = ["nodes.0.count=2", "nodes.0.accelerators.count=4", "nodes.0.links.scale_out.count=4"]
A100, H100 = slice(0, 8), slice(8, 16)


def group(name: str, *overrides: str) -> NodeGroup:
    return load_topology(name, overrides=overrides).nodes[0]


def cluster(*groups: NodeGroup) -> Topology:
    return Topology(name="mixed", nodes=groups)


def lookups(found: Plan) -> Floats:
    """[W] elements that each rank reads per sample of the batch."""
    placed, (topology, workload) = placed_shards(found), planned_inputs(found)
    pooling = np.array([table.pooling_factor for table in workload.tables])[placed.blocks.table]
    rows = np.array([table.rows for table in workload.tables])[placed.blocks.table]
    share = placed.rows / rows
    return np.bincount(placed.rank, weights=pooling * share * placed.blocks.columns, minlength=topology.world_size)


@pytest.fixture(scope="module")
def found() -> Plan:
    """Two nodes of 4 A100-40GB and one of 8 H100, each A100 with half of the HBM bandwidth of an H100; coefficients of
    both devices are of the same kernels."""
    workload = load_workload(WORKLOAD, overrides=["software=hugectr"])
    return plan(cluster(group("dgx-a100-40", *FEW_A100), group("dgx-h100")), workload)


def test_the_plan_holds(found: Plan) -> None:
    """Its own figures, recomputed; close to its bound although half of the ranks are unlike the other half."""
    assert verify(found) == []
    assert found.objective is not None
    assert found.objective.gap < 0.02
    assert [rank.node for rank in found.ranks] == [0] * 4 + [1] * 4 + [2] * 8


def test_faster_ranks_hold_more(found: Plan) -> None:
    """Every rank works; each H100 reads more than any A100, in about the time that the slowest of all takes."""
    work = lookups(found)
    assert work.min() > 0
    assert work[H100].min() > work[A100].max()
    seconds = np.array([rank.seconds["lookup_backward"] for rank in found.ranks])
    assert seconds[H100].min() > 0.75 * seconds.max()
    assert seconds[A100].min() > 0.6 * seconds.max()


def test_capacity_of_each_kind_is_kept() -> None:
    """Where an A100 has little HBM left, the tables go to the H100s, and no rank holds more than its own kind may."""
    small = group("dgx-a100-40", *FEW_A100, "nodes.0.accelerators.hbm.capacity=4GiB")
    found = plan(cluster(small, group("dgx-h100")), WORKLOAD, tiers=["hbm"])
    assert verify(found) == []
    held = np.array([rank.bytes.hbm for rank in found.ranks])
    capacity = np.array([rank.capacity.hbm for rank in found.ranks])
    assert (held <= capacity).all()
    assert capacity[A100].max() < 4 * 2**30 < capacity[H100].min()
    assert held[H100].sum() > capacity[A100].sum()


@pytest.mark.parametrize("slow", ["accelerators.hbm.bandwidth=200GB/s", "links.scale_out.bandwidth=10Gb/s"])
def test_what_is_slow_is_spared(slow: str) -> None:
    """HBM or NICs of one of two groups, else alike, made slower: its ranks get less of what uses them."""
    one, other = group("dgx-a100-40"), group("dgx-a100-40", f"nodes.0.{slow}").model_copy(update={"name": "slow"})
    found = plan(cluster(one, other), WORKLOAD, tiers=["hbm"], shardings=["table_wise", "column_wise"], effort=0)
    assert verify(found) == []
    placed = placed_shards(found)
    columns = np.bincount(placed.rank, weights=placed.blocks.columns, minlength=16)
    amount = lookups(found) if "hbm" in slow else columns
    assert amount[8:].sum() < 0.8 * amount[:8].sum()
