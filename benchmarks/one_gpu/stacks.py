"""Steps of stacks of layers by width, samples and format, eager, compiled and captured: dense FLOP/s, and casts.

Under autocast weights are fp32, and each operand of a product is converted; `bf16 weights` has nothing to convert.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from benchmarks.one_gpu.timing import Bench

Row = dict[str, object]
LAYERS = 8
FORMATS = ("fp32", "tf32", "bf16", "bf16 weights")


def stack_cases() -> Iterator[dict[str, Any]]:
    """Widths and samples of each format on the device, then what the host and compiling make of some."""
    for width in (512, 1024, 4096):
        for dtype in FORMATS:
            for batch in (2048,) if dtype == "fp32" else (2048, 16384):
                yield {"width": width, "dtype": dtype, "batch": batch, "mode": "graph"}
    for width in (512, 4096):
        for dtype in FORMATS[1:]:
            yield {"width": width, "dtype": dtype, "batch": 2048, "mode": "eager"}
            yield {"width": width, "dtype": dtype, "batch": 2048, "mode": "compiled"}


def stacks(bench: Bench) -> Iterator[Row]:
    """Seconds of a step of eight layers, forward, backward and SGD."""
    for case in stack_cases():
        shown = case if bench.is_cuda else {**case, "width": 16, "batch": 4}
        yield {**shown, "layers": LAYERS, **_measured(bench, shown)}
        if bench.is_cuda:
            torch.cuda.empty_cache()


def _measured(bench: Bench, case: dict[str, Any]) -> Row:
    torch.manual_seed(0)
    width, dtype, mode = case["width"], case["dtype"], case["mode"]
    torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    stored = torch.bfloat16 if dtype == "bf16 weights" else torch.float32
    blocks = [part for _ in range(LAYERS) for part in (nn.Linear(width, width), nn.ReLU())]
    model = nn.Sequential(*blocks).to(bench.device).to(stored)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    numbers = torch.randn((case["batch"], width), device=bench.device, dtype=stored, requires_grad=True)
    called = torch.compile(model) if mode == "compiled" else model

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        numbers.grad = None
        with torch.autocast(bench.device, dtype=torch.bfloat16, enabled=dtype == "bf16", cache_enabled=mode != "graph"):
            loss = called(numbers).float().mean()
        loss.backward()
        optimizer.step()

    if mode == "graph" and bench.is_cuda:
        bench.try_aside(step)
        graph = torch.cuda.CUDAGraph()
        optimizer.zero_grad(set_to_none=True)
        numbers.grad = None
        with torch.cuda.graph(graph):
            step()
        replay: Callable[[], object] = graph.replay
        return {"seconds": bench.step_s(replay), "host_s": bench.host_s(replay)}
    return {"seconds": bench.step_s(step), "host_s": bench.host_s(step)}
