"""Measure one CUDA device with PyTorch alone: `python -m benchmarks.one_gpu.measure DIRECTORY [--device cpu]`.

Writes a table per kind of measurement. Kernels are captured in a CUDA graph, so that no launch counts, and a time is
that of the fastest of several replays; whole passes run as a trainer runs them, the median of several runs. Nothing of
the cost model is used. `--device cpu` tries the script out with sizes that say nothing.
"""

import argparse
import csv
import importlib
import json
import platform
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch
from torch import nn

from benchmarks.one_gpu.elementwise import ELEMENTWISE
from benchmarks.one_gpu.small import batched, layer_products, picked, short_attention, tokens
from benchmarks.one_gpu.steps import (
    Row,
    host,
    kernels,
    kernels_by_format,
    other_passes,
    passes,
    passes_in_bf16,
)
from benchmarks.one_gpu.timing import Bench

FORMATS = {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
COPIES: dict[str, tuple[str, ...]] = {
    "up": ("up",),
    "down": ("down",),
    "both": ("up", "down"),
    "products": ("products",),
    "products_and_both": ("up", "down", "products"),
}


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
            yield {
                "dtype": dtype,
                "m": m,
                "n": n,
                "k": k,
                "seconds": bench.kernel_s(partial(torch.mm, left, right, out=target)),
            }
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
    for size, (name, root) in (
        (s, each) for s in sizes for each in (("eigh", inverse_fourth_root), ("newton", coupled_newton_root))
    ):
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
        yield {
            "method": "eigh_batched",
            "n": size,
            "count": count,
            "seconds": min(bench.event_s(call) for _ in range(4)),
        }


def copies(bench: Bench) -> Iterator[Row]:
    """Copies between host and device: each way, both at once, and both beside matrix products."""
    if not bench.is_cuda:
        return
    matrix = torch.randn((8192, 8192), device="cuda", dtype=torch.bfloat16)
    out = torch.empty_like(matrix)
    streams = {name: torch.cuda.Stream() for name in ("up", "down", "products")}
    for size in (2**16, 2**20, 2**24, 2**27, 2**30):
        here, back = (torch.empty(size, dtype=torch.uint8, pin_memory=True) for _ in range(2))
        there, gone = (torch.empty(size, dtype=torch.uint8, device="cuda") for _ in range(2))
        rounds = max(1, min(32, 2**30 // size))
        calls: dict[str, tuple[Callable[[], object], int]] = {
            "up": (partial(there.copy_, here, non_blocking=True), rounds),
            "down": (partial(back.copy_, gone, non_blocking=True), rounds),
            "products": (partial(torch.mm, matrix, matrix, out=out), 40),
        }
        for case, names in COPIES.items():
            runs = [_side_by_side(bench, {name: (streams[name], *calls[name]) for name in names}) for _ in range(4)]
            for name in names:
                yield {"case": case, "what": name, "bytes": size, "seconds": min(run[name] for run in runs)}


def _side_by_side(
    bench: Bench, calls: dict[str, tuple["torch.cuda.Stream", Callable[[], object], int]]
) -> dict[str, float]:
    """Seconds of each call, all of them repeated on streams of their own."""
    bench.sync()
    marks = {}
    for name, (stream, call, count) in calls.items():
        with torch.cuda.stream(stream):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            for _ in range(count):
                call()
            end.record()
            marks[name] = (begin, end, count)
    bench.sync()
    return {name: begin.elapsed_time(end) * 1e-3 / count for name, (begin, end, count) in marks.items()}


def _scaled_into(narrow: torch.Tensor, wide: torch.Tensor, scale: torch.Tensor) -> None:
    narrow.copy_(torch.mul(wide, scale))


def _times(count: int, call: Callable[[], object]) -> None:
    for _ in range(count):
        call()


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
            "rows fp32 to int8, given scale": (partial(_scaled_into, narrow, wide, scale), 5),
        }
        for name, (call, element_bytes) in cases.items():
            yield {
                "what": name,
                "elements": elements,
                "bytes": elements * element_bytes,
                "seconds": bench.kernel_s(call),
            }


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
            torch.randn(
                (samples, heads, length, head_dim), device=bench.device, dtype=torch.bfloat16, requires_grad=True
            )
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
        backward_s = min(bench.event_s(partial(_times, 4, backward)) / 4 for _ in range(3))
        yield {**case, "forward_s": forward_s, "backward_s": backward_s}


def sorts(bench: Bench) -> Iterator[Row]:
    """Ids of 8 B with positions of 4 B by as many bits as rows have, and their runs found, by CUB as FBGEMM does."""
    if not bench.is_cuda or shutil.which("nvcc") is None:
        return
    source, program = Path(__file__).with_name("sort.cu"), Path("/tmp/one_gpu_sort")
    subprocess.run(["nvcc", "-O3", "-std=c++17", "-arch=sm_90", str(source), "-o", str(program)], check=True)
    out = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout
    yield from csv.DictReader(out.splitlines())


Kind = Callable[[Bench], Iterator[Row]]
KINDS: dict[str, Kind] = {
    "roots": roots,
    "copies": copies,
    "streams": streams,
    "sorts": sorts,
    "host": host,
    "passes": passes,
    "other_passes": other_passes,
    "passes_in_bf16": passes_in_bf16,
    "attention": attention,
    "updates": updates,
    "products": products,
    "kernels": kernels,
    "kernels_by_format": kernels_by_format,
    "batched": batched,
    "short_attention": short_attention,
    "picked": picked,
    "layer_products": layer_products,
    "tokens": tokens,
    **ELEMENTWISE,
}


BY_TORCHREC = {
    "tbe": "tbe",
    "blocks": "tbe",
    "long_bags": "tbe",
    "drawn": "tbe",
    "torchrec_steps": "torchrec_steps",
    "module_blocks": "torchrec_steps",
    "stacks": "stacks",
}
"""Kinds that are measured only where they are named, and the modules that measure them: with fbgemm_gpu and torchrec,
but for the last."""


def kind_of(name: str) -> Kind:
    """What measures a kind."""
    if name in KINDS:
        return KINDS[name]
    found: Kind = getattr(importlib.import_module(f"benchmarks.one_gpu.{BY_TORCHREC[name]}"), name)
    return found


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
        began = time.perf_counter()
        rows = list(kind_of(name)(bench))
        if rows:
            columns = list(dict.fromkeys(key for row in rows for key in row if not key.startswith("_")))
            with (into / f"{name}.csv").open("w", newline="") as file:
                writer = csv.DictWriter(file, columns, lineterminator="\n", extrasaction="ignore")
                writer.writeheader()
                for row in rows:
                    writer.writerow(
                        {key: f"{value:.6g}" if isinstance(value, float) else value for key, value in row.items()}
                    )
        print(f"{name}: {len(rows)} rows in {time.perf_counter() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
