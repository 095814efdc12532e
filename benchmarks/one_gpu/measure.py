"""Measure one CUDA device with PyTorch alone: `python benchmarks/one_gpu/measure.py DIRECTORY [--device cpu]`.

Writes a table per kind of measurement. Kernels are captured in a CUDA graph, so that no launch counts, and a time is the
fastest of several replays; whole passes run as a trainer runs them (eager, compiled, captured), the median of several
runs. Nothing of the cost model is used. `--device cpu` tries the script out with sizes that say nothing.
"""

import argparse
import csv
import json
import platform
import shutil
import statistics
import subprocess
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

Row = dict[str, object]
REPLAYED, REPLAYS, STEPS = 8, 5, 12
FORMATS = {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
VECTORS, WIDTH, NUMERICAL = 26, 128, 13


class Bench:
    """Timing on one device."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.is_cuda = device == "cuda"

    def sync(self) -> None:
        if self.is_cuda:
            torch.cuda.synchronize()

    def kernel_s(self, kernel: Callable[[], object]) -> float:
        """Seconds of a kernel without its launch."""
        for _ in range(2):
            kernel()
        self.sync()
        if not self.is_cuda:
            began = time.perf_counter()
            kernel()
            return time.perf_counter() - began
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(REPLAYED):
                kernel()
        graph.replay()
        return min(self.event_s(graph.replay) for _ in range(REPLAYS)) / REPLAYED

    def event_s(self, call: Callable[[], object]) -> float:
        """Seconds on the device from before a call to after it."""
        if not self.is_cuda:
            began = time.perf_counter()
            call()
            return time.perf_counter() - began
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        self.sync()
        start.record()
        call()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e-3

    def step_s(self, step: Callable[[], object], steps: int = STEPS) -> float:
        """Seconds a step, of steps in a row; the median of three such rows."""
        for _ in range(4):
            step()
        rows = []
        for _ in range(3):
            self.sync()
            began = time.perf_counter()
            for _ in range(steps):
                step()
            self.sync()
            rows.append((time.perf_counter() - began) / steps)
        return statistics.median(rows)


def products(bench: Bench) -> Iterator[Row]:
    """[m, k] by [k, n], as layers of recommendation models have them, and large ones."""
    layers = [(512, 13), (256, 512), (128, 256), (512, 3456), (3456, 512), (1024, 3456), (1024, 1024), (512, 1024)]
    layers += [(256, 256), (1, 256), (2048, 2048), (4096, 4096), (768, 192)]
    batches = [512, 2048, 8192, 32768] if bench.is_cuda else [64]
    shapes = [(batch, out, inner) for batch in batches for out, inner in layers]
    shapes += [(out, inner, batch) for batch in batches for out, inner in layers]
    shapes += [(size, size, size) for size in (256, 512, 1024, 2048, 4096, 8192) if bench.is_cuda]
    for dtype, stored in FORMATS.items():
        torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
        for m, n, k in shapes:
            left = torch.randn((m, k), device=bench.device).to(stored)
            right = torch.randn((k, n), device=bench.device).to(stored)
            target = torch.empty((m, n), device=bench.device, dtype=stored)
            yield {"dtype": dtype, "m": m, "n": n, "k": k, "seconds": bench.kernel_s(partial(torch.mm, left, right, out=target))}
    torch.backends.cuda.matmul.allow_tf32 = False
    if not bench.is_cuda:
        return
    one = torch.ones((), device=bench.device)
    for m, n, k in shapes:
        if n % 16 or k % 16 or m % 16:
            continue
        left = torch.randn((m, k), device=bench.device).to(torch.float8_e4m3fn)
        right = torch.randn((n, k), device=bench.device).to(torch.float8_e4m3fn).t()
        call = partial(torch._scaled_mm, left, right, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
        yield {"dtype": "fp8", "m": m, "n": n, "k": k, "seconds": bench.kernel_s(call)}


def inverse_fourth_root(matrix: torch.Tensor) -> torch.Tensor:
    """By eigenvalues and vectors, as Distributed Shampoo does by default."""
    values, vectors = torch.linalg.eigh(matrix)
    return (vectors * (values - values.min().clamp(max=0) + 1e-12).pow(-0.25)) @ vectors.T


def coupled_newton_root(matrix: torch.Tensor, iterations: int = 20) -> torch.Tensor:
    """A^(-1/4) by coupled inverse Newton iterations, a fixed number of them: two squarings and two products each."""
    size = matrix.shape[0]
    eye = torch.eye(size, device=matrix.device, dtype=matrix.dtype)
    damped = matrix + 1e-6 * eye
    scale = 2.5 / torch.linalg.matrix_norm(damped)
    coupled, root = scale * damped, scale.pow(0.25) * eye
    for _ in range(iterations):
        factor = 1.25 * eye - 0.25 * coupled
        root = root @ factor
        squared = factor @ factor
        coupled = squared @ squared @ coupled
    return root


def roots(bench: Bench) -> Iterator[Row]:
    """Inverse fourth roots of sums of products of gradients."""
    sizes = (64, 128, 256, 512, 1024, 2048, 4096, 8192) if bench.is_cuda else (64, 128)
    for size, (name, root) in ((s, each) for s in sizes for each in (("eigh", inverse_fourth_root), ("newton", coupled_newton_root))):
        gradient = torch.randn((size, 2 * size), device=bench.device)
        matrix = gradient @ gradient.T / (2 * size)
        root(matrix)
        runs = 2 if size > 2000 else 5
        times = [bench.event_s(partial(root, matrix)) for _ in range(runs)]
        yield {"method": name, "n": size, "count": 1, "seconds": min(times)}
    for size, count in ((128, 64), (256, 16), (512, 8)):
        gradient = torch.randn((count, size, 2 * size), device=bench.device)
        matrices = gradient @ gradient.transpose(1, 2) / (2 * size)
        call = partial(torch.linalg.eigh, matrices)
        call()
        yield {"method": "eigh_batched", "n": size, "count": count, "seconds": min(bench.event_s(call) for _ in range(4))}


def sides(bench: Bench) -> Iterator[Row]:
    """Copies between host and device: each way, both at once, and both beside matrix products."""
    if not bench.is_cuda:
        return
    up, down, work = torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.Stream()
    matrix = torch.randn((8192, 8192), device="cuda", dtype=torch.bfloat16)
    out = torch.empty_like(matrix)
    for size in (2**16, 2**20, 2**24, 2**27, 2**30):
        host_a, host_b = (torch.empty(size, dtype=torch.uint8, pin_memory=True) for _ in range(2))
        on_a, on_b = (torch.empty(size, dtype=torch.uint8, device="cuda") for _ in range(2))
        rounds = max(1, min(32, 2**30 // size))
        for case in ("up", "down", "both", "products", "products_and_both"):
            times: dict[str, list[float]] = {"up": [], "down": [], "products": []}
            for _ in range(4):
                bench.sync()
                marks = {}
                jobs: list[tuple[str, Any, Callable[[], object], int]] = []
                if case in ("up", "both", "products_and_both"):
                    jobs.append(("up", up, lambda: on_a.copy_(host_a, non_blocking=True), rounds))
                if case in ("down", "both", "products_and_both"):
                    jobs.append(("down", down, lambda: host_b.copy_(on_b, non_blocking=True), rounds))
                if case.startswith("products"):
                    jobs.append(("products", work, lambda: torch.mm(matrix, matrix, out=out), 40))
                for name, stream, call, count in jobs:
                    with torch.cuda.stream(stream):
                        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                        begin.record()
                        for _ in range(count):
                            call()
                        end.record()
                        marks[name] = (begin, end, count)
                bench.sync()
                for name, (begin, end, count) in marks.items():
                    times[name].append(begin.elapsed_time(end) * 1e-3 / count)
            for name, each in times.items():
                if each:
                    yield {"case": case, "what": name, "bytes": size, "seconds": min(each)}


def streams(bench: Bench) -> Iterator[Row]:
    """Vectors through device memory: read and written, converted, activated."""
    for elements in (2**16, 2**20, 2**24, 2**27) if bench.is_cuda else (2**12,):
        vector = torch.randn(elements, device=bench.device)
        half, other = vector.to(torch.bfloat16), torch.empty_like(vector)
        eight = vector.to(torch.float8_e4m3fn)
        wide, narrow = vector.view(-1, 128), torch.empty((elements // 128, 128), device=bench.device, dtype=torch.int8)
        scale = torch.full((elements // 128, 1), 40.0, device=bench.device)
        cases: dict[str, tuple[Callable[[], object], int]] = {
            "scale fp32": (partial(torch.mul, vector, 2.0, out=other), 8),
            "relu bf16": (partial(torch.relu, half), 4),
            "fp32 to bf16": (partial(half.copy_, vector), 6),
            "fp32 to fp16": (partial(vector.to, torch.float16), 6),
            "bf16 to fp32": (partial(other.copy_, half), 6),
            "fp32 to fp8": (partial(eight.copy_, vector), 5),
            "rows fp32 to int8, given scale": (lambda: narrow.copy_(torch.mul(wide, scale)), 5),
        }
        for name, (call, element_bytes) in cases.items():
            yield {"what": name, "elements": elements, "bytes": elements * element_bytes, "seconds": bench.kernel_s(call)}


def updates(bench: Bench) -> Iterator[Row]:
    """A dense optimizer's step on layers of a million parameters."""
    for count in (1, 16, 128) if bench.is_cuda else (2,):
        for name, make in {
            "sgd foreach": partial(torch.optim.SGD, lr=1e-3, foreach=True),
            "adam foreach": partial(torch.optim.Adam, lr=1e-3, foreach=True, capturable=bench.is_cuda),
            "adam fused": partial(torch.optim.Adam, lr=1e-3, fused=bench.is_cuda, capturable=bench.is_cuda),
            "adagrad foreach": partial(torch.optim.Adagrad, lr=1e-3, foreach=True),
        }.items():
            weights = [nn.Parameter(torch.randn(1024, 1024, device=bench.device)) for _ in range(count)]
            for weight in weights:
                weight.grad = torch.randn_like(weight)
            optimizer = make(weights)
            yield {"what": name, "parameters": count * 2**20, "tensors": count, "seconds": bench.step_s(optimizer.step)}


def attention(bench: Bench) -> Iterator[Row]:
    """Scaled dot products of whole histories, forward and backward, in bf16."""
    lengths = (128, 256, 512, 1024, 2048, 4096, 8192) if bench.is_cuda else (16,)
    for head_dim, causal, length in ((d, c, n) for d in (32, 64, 128) for c in (False, True) for n in lengths):
        heads, samples = 8, max(1, 2**18 // length // 8)
        query, key, value = (
            torch.randn((samples, heads, length, head_dim), device=bench.device, dtype=torch.bfloat16, requires_grad=True)
            for _ in range(3)
        )
        forward = partial(nn.functional.scaled_dot_product_attention, query, key, value, is_causal=causal)
        out = forward()
        gradient = torch.randn_like(out)
        backward = partial(torch.autograd.grad, out, (query, key, value), gradient, retain_graph=True)
        case = {"samples": samples, "heads": heads, "length": length, "head_dim": head_dim, "causal": int(causal)}
        with torch.no_grad():
            forward_s = bench.kernel_s(forward)
        for _ in range(3):
            backward()
        backward_s = min(bench.event_s(lambda: [backward() for _ in range(4)]) / 4 for _ in range(3))
        yield {**case, "forward_s": forward_s, "backward_s": backward_s}


class Mlp(nn.Module):
    """Eight layers of 2,048."""

    def __init__(self, width: int = 2048, count: int = 8) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(count))
        self.inputs = width
        self.again = False

    def forward(self, numbers: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            numbers = checkpoint(block, numbers, use_reentrant=False) if self.again else block(numbers)
        return numbers.float().mean()


def tower(sizes: list[int]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in zip(sizes, sizes[1:], strict=False):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Dlrm(nn.Module):
    """Facebook's DLRM with MLPs of MLPerf: dots of 27 vectors."""

    inputs = NUMERICAL

    def __init__(self) -> None:
        super().__init__()
        self.bottom = tower([NUMERICAL, 512, 256, WIDTH])
        self.top = tower([WIDTH + (VECTORS + 1) * VECTORS // 2, 1024, 1024, 512, 256, 1])
        pairs = torch.tril_indices(VECTORS + 1, VECTORS + 1, offset=-1)
        self.register_buffer("pairs", pairs[0] * (VECTORS + 1) + pairs[1])

    def forward(self, numbers: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
        low = torch.relu(self.bottom(numbers))
        all_of = torch.cat([low.unsqueeze(1), vectors.to(low.dtype)], dim=1)
        dots = torch.bmm(all_of, all_of.transpose(1, 2)).flatten(1).index_select(1, self.pairs)
        return self.top(torch.cat([low, dots], dim=1)).float().mean()


class Dcn(nn.Module):
    """DLRM-DCNv2 of MLPerf: three cross layers of rank 512."""

    inputs = NUMERICAL

    def __init__(self, rank: int = 512, count: int = 3) -> None:
        super().__init__()
        width = (VECTORS + 1) * WIDTH
        self.bottom = tower([NUMERICAL, 512, 256, WIDTH])
        self.down = nn.ModuleList(nn.Linear(width, rank, bias=False) for _ in range(count))
        self.up = nn.ModuleList(nn.Linear(rank, width) for _ in range(count))
        self.top = tower([width, 1024, 1024, 512, 256, 1])

    def forward(self, numbers: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
        low = torch.relu(self.bottom(numbers))
        first = torch.cat([low.unsqueeze(1), vectors.to(low.dtype)], dim=1).flatten(1)
        crossed = first
        for down, up in zip(self.down, self.up, strict=True):
            crossed = first * up(down(crossed)) + crossed
        return self.top(crossed).float().mean()


class DlrmOfPairs(Dlrm):
    """The same with pairs picked by two lists, as TorchRec's InteractionArch does."""

    def __init__(self) -> None:
        super().__init__()
        pairs = torch.triu_indices(VECTORS + 1, VECTORS + 1, offset=1)
        self.register_buffer("rows", pairs[0].contiguous())
        self.register_buffer("columns", pairs[1].contiguous())

    def forward(self, numbers: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
        low = torch.relu(self.bottom(numbers))
        all_of = torch.cat([low.unsqueeze(1), vectors.to(low.dtype)], dim=1)
        dots = torch.bmm(all_of, all_of.transpose(1, 2))[:, self.rows, self.columns]
        return self.top(torch.cat([low, dots], dim=1)).float().mean()


class WukongLayer(nn.Module):
    """A factorization machine beside weighted sums, a residual and a norm (arXiv:2403.02545)."""

    def __init__(self, tokens: int, vectors: int = 32, compressed: int = 32, rank: int = 24, hidden: int = 2048) -> None:
        super().__init__()
        self.compress = nn.Parameter(torch.randn(compressed, tokens) / tokens)
        self.rank = nn.Parameter(torch.randn(tokens, rank) / tokens)
        self.norm = nn.LayerNorm(tokens * rank)
        self.mlp = tower([tokens * rank, hidden, hidden, vectors * WIDTH])
        self.residual = nn.Parameter(torch.randn(vectors + compressed, tokens) / tokens)
        self.last = nn.LayerNorm(WIDTH)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        crossed = torch.matmul(tokens, torch.matmul(tokens.transpose(1, 2), self.rank)).flatten(1)
        made = self.mlp(self.norm(crossed)).view(len(tokens), -1, WIDTH)
        joined = torch.cat([made, torch.matmul(self.compress, tokens)], dim=1)
        return self.last(joined + torch.matmul(self.residual, tokens))


class Wukong(nn.Module):
    """Four layers over 27 vectors."""

    inputs = NUMERICAL

    def __init__(self) -> None:
        super().__init__()
        self.bottom = tower([NUMERICAL, 512, WIDTH])
        self.layers = nn.ModuleList(WukongLayer(tokens) for tokens in (VECTORS + 1, 64, 64, 64))
        self.top = tower([64 * WIDTH, 1024, 512, 1])

    def forward(self, numbers: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
        low = self.bottom(numbers)
        tokens = torch.cat([low.unsqueeze(1), vectors.to(low.dtype)], dim=1)
        for layer in self.layers:
            tokens = layer(tokens)
        return self.top(tokens.flatten(1)).float().mean()


class Attention(nn.Module):
    """Two blocks of attention over the 26 vectors and an MLP of each, and linear layers."""

    inputs = NUMERICAL

    def __init__(self, heads: int = 4, hidden: int = 512, count: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.joint = nn.ModuleList(nn.Linear(WIDTH, 3 * WIDTH) for _ in range(count))
        self.out = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(count))
        self.mlp = nn.ModuleList(tower([WIDTH, hidden, WIDTH]) for _ in range(count))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2 * count))
        self.top = tower([VECTORS * WIDTH + NUMERICAL, 1024, 512, 1])

    def forward(self, numbers: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
        tokens = vectors
        for at, (joint, out, mlp) in enumerate(zip(self.joint, self.out, self.mlp, strict=True)):
            parts = joint(tokens).view(len(tokens), VECTORS, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            met = nn.functional.scaled_dot_product_attention(*parts).transpose(1, 2).flatten(2)
            tokens = self.norms[2 * at](tokens + out(met))
            tokens = self.norms[2 * at + 1](tokens + mlp(tokens))
        return self.top(torch.cat([tokens.flatten(1), numbers.to(tokens.dtype)], dim=1)).float().mean()


MODELS: dict[str, Callable[[], Any]] = {
    "mlp": Mlp, "dlrm": Dlrm, "dlrm_of_pairs": DlrmOfPairs, "dcn": Dcn, "wukong": Wukong, "attention": Attention,
}  # fmt: skip
FIRST, LATER = ("mlp", "dlrm", "dcn"), ("dlrm_of_pairs", "wukong", "attention")


def passes(bench: Bench) -> Iterator[Row]:
    """Dense parts, forward, backward and update, by mode, format, batch and optimizer; vectors get gradients, too."""
    batches = (256, 2048, 8192, 32768) if bench.is_cuda else (8,)
    cases = [(m, mode, "bf16", b, "sgd", 0) for mode in ("graph", "eager") for m in FIRST for b in batches]
    cases += [(m, mode, d, b, "sgd", 0) for d in ("tf32", "fp32") for mode in ("graph", "eager") for m in FIRST for b in batches]
    cases += [(m, mode, "bf16", b, "adam", 0) for mode in ("graph", "eager") for m in FIRST for b in batches[:3]]
    cases += [("mlp", "eager", "bf16", b, "sgd", 1) for b in batches]
    cases += [(m, "compiled", "bf16", b, "sgd", 0) for m in FIRST for b in batches[1:3]]
    for name, mode, dtype, batch, rule, again in cases:
        case: Row = {"model": name, "mode": mode, "dtype": dtype, "batch": batch, "optimizer": rule, "checkpointed": again}
        try:
            yield {**case, **one_pass(bench, name, mode, dtype, batch, rule, bool(again))}
        except Exception as error:
            print("passes", case, repr(error)[:300], flush=True)
        if bench.is_cuda:
            torch.cuda.empty_cache()


def other_passes(bench: Bench) -> Iterator[Row]:
    """The same of models that the passes over activations were not fitted to."""
    batches = (2048, 8192, 16384) if bench.is_cuda else (8,)
    for name, mode, dtype, batch in ((m, mode, d, b) for m in LATER for mode in ("graph", "eager") for d in ("bf16", "tf32") for b in batches):
        case: Row = {"model": name, "mode": mode, "dtype": dtype, "batch": batch, "optimizer": "sgd", "checkpointed": 0}
        try:
            yield {**case, **one_pass(bench, name, mode, dtype, batch, "sgd", False)}
        except Exception as error:
            print("passes", case, repr(error)[:300], flush=True)
        if bench.is_cuda:
            torch.cuda.empty_cache()


def kernels(bench: Bench) -> Iterator[Row]:
    """Seconds of each kernel of an eager step."""
    if not bench.is_cuda:
        return
    from torch.profiler import ProfilerActivity, profile

    for name in MODELS:
        torch.manual_seed(0)
        torch.backends.cuda.matmul.allow_tf32 = False
        model = MODELS[name]().cuda()
        numbers, vectors = torch.randn((8192, model.inputs), device="cuda"), torch.randn((8192, VECTORS, WIDTH), device="cuda", requires_grad=True)

        def step(model: Any = model, numbers: Any = numbers, vectors: Any = vectors) -> None:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                model(numbers, vectors).backward()

        for _ in range(3):
            step()
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            step()
            torch.cuda.synchronize()
        for each in seen.key_averages():
            if each.device_time_total:
                yield {"model": name, "batch": 8192, "dtype": "bf16", "kernel": each.key[:160], "count": each.count, "seconds": each.device_time_total * 1e-6}


def one_pass(bench: Bench, name: str, mode: str, dtype: str, batch: int, rule: str, again: bool) -> Row:
    """Seconds of a step, peak bytes, and for eager passes its parts."""
    torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    torch.manual_seed(0)
    model = MODELS[name]().to(bench.device)
    if again:
        model.again = True
    parameters = list(model.parameters())
    capturable = {"capturable": True} if rule == "adam" and bench.is_cuda else {}
    optimizer: Any = (torch.optim.Adam if rule == "adam" else torch.optim.SGD)(parameters, lr=1e-4, **capturable)
    numbers = torch.randn((batch, model.inputs), device=bench.device)
    vectors = torch.randn((batch, VECTORS, WIDTH), device=bench.device, requires_grad=True)
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
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        optimizer.zero_grad(set_to_none=True)
        vectors.grad = None
        with torch.cuda.graph(graph):
            forward().backward()
            optimizer.step()
        return {"seconds": bench.step_s(graph.replay), "host_s": host_seconds(bench, graph.replay)}
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
        "host_s": host_seconds(bench, step),
        "forward_s": forward_s,
        "update_s": bench.step_s(optimizer.step),
        "held_bytes": before,
        "peak_bytes": peak,
    }


def host_seconds(bench: Bench, step: Callable[[], object]) -> float:
    """Seconds that the host takes to launch a step, of a queue that is empty at its begin."""
    times = []
    for _ in range(6):
        bench.sync()
        began = time.perf_counter()
        step()
        times.append(time.perf_counter() - began)
    return min(times)


def host(bench: Bench) -> Iterator[Row]:
    """Steps whose kernels have next to nothing to compute, by layers, optimizer and mode."""
    cases = [(layers, rule, mode) for layers in (1, 2, 4, 8, 16) for rule in ("sgd", "adam") for mode in ("eager", "graph")]
    for layers, rule, mode in [*cases, *((layers, "sgd", "compiled") for layers in (2, 8, 16))]:
        torch.manual_seed(0)
        model = tower([64] * (layers + 1)).to(bench.device)
        numbers = torch.randn((64, 64), device=bench.device)
        capturable = {"capturable": True} if rule == "adam" and bench.is_cuda else {}
        optimizer: Any = (torch.optim.Adam if rule == "adam" else torch.optim.SGD)(model.parameters(), lr=1e-4, **capturable)
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
        yield {**row, "host_s": host_seconds(bench, step)}


def sorts(bench: Bench) -> Iterator[Row]:
    """Ids of 8 B with positions of 4 B by as many bits as rows have, and their runs found, by CUB as FBGEMM does."""
    if not bench.is_cuda or shutil.which("nvcc") is None:
        return
    source, program = Path(__file__).with_name("sort.cu"), Path("/tmp/one_gpu_sort")
    subprocess.run(["nvcc", "-O3", "-std=c++17", "-arch=sm_90", str(source), "-o", str(program)], check=True)
    out = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout
    yield from csv.DictReader(out.splitlines())


KINDS = {
    "roots": roots, "copies": sides, "streams": streams, "sorts": sorts, "host": host, "passes": passes, "other_passes": other_passes,
    "attention": attention, "updates": updates, "products": products, "kernels": kernels,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", default=",".join(KINDS))
    stated = parser.parse_args()
    bench, into = Bench(stated.device), stated.directory
    into.mkdir(parents=True, exist_ok=True)
    machine = {"torch": torch.__version__, "cuda": torch.version.cuda, "system": platform.platform()}
    if bench.is_cuda:
        shown = torch.cuda.get_device_properties(0)
        machine |= {"device": shown.name, "memory_bytes": shown.total_memory, "processors": shown.multi_processor_count}
    (into / "machine.json").write_text(json.dumps(machine, indent=1) + "\n")
    for name in stated.only.split(","):
        began, rows = time.perf_counter(), []
        try:
            for row in KINDS[name](bench):
                rows.append(row)
        except Exception:
            traceback.print_exc()
        if rows:
            columns = list(dict.fromkeys(key for row in rows for key in row))
            with (into / f"{name}.csv").open("w", newline="") as file:
                writer = csv.DictWriter(file, columns, lineterminator="\n")
                writer.writeheader()
                for row in rows:
                    writer.writerow({key: f"{value:.6g}" if isinstance(value, float) else value for key, value in row.items()})
        print(f"{name}: {len(rows)} rows in {time.perf_counter() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
