"""Steps of dense parts, forward, backward and update, by mode, format, batch and optimizer."""

from collections.abc import Iterator
from typing import Any

import torch

from benchmarks.one_gpu.timing import Bench
from benchmarks.one_gpu.torch_models import MODELS, VECTORS, WIDTH, tower

Row = dict[str, object]
Case = tuple[str, str, str, int, str, bool]
"""Model, mode, format, samples, optimizer, whether it is checkpointed."""
FIRST, LATER = ("mlp", "dlrm", "dcn"), ("dlrm_of_pairs", "wukong", "attention")


def passes(bench: Bench) -> Iterator[Row]:
    """Steps of three models."""
    batches = (256, 2048, 8192, 32768) if bench.is_cuda else (8,)
    plain = [(model, mode) for mode in ("graph", "eager") for model in FIRST]
    cases: list[Case] = [(*each, "bf16", batch, "sgd", False) for each in plain for batch in batches]
    cases += [(*each, dtype, batch, "sgd", False) for dtype in ("tf32", "fp32") for each in plain for batch in batches]
    cases += [(*each, "bf16", batch, "adam", False) for each in plain for batch in batches[:3]]
    cases += [("mlp", "eager", "bf16", batch, "sgd", True) for batch in batches]
    cases += [(model, "compiled", "bf16", batch, "sgd", False) for model in FIRST for batch in batches[1:3]]
    yield from measured(bench, cases)


def other_passes(bench: Bench) -> Iterator[Row]:
    """Steps of three more."""
    batches = (2048, 8192, 16384) if bench.is_cuda else (8,)
    plain = [(model, mode, dtype) for model in LATER for mode in ("graph", "eager") for dtype in ("bf16", "tf32")]
    yield from measured(bench, [(*each, batch, "sgd", False) for each in plain for batch in batches])


def passes_in_bf16(bench: Bench) -> Iterator[Row]:
    """Steps of models whose weights, vectors and norms are in bf16, too, so that nothing is converted."""
    batches = (2048, 8192, 16384) if bench.is_cuda else (8,)
    plain = [(model, "graph", "bf16 weights") for model in MODELS]
    yield from measured(bench, [(*each, batch, "sgd", False) for each in plain for batch in batches])


def measured(bench: Bench, cases: list[Case]) -> Iterator[Row]:
    for name, mode, dtype, batch, rule, again in cases:
        case: Row = {"model": name, "mode": mode, "dtype": dtype, "batch": batch, "optimizer": rule}
        yield {**case, "checkpointed": int(again), **one_pass(bench, name, mode, dtype, batch, rule, again=again)}
        if bench.is_cuda:
            torch.cuda.empty_cache()


def one_pass(bench: Bench, name: str, mode: str, dtype: str, batch: int, rule: str, *, again: bool) -> Row:
    """Seconds of a step, peak bytes, and for eager passes its parts."""
    torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    torch.manual_seed(0)
    model = MODELS[name]().to(bench.device)
    if again:
        model.again = True
    stored = torch.bfloat16 if dtype == "bf16 weights" else torch.float32
    parameters = list(model.to(stored).parameters())
    capturable = {"capturable": True} if rule == "adam" and bench.is_cuda else {}
    optimizer: Any = (torch.optim.Adam if rule == "adam" else torch.optim.SGD)(parameters, lr=1e-4, **capturable)
    numbers = torch.randn((batch, model.inputs), device=bench.device, dtype=stored)
    vectors = torch.randn((batch, VECTORS, WIDTH), device=bench.device, dtype=stored, requires_grad=True)
    called = torch.compile(model) if mode == "compiled" else model

    def forward() -> torch.Tensor:
        if dtype == "bf16":
            with torch.autocast(bench.device, dtype=torch.bfloat16, cache_enabled=mode != "graph"):
                return called(numbers, vectors)
        return called(numbers, vectors)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        vectors.grad = None
        forward().backward()
        optimizer.step()

    if mode == "graph" and bench.is_cuda:
        bench.try_aside(step)
        graph = torch.cuda.CUDAGraph()
        optimizer.zero_grad(set_to_none=True)
        vectors.grad = None
        with torch.cuda.graph(graph):
            forward().backward()
            optimizer.step()
        return {"seconds": bench.step_s(graph.replay), "host_s": bench.host_s(graph.replay)}
    for _ in range(3):
        step()
    if bench.is_cuda:
        torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated() if bench.is_cuda else 0
    seconds = bench.step_s(step)
    peak = torch.cuda.max_memory_allocated() if bench.is_cuda else 0
    with torch.no_grad():
        forward_s = bench.step_s(forward)
    return {
        "seconds": seconds,
        "host_s": bench.host_s(step),
        "forward_s": forward_s,
        "update_s": bench.step_s(optimizer.step),
        "held_bytes": before,
        "peak_bytes": peak,
    }


def kernels(bench: Bench) -> Iterator[Row]:
    """Seconds of each kernel of an eager step, in bf16 under autocast."""
    for name in MODELS:
        yield from _kernels(bench, name, "bf16")


def kernels_by_format(bench: Bench) -> Iterator[Row]:
    """The same with weights in bf16, and in tf32."""
    for dtype in ("bf16 weights", "tf32"):
        for name in MODELS:
            yield from _kernels(bench, name, dtype)


def _kernels(bench: Bench, name: str, dtype: str) -> Iterator[Row]:
    if not bench.is_cuda:
        return
    from torch.profiler import ProfilerActivity, profile

    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    stored = torch.bfloat16 if dtype == "bf16 weights" else torch.float32
    model = MODELS[name]().cuda().to(stored)
    numbers = torch.randn((8192, model.inputs), device="cuda", dtype=stored)
    vectors = torch.randn((8192, VECTORS, WIDTH), device="cuda", dtype=stored, requires_grad=True)

    def step() -> None:
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=dtype == "bf16"):
            model(numbers, vectors).backward()

    for _ in range(3):
        step()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        step()
        torch.cuda.synchronize()
    torch.backends.cuda.matmul.allow_tf32 = False
    for each in seen.key_averages():
        if each.device_time_total:
            seconds = each.device_time_total * 1e-6
            yield {
                "model": name,
                "batch": 8192,
                "dtype": dtype,
                "kernel": each.key[:160],
                "count": each.count,
                "seconds": seconds,
            }


def host(bench: Bench) -> Iterator[Row]:
    """Steps whose kernels have next to nothing to compute, by layers, optimizer and mode."""
    cases = [
        (layers, rule, mode) for layers in (1, 2, 4, 8, 16) for rule in ("sgd", "adam") for mode in ("eager", "graph")
    ]
    for layers, rule, mode in [*cases, *((layers, "sgd", "compiled") for layers in (2, 8, 16))]:
        torch.manual_seed(0)
        model = tower([64] * (layers + 1)).to(bench.device)
        numbers = torch.randn((64, 64), device=bench.device)
        capturable = {"capturable": True} if rule == "adam" and bench.is_cuda else {}
        optimizer: Any = (torch.optim.Adam if rule == "adam" else torch.optim.SGD)(
            model.parameters(), lr=1e-4, **capturable
        )
        called = torch.compile(model) if mode == "compiled" else model

        def step(called: Any = called, optimizer: Any = optimizer, numbers: Any = numbers) -> None:
            optimizer.zero_grad(set_to_none=True)
            called(numbers).mean().backward()
            optimizer.step()

        for _ in range(4):
            step()
        if mode == "graph":
            if not bench.is_cuda:
                continue
            side = torch.cuda.Stream()
            with torch.cuda.stream(side):
                for _ in range(3):
                    step()
            bench.sync()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                step()
            step = graph.replay
        row = {"layers": layers, "optimizer": rule, "mode": mode, "seconds": bench.step_s(step, 100)}
        yield {**row, "host_s": bench.host_s(step)}
