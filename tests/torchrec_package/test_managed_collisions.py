"""Managed collisions: planned row_wise, as TorchRec's planner does where it can, and trained over gloo."""

import pytest
import torch
from torch import nn
from torchrec import EmbeddingBagCollection, EmbeddingCollection, KeyedJaggedTensor
from torchrec.distributed.mc_embedding import ManagedCollisionEmbeddingCollectionSharder
from torchrec.distributed.mc_embeddingbag import ManagedCollisionEmbeddingBagCollectionSharder
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints, Topology
from torchrec.modules.embedding_configs import EmbeddingBagConfig, EmbeddingConfig
from torchrec.modules.hash_mc_modules import HashZchManagedCollisionModule
from torchrec.modules.mc_embedding_modules import (
    ManagedCollisionEmbeddingBagCollection,
    ManagedCollisionEmbeddingCollection,
)
from torchrec.modules.mc_modules import (
    DistanceLFU_EvictionPolicy,
    ManagedCollisionCollection,
    MCHManagedCollisionModule,
)
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward

from benchmarks.gloo.processes import Processes
from planner.integrations.torchrec import to_sharding_plan
from planner.integrations.torchrec_planner import ShardPlanner
from planner.verification.verify import verify
from topologies.errors import InputError

SHARDERS = [ManagedCollisionEmbeddingBagCollectionSharder(), ManagedCollisionEmbeddingCollectionSharder()]
ROWS, IDS, BATCH, STEPS = (120, 101, 64), 4000, 8, 8
GPUS = Topology(world_size=2, local_world_size=2, compute_device="cuda", hbm_cap=80 * 10**9)
CPUS = Topology(world_size=2, local_world_size=2, compute_device="cpu")


def mapped(rows: int, buckets: int) -> MCHManagedCollisionModule:
    return MCHManagedCollisionModule(
        zch_size=rows,
        device=torch.device("cpu"),
        eviction_policy=DistanceLFU_EvictionPolicy(),
        eviction_interval=1,
        input_hash_size=IDS,
        buckets=buckets,
    )


def hashed(rows: int, buckets: int) -> HashZchManagedCollisionModule:
    device = torch.device("cpu")
    return HashZchManagedCollisionModule(zch_size=rows, device=device, input_hash_size=IDS, total_num_buckets=buckets)


class Model(nn.Module):
    """Tables whose ids are mapped to rows of their own, pooled or not."""

    def __init__(self, *, pooled: bool, rows: tuple[int, ...] = ROWS, buckets: int = 1, managed=mapped) -> None:
        super().__init__()
        config = EmbeddingBagConfig if pooled else EmbeddingConfig
        tables = [
            config(num_embeddings=n, embedding_dim=16, name=f"t{i}", feature_names=[f"f{i}"])
            for i, n in enumerate(rows)
        ]
        inner = (EmbeddingBagCollection if pooled else EmbeddingCollection)(device=torch.device("meta"), tables=tables)
        apply_optimizer_in_backward(torch.optim.SGD, inner.parameters(), {"lr": 0.1})
        of_tables = {table.name: managed(table.num_embeddings, buckets) for table in tables}
        outer = ManagedCollisionEmbeddingBagCollection if pooled else ManagedCollisionEmbeddingCollection
        self.sparse = outer(inner, ManagedCollisionCollection(of_tables, tables), return_remapped_features=True)
        self.pooled = pooled

    def forward(self, ids: KeyedJaggedTensor) -> tuple[dict[str, torch.Tensor], KeyedJaggedTensor]:
        """The vectors by feature, and the rows that the ids were mapped to."""
        found, rows = self.sparse(ids)
        vectors = found.to_dict() if self.pooled else {name: each.values() for name, each in found.items()}
        return vectors, rows


def batch(rank: int) -> KeyedJaggedTensor:
    """Few enough ids that each gets a row."""
    draw = torch.Generator().manual_seed(rank)
    lengths = torch.randint(1, 3, (len(ROWS) * BATCH,), generator=draw)
    ids = torch.randint(0, IDS, (int(lengths.sum()),), generator=draw)
    return KeyedJaggedTensor.from_lengths_sync([f"f{i}" for i in range(len(ROWS))], ids, lengths)


def trained(pooled: bool) -> tuple[list[float], dict, dict, dict, dict]:
    """On one rank: losses, then by feature ids, the rows they have, vectors; and its parts of the tables."""
    rank, model = torch.distributed.get_rank(), Model(pooled=pooled)
    if pooled:  # the sharder has no sharding for CPUs, on which TorchRec trains row_wise all the same
        planner = ShardPlanner(GPUS, batch_size=BATCH)
        planner.plan(model, SHARDERS)
        plan = to_sharding_plan(planner.document, model, compute_device="cpu")
    else:
        plan = ShardPlanner(CPUS, batch_size=BATCH).collective_plan(model, SHARDERS, torch.distributed.group.WORLD)
    whole = DistributedModelParallel(model, device=torch.device("cpu"), plan=plan, sharders=SHARDERS)
    ids, losses = batch(rank), []
    for _ in range(STEPS):
        vectors, _ = whole(ids)
        loss = sum(((each - 1) ** 2).sum() for each in vectors.values())
        loss.backward()
        losses.append(float(loss))
    whole.eval()
    with torch.no_grad():
        vectors, rows = whole(ids)
    parts = {
        name.split(".")[-2]: [(part.metadata.shard_offsets[0], part.tensor.clone()) for part in held.local_shards()]
        for name, held in whole.state_dict().items()
        if name.endswith(".weight")
    }
    return (
        losses,
        {name: (ids[name].values(), ids[name].lengths()) for name in ids.keys()},  # noqa: SIM118 - no mapping
        {name: rows[name].values() for name in rows.keys()},  # noqa: SIM118
        {name: each.clone() for name, each in vectors.items()},
        parts,
    )


@pytest.mark.parametrize("pooled", [False, True])
def test_training_by_our_plan(pooled: bool, two_ranks: Processes) -> None:
    """The loss falls; every id has a row of its own on whichever rank asks; vectors are those of the rows."""
    found = two_ranks.run(trained, pooled)
    for losses, *_ in found:
        assert losses[-1] < 0.5 * losses[0]
    for i, count in enumerate(ROWS):
        table = torch.zeros(count, 16)
        for *_, parts in found:
            for start, part in parts[f"t{i}"]:
                table[start : start + len(part)] = part
        row_of_id: dict[int, int] = {}
        for _, ids, rows, vectors, _ in found:
            (raw, lengths), own = ids[f"f{i}"], rows[f"f{i}"]
            for one, row in zip(raw.tolist(), own.tolist(), strict=True):
                assert row_of_id.setdefault(one, row) == row
            expected = table[own]
            if pooled:
                expected = torch.stack([part.sum(0) for part in expected.split(lengths.tolist())])
            torch.testing.assert_close(vectors[f"f{i}"], expected)
        assert len(set(row_of_id.values())) == len(row_of_id)
        assert max(row_of_id.values()) < count


@pytest.mark.parametrize("pooled", [False, True])
def test_the_plan_is_that_of_torchrecs_planner(pooled: bool) -> None:
    """Where the buckets of the maps are a multiple of the ranks, as it asks; ours does without."""
    theirs = EmbeddingShardingPlanner(topology=GPUS, batch_size=BATCH).plan(Model(pooled=pooled, buckets=2), SHARDERS)
    for buckets in (1, 2):
        planner = ShardPlanner(GPUS, batch_size=BATCH)
        ours = planner.plan(Model(pooled=pooled, buckets=buckets), SHARDERS)
        assert ours._serialize() == theirs._serialize()
        assert verify(planner.document) == []
    with pytest.raises(ValueError, match="uneven buckets"):
        EmbeddingShardingPlanner(topology=GPUS, batch_size=BATCH).plan(Model(pooled=pooled), SHARDERS)


def test_what_torchrec_cannot_shard_is_refused() -> None:
    """Bags on CPUs, ranks without rows, buckets that ranks do not divide, and plans that are not row_wise."""
    with pytest.raises(InputError, match=r"t0: cannot be sharded: its .*BagCollectionSharder has no sharding for cpu"):
        ShardPlanner(CPUS).plan(Model(pooled=True), SHARDERS)
    four = Topology(world_size=4, compute_device="cuda")
    with pytest.raises(InputError, match=r"t0: .* row_wise leaves ranks without any of its 5 rows"):
        ShardPlanner(four).plan(Model(pooled=True, rows=(5,)), SHARDERS)
    with pytest.raises(InputError, match="t0: has 6 buckets for 4 ranks; make them a multiple"):
        ShardPlanner(four).plan(Model(pooled=False, rows=(60,), buckets=6, managed=hashed), SHARDERS)
    assert ShardPlanner(four).plan(Model(pooled=False, rows=(60,), buckets=12, managed=hashed), SHARDERS).plan["sparse"]
    no_row = {"t0": ParameterConstraints(sharding_types=["table_wise"])}
    with pytest.raises(InputError, match="t0: has constraints that leave no sharding"):
        ShardPlanner(GPUS, constraints=no_row).plan(Model(pooled=True), SHARDERS)
    way = {"sharding_type": "table_wise", "compute_kernel": "fused", "ranks": [0]}
    plan = {"kind": "torchrec_plan", "plan": {"sparse": {"t0": way}}}
    with pytest.raises(InputError, match=r"t0: is table_wise; tables of managed collisions can be row_wise only"):
        to_sharding_plan(plan, Model(pooled=True, rows=(50,)))
