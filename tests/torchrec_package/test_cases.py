"""Our cost model on the benchmark's cases against the package's own enumerator and planner."""

import json
import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from oracle import topology_of
from torchrec import EmbeddingBagCollection
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import EmbeddingShardingPlanner
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import ParameterConstraints
from torchrec.modules.embedding_configs import EmbeddingBagConfig

from cost_models.shards import SHARDINGS, Blocks, PlacedShards
from cost_models.torchrec.cases import case_topology, case_workload
from cost_models.torchrec.model import TorchRecModel

logging.disable(logging.WARNING)

CASES = Path(__file__).parents[2] / "benchmarks" / "data" / "torchrec_cases"
TIERS = {"fused": 0, "dense": 0, "fused_uvm_caching": 1, "fused_uvm": 2}


class Case:
    """One case, or its first tables, as the package and as our model see it."""

    def __init__(self, name: str, most_tables: int = 30) -> None:
        cases = json.loads((CASES / "cases.json").read_text())["cases"]
        self.case = next(case for case in cases if case["id"] == name)
        tables = json.loads((CASES / self.case["tables"]).read_text())
        tables["tables"] = tables["tables"][:most_tables]
        self.batch = self.case["batch_per_rank"]
        self.model = TorchRecModel(
            case_topology(json.loads((CASES / self.case["topology"]).read_text())), case_workload(tables, self.batch)
        )
        self.module = torch.nn.Sequential(
            EmbeddingBagCollection(
                device=torch.device("meta"),
                tables=[
                    EmbeddingBagConfig(
                        num_embeddings=table["rows"],
                        embedding_dim=table["dim"],
                        name=table["name"],
                        feature_names=[table["feature"]],
                    )
                    for table in tables["tables"]
                ],
            )
        )
        self.constraints = {
            table["name"]: ParameterConstraints(pooling_factors=[table["pooling_factor"]]) for table in tables["tables"]
        }
        self.index = {table["name"]: index for index, table in enumerate(tables["tables"])}

    def blocks(self, shards: list[tuple[str, str, str, int]]) -> Blocks:
        """From (table, sharding, kernel, columns)."""
        name, sharding, kernel, columns = zip(*shards, strict=True)
        return Blocks(
            np.array([self.index[each] for each in name]),
            np.array([SHARDINGS.index(each) for each in sharding]),
            np.array([TIERS[each] for each in kernel]),
            np.array(columns),
            np.array([0.2 if each == "fused_uvm_caching" else 0.0 for each in kernel]),
        )


@pytest.mark.parametrize("name", ["n26_w8_h40_b2048", "n26_w16_h40_b2048", "n100_w128_h40_b1024"])
def test_rates_every_option_that_the_package_enumerates(name: str) -> None:
    """From a topology and a workload of ours to each shard's seconds and bytes."""
    case = Case(name)
    topology = topology_of(case.model.torchrec_topology)
    enumerator = EmbeddingEnumerator(topology, batch_size=case.batch, constraints=case.constraints)
    options = enumerator.enumerate(case.module, [EmbeddingBagCollectionSharder()])
    found = [(option, shard) for option in options for shard in option.shards]
    shards = [(o.name, o.sharding_type, o.compute_kernel, s.size[1]) for o, s in found]
    blocks, rows = case.blocks(shards), np.array([shard.size[0] for _, shard in found])
    seconds = case.model.perf.estimate(blocks).total
    np.testing.assert_allclose(seconds, [shard.perf.total / 1000 for _, shard in found], rtol=1e-9, atol=0)
    size = case.model.storage.estimate(blocks, rows)
    np.testing.assert_array_equal(size[:, :2], [[shard.storage.hbm, shard.storage.ddr] for _, shard in found])
    print(f"{len(found)} shards of {len(options)} options")


def test_rates_the_plan_that_the_package_makes() -> None:
    """TorchRec's own plan of the smallest case has the rating that the case states."""
    case = Case("n26_w8_h40_b2048")
    own = case.model.torchrec_topology
    hbm = case.model.topology.nodes[0].accelerators.hbm.capacity
    planner = EmbeddingShardingPlanner(
        topology=topology_of(own, hbm_bytes=hbm),
        batch_size=case.batch,
        constraints=case.constraints,
        storage_reservation=FixedPercentageStorageReservation(0.15),
    )
    plan = planner.plan(case.module, [EmbeddingBagCollectionSharder()])
    shards, ranks, rows, opens = [], [], [], []
    for name, held in plan.plan["0"].items():
        dim = int(case.model.tables.dim[case.index[name]])
        count = int(case.model.tables.rows[case.index[name]])
        spec = held.sharding_spec.shards if held.sharding_spec else None
        parts = [(s.shard_sizes, s.shard_offsets, s.placement.rank()) for s in spec or ()]
        parts = parts or [((count, dim), (0, 0), rank) for rank in held.ranks]
        for (height, width), (first, _), rank in parts:
            shards.append((name, held.sharding_type, held.compute_kernel, width))
            ranks.append(rank)
            rows.append(height)
            opens.append(first == 0)
    placed = PlacedShards(case.blocks(shards), np.array(ranks), np.array(rows), np.array(opens))
    stated = case.case["torchrec_1.8.0"]["rating_ms"] / 1000
    assert case.model.evaluate(placed).step_s == pytest.approx(stated, rel=1e-9)
