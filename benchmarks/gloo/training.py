"""Training steps of a sharded model, and the same steps of the unsharded one."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torchrec.distributed.embedding import EmbeddingCollectionSharder
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward
from torchrec.optim.rowwise_adagrad import RowWiseAdagrad

from benchmarks.gloo.clock import Clock, Event
from benchmarks.gloo.model import Draw, Tables, Vectors, batch_of, first_weights
from cost_models.workload.models import Workload
from planner.document.plan import Plan
from planner.integrations.torchrec import to_sharding_plan
from planner.integrations.torchrec_runtime import reshard

RATE = 0.03
WIDTH = 16
"""Width of the hidden layer of models whose steps are measured."""
SHARDERS = (EmbeddingBagCollectionSharder, EmbeddingCollectionSharder)


@dataclass(frozen=True)
class Trained:
    """What steps gave: of each step the loss and vectors of one rank's samples; the weights after the last one."""

    losses: list[torch.Tensor]
    vectors: list[Vectors]
    weights: dict[str, torch.Tensor]


def unsharded(workload: Workload, world: int, batch: int, steps: int) -> Trained:
    """Steps of one process on the samples of all ranks; losses and vectors are those of rank 0."""
    model = Tables(workload, "cpu")
    model.load_state_dict(first_weights(workload))
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    losses, vectors = [], []
    for step in range(steps):
        optimizer.zero_grad()
        found = [model(batch_of(workload, Draw(batch, step, rank))) for rank in range(world)]
        loss = [(outputs**2).mean() for outputs, _ in found]
        (sum(loss) / world).backward()
        optimizer.step()
        losses.append(loss[0].detach())
        vectors.append({name: value.detach() for name, value in found[0][1].items()})
    return Trained(losses, vectors, {name: value.detach() for name, value in model.state_dict().items()})


def shard(
    workload: Workload,
    plan: Mapping[str, Any],
    width: int = 0,
    optimizer: type[torch.optim.Optimizer] = torch.optim.SGD,
) -> DistributedModelParallel:
    """The model as an exported plan holds it, with its first weights; the optimizer is that of its tables."""
    model = Tables(workload, "meta", width)
    for module in model.names:
        apply_optimizer_in_backward(optimizer, getattr(model, module).parameters(), {"lr": RATE})
    whole = DistributedModelParallel(
        model,
        device=torch.device("cpu"),
        plan=to_sharding_plan(plan, model, compute_device="cpu"),
        sharders=[sharder() for sharder in SHARDERS],
    )
    _load(whole, first_weights(workload, width))
    return whole


def dense_optimizer(whole: DistributedModelParallel) -> torch.optim.Optimizer:
    """The optimizer of what no fused kernel updates: the network and replicated tables."""
    state = whole.state_dict()
    own = [
        parameter
        for name, parameter in whole.named_parameters()
        if name in state and not hasattr(state[name], "local_shards")
    ]
    return torch.optim.SGD(own, lr=RATE)


def train(text: str, plan: Mapping[str, Any], batch: int, steps: int) -> Trained | None:
    """Steps of one rank, as a job of `Processes`; None on all ranks but 0."""
    workload, rank = Workload.model_validate_json(text), dist.get_rank()
    whole = shard(workload, plan)
    optimizer = dense_optimizer(whole)
    losses, vectors = [], []
    for step in range(steps):
        optimizer.zero_grad()
        outputs, of_features = whole(batch_of(workload, Draw(batch, step, rank)))
        loss = (outputs**2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        vectors.append({name: value.detach().clone() for name, value in of_features.items()})
    weights = _weights(whole, rank)
    return Trained(losses, vectors, weights) if rank == 0 else None


OPTIMIZERS = {"sgd": torch.optim.SGD, "rowwise_adagrad": RowWiseAdagrad, "adagrad": torch.optim.Adagrad}


def train_resharded(
    text: str, plans: Sequence[Mapping[str, Any]], changed: str | None, batch: int, steps: int
) -> dict[str, torch.Tensor] | None:
    """Weights after steps of one rank under the first plan and as many under the second, as a job of `Processes`.

    `changed` are the two plan documents, as JSON, between which `reshard` moves the tables; without them the first
    plan is kept. None on all ranks but 0.
    """
    workload, rank = Workload.model_validate_json(text), dist.get_rank()
    optimizer_of_tables = OPTIMIZERS[workload.embedding.optimizer]
    whole = shard(workload, plans[0], optimizer=optimizer_of_tables)
    optimizer = dense_optimizer(whole)
    for step in range(2 * steps):
        if step == steps and changed is not None:
            before, after = (Plan.model_validate(one) for one in json.loads(changed))
            reshard(whole, before, after, Tables(workload, "meta"), compute_device="cpu")
        optimizer.zero_grad()
        outputs, _ = whole(batch_of(workload, Draw(batch, step, rank)))
        (outputs**2).mean().backward()
        optimizer.step()
    weights = _weights(whole, rank)
    return weights if rank == 0 else None


def step_times(
    text: str, plans: Sequence[Mapping[str, Any]], batch: int, rounds: int
) -> list[list[tuple[list[Event], float]]]:
    """[rounds][plans] events of a step on a rank and its seconds, as a job of `Processes`.

    Plans take turns, in another order in every round.
    """
    workload, rank, clock = Workload.model_validate_json(text), dist.get_rank(), Clock()
    held = []
    for plan in plans:
        whole = shard(workload, plan, WIDTH)
        for module in whole.modules():
            for each in (module, *getattr(module, "_lookups", ())):
                if isinstance(each, DistributedDataParallel):
                    each.register_comm_hook(dist.group.WORLD, clock.reduced)
        held.append((whole, dense_optimizer(whole)))
    batches = [batch_of(workload, Draw(batch, step, rank, variable=False)) for step in range(3)]
    found = []
    with clock.noting():
        for round_ in range(-2, rounds):
            steps: list[tuple[list[Event], float]] = [([], 0.0)] * len(plans)
            for turn in range(len(plans)):
                one = (turn + round_) % len(plans)
                steps[one] = _step(*held[one], batches[round_ % len(batches)], clock)
            if round_ >= 0:
                found.append(steps)
    return found


def _step(whole: nn.Module, optimizer: torch.optim.Optimizer, batch: Any, clock: Clock) -> tuple[list[Event], float]:
    clock.start()
    dist.barrier()
    began = time.perf_counter()
    clock.start()
    optimizer.zero_grad()
    outputs, _ = whole(batch)
    (outputs**2).mean().backward()
    optimizer.step()
    events = clock.stop()
    dist.barrier()
    return events, time.perf_counter() - began


def _load(whole: DistributedModelParallel, values: Mapping[str, torch.Tensor]) -> None:
    with torch.no_grad():
        for name, held in whole.state_dict().items():
            if not hasattr(held, "local_shards"):
                held.copy_(values[name])
                continue
            for part in held.local_shards():
                row, column = part.metadata.shard_offsets
                rows, columns = part.metadata.shard_sizes
                part.tensor.copy_(values[name][row : row + rows, column : column + columns])


def _weights(whole: DistributedModelParallel, rank: int) -> dict[str, torch.Tensor]:
    """All weights, gathered on rank 0."""
    found = {}
    for name, held in whole.state_dict().items():
        if not hasattr(held, "local_shards"):
            found[name] = held.detach().clone()
            continue
        out = torch.empty(held.size()) if rank == 0 else None
        held.gather(dst=0, out=out)
        if out is not None:
            found[name] = out
    return found
