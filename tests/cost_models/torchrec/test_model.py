"""The TorchRec cost model: how our inputs become TorchRec's, and how a placement is rated."""

import json
from pathlib import Path

import numpy as np
import pytest

from cost_models.shards import (
    COLUMN_WISE,
    DDR,
    DDR_CACHED,
    HBM,
    ROW_WISE,
    SSD_CACHED,
    TABLE_ROW_WISE,
    TABLE_WISE,
    Blocks,
    PlacedShards,
    block_rows,
)
from cost_models.torchrec.cases import case_topology, case_workload
from cost_models.torchrec.model import TorchRecModel
from cost_models.torchrec.tables import TorchRecTables
from cost_models.torchrec.topology import TorchRecTopology
from cost_models.workload.models import Workload
from planner.planning.planning import plan
from planner.verification.verify import verify
from topologies.cluster import Topology
from topologies.errors import InputError
from topologies.loading import load_topology

CASES = Path(__file__).parents[3] / "benchmarks" / "data" / "torchrec_cases"


def case(topology: str) -> dict:
    return json.loads((CASES / topology).read_text())


@pytest.fixture(scope="module")
def model() -> TorchRecModel:
    """The smallest case on two nodes."""
    return TorchRecModel(case_topology(case("w16_h40.json")), case_workload(case("n26_s20266.json"), 2048))


@pytest.mark.parametrize("name", [path.name for path in sorted(CASES.glob("w*.json"))])
def test_a_case_means_the_same_by_either_way(name):
    """Read directly, or as a topology of ours."""
    assert TorchRecTopology.from_topology(case_topology(case(name))) == TorchRecTopology.from_case(case(name))


def test_a_scale_up_domain_beyond_the_host_is_a_pod():
    """NVL72: 18 hosts of 4."""
    found = TorchRecTopology.from_topology(load_topology("gb200-nvl72"))
    assert (found.local_world_size, found.pod_size, found.group_size) == (4, 18, 72)


def test_shared_links_are_told_in_shares():
    """DGX H100: two GPUs behind a PCIe switch, eight cards for eight GPUs, the host's DDR in eighths."""
    found = TorchRecTopology.from_topology(load_topology("dgx-h100", nodes=2))
    assert found.hbm_to_ddr_bytes_per_s == 63e9 / 2
    assert found.inter_host_bytes_per_s == 400e9 / 8
    assert found.intra_host_bytes_per_s == 450e9
    assert found.ddr_bytes == (int(2e12 * 0.9) // 8,) * 16
    assert found.hbm_bytes == (int(80e9 * 0.95),) * 16


def test_nodes_of_different_size_are_refused():
    """TorchRec has one number of ranks per node."""
    topology = load_topology("dgx-h100", nodes=2)
    group = topology.nodes[0]
    four = group.model_copy(
        update={"name": "small", "accelerators": group.accelerators.model_copy(update={"count": 4})}
    )
    mixed = Topology(name="mixed", nodes=(group, four))
    with pytest.raises(InputError, match="nodes of 4 and 8 accelerators"):
        TorchRecTopology.from_topology(mixed)


def workload(**fields) -> Workload:
    table = {"name": "a", "rows": 1000, "dim": 64, "pooling_factor": 3.0, **fields.pop("table", {})}
    return Workload.model_validate({"name": "w", "batch_per_rank": 100, "tables": [table], **fields})


def test_features_have_equal_parts_of_the_pooling_factor():
    """Six features with 3 ids in all: half a vector each, as TorchRec counts features that are often absent."""
    found = TorchRecTables.of(workload(table={"features": 6}), 8)
    assert found.batch_inputs.tolist() == [300.0]
    assert found.batch_outputs.tolist() == [300.0]
    assert TorchRecTables.of(workload(table={"features": 2}), 8).batch_outputs.tolist() == [200.0]


def test_wire_types_stand_for_quantized_collectives():
    """fp32 is TorchRec's silence, which it takes for the weights' own type."""
    silent = TorchRecTables.of(workload(embedding={"dtype": "fp16"}), 8)
    assert silent.all_to_all_bytes.tolist() == [[2, 2]]
    spoken = TorchRecTables.of(workload(communication={"forward": "fp16", "backward": "fp32"}), 8)
    assert spoken.all_to_all_bytes.tolist() == [[2, 4]]
    sequence = TorchRecTables.of(workload(table={"pooled": False}, communication={"forward": "fp16"}), 8)
    assert sequence.reduce_scatter_bytes.tolist() == [[4, 4]]


def test_caches_are_known_under_the_prefetch_pipeline():
    """Elsewhere TorchRec charges no prefetch."""
    assert TorchRecTables.of(workload(pipeline="none"), 8).cache is None
    cache = TorchRecTables.of(workload(pipeline="prefetch"), 8).cache
    assert cache is not None
    missed = cache.expected_misses(np.array([0, 0]), np.array([0.2, 0.8]))
    assert 0 < missed[1] < missed[0] < 1000


def whole_placement(model: TorchRecModel, seed: int) -> PlacedShards:
    """Every table held in some way."""
    rng = np.random.default_rng(seed)
    world, group = 16, 8
    rows = []
    for table, (count, dim) in enumerate(zip(model.tables.rows.tolist(), model.tables.dim.tolist(), strict=True)):
        sharding = int(rng.choice([TABLE_WISE, COLUMN_WISE, ROW_WISE, TABLE_ROW_WISE]))
        tier = int(rng.choice([HBM, DDR_CACHED, DDR]))
        widths = [dim // 2, dim - dim // 2] if sharding == COLUMN_WISE else [dim]
        for width in widths:
            first, ranks = {ROW_WISE: (0, world), TABLE_ROW_WISE: (8 * int(rng.integers(2)), group)}.get(
                sharding, (int(rng.integers(world)), 1)
            )
            for position in range(ranks):
                held = int(block_rows(np.array(count), ranks, position))
                rows.append((table, sharding, tier, width, first + position, held, position == 0))
    table, sharding, tier, width, rank, held, opens = (np.array(column) for column in zip(*rows, strict=True))
    return PlacedShards(Blocks(table, sharding, tier, width, np.where(tier == DDR_CACHED, 0.2, 0.0)), rank, held, opens)


@pytest.mark.parametrize("seed", range(5))
def test_a_rating_is_the_largest_sum_over_a_rank(model, seed):
    """Shard by shard with the estimators, as NoopPerfModel does."""
    placed = whole_placement(model, seed)
    total = model.perf.estimate(placed.blocks).total
    of_rank = np.bincount(placed.rank, weights=total, minlength=16)
    found = model.evaluate(placed)
    assert found.step_s == pytest.approx(of_rank.max(), rel=1e-12)
    np.testing.assert_allclose(found.rank_stage_seconds[:, 0], of_rank, rtol=1e-12)
    size = model.storage.estimate(placed.blocks, placed.rows)
    filled = placed.rows > 0
    assert np.abs(model.shard_bytes(placed) - size)[filled].max() <= 4, "a byte for each of four roundings"


def test_memory_belongs_to_the_rank(model):
    """DDR too, as TorchRec has it; there is no tier below."""
    assert [pool.tolist() for pool in model.memory_pool_of_rank] == [list(range(16))] * 3
    assert model.memory_capacity[0].tolist() == [int(0.85 * 40 * 2**30)] * 16
    assert model.memory_capacity[1].tolist() == [187 * 2**30] * 16
    tiers = np.array([HBM, DDR_CACHED, DDR, SSD_CACHED])
    zeros = np.zeros(4, dtype=np.int64)
    blocks = Blocks(zeros, zeros + TABLE_WISE, tiers, zeros + 128, np.array([0, 0.2, 0, 0.2]))
    assert model.block_costs(blocks, 0).supported.tolist() == [True, True, True, False]


def test_a_plan_under_this_objective_verifies():
    """The document is recomputed by the model that its provenance names; better than TorchRec's own 1.0579 ms."""
    topology, tables = case_topology(case("w8_h40.json")), case_workload(case("n26_s20266.json"), 2048)
    found = plan(topology, tables, cost_model="torchrec", effort=0)
    assert verify(found) == []
    assert found.provenance.cost_model == "torchrec"
    assert found.provenance.coefficients.software == "torchrec-planner-1.8.0"
    assert [stage.name for stage in found.stages] == ["rating"]
    assert 0.9e-3 < found.objective.lower_bound_s <= found.objective.step_s < 1.0579e-3
