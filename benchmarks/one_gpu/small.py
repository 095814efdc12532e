"""Kernels of products within samples and beside them: picked pairs, norms, layers that no fast kernel takes."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import nn

from benchmarks.one_gpu.steps import Row
from benchmarks.one_gpu.timing import Bench

FORMATS = {"bf16": torch.bfloat16, "fp16": torch.float16, "tf32": torch.float32, "fp32": torch.float32}
LARGEST_BYTES = 5e9
"""Of a matrix, all samples together."""
Tensors = tuple[torch.Tensor, ...]


def formats(names: tuple[str, ...] = tuple(FORMATS)) -> Iterator[tuple[str, torch.dtype]]:
    """Each format, with the switch of tf32 as it says."""
    for name in names:
        torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
        yield name, FORMATS[name]
    torch.backends.cuda.matmul.allow_tf32 = False


def both_ways(bench: Bench, forward: Callable[..., torch.Tensor], inputs: Tensors) -> Row:
    """Seconds forward, and of the gradients of all inputs; captured."""
    for each in inputs:
        each.requires_grad_()
    gradient = torch.randn_like(forward(*inputs).detach())

    def there_and_back() -> object:
        return torch.autograd.grad(forward(*inputs), inputs, gradient)

    with torch.no_grad():
        forward_s = bench.kernel_s(partial(forward, *inputs))
    return {"forward_s": forward_s, "backward_s": max(bench.captured_s(there_and_back) - forward_s, 0.0)}


def batched(bench: Bench) -> Iterator[Row]:
    """[m, k] by [k, n] of each sample: dots of vectors and their gradients, Wukong's, attention without a kernel of
    its own. The layout says which matrix is transposed in memory."""
    counts, widths = ((8, 13, 16, 27, 32, 64), (16, 32, 64, 128)) if bench.is_cuda else ((3,), (4,))
    shapes = []
    for c, d in ((c, d) for c in counts for d in widths):
        shapes += [(c, c, d, "nt"), (c, d, c, "nn"), (c, d, c, "tn")]
    if bench.is_cuda:
        shapes += [(c, *rest, "nn") for c in (27, 64) for rest in ((24, 128), (128, 24))]
        shapes += [(128, 24, 64, "tn"), (128, 24, 27, "tn"), (50, 50, 32, "nt"), (100, 100, 64, "nt")]
        shapes += [(128, 128, 64, "nt"), (128, 64, 128, "nn"), (200, 200, 64, "nt"), (256, 256, 64, "nt")]
        shapes += [(512, 512, 64, "nt"), (512, 64, 512, "nn"), (256, 256, 256, "nn"), (512, 512, 512, "nn")]
    for dtype, stored in formats():
        for (m, n, k, layout), batch in ((s, b) for s in shapes for b in ((4096, 16384) if bench.is_cuda else (4,))):
            if batch * max(m * k, k * n, m * n) * stored.itemsize > LARGEST_BYTES:
                continue
            left = torch.randn((batch, k, m) if layout[0] == "t" else (batch, m, k), device=bench.device).to(stored)
            right = torch.randn((batch, n, k) if layout[1] == "t" else (batch, k, n), device=bench.device).to(stored)
            left = left.transpose(1, 2) if layout[0] == "t" else left
            right = right.transpose(1, 2) if layout[1] == "t" else right
            out = torch.empty((batch, m, n), device=bench.device, dtype=stored)
            case: Row = {"dtype": dtype, "batch": batch, "m": m, "n": n, "k": k, "layout": layout}
            yield {**case, "seconds": bench.kernel_s(partial(torch.bmm, left, right, out=out))}


def short_attention(bench: Bench) -> Iterator[Row]:
    """Scaled dot products of vectors of a sample, and of short histories, by the kernels that PyTorch picks."""
    lengths = (8, 16, 26, 32, 50, 64, 100, 128, 200, 256, 512) if bench.is_cuda else (4,)
    heads = 4
    for dtype, stored in formats():
        for length, head_dim in ((n, d) for n in lengths for d in (32, 64, 128)):
            samples = max(1, min(16384, 2**19 // length // heads)) if bench.is_cuda else 2
            made = (torch.randn((samples, heads, length, head_dim), device=bench.device) for _ in range(3))
            inputs = tuple(each.to(stored) for each in made)
            case: Row = {"dtype": dtype, "samples": samples, "heads": heads, "length": length, "head_dim": head_dim}
            yield {**case, **both_ways(bench, nn.functional.scaled_dot_product_attention, inputs)}


def picked(bench: Bench) -> Iterator[Row]:
    """The pairs of n vectors picked from their n x n dots: by two lists as TorchRec does, or by one of places."""
    batches = (2048, 8192, 32768) if bench.is_cuda else (4,)
    for dtype, stored in formats(("bf16", "fp32")):
        for count, batch in ((n, b) for n in (8, 14, 27, 40) for b in batches):
            rows, columns = torch.triu_indices(count, count, offset=1, device=bench.device)
            places = rows * count + columns

            def by_lists(dots: torch.Tensor, rows: Any = rows, columns: Any = columns) -> torch.Tensor:
                return dots[:, rows, columns]

            def by_places(dots: torch.Tensor, places: Any = places) -> torch.Tensor:
                return dots.flatten(1).index_select(1, places)

            for way, forward in (("lists", by_lists), ("places", by_places)):
                dots = torch.randn((batch, count, count), device=bench.device).to(stored)
                case: Row = {"dtype": dtype, "way": way, "vectors": count, "batch": batch}
                yield {**case, **both_ways(bench, forward, (dots,))}


def layer_products(bench: Bench) -> Iterator[Row]:
    """The three products of linear layers in the layouts that they have there, of widths that are aligned and not."""
    layers = [(1024, 479), (479, 1024), (1024, 3341), (512, 481), (512, 482), (512, 484), (512, 488), (512, 496)]
    layers += [(512, 512), (1024, 1023), (512, 13), (512, 16), (256, 415), (1024, 3344), (1, 256), (383, 383)]
    batches = (2048, 8192, 32768) if bench.is_cuda else (16,)
    for dtype, stored in formats():
        for (outputs, inputs), batch in ((layer, b) for layer in layers for b in batches):
            if dtype == "fp32" and batch > 8192:
                continue
            read = torch.randn((batch, inputs), device=bench.device).to(stored)
            weights = torch.randn((outputs, inputs), device=bench.device).to(stored)
            gradient = torch.randn((batch, outputs), device=bench.device).to(stored)
            calls = {
                "forward": (read, weights.t()),
                "gradient of inputs": (gradient, weights),
                "gradient of weights": (gradient.t(), read),
            }
            for name, factors in calls.items():
                case: Row = {"dtype": dtype, "batch": batch, "outputs": outputs, "inputs": inputs, "product": name}
                yield {**case, "seconds": bench.kernel_s(partial(torch.mm, *factors))}


def tokens(bench: Bench) -> Iterator[Row]:
    """Layers over the vectors of a sample, both ways: norms, sums, weighted sums, linear layers of each vector."""
    for dtype, stored in formats(("bf16", "tf32")):
        for count, batch in ((n, b) for n in (27, 64) for b in ((2048, 8192, 16384) if bench.is_cuda else (4,))):
            made = partial(torch.randn, device=bench.device, dtype=stored)
            vectors, others, scale = made((batch, count, 128)), made((batch, count, 128)), made(128)
            cases: dict[str, tuple[Callable[..., torch.Tensor], Tensors]] = {
                "norm of vectors": (_norm, (vectors, scale, made(128))),
                "norm of samples": (_norm, (made((batch, count * 24)), made(count * 24), made(count * 24))),
                "sum": (torch.add, (vectors, others)),
                "joined": (_joined, (vectors, others)),
                "weighted sums to 32": (torch.matmul, (made((32, count)), vectors)),
                "weighted sums to 64": (torch.matmul, (made((64, count)), vectors)),
                "projection to 24": (_projected, (vectors, made((count, 24)))),
                "linear to 384": (nn.functional.linear, (vectors, made((384, 128)), made(384))),
                "relu": (torch.relu, (vectors,)),
            }
            for name, (forward, inputs) in cases.items():
                leaves = tuple(each.detach().clone() for each in inputs)
                yield {"what": name, "dtype": dtype, "vectors": count, "batch": batch} | both_ways(
                    bench, forward, leaves
                )


def _norm(vectors: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    return nn.functional.layer_norm(vectors, scale.shape, scale, shift)


def _joined(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return torch.cat([one, other], dim=1)


def _projected(vectors: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    return torch.matmul(vectors.transpose(1, 2), weights)
