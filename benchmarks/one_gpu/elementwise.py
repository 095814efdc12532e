"""Kernels that layers have beside their products: by numbers, over rows and columns, across layouts; odd and even
widths of products; compiled steps."""

import time
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import nn

from benchmarks.one_gpu.small import Tensors, both_ways, formats
from benchmarks.one_gpu.steps import Case, Row, measured
from benchmarks.one_gpu.timing import Bench

LARGEST_NUMBERS = 1.5e9
"""Of a tensor."""
COMPILING_S = 120
"""After which no further model is compiled."""


def _made(bench: Bench, stored: torch.dtype) -> Callable[..., torch.Tensor]:
    return partial(torch.randn, device=bench.device, dtype=stored)


def streamed(bench: Bench) -> Iterator[Row]:
    """Contiguous numbers: activations and their gradients, products and sums of two, joined vectors, conversions."""
    widths = ((8192, 512), (8192, 3456), (32768, 3456)) if bench.is_cuda else ((4, 256),)
    for dtype, stored in formats(("bf16", "fp32")):
        for rows, width in widths:
            made = _made(bench, stored)
            one, other, out = made((rows, width)), made((rows, width)), made((rows, width))
            low, pairs, dots = made((rows, 128)), made((rows, width - 128)), made((rows, 351))
            vectors = [made((rows, 1, 128)) for _ in range(width // 128)]
            wide, narrow = one.float(), one.to(torch.bfloat16)
            threshold = torch.ops.aten.threshold_backward
            cases: dict[str, tuple[Callable[[], object], float]] = {
                "relu": (partial(torch.relu, one), 2),
                "gradient of relu": (partial(threshold, other, one, 0), 3),
                "product": (partial(torch.mul, one, other, out=out), 3),
                "sum": (partial(torch.add, one, other, out=out), 3),
                "two joined": (partial(torch.cat, [low, pairs], dim=1), 2),
                "vectors joined": (partial(torch.cat, vectors, dim=1), 2),
                "479 joined": (partial(torch.cat, [low, dots], dim=1), 2 * 479 / width),
                "to 16 bits": (partial(wide.to, torch.bfloat16), 6 / stored.itemsize),
                "to 32 bits": (partial(narrow.to, torch.float32), 6 / stored.itemsize),
            }
            for name, (call, crossings) in cases.items():
                moved = crossings * rows * width * stored.itemsize
                case: Row = {"what": name, "dtype": dtype, "rows": rows, "width": width, "bytes": int(moved)}
                yield {**case, "seconds": bench.kernel_s(call)}


def column_sums(bench: Bench) -> Iterator[Row]:
    """Gradients of biases: sums of all rows."""
    batches = (2048, 8192, 32768, 212992) if bench.is_cuda else (4,)
    for dtype, stored in formats(("bf16", "fp32")):
        for rows, width in ((r, w) for r in batches for w in (128, 384, 512, 1024, 2048, 3456)):
            if rows * width > LARGEST_NUMBERS / 4:
                continue
            numbers = _made(bench, stored)((rows, width))
            case: Row = {"dtype": dtype, "rows": rows, "width": width}
            yield {**case, "seconds": bench.kernel_s(partial(torch.sum, numbers, 0))}


def strided(bench: Bench) -> Iterator[Row]:
    """Across layouts: vectors of a sample transposed, alone and added to others; heads put in order and back."""
    counts, widths = ((8, 14, 27, 40, 64), (32, 64, 128)) if bench.is_cuda else ((3,), (4,))
    for dtype, stored in formats(("bf16", "fp16", "fp32")):
        for count, width, batch in ((n, d, b) for n in counts for d in widths for b in (4096, 16384)):
            made = _made(bench, stored)
            vectors, turned = made((batch, count, width)), made((batch, width, count)).transpose(1, 2)
            heads = made((batch, count, width // 32 or 1, min(width, 32)))
            parts = made((3, batch, width // 32 or 1, count, min(width, 32)))
            cases: dict[str, tuple[Callable[[], object], float]] = {
                "copy": (turned.contiguous, 2),
                "sum": (partial(torch.add, vectors, turned), 3),
                "slice": (partial(torch.clone, vectors[:, :1], memory_format=torch.contiguous_format), 2 / count),
                "heads": (heads.transpose(1, 2).contiguous, 2),
                "parts of heads": (parts.permute(1, 3, 0, 2, 4).contiguous, 6),
                "parts stacked": (partial(torch.stack, list(parts)), 6),
            }
            for name, (call, crossings) in cases.items():
                moved = crossings * batch * count * width * stored.itemsize
                case: Row = {"what": name, "dtype": dtype, "samples": batch, "vectors": count, "width": width}
                yield {**case, "bytes": int(moved), "seconds": bench.kernel_s(call)}


def norms(bench: Bench) -> Iterator[Row]:
    """Layer norms of rows of a width, both ways."""
    sizes = (8192, 65536, 524288) if bench.is_cuda else (4,)
    for dtype, stored in formats(("bf16", "fp32")):
        for rows, width in ((r, w) for r in sizes for w in (32, 64, 128, 256, 512, 1024, 2048, 4096)):
            if rows * width > LARGEST_NUMBERS / 4:
                continue
            made = _made(bench, stored)
            leaves: Tensors = (made((rows, width)), made(width), made(width))
            yield {"dtype": dtype, "rows": rows, "width": width} | both_ways(bench, _norm, leaves)


def _norm(vectors: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    return nn.functional.layer_norm(vectors, scale.shape, scale, shift)


def even_products(bench: Bench) -> Iterator[Row]:
    """The three products of linear layers of widths that are even, and multiples of 2, 4 and 8."""
    inputs = (383, 384, 386, 388, 392, 478, 480, 482, 484, 488, 1022, 1024, 1026, 1028, 3338, 3340, 3342, 3344)
    layers = [(512, each) for each in inputs] + [(each, 512) for each in inputs if 400 < each < 1100]
    for dtype, stored in formats(("bf16", "fp16", "tf32")):
        for (outputs, width), batch in (
            (layer, b) for layer in layers for b in ((8192, 32768) if bench.is_cuda else (16,))
        ):
            made = _made(bench, stored)
            read, weights, gradient = made((batch, width)), made((outputs, width)), made((batch, outputs))
            calls = {
                "forward": (read, weights.t()),
                "gradient of inputs": (gradient, weights),
                "gradient of weights": (gradient.t(), read),
            }
            for name, factors in calls.items():
                case: Row = {"dtype": dtype, "batch": batch, "outputs": outputs, "inputs": width, "product": name}
                yield {**case, "seconds": bench.kernel_s(partial(torch.mm, *factors))}


def mixed_passes(bench: Bench) -> Iterator[Row]:
    """Steps of a model that none of these kernels was chosen for."""
    batches = (2048, 8192, 16384) if bench.is_cuda else (8,)
    plain = [("mixed", "graph", dtype) for dtype in ("tf32", "bf16 weights", "bf16")]
    yield from measured(bench, [(*each, batch, "sgd", False) for each in plain for batch in batches])


def compiled_passes(bench: Bench) -> Iterator[Row]:
    """Compiled steps without conversions, of as many models as compile in two minutes."""
    began = time.perf_counter()
    for name, dtype in ((n, d) for n in ("mlp", "dcn", "mixed", "attention") for d in ("tf32", "bf16 weights")):
        if time.perf_counter() - began < COMPILING_S:
            case: Case = (name, "compiled", dtype, 8192 if bench.is_cuda else 8, "sgd", False)
            yield from measured(bench, [case])


ELEMENTWISE: dict[str, Callable[[Bench], Iterator[Row]]] = {
    "streamed": streamed,
    "column_sums": column_sums,
    "strided": strided,
    "norms": norms,
    "even_products": even_products,
    "mixed_passes": mixed_passes,
    "compiled_passes": compiled_passes,
}
