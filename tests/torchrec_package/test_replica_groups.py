"""Plans for groups of ranks in TorchRec's DMPCollection: dealt out as it does, trained as copies that are averaged."""

import copy
import re
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torchrec import EmbeddingBagCollection, KeyedJaggedTensor
from torchrec.distributed import model_parallel
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.model_parallel import DMPCollection
from torchrec.distributed.planner import Topology
from torchrec.distributed.planner.types import ParameterConstraints, PlannerError
from torchrec.distributed.types import ShardingStrategy
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward

from benchmarks.gloo.copies import OnCpus
from benchmarks.gloo.processes import Processes
from cost_models.replicas import SyncStrategy
from planner.formulation.replica_choices import ReplicaChoices
from planner.integrations.torchrec_planner import ShardPlanner
from planner.verification.verify import verify
from topologies.replica_groups import LAYOUTS, Layout, ranks_of_groups

ROWS, COLUMNS, BATCH, STEPS, RATE = (40, 96, 64), 16, 6, 3, 0.1
SHARDERS = [EmbeddingBagCollectionSharder()]
NAMES = [f"t{i}" for i in range(len(ROWS))]
SHARDINGS = ["table_wise", "row_wise", "column_wise"]
OVER_GLOO = ["table_wise", "column_wise", "table_wise"]
"""TorchRec cuts no rows where gloo sums: it has no reduce-scatter."""


def bags(device: str) -> EmbeddingBagCollection:
    tables = [
        EmbeddingBagConfig(num_embeddings=rows, embedding_dim=COLUMNS, name=name, feature_names=[f"f_{name}"])
        for rows, name in zip(ROWS, NAMES, strict=True)
    ]
    return EmbeddingBagCollection(device=torch.device(device), tables=tables)


def planned(
    world: int, local: int, layout: Layout, device: str, factor: int = 2, strategy: SyncStrategy = "default"
) -> ShardPlanner:
    """A planner that has planned for copies, with a sharding for each table."""
    shardings = {"cuda": SHARDINGS, "cpu": OVER_GLOO}[device]
    constraints = {
        name: ParameterConstraints(sharding_types=[sharding]) for name, sharding in zip(NAMES, shardings, strict=True)
    }
    topology = Topology(world_size=world, local_world_size=local, compute_device=device)
    choices = ReplicaChoices(factor=factor, layout=layout, strategy=strategy)
    planner = ShardPlanner(topology, batch_size=BATCH, constraints=constraints, replicas=choices)
    planner.found = planner.plan(bags("meta"), SHARDERS)
    return planner


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("world", "local", "factor"), [(8, 4, 2), (16, 8, 4)])
def test_a_groups_plan_is_dealt_out_as_dmp_collection_does(
    world: int, local: int, factor: int, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On every rank its `_remap_sharding_plan` turns shards' ranks into those that the simulator plays."""
    if layout == "inter" and world // factor % local:
        with pytest.raises(PlannerError, match="cut a node"):
            planned(world, local, layout, "cuda", factor)
        return
    planner = planned(world, local, layout, "cuda", factor)
    assert verify(planner.document) == []
    arguments = planner.dmp_arguments
    assert arguments["world_size"] == world
    assert arguments["sharding_group_size"] == world // factor
    assert arguments["node_group_size"] == (local // factor if layout == "intra" else local)
    monkeypatch.setattr(model_parallel, "get_local_size", lambda: local)
    groups = ranks_of_groups(world, factor, layout)
    for rank in range(world):
        dealt = copy.deepcopy(planner.found)
        itself: Any = SimpleNamespace(_device=torch.device("cuda"))
        remap = {"rank": rank, "step": factor, "sharding_group_size": world // factor}
        inter = arguments["use_inter_host_allreduce"]
        DMPCollection._remap_sharding_plan(itself, dealt, use_inter_host_allreduce=inter, **remap)
        (group,) = (members for members in groups if rank in members)
        for name, before in planner.found.plan[""].items():
            after = dealt.plan[""][name]
            assert after.ranks == group[before.ranks].tolist()
            for shard, former in zip(after.sharding_spec.shards, before.sharding_spec.shards, strict=True):
                assert shard.placement.rank() == group[former.placement.rank()]


def test_a_world_of_another_size_is_refused(two_ranks: Processes) -> None:
    """With the numbers of both, and the way to groups where there is one."""
    for world, words in (
        (1, r"has 1 ranks, and the process group 2.*replicas=2"),
        (4, "has 4 ranks, and the process group 2; give the topology of all 2 ranks"),
    ):
        assert all(re.search(words, said) for said in two_ranks.run(_said_of, world))


def _said_of(world: int) -> str:
    """Why nothing is planned: caught on each rank, which lives on."""
    topology = Topology(world_size=world, local_world_size=1, compute_device="cpu")
    try:
        ShardPlanner(topology, batch_size=BATCH).collective_plan(bags("meta"), SHARDERS, dist.group.WORLD)
    except PlannerError as error:
        return str(error)
    return ""


def test_copies_are_cut_on_gpus_alone(four_unasserting_ranks: Processes) -> None:
    """We refuse `fully_sharded` for CPUs by name; TorchRec fails there without CUDA."""
    with pytest.raises(PlannerError, match=r"cuts copies \(FULLY_SHARDED\) on GPUs alone; plan with strategy: default"):
        planned(4, 2, "intra", "cpu", strategy="fully_sharded")
    assert planned(4, 2, "intra", "cuda", strategy="fully_sharded").dmp_arguments["sharding_strategy"] == (
        ShardingStrategy.FULLY_SHARDED
    )
    assert all("CUDA" in said for said in four_unasserting_ranks.run(_said_of_cut))


def _said_of_cut() -> str:
    """Why copies are not cut: caught on each rank, which lives on."""
    planner = planned(4, 2, "intra", "cpu")
    model = bags("meta")
    apply_optimizer_in_backward(torch.optim.Adagrad, model.parameters(), {"lr": RATE})
    told = {**planner.dmp_arguments, "sharding_strategy": ShardingStrategy.FULLY_SHARDED}
    try:
        OnCpus(model, torch.device("cpu"), planner.found, global_pg=dist.group.WORLD, sharders=SHARDERS, **told)
    except (AssertionError, RuntimeError) as error:
        return str(error)
    return ""


def test_what_knows_one_world_is_refused() -> None:
    """Callbacks, and arguments of a plan without groups."""
    with pytest.raises(PlannerError, match="callbacks: knows one world"):
        ShardPlanner(Topology(world_size=2, compute_device="cpu"), callbacks=[lambda each: each], replicas=2)
    planner = ShardPlanner(Topology(world_size=2, compute_device="cpu"), batch_size=BATCH)
    planner.plan(bags("meta"), SHARDERS)
    with pytest.raises(ValueError, match="one world of ranks"):
        _ = planner.dmp_arguments


def batch(rank: int, step: int) -> KeyedJaggedTensor:
    draw = torch.Generator().manual_seed(100 * step + rank)
    lengths = torch.randint(0, 4, (len(ROWS) * BATCH,), generator=draw)
    parts = zip(ROWS, lengths.split(BATCH), strict=True)
    ids = [torch.randint(0, rows, (int(n.sum()),), generator=draw) for rows, n in parts]
    return KeyedJaggedTensor.from_lengths_sync([f"f_{name}" for name in NAMES], torch.cat(ids), lengths)


def weights() -> dict[str, torch.Tensor]:
    torch.manual_seed(5)
    return {f"embedding_bags.{name}.weight": torch.rand(rows, COLUMNS) for rows, name in zip(ROWS, NAMES, strict=True)}


def loss_of(bags: nn.Module, ids: KeyedJaggedTensor) -> torch.Tensor:
    found = bags(ids).to_dict()
    return (torch.cat([found[f"f_{name}"] for name in NAMES], dim=1) ** 2).mean()


def trained(layout: Layout, sync_every: int) -> dict[str, list[tuple[list[int], list[int], torch.Tensor]]]:
    """Shards of one rank after some steps, by table: offsets, sizes, weights."""
    planner = planned(4, 2, layout, "cpu")
    model = bags("meta")
    apply_optimizer_in_backward(torch.optim.Adagrad, model.parameters(), {"lr": RATE, "eps": 1e-8})
    arguments = planner.dmp_arguments

    whole = OnCpus(
        model,
        torch.device("cpu"),
        planner.found,
        global_pg=dist.group.WORLD,
        sharders=SHARDERS,
        custom_all_reduce=lambda tensors: whole.average(tensors),
        **arguments,
    )
    assert arguments["sharding_strategy"] == ShardingStrategy.DEFAULT
    with torch.no_grad():
        for name, held in whole.state_dict().items():
            for shard in _shards(held):
                rows, columns = (slice(o, o + s) for o, s in zip(shard[0], shard[1], strict=True))
                shard[2].copy_(weights()[name][rows, columns])
    for step in range(STEPS):
        loss_of(whole, batch(dist.get_rank(), step)).backward()
        if (step + 1) % sync_every == 0:
            whole.sync()
    return {
        name: [(*shard[:2], shard[2].clone()) for shard in _shards(held)] for name, held in whole.state_dict().items()
    }


def _shards(held: Any) -> list[tuple[list[int], list[int], torch.Tensor]]:
    """Of a DTensor with offsets of its own, or of a ShardedTensor."""
    local = held.to_local() if hasattr(held, "to_local") else held
    if hasattr(local, "local_shards") and callable(local.local_shards):
        parts = local.local_shards()
        if parts and not hasattr(parts[0], "metadata"):
            offsets, sizes = local.local_offsets(), local.local_sizes()
            return [(list(o), list(s), p) for o, s, p in zip(offsets, sizes, parts, strict=True)]
        return [(list(p.metadata.shard_offsets), list(p.metadata.shard_sizes), p.tensor) for p in parts]
    raise TypeError(type(local))


def reference(layout: Layout, sync_every: int) -> list[dict[str, torch.Tensor]]:
    """Weights of both copies, trained unsharded: gradients are means over a group, copies are averaged now and then."""
    groups = ranks_of_groups(4, 2, layout)
    copies = []
    for _ in groups:
        model = bags("cpu")
        model.load_state_dict(weights())
        copies.append((model, torch.optim.Adagrad(model.parameters(), lr=RATE, eps=1e-8)))
    for step in range(STEPS):
        for members, (model, optimizer) in zip(groups, copies, strict=True):
            optimizer.zero_grad()
            losses = [loss_of(model, batch(int(rank), step)) for rank in members]
            torch.stack(losses).mean().backward()
            optimizer.step()
        if (step + 1) % sync_every == 0:
            with torch.no_grad():
                for parameters in zip(*(model.parameters() for model, _ in copies), strict=True):
                    sums = [optimizer.state[p]["sum"] for p, (_, optimizer) in zip(parameters, copies, strict=True)]
                    for listed in (parameters, sums):
                        mean = torch.stack([each.detach() for each in listed]).mean(0)
                        for each in listed:
                            each.copy_(mean)
    return [{name: value.detach() for name, value in model.state_dict().items()} for model, _ in copies]


@pytest.mark.parametrize(("layout", "sync_every"), [("intra", 1), ("intra", 2), ("inter", 1)])
def test_groups_train_as_unsharded_copies_that_are_averaged(
    four_unasserting_ranks: Processes, layout: Layout, sync_every: int
) -> None:
    """Two groups of two ranks, on two hosts: weights and Adagrad's sums, averaged as `sync` does it."""
    found, copies = four_unasserting_ranks.run(trained, layout, sync_every), reference(layout, sync_every)
    for number, members in enumerate(ranks_of_groups(4, 2, layout)):
        for name, whole in copies[number].items():
            seen = torch.zeros_like(whole)
            for rank in members:
                for (row, column), (rows, columns), held in found[int(rank)][name]:
                    part = whole[row : row + rows, column : column + columns]
                    torch.testing.assert_close(held, part, rtol=1e-5, atol=1e-6)
                    seen[row : row + rows, column : column + columns] += 1
            assert (seen == 1).all()
    if STEPS % sync_every == 0:
        torch.testing.assert_close(copies[0], copies[1])
    else:
        name = next(iter(copies[0]))
        assert not torch.equal(copies[0][name], copies[1][name])
