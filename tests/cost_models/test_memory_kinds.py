"""Storage-class memory and remote hosts: what they cost, by hand, and that both judges see the same."""

import numpy as np
import pytest

from cost_models.kinds import rank_kinds
from cost_models.lookup import Lookup
from cost_models.memory_rates import IN_FLIGHT_BYTES
from cost_models.power_laws import hit_rate
from cost_models.resources import Resource
from cost_models.shards import (
    IS_STASHED,
    MEMORY_HBM,
    MEMORY_REMOTE,
    MEMORY_SCM,
    MEMORY_TIERS,
    PLACEMENT_TIERS,
    REMOTE_CACHED,
    SCM,
    SCM_CACHED,
    TABLE_WISE,
    Blocks,
    PlacedShards,
)
from cost_models.simulator.simulation import simulate
from cost_models.step import StepModel
from tests.oracles.instances import node_group, topology, workload
from topologies.cluster import Topology

ROWS, DIM, IDS, BATCH = 1_000_000, 72, 10, 4096
RANKS = 4


def cluster(nodes: int = 2) -> Topology:
    """Nodes of two ranks with every memory."""
    return topology(
        node_group(
            "a", nodes=nodes, hbm_bytes=40e9, ddr_bytes=100e9, ssd_bytes=1e12, scm_bytes=200e9, remote_bytes=1e12
        )
    )


def model_of(optimizer: str = "rowwise_adagrad", tables: int = RANKS, **given: object) -> StepModel:
    profile = {"rows": ROWS, "dim": DIM, "pooling_factor": IDS, "zipf_alpha": 0.6}
    embedding = {"optimizer": optimizer}
    return StepModel(
        cluster(), workload([profile] * tables, global_batch=BATCH, embedding=embedding, pipeline="none", **given)
    )


def whole(model: StepModel, tier: int, fraction: float = 0.0, state: int = 0) -> PlacedShards:
    """Every table whole, on a rank of its own."""
    count = len(model.tables.rows)
    every, zeros = np.arange(count), np.zeros(count, dtype=np.int64)
    blocks = Blocks(
        every, zeros + TABLE_WISE, zeros + tier, model.tables.dim, np.full(count, fraction), state=zeros + state
    )
    return PlacedShards(blocks, every % RANKS, model.tables.rows, np.ones(count, dtype=bool))


def lookup_of(model: StepModel, tier: int, fraction: float = 0.0) -> Lookup:
    blocks = whole(model, tier, fraction).blocks.take(np.zeros(1, dtype=np.int64))
    return Lookup(model.tables, blocks, model.kinds[0], model.batching, model.coefficients.software)


def unique_rows(model: StepModel) -> float:
    lookups = np.array([float(BATCH * IDS)])
    return float(model.tables.access.unique_rows(np.zeros(1, dtype=np.int64), lookups)[0])


@pytest.mark.parametrize("state", [0, 1, 2])
@pytest.mark.parametrize("tier", range(len(PLACEMENT_TIERS)))
@pytest.mark.parametrize("optimizer", ["rowwise_adagrad", "adam"])
def test_the_simulator_agrees(tier: int, state: int, optimizer: str) -> None:
    """Within 3 %, with tables in any tier, their state with them, in DDR or in storage-class memory."""
    fraction = 0.1 if PLACEMENT_TIERS[tier].endswith(("_cached", "_split")) else 0.0
    model = model_of(optimizer)
    if IS_STASHED[tier]:
        model = StepModel(model.topology, model.workload, stashes=True)
    placed = whole(model, tier, fraction, state)
    played = simulate(model.topology, model.workload, placed)
    assert played.step_s == pytest.approx(model.evaluate(placed).step_s, rel=0.03)


def test_rows_are_read_in_whole_accesses() -> None:
    """A row of 288 bytes takes two accesses of 256 of storage-class memory, and crosses PCIe once."""
    model = model_of()
    kind, software = model.kinds[0], model.coefficients.software
    assert software.uvm_kept_rows is not None
    kept = software.uvm_kept_rows.value
    again = float(hit_rate(ROWS, 0.6, kept)) * BATCH * IDS - kept
    assert again > 0
    rows = software.uvm_forward_passes_per_lookup.value * (BATCH * IDS - again)
    rows += software.uvm_forward_passes_per_row.value * unique_rows(model)
    loads = lookup_of(model, SCM).forward()
    shared = float(np.sum(loads[Resource("scm")].by_rows - loads[Resource("ddr")].by_rows))
    assert shared == pytest.approx(rows * 512 / 40e9)
    alone = (
        float(np.sum(loads[Resource("pcie")].by_rows)) - float(np.sum(loads[Resource("ddr")].by_rows)) * kind.node_ranks
    )
    assert alone == pytest.approx(rows * 288 / kind.pcie_bytes_per_s)


def test_reads_and_writes_have_rates_of_their_own() -> None:
    """A missed row is read at the read bandwidth, an evicted one written at the write bandwidth."""
    model = model_of()
    lookup = lookup_of(model, SCM_CACHED, 0.1)
    moved = float(lookup.fetch("scm")[Resource("pcie")].by_rows[0]) * model.kinds[0].pcie_bytes_per_s
    missed = moved / 288
    own_s = float(lookup.fetch("scm")[Resource("scm")].by_rows[0])
    assert own_s == pytest.approx(missed * 512 * (1 / 40e9 + 1 / 10e9))
    assert not float(lookup.fetch("ddr")[Resource("ddr")].by_rows[0])


def test_latency_limits_what_is_read_in_place() -> None:
    """By Little's law: so many bytes are under way at once, and each takes its time."""
    group = topology(node_group("a", scm_bytes=1e9)).nodes[0]
    rates = []
    for latency_s in (350e-9, 5e-6):
        scm = group.host.scm.model_copy(update={"latency": latency_s})
        host = group.host.model_copy(update={"scm": scm})
        cluster = topology(node_group("a")).model_copy(update={"nodes": (group.model_copy(update={"host": host}),)})
        rates.append(rank_kinds(cluster, workload([{"rows": 10, "dim": 4}]))[0].memories["scm"].link_bytes_per_s)
    quick, slow = rates
    assert quick > slow == pytest.approx(IN_FLIGHT_BYTES / 6e-6)


def test_rows_of_remote_hosts_bring_their_state() -> None:
    """Over the front-end card of the node, the cards of the hosts, and PCIe; adam has two arrays."""
    model = model_of("adam")
    lookup = lookup_of(model, REMOTE_CACHED, 0.1)
    loads, kind = lookup.fetch("remote"), model.kinds[0]
    missed = float(loads[Resource("pcie")].by_rows[0]) * kind.pcie_bytes_per_s / (3 * 288)
    plain = lookup_of(model, SCM_CACHED, 0.1).fetch("scm")[Resource("pcie")].by_rows[0]
    assert missed == pytest.approx(float(plain) * kind.pcie_bytes_per_s / 288)
    efficiency = 0.6  # of ethernet cards
    assert float(loads[Resource("front_end")].by_rows[0]) == pytest.approx(missed * 3 * 288 / (12.5e9 * efficiency))
    assert float(loads[Resource("remote")].by_rows[0]) == pytest.approx(missed * 3 * 288 / (2 * 12.5e9 * efficiency))


def test_hosts_are_shared_by_the_group() -> None:
    """Ranks of all nodes load the same remote hosts; with four ranks that each miss as much, four times, once the first
    row is there."""
    model = model_of()
    evaluation = model.evaluate(whole(model, REMOTE_CACHED, 0.1))
    stage = model.stages.index("cache_fetch")
    one = float(lookup_of(model, REMOTE_CACHED, 0.1).fetch("remote")[Resource("remote")].by_rows[0])
    assert evaluation.stage_seconds[stage] == pytest.approx(RANKS * one + model.kinds[0].memories["remote"].latency_s)
    assert [pool.tolist() for pool in model.memory_pool_of_rank[MEMORY_SCM:]] == [[0, 0, 1, 1], [0, 0, 0, 0]]


def test_bytes_are_where_the_tier_says() -> None:
    """Weights and state in the memory of the tier; the cache in HBM."""
    model = model_of("adam", tables=1)
    for tier, home in ((SCM, MEMORY_SCM), (SCM_CACHED, MEMORY_SCM), (REMOTE_CACHED, MEMORY_REMOTE)):
        size = model.shard_bytes(whole(model, tier, 0.1 if tier != SCM else 0.0))[0]
        assert size[home] == ROWS * DIM * 4 * 3
        assert not size[[m for m in range(len(MEMORY_TIERS)) if m not in (home, MEMORY_HBM)]].any()
