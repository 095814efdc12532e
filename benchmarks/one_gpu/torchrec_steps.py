"""Training steps of TorchRec on one device whose kernels have little to do, and of tables in blocks of columns.

One process, NCCL (gloo without a GPU), a batch that comes from pinned memory, row-wise Adagrad in the backward pass,
SGD on the dense part. By tables, modules of tables, samples, dense layers and how these run (eager, compiled,
captured), and by the loop: plain, `TrainPipelineBase`, `TrainPipelineSparseDist`.
"""

import contextlib
import itertools
import os
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torchrec.streamable import Pipelineable

from benchmarks.one_gpu.timing import Bench

Row = dict[str, object]
Case = dict[str, Any]
STEPS, ROUNDS, WARMUP = 20, 5, 8
BASE: Case = {
    "tables": 26,
    "modules": 1,
    "layers": 4,
    "mode": "eager",
    "pipeline": "none",
    "batch": 64,
    "pooling": 1,
    "dim": 32,
    "rows": 10_000,
    "blocks": 1,
}
PIPELINES = ("none", "base", "sparse-dist")


def step_cases() -> Iterator[Case]:
    """Steps of the host, one thing changed after the other."""
    for pipeline in PIPELINES:
        for tables in (1, 8, 26, 64, 128):
            yield {**BASE, "pipeline": pipeline, "tables": tables}
        for modules in (2, 4, 8):
            yield {**BASE, "pipeline": pipeline, "tables": 8, "modules": modules}
        for layers in (1, 16):
            yield {**BASE, "pipeline": pipeline, "layers": layers}
        for batch in (1024, 16_384, 65_536):
            yield {**BASE, "pipeline": pipeline, "batch": batch, "pooling": 10, "dim": 128, "rows": 2**18}
    for pipeline in ("none", "sparse-dist"):
        for layers in (4, 16):
            yield {**BASE, "pipeline": pipeline, "mode": "graph", "layers": layers}
    for layers in (4, 16):
        yield {**BASE, "mode": "compiled", "layers": layers}


def module_block_cases() -> Iterator[Case]:
    """Tables of a module cut into blocks of columns on the one rank."""
    like = {**BASE, "tables": 8, "dim": 256, "layers": 1, "rows": 2**18}
    for batch, pooling in ((64, 1), (4096, 20), (16_384, 20)):
        for blocks in (1, 2, 4, 8):
            yield {**like, "batch": batch, "pooling": pooling, "blocks": blocks}


class Samples(Pipelineable):
    """Numbers, ids of each module, and labels; what a pipeline moves."""

    def __init__(self, numbers: torch.Tensor, labels: torch.Tensor, ids: dict[str, Any]) -> None:
        self.numbers, self.labels, self._names = numbers, labels, tuple(ids)
        for name, each in ids.items():
            setattr(self, name, each)

    def _all(self) -> Iterator[Any]:
        return iter((self.numbers, self.labels, *(getattr(self, name) for name in self._names)))

    def _moved(self, call: Callable[[Any], Any]) -> "Samples":
        numbers, labels, *ids = (call(each) for each in self._all())
        return Samples(numbers, labels, dict(zip(self._names, ids, strict=True)))

    def to(self, device: torch.device, non_blocking: bool = False) -> "Samples":
        """On another device."""
        return self._moved(lambda each: each.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> "Samples":
        """In pinned memory."""
        return self._moved(lambda each: each.pin_memory())

    def record_stream(self, stream: Any) -> None:
        """Keep all until a stream is done with it."""
        for each in self._all():
            each.record_stream(stream)


def _model(case: Case) -> nn.Module:
    from torchrec import EmbeddingBagCollection, EmbeddingBagConfig

    class Model(nn.Module):
        """Modules of tables, and layers on their vectors and the numbers."""

        def __init__(self) -> None:
            super().__init__()
            width = 13 + case["modules"] * case["tables"] * case["dim"]
            for m in range(case["modules"]):
                configs = [
                    EmbeddingBagConfig(
                        num_embeddings=case["rows"],
                        embedding_dim=case["dim"],
                        name=f"m{m}t{i}",
                        feature_names=[f"m{m}f{i}"],
                    )
                    for i in range(case["tables"])
                ]
                setattr(self, f"m{m}", EmbeddingBagCollection(device=torch.device("meta"), tables=configs))
            layers: list[nn.Module] = []
            for _ in range(case["layers"] - 1):
                layers += [nn.Linear(width, 128), nn.ReLU()]
                width = 128
            self.over: nn.Module = nn.Sequential(*layers, nn.Linear(width, 1))

        def forward(self, samples: Samples) -> tuple[torch.Tensor, torch.Tensor]:
            """The loss, and one number a sample."""
            vectors = [getattr(self, f"m{m}")(getattr(samples, f"ids{m}")).values() for m in range(case["modules"])]
            out = self.over(torch.cat([samples.numbers, *vectors], dim=1))
            return torch.nn.functional.mse_loss(out, samples.labels), out.detach()

    return Model()


def _sharded(case: Case, device: torch.device) -> tuple[Any, torch.optim.Optimizer]:
    from torchrec.distributed import sharding_plan as shardings
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
    from torchrec.distributed.model_parallel import DistributedModelParallel
    from torchrec.distributed.types import ShardingPlan
    from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward
    from torchrec.optim.rowwise_adagrad import RowWiseAdagrad

    model, plan = _model(case), {}
    model.over.to(device)
    for m in range(case["modules"]):
        module = getattr(model, f"m{m}")
        apply_optimizer_in_backward(RowWiseAdagrad, module.parameters(), {"lr": 0.01})
        cut = case["blocks"] > 1
        how = shardings.column_wise(ranks=[0] * case["blocks"]) if cut else shardings.table_wise(rank=0)
        plan[f"m{m}"] = shardings.construct_module_sharding_plan(
            module,
            {f"m{m}t{i}": how for i in range(case["tables"])},
            sharder=EmbeddingBagCollectionSharder(),
            local_size=1,
            world_size=1,
            device_type=device.type,
        )
    whole = DistributedModelParallel(
        model,
        device=device,
        plan=ShardingPlan(plan),
        sharders=[EmbeddingBagCollectionSharder()],
        init_data_parallel=False,
    )
    inner = whole.module
    if case["mode"] == "compiled":
        inner.over = torch.compile(inner.over)
    elif case["mode"] == "graph" and device.type == "cuda":
        width = 13 + case["modules"] * case["tables"] * case["dim"]
        sample = torch.randn((case["batch"], width), device=device, requires_grad=True)
        inner.over = torch.cuda.make_graphed_callables(inner.over, (sample,))
    return whole, torch.optim.SGD(inner.over.parameters(), lr=0.01)


def _batches(case: Case, device: torch.device) -> list[Samples]:
    from torchrec import KeyedJaggedTensor

    made, batch = [], case["batch"]
    for _ in range(4):
        count = case["tables"] * batch
        ids = {
            f"ids{m}": KeyedJaggedTensor(
                keys=[f"m{m}f{i}" for i in range(case["tables"])],
                values=torch.randint(0, case["rows"], (count * case["pooling"],)),
                lengths=torch.full((count,), case["pooling"], dtype=torch.int32),
            )
            for m in range(case["modules"])
        }
        samples = Samples(torch.randn(batch, 13), torch.randn(batch, 1), ids)
        made.append(samples.pin_memory() if device.type == "cuda" else samples)
    return made


def _stepper(case: Case, device: torch.device) -> Callable[[], object]:
    """What trains one step when it is called."""
    from torchrec.distributed.train_pipeline import TrainPipelineBase, TrainPipelineSparseDist

    whole, optimizer = _sharded(case, device)
    batches = itertools.cycle(_batches(case, device))
    if case["pipeline"] == "none":

        def step() -> None:
            optimizer.zero_grad()
            loss, _ = whole(next(batches).to(device, non_blocking=True))
            loss.backward()
            optimizer.step()

        return step
    made = {"base": TrainPipelineBase, "sparse-dist": TrainPipelineSparseDist}[case["pipeline"]]
    pipeline = made(model=whole, optimizer=optimizer, device=device)
    return lambda: pipeline.progress(batches)


def _measured(bench: Bench, case: Case) -> Row:
    torch.manual_seed(0)
    device = torch.device("cuda:0" if bench.is_cuda else "cpu")
    step = _stepper(case, device)
    for _ in range(WARMUP):
        step()
    rounds = []
    for _ in range(ROUNDS):
        bench.sync()
        began, main, process = time.perf_counter(), time.thread_time(), time.process_time()
        for _ in range(STEPS):
            step()
        launched = time.perf_counter()
        bench.sync()
        ended = time.perf_counter()
        times = (ended - began, launched - began, time.thread_time() - main, time.process_time() - process)
        rounds.append([each / STEPS for each in times])
    names = ("step_s", "launched_s", "main_thread_s", "process_s")
    row: Row = {name: statistics.median(each[i] for each in rounds) for i, name in enumerate(names)}
    return row | (_device_seconds(step) if bench.is_cuda else {})


def _device_seconds(step: Callable[[], object]) -> Row:
    """Seconds of all kernels and copies of a step, and how many there are."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(4):
            step()
        torch.cuda.synchronize()
    events = [each for each in seen.key_averages() if each.device_time_total]
    return {
        "device_s": sum(each.device_time_total for each in events) * 1e-6 / 4,
        "launches": sum(each.count for each in events) / 4,
    }


@contextlib.contextmanager
def _process_group(bench: Bench) -> Iterator[None]:
    """One process, which is all of them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": "0", "WORLD_SIZE": "1"}
    os.environ["LOCAL_RANK"] = "0"
    torch.distributed.init_process_group("nccl" if bench.is_cuda else "gloo")
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()


def _rows(bench: Bench, cases: Iterator[Case]) -> Iterator[Row]:
    with _process_group(bench):
        for case in cases:
            shown = case if bench.is_cuda else {**case, "batch": 8, "rows": 100}
            try:
                yield {**shown, **_measured(bench, shown)}
            except Exception as error:  # noqa: BLE001 (the other cases are measured all the same)
                yield {**shown, "error": f"{type(error).__name__}: {error}"[:400]}
            if bench.is_cuda:
                torch.cuda.empty_cache()


def torchrec_steps(bench: Bench) -> Iterator[Row]:
    """Steps in which the host does most."""
    yield from _rows(bench, step_cases())


def module_blocks(bench: Bench) -> Iterator[Row]:
    """Steps with tables in blocks."""
    yield from _rows(bench, module_block_cases())
