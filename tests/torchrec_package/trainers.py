"""Trainers written against TorchRec's documented API, for any planner: each gives its losses and what it trained."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torchrec import EmbeddingBagCollection, EmbeddingCollection, KeyedJaggedTensor
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints, Topology
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.modules.embedding_configs import EmbeddingBagConfig, EmbeddingConfig
from torchrec.modules.feature_processor_ import PositionWeightedModuleCollection
from torchrec.modules.fp_embedding_modules import FeatureProcessedEmbeddingBagCollection
from torchrec.modules.mc_embedding_modules import ManagedCollisionEmbeddingCollection
from torchrec.modules.mc_modules import (
    DistanceLFU_EvictionPolicy,
    ManagedCollisionCollection,
    MCHManagedCollisionModule,
)
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward
from torchrec.optim.keyed import CombinedOptimizer, KeyedOptimizerWrapper
from torchrec.optim.optimizers import in_backward_optimizer_filter
from torchrec.optim.rowwise_adagrad import RowWiseAdagrad

from planner.integrations.torchrec_planner import ShardPlanner

ROWS, COLUMNS, BATCH, LONGEST, DENSE = (40, 120, 64, 88, 200, 16), 16, 8, 4, 5
NAMES = [f"t{i}" for i in range(len(ROWS))]
FEATURES = [f"f{i}" for i in range(len(ROWS))]
PLANNERS: dict[str, Callable[..., Any]] = {"torchrec": EmbeddingShardingPlanner, "ours": ShardPlanner}
OPTIMIZERS: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
    "sgd": (torch.optim.SGD, {"lr": 0.05}),
    "rowwise_adagrad": (RowWiseAdagrad, {"lr": 0.05, "eps": 1e-8}),
    "adam": (torch.optim.Adam, {"lr": 0.02}),
}
META = torch.device("meta")


@dataclass(frozen=True)
class Run:
    """What one rank has after its steps."""

    losses: list[float]
    changed: set[str]
    """Parameters of which the rank has a part that is no longer what it was."""
    kept: set[str]
    """Parameters of which the rank has a part that is."""
    plan: dict[str, tuple[str, str]]
    """Sharding and kernel by table."""


def bags(numbers: range, weighted: bool = False) -> EmbeddingBagCollection:
    tables = [
        EmbeddingBagConfig(num_embeddings=ROWS[i], embedding_dim=COLUMNS, name=NAMES[i], feature_names=[FEATURES[i]])
        for i in numbers
    ]
    return EmbeddingBagCollection(device=META, tables=tables, is_weighted=weighted)


def sequences() -> EmbeddingCollection:
    tables = [
        EmbeddingConfig(num_embeddings=rows, embedding_dim=COLUMNS, name=name, feature_names=[feature])
        for rows, name, feature in zip(ROWS, NAMES, FEATURES, strict=True)
    ]
    return EmbeddingCollection(device=META, tables=tables)


def pooled(found: Any, features: list[str]) -> torch.Tensor:
    """[batch, features, columns]."""
    by_name = found.to_dict()
    return torch.stack([by_name[name] for name in features], dim=1)


class Model(nn.Module):
    """DLRM in small: a dense part, dot products of what was looked up, a network over them."""

    def __init__(self, sparse: nn.Module) -> None:
        super().__init__()
        self.sparse = sparse
        self.dense = nn.Sequential(nn.Linear(DENSE, COLUMNS), nn.ReLU())
        self.over = nn.Linear(COLUMNS + (len(ROWS) + 1) * len(ROWS) // 2, 1)

    def forward(self, dense: torch.Tensor, ids: KeyedJaggedTensor) -> torch.Tensor:
        """[batch] logits."""
        below = self.dense(dense)
        vectors = torch.cat([below[:, None], self.vectors(ids)], dim=1)
        dots = vectors @ vectors.transpose(1, 2)
        row, column = torch.triu_indices(len(ROWS) + 1, len(ROWS) + 1, offset=1)
        return self.over(torch.cat([below, dots[:, row, column]], dim=1))[:, 0]

    def vectors(self, ids: KeyedJaggedTensor) -> torch.Tensor:
        """[batch, features, columns]."""
        return pooled(self.sparse(ids), FEATURES)


class Sequences(Model):
    """Whose tables do not pool: the vectors of a sample are summed here."""

    def vectors(self, ids: KeyedJaggedTensor) -> torch.Tensor:
        found = self.sparse(ids)
        found = found[0] if isinstance(found, tuple) else found
        return torch.stack([torch.stack([part.sum(0) for part in found[name].to_dense()]) for name in FEATURES], dim=1)


class TwoTowers(nn.Module):
    """A tower for the user and one for the item, each with a collection of its own; their dot product is the logit."""

    def __init__(self) -> None:
        super().__init__()
        self.half = len(ROWS) // 2
        self.sparse = nn.ModuleList([bags(range(self.half)), bags(range(self.half, len(ROWS)))])
        self.over = nn.ModuleList([nn.Linear(self.half * COLUMNS + more, 8) for more in (DENSE, 0)])

    def forward(self, dense: torch.Tensor, ids: KeyedJaggedTensor) -> torch.Tensor:
        """[batch] logits; the user's tower takes the dense features, too."""
        sides = [FEATURES[: self.half], FEATURES[self.half :]]
        looked_up = [pooled(tables(ids), own).flatten(1) for tables, own in zip(self.sparse, sides, strict=True)]
        user, item = torch.cat([dense, looked_up[0]], dim=1), looked_up[1]
        return (self.over[0](user) * self.over[1](item)).sum(1)


def processed() -> Model:
    lengths = dict.fromkeys(FEATURES, LONGEST)
    positions = PositionWeightedModuleCollection(lengths, device=torch.device("cpu"))
    return Model(FeatureProcessedEmbeddingBagCollection(bags(range(len(ROWS)), weighted=True), positions))


def managed(world: int) -> Sequences:
    inner = sequences()
    maps: dict[str, Any] = {
        config.name: MCHManagedCollisionModule(
            zch_size=config.num_embeddings,
            device=torch.device("cpu"),
            eviction_policy=DistanceLFU_EvictionPolicy(),
            eviction_interval=1,
            input_hash_size=4000,
            buckets=world,
        )
        for config in inner.embedding_configs()
    }
    return Sequences(
        ManagedCollisionEmbeddingCollection(inner, ManagedCollisionCollection(maps, inner.embedding_configs()))
    )


def made(kind: str) -> nn.Module:
    everything = range(len(ROWS))
    models: dict[str, Callable[[], nn.Module]] = {
        "dlrm": lambda: Model(bags(everything)),
        "variable batch": lambda: Model(bags(everything)),
        "weighted": lambda: Model(bags(everything, weighted=True)),
        "processed": processed,
        "sequences": lambda: Sequences(sequences()),
        "managed": lambda: managed(dist.get_world_size()),
        "two towers": TwoTowers,
    }
    return models[kind]()


def batch_of(kind: str, step: int) -> tuple[torch.Tensor, KeyedJaggedTensor, torch.Tensor]:
    """Dense features, ids and labels of a rank's samples, drawn anew for every step and rank."""
    draw = torch.Generator().manual_seed(1000 * step + dist.get_rank())
    strides = torch.full((len(ROWS),), BATCH)
    inverse = None
    if kind == "variable batch":  # of equal samples one is looked up
        strides = torch.randint(1, BATCH + 1, (len(ROWS),), generator=draw)
        inverse = [torch.randint(int(count), (BATCH,), generator=draw) for count in strides]
    lengths = torch.randint(1, LONGEST + 1, (int(strides.sum()),), generator=draw)
    parts = lengths.split(strides.tolist())
    most = [rows // 8 if kind == "managed" else rows for rows in ROWS]  # few enough ids that each gets a row
    ids = torch.cat([torch.randint(n, (int(part.sum()),), generator=draw) for n, part in zip(most, parts, strict=True)])
    weights = torch.rand(len(ids), generator=draw) if kind == "weighted" else None
    if inverse is None:
        sparse = KeyedJaggedTensor.from_lengths_sync(FEATURES, ids, lengths, weights)
    else:
        sparse = KeyedJaggedTensor(
            keys=FEATURES,
            values=ids,
            lengths=lengths,
            stride_per_key_per_rank=[[int(count)] for count in strides],
            inverse_indices=(FEATURES, torch.stack(inverse)),
        )
    return torch.randn(BATCH, DENSE, generator=draw), sparse, torch.randint(2, (BATCH,), generator=draw).float()


def train(kind: str, optimizer: str, whose: str, constraints: dict[str, dict[str, Any]], steps: int) -> Run:
    """A job of one rank: the model is planned, sharded and trained."""
    torch.manual_seed(0)
    model, cpu = made(kind), torch.device("cpu")
    of_tables, arguments = OPTIMIZERS[optimizer]
    if optimizer != "adam":  # of which TorchRec has no fused kernel on CPUs
        tables = [value for value in model.sparse.parameters() if value.ndim == 2]
        apply_optimizer_in_backward(of_tables, tables, dict(arguments))  # it writes into what it is given
    world = dist.get_world_size()
    planner = PLANNERS[whose](
        topology=Topology(world_size=world, local_world_size=min(world, 2), compute_device="cpu"),
        batch_size=BATCH,
        constraints={name: ParameterConstraints(**each) for name, each in constraints.items()},
    )
    plan = planner.collective_plan(model, get_default_sharders(), dist.GroupMember.WORLD)
    whole = DistributedModelParallel(module=model, device=cpu, plan=plan)
    fill(whole)
    others = dict(in_backward_optimizer_filter(whole.named_parameters()))
    replicated = {name: value for name, value in others.items() if name.startswith("sparse") and value.ndim == 2}
    net = {name: value for name, value in others.items() if name not in replicated}
    optimizers: list[Any] = [
        whole.fused_optimizer,
        KeyedOptimizerWrapper(net, lambda values: torch.optim.SGD(values, lr=0.05)),
    ]
    if replicated:
        optimizers.append(KeyedOptimizerWrapper(replicated, lambda values: of_tables(values, **arguments)))
    combined = CombinedOptimizer(optimizers)
    before, losses = parts_of(whole), []
    for step in range(steps):
        dense, ids, labels = batch_of(kind, step)
        combined.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(whole(dense, ids), labels)
        loss.backward()
        combined.step()
        losses.append(float(loss))
    after = parts_of(whole)
    same = {key for key, value in before.items() if torch.equal(value, after[key])}
    ways = {name: (way.sharding_type, way.compute_kernel) for of in plan.plan.values() for name, way in of.items()}
    return Run(losses, {name for name, _ in before.keys() - same}, {name for name, _ in same}, ways)


def fill(whole: nn.Module) -> None:
    """Weights that depend on their place in the model alone, not on how it is sharded."""
    with torch.no_grad():
        for name, held in whole.state_dict().items():
            if "managed_collision_collection" in name:
                continue
            size = tuple(held.size())
            draw = torch.Generator().manual_seed(sum(name.encode()))
            value = 0.2 * torch.randn(size, generator=draw)
            assign(held, value)


def assign(parameter: Any, value: torch.Tensor) -> None:
    """Write a value into a parameter of a sharded model, of which a rank may have only some parts."""
    if not hasattr(parameter, "local_shards"):
        parameter.copy_(value)
        return
    for part in parameter.local_shards():
        (row, column), (rows, columns) = part.metadata.shard_offsets, part.metadata.shard_sizes
        part.tensor.copy_(value[row : row + rows, column : column + columns])


def parts_of(whole: nn.Module) -> dict[tuple[str, int], torch.Tensor]:
    """Copies of what the rank holds of the parameters, by name and number of the part."""
    found = {}
    for name, held in whole.state_dict().items():
        if "managed_collision_collection" in name:
            continue
        parts = [part.tensor for part in held.local_shards()] if hasattr(held, "local_shards") else [held]
        found |= {(name, number): part.detach().clone() for number, part in enumerate(parts) if part.numel()}
    return found
