"""Training steps of a small model, sharded by a plan over gloo processes, and the same steps unsharded."""

import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import multiprocessing, nn
from torchrec import EmbeddingBagCollection, KeyedJaggedTensor
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward

from cost_models.workload.models import Workload
from planner.integrations.torchrec import to_sharding_plan

BATCH, STEPS, RATE = 8, 3, 0.1


class Model(nn.Module):
    """Tables and one linear layer."""

    def __init__(self, workload: Workload, device: str) -> None:
        super().__init__()
        self.names = [table.name for table in workload.tables]
        tables = [
            EmbeddingBagConfig(
                num_embeddings=table.rows,
                embedding_dim=table.dim,
                name=table.name,
                feature_names=[f"f_{table.name}"],
            )
            for table in workload.tables
        ]
        self.ebc = EmbeddingBagCollection(device=torch.device(device), tables=tables)
        self.over = nn.Linear(sum(table.dim for table in workload.tables), 1)

    def forward(self, ids: KeyedJaggedTensor) -> torch.Tensor:
        """One number per sample; features by name, as a sharded module groups its columns by sharding."""
        found = self.ebc(ids).to_dict()
        return self.over(torch.cat([found[f"f_{name}"] for name in self.names], dim=1))


def batch_of(workload: Workload, step: int, rank: int) -> KeyedJaggedTensor:
    """The ids of one rank's samples in one step."""
    draw = torch.Generator().manual_seed(1000 * step + rank)
    lengths, values = [], []
    for table in workload.tables:
        count = torch.randint(0, 4, (BATCH,), generator=draw)
        lengths.append(count)
        values.append(torch.randint(0, table.rows, (int(count.sum()),), generator=draw))
    keys = [f"f_{table.name}" for table in workload.tables]
    return KeyedJaggedTensor.from_lengths_sync(keys, torch.cat(values), torch.cat(lengths))


def initial(workload: Workload) -> dict[str, torch.Tensor]:
    """Weights to begin with."""
    torch.manual_seed(7)
    return {name: torch.randn_like(value) for name, value in Model(workload, "cpu").state_dict().items()}


def unsharded(workload: Workload, world: int) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
    """Outputs of rank 0's samples by step, and the weights after the last one; the gradient is the ranks' mean."""
    model = Model(workload, "cpu")
    model.load_state_dict(initial(workload))
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    outputs = []
    for step in range(STEPS):
        optimizer.zero_grad()
        found = [model(batch_of(workload, step, rank)) for rank in range(world)]
        (sum((of_rank**2).mean() for of_rank in found) / world).backward()
        optimizer.step()
        outputs.append(found[0].detach())
    return outputs, {name: value.detach() for name, value in model.state_dict().items()}


def sharded(
    plan: Path, workload: Workload, world: int, local: int, folder: Path
) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
    """The same by processes that hold the tables as the plan file says."""
    arguments = (plan, workload.model_dump_json(), world, local, folder)
    multiprocessing.spawn(_train, args=arguments, nprocs=world, join=True)
    return torch.load(folder / "found.pt")


def _train(rank: int, plan: Path, text: str, world: int, local: int, folder: Path) -> None:
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank % local), LOCAL_WORLD_SIZE=str(local))
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=world)
    workload = Workload.model_validate_json(text)
    model = Model(workload, "meta")
    apply_optimizer_in_backward(torch.optim.SGD, model.ebc.parameters(), {"lr": RATE})
    whole = DistributedModelParallel(
        model,
        device=torch.device("cpu"),
        plan=to_sharding_plan(plan, model, compute_device="cpu"),
        sharders=[EmbeddingBagCollectionSharder()],
    )
    _load(whole, initial(workload))
    optimizer = torch.optim.SGD([p for n, p in whole.named_parameters() if _is_dense(whole, n)], lr=RATE)
    outputs = []
    for step in range(STEPS):
        optimizer.zero_grad()
        found = whole(batch_of(workload, step, rank))
        (found**2).mean().backward()
        optimizer.step()
        outputs.append(found.detach())
    weights = _weights(whole, rank)
    if rank == 0:
        torch.save((outputs, weights), folder / "found.pt")
    dist.barrier()
    dist.destroy_process_group()


def _is_dense(whole: DistributedModelParallel, name: str) -> bool:
    """Whether the optimizer of the dense part owns a parameter: no fused kernel does."""
    state = whole.state_dict()
    return name in state and not hasattr(state[name], "local_shards")


def _load(whole: DistributedModelParallel, values: dict[str, torch.Tensor]) -> None:
    with torch.no_grad():
        for name, held in whole.state_dict().items():
            if not hasattr(held, "local_shards"):
                held.copy_(values[name])
                continue
            for shard in held.local_shards():
                row, column = shard.metadata.shard_offsets
                rows, columns = shard.metadata.shard_sizes
                shard.tensor.copy_(values[name][row : row + rows, column : column + columns])


def _weights(whole: DistributedModelParallel, rank: int) -> dict[str, torch.Tensor]:
    """All weights, gathered on rank 0."""
    found = {}
    for name, held in whole.state_dict().items():
        if not hasattr(held, "local_shards"):
            found[name] = held.detach()
            continue
        out = torch.empty(held.size()) if rank == 0 else None
        held.gather(dst=0, out=out)
        found[name] = out
    return found
