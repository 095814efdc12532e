"""What the host does in a TorchRec step: `python -m benchmarks.gloo.host`, in an environment with torchrec.

Two processes over gloo train models whose tables, batches and layers are so small that kernels have next to nothing to
do. A step's processor time on the main thread of rank 0 is then the host's: Python, dispatch, autograd. Of 61 steps the
one a tenth from the fastest counts. Writes the rows of measured/torchrec_host_steps.csv to standard output.
"""

import csv
import os
import socket
import sys
import time
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
from torchrec.distributed import sharding_plan as shardings
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.types import ShardingPlan
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward
from torchrec.optim.rowwise_adagrad import RowWiseAdagrad

WORLD, ROWS, WIDTH, SAMPLES, STEPS, WARMUP = 2, 64, 8, 4, 61, 8
OPTIMIZERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}
COLUMNS = ("modules", "tables", "shardings", "layers", "optimizer")
PLAIN: dict[str, Any] = {"modules": 1, "tables": 4, "shardings": "table_wise", "layers": 3, "optimizer": "sgd"}
MIXED = ("row_wise", "column_wise", "data_parallel", "table_wise+row_wise", "table_wise+column_wise")
MIXED += (
    "table_wise+row_wise+column_wise",
    "table_wise+data_parallel",
    "table_wise+row_wise+column_wise+data_parallel",
)


def models() -> Iterator[dict[str, Any]]:
    """What is measured, one model after the other; the first one again at the end."""
    yield PLAIN
    for tables in (1, 2, 8, 26, 64, 128):
        yield {**PLAIN, "tables": tables}
    for modules in (2, 4, 8):
        for tables in (2, 16):
            yield {**PLAIN, "modules": modules, "tables": tables}
    for tables in (6, 30):
        for kinds in MIXED:
            yield {**PLAIN, "tables": tables, "shardings": kinds}
    yield {**PLAIN, "modules": 3, "shardings": "table_wise+row_wise"}
    for layers in (1, 5, 9, 17):
        yield {**PLAIN, "layers": layers}
    for layers in (1, 3, 5, 9, 17):
        yield {**PLAIN, "layers": layers, "optimizer": "adam"}
    both = {"modules": 2, "tables": 26, "shardings": "table_wise+row_wise"}
    yield {**PLAIN, **both, "layers": 9, "optimizer": "adam"}
    yield {**PLAIN, "tables": 26, "shardings": "table_wise+data_parallel", "layers": 10}
    yield PLAIN


class Model(nn.Module):
    """Modules of tables, and a stack of layers on their vectors."""

    def __init__(self, asked: dict[str, Any]) -> None:
        super().__init__()
        count, width = asked["tables"], WIDTH * asked["modules"] * asked["tables"]
        self.tables = nn.ModuleDict(
            {
                f"m{m}": EmbeddingBagCollection(
                    device=torch.device("meta"),
                    tables=[
                        EmbeddingBagConfig(
                            num_embeddings=ROWS, embedding_dim=WIDTH, name=f"t{i}", feature_names=[f"m{m}f{i}"]
                        )
                        for i in range(count)
                    ],
                )
                for m in range(asked["modules"])
            }
        )
        layers: list[nn.Module] = []
        for _ in range(asked["layers"] - 1):
            layers += [nn.Linear(width, WIDTH), nn.ReLU()]
            width = WIDTH
        self.over = nn.Sequential(*layers, nn.Linear(width, 1))

    def forward(self, ids: dict[str, KeyedJaggedTensor]) -> torch.Tensor:
        """One number per sample."""
        vectors = [tables(ids[name]).values() for name, tables in self.tables.items()]
        return self.over(torch.cat(vectors, dim=1))


def _sharded(asked: dict[str, Any]) -> tuple[DistributedModelParallel, torch.optim.Optimizer]:
    model, plan = Model(asked), {}
    kinds = asked["shardings"].split("+")
    for name, module in model.tables.items():
        apply_optimizer_in_backward(RowWiseAdagrad, module.parameters(), {"lr": 0.01})
        own = {f"t{i}": _sharding(kinds[i % len(kinds)], i % WORLD) for i in range(asked["tables"])}
        plan[f"tables.{name}"] = shardings.construct_module_sharding_plan(
            module,
            own,
            sharder=EmbeddingBagCollectionSharder(),
            local_size=WORLD,
            world_size=WORLD,
            device_type="cpu",
        )
    whole = DistributedModelParallel(
        model, device=torch.device("cpu"), plan=ShardingPlan(plan), sharders=[EmbeddingBagCollectionSharder()]
    )
    dense = [parameter for name, parameter in whole.named_parameters() if "over" in name]
    return whole, OPTIMIZERS[asked["optimizer"]](dense, lr=0.01)


def _sharding(kind: str, rank: int) -> Any:
    options = {"table_wise": {"rank": rank}, "column_wise": {"ranks": list(range(WORLD))}}
    return getattr(shardings, kind)(**options.get(kind, {}))


def _batch(asked: dict[str, Any]) -> dict[str, KeyedJaggedTensor]:
    count = asked["tables"] * SAMPLES
    return {
        f"m{m}": KeyedJaggedTensor(
            keys=[f"m{m}f{i}" for i in range(asked["tables"])],
            values=torch.randint(0, ROWS, (count,)),
            lengths=torch.ones(count, dtype=torch.int32),
        )
        for m in range(asked["modules"])
    }


def _measured(asked: dict[str, Any]) -> list[float]:
    """Milliseconds forward, backward, in the optimizer and of the step; and the operators that the host called."""
    whole, optimizer = _sharded(asked)

    def step(ids: dict[str, KeyedJaggedTensor]) -> list[float]:
        at = [time.thread_time()]
        optimizer.zero_grad()
        loss = (whole(ids) ** 2).mean()
        at.append(time.thread_time())
        loss.backward()
        at.append(time.thread_time())
        optimizer.step()
        at.append(time.thread_time())
        return [1e3 * (at[i] - at[j]) for i, j in ((1, 0), (2, 1), (3, 2), (3, 0))]

    times = []
    for number in range(WARMUP + STEPS):
        ids = _batch(asked)
        dist.barrier()
        taken = step(ids)
        times += [taken] * (number >= WARMUP)
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        step(_batch(asked))
    ours = ("aten::", "fbgemm::", "c10d::")
    called = (event for event in seen.events() if event.name.startswith(ours))
    operators = sum(event.cpu_parent is None or not event.cpu_parent.name.startswith(ours) for event in called)
    return [*(sorted(part)[STEPS // 10] for part in zip(*times, strict=True)), float(operators)]


def _rank(rank: int, port: int) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "LOCAL_WORLD_SIZE": str(WORLD)}
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    out = csv.writer(sys.stdout, lineterminator="\n")
    if rank == 0:
        out.writerow([*COLUMNS, "forward_ms", "backward_ms", "optimizer_ms", "step_ms", "operators"])
    for asked in models():
        *milliseconds, operators = _measured(asked)
        if rank == 0:
            out.writerow(
                [*(asked[name] for name in COLUMNS), *(f"{each:.3f}" for each in milliseconds), int(operators)]
            )
    dist.destroy_process_group()


def main() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(_rank, args=(port,), nprocs=WORLD)


if __name__ == "__main__":
    main()
