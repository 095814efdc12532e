"""What a TorchRec Topology says is planned with, or refused by name."""

import logging

import pytest
import torch
from torchrec import EmbeddingBagCollection
from torchrec.distributed.planner import ParameterConstraints, Topology
from torchrec.distributed.planner.types import BasicCommsBandwidths, CollectiveType, CustomTopologyData
from torchrec.modules.embedding_configs import EmbeddingBagConfig

from planner.integrations.torchrec_planner import ShardPlanner
from planner.integrations.torchrec_topology import cluster_of
from planner.verification.verify import verify
from topologies.errors import InputError

GIB = 2**30


def bags(tables: int, rows: int) -> torch.nn.Module:
    configs = [
        EmbeddingBagConfig(num_embeddings=rows, embedding_dim=128, name=f"t{i}", feature_names=[f"f{i}"])
        for i in range(tables)
    ]
    return torch.nn.ModuleDict({"bags": EmbeddingBagCollection(tables=configs, device=torch.device("meta"))})


def gpus(world: int, local: int, *hbm_gib: int, **more: object) -> Topology:
    """With the HBM of each rank."""
    data = CustomTopologyData({"hbm_cap": [size * GIB for size in hbm_gib]}, world) if hbm_gib else None
    return Topology(world_size=world, local_world_size=local, compute_device="cuda", custom_topology_data=data, **more)


@pytest.mark.parametrize(
    ("tables", "hbm_gib"),
    [(34, (40, 40, 20, 20)), (34, (20, 20, 40, 40)), (12, (40, 20)), (50, (40, 40, 20, 20, 40, 40))],
)
def test_a_rank_holds_what_its_own_memory_has(tables: int, hbm_gib: tuple[int, ...]) -> None:
    """Tables of 2.4 GiB that fill HBM, on hosts of 40 and of 20 GiB a rank: each rank stays within its own, less what
    is reserved; and within the smaller one where two share a host."""
    world, local = len(hbm_gib), 2
    constraints = {f"t{i}": ParameterConstraints(compute_kernels=["fused"]) for i in range(tables)}
    planner = ShardPlanner(gpus(world, local, *hbm_gib), batch_size=64, constraints=constraints)
    found = planner.plan(bags(tables, 5_000_000)).plan["bags"]
    held = [0] * world
    for sharding in found.values():
        for shard in sharding.sharding_spec.shards:
            held[shard.placement.rank()] += shard.shard_sizes[0] * shard.shard_sizes[1] * 4
    for size, capacity in zip(held, hbm_gib, strict=True):
        assert 0 < size < 0.85 * capacity * GIB
    if len(set(hbm_gib[:local])) == 1:
        assert max(held) > 0.85 * 20 * GIB
    assert verify(planner.document) == []


def test_ranks_that_differ_on_one_host_are_said(caplog: pytest.LogCaptureFixture) -> None:
    """Each counts as the smallest of its host, and a warning names the ranks."""
    with caplog.at_level(logging.WARNING):
        found = cluster_of(gpus(4, 2, 40, 40, 40, 20))
    assert [group.accelerators.hbm.capacity // GIB for group in found.nodes] == [40, 20]
    assert "ranks 2-3 have unequal memory and share a host or pod" in caplog.text
    caplog.clear()
    cluster_of(gpus(4, 2, 40, 40, 20, 20))
    assert "unequal" not in caplog.text


def test_memory_of_hosts_by_rank() -> None:
    """DDR of each rank, and ranks without any HBM, which are refused."""
    data = CustomTopologyData({"ddr_cap": [100 * GIB] * 2 + [50 * GIB] * 2}, 4)
    theirs = Topology(world_size=4, local_world_size=2, compute_device="cuda", custom_topology_data=data)
    assert [group.host.ddr.capacity // GIB for group in cluster_of(theirs).nodes] == [200, 100]
    with pytest.raises(InputError, match=r"hbm_cap.3: is 0: the rank can hold nothing"):
        cluster_of(gpus(4, 2, 40, 40, 40, 0))


@pytest.mark.parametrize(("world", "local", "pod"), [(16, 4, 2), (8, 2, 4), (8, 8, 1)])
def test_pods_are_planned(world: int, local: int, pod: int) -> None:
    """A pod is a scale-up domain of several hosts, and the plan verifies."""
    planner = ShardPlanner(gpus(world, local, pod_size=pod), batch_size=512)
    found = planner.plan(bags(40, 2_000_000)).plan["bags"]
    assert len(found) == 40
    assert verify(planner.document) == []
    assert planner.topology.nodes[0].links.scale_up.domain == (local * pod if pod > 1 else None)


def test_in_pods_no_rows_keep_to_a_host() -> None:
    """TorchRec's runtime takes a pod for a node where TOPOLOGY_DOMAIN_MULTIPLE is set, else a host: a
    constraint that leaves nothing but these is refused by name."""
    for way in ("table_row_wise", "grid_shard"):
        told = {"t0": ParameterConstraints(sharding_types=[way])}
        with pytest.raises(InputError, match=f"t0: .*{way} cuts rows over what the runtime takes for a node"):
            ShardPlanner(gpus(8, 2, pod_size=2), constraints=told).plan(bags(2, 1000))
        assert ShardPlanner(gpus(8, 2), constraints=told).plan(bags(2, 1000)).plan["bags"]["t0"].sharding_type == way


def test_pods_that_are_not_filled_are_named() -> None:
    """3 hosts of 2 do not fill 8 ranks."""
    with pytest.raises(InputError, match="pod_size: 8 ranks do not fill pods of 3 hosts of 2"):
        ShardPlanner(gpus(8, 2, pod_size=3)).plan(bags(2, 100))


class Slow(BasicCommsBandwidths):
    """Bandwidths that depend on the kind of exchange."""

    def get_bw(self, local_world_size: int, world_size: int, collective_type: CollectiveType) -> float:
        """Half of the usual for exchanges of all with all."""
        usual = super().get_bw(local_world_size, world_size, collective_type)
        return usual / 2 if collective_type == CollectiveType.ALL_TO_ALL else usual


class Same(BasicCommsBandwidths):
    """Of another class, and nothing else."""


def test_bandwidths_of_another_form_are_named() -> None:
    """A `get_bw` that the two numbers do not tell; one that they do is planned with."""
    with pytest.raises(InputError, match=r"generalized_comms_bandwidths: is a Slow whose get_bw is .* for all_to_all"):
        ShardPlanner(gpus(8, 4, generalized_comms_bandwidths=Slow())).plan(bags(2, 100))
    found = cluster_of(gpus(8, 4, generalized_comms_bandwidths=Same(inter_host_bw=1e6, intra_host_bw=1e8)))
    assert found.nodes[0].links.scale_up.bandwidth == 1e11
    assert found.nodes[0].links.scale_out.bandwidth == 1e9


@pytest.mark.parametrize(
    "key", ["bwd_compute_multiplier", "weighted_feature_bwd_compute_multiplier", "uneven_sharding_perf_multiplier"]
)
def test_weights_of_their_estimates_are_named(key: str) -> None:
    """Ours has none of them."""
    with pytest.raises(InputError, match=f"{key}: is 3: ShardPlanner does not weigh"):
        ShardPlanner(gpus(8, 4, **{key: 3.0})).plan(bags(2, 100))
