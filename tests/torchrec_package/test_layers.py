"""Layers of the dense part against torch: its FLOP counter and the parameters of its modules, for 20 shapes of each."""

import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from cost_models.dense_size import dense_size
from tests.oracles.instances import workload

SHAPES = 20
BATCH = 3
Drawn = tuple[dict[str, Any], nn.Module]
"""What a workload says of a layer, and torch's own of the same."""


def mlp(widths: Sequence[int]) -> nn.Sequential:
    """Linear layers with an activation behind each."""
    layers = [(nn.Linear(i, o), nn.ReLU()) for i, o in itertools.pairwise(widths)]
    return nn.Sequential(*itertools.chain.from_iterable(layers))


class Joined(nn.Module):
    """A module of all vectors of a sample as one."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, vectors: torch.Tensor) -> Any:
        return self.module(vectors.flatten(1))


class Cross(nn.Module):
    """Low-rank cross layers of DCNv2, equation 2 of arXiv:2008.13535 with U and V^T as linear layers."""

    def __init__(self, width: int, rank: int, count: int) -> None:
        super().__init__()
        self.inner = nn.ModuleList(nn.Linear(width, rank) for _ in range(count))
        self.outer = nn.ModuleList(nn.Linear(rank, width) for _ in range(count))

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        first = last = vectors.flatten(1)
        for inner, outer in zip(self.inner, self.outer, strict=True):
            last = first * outer(inner(last)) + last
        return last


class FullCross(nn.Module):
    """Cross layers of DCNv2, equation 1 of arXiv:2008.13535."""

    def __init__(self, width: int, count: int) -> None:
        super().__init__()
        self.products = nn.ModuleList(nn.Linear(width, width) for _ in range(count))

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        first = last = vectors.flatten(1)
        for product in self.products:
            last = first * product(last) + last
        return last


class Dot(nn.Module):
    """All pairs of vectors (DLRM)."""

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        return vectors @ vectors.transpose(1, 2)


class Compress(nn.Module):
    """Fewer or more vectors, each a weighted sum of all."""

    def __init__(self, vectors: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vectors, outputs))

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        return (vectors.transpose(1, 2) @ self.weight).transpose(1, 2)


class Machine(nn.Module):
    """Wukong's factorization machine: X (X^T Y), a norm, an MLP (section 3 of arXiv:2403.02545)."""

    def __init__(self, vectors: int, width: int, outputs: int, rank: int, sizes: Sequence[int]) -> None:
        super().__init__()
        self.projection = nn.Parameter(torch.empty(vectors, rank))
        self.norm = nn.LayerNorm(vectors * rank)
        self.mlp = mlp([vectors * rank, *sizes])
        self.last = nn.Linear(sizes[-1], outputs * width)
        self.width = width

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        products = vectors @ (vectors.transpose(1, 2) @ self.projection)
        return self.last(self.mlp(self.norm(products.flatten(1)))).view(len(vectors), -1, self.width)


class Wukong(nn.Module):
    """Both blocks beside each other, a residual, a norm."""

    def __init__(
        self, vectors: int, width: int, outputs: int, compressed: int, rank: int, sizes: Sequence[int]
    ) -> None:
        super().__init__()
        self.machine = Machine(vectors, width, outputs, rank, sizes)
        self.compress = Compress(vectors, compressed)
        changes = vectors != outputs + compressed
        self.residual = Compress(vectors, outputs + compressed) if changes else nn.Identity()
        self.norm = nn.LayerNorm(width)

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        both = torch.cat((self.machine(vectors), self.compress(vectors)), dim=1)
        return self.norm(both + self.residual(vectors))


class Attention(nn.Module):
    """Self-attention with heads of keys and values that query heads share."""

    def __init__(self, width: int, heads: int, kv_heads: int, head_dim: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, head_dim
        self.queries = nn.Linear(width, heads * head_dim)
        self.keys, self.values = (nn.Linear(width, kv_heads * head_dim) for _ in range(2))
        self.output = nn.Linear(heads * head_dim, width)

    def forward(self, places: torch.Tensor) -> torch.Tensor:
        samples, length, _ = places.shape

        def split(numbers: torch.Tensor, heads: int) -> torch.Tensor:
            apart = numbers.view(samples, length, heads, self.head_dim).transpose(1, 2)
            return apart.repeat_interleave(self.heads // heads, dim=1)

        queries = split(self.queries(places), self.heads)
        keys, values = split(self.keys(places), self.kv_heads), split(self.values(places), self.kv_heads)
        mixed = (queries @ keys.transpose(2, 3) / self.head_dim**0.5).softmax(-1) @ values
        return self.output(mixed.transpose(1, 2).flatten(2))


class Tower(nn.Module):
    """Attention and an MLP per place, each with a residual and a norm; the mean over places."""

    def __init__(self, width: int, heads: int, head_dim: int, hidden: int, count: int) -> None:
        super().__init__()
        self.attentions = nn.ModuleList(Attention(width, heads, heads, head_dim) for _ in range(count))
        self.mlps = nn.ModuleList(mlp([width, hidden, width]) for _ in range(count))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * count))

    def forward(self, places: torch.Tensor) -> torch.Tensor:
        for number, (attention, feed) in enumerate(zip(self.attentions, self.mlps, strict=True)):
            places = self.norms[2 * number](places + attention(places))
            places = self.norms[2 * number + 1](places + feed(places))
        return places.mean(1)


def linear(draw: random.Random, vectors: int, width: int) -> Drawn:
    out = draw.randint(1, 99)
    return {"kind": "linear", "out": out}, Joined(nn.Linear(vectors * width, out))


def layers_per_token(draw: random.Random, _: int, width: int) -> Drawn:
    sizes = [draw.randint(1, 99) for _ in range(draw.randint(1, 4))]
    return {"kind": "mlp", "sizes": sizes, "per": "token"}, mlp([width, *sizes])


def cross(draw: random.Random, vectors: int, width: int) -> Drawn:
    rank, count = draw.randint(1, 40), draw.randint(1, 4)
    return {"kind": "cross", "rank": rank, "count": count}, Cross(vectors * width, rank, count)


def full_cross(draw: random.Random, vectors: int, width: int) -> Drawn:
    count = draw.randint(1, 4)
    return {"kind": "cross", "count": count}, FullCross(vectors * width, count)


def dot(_: random.Random, vectors: int, width: int) -> Drawn:
    return {"kind": "dot"}, Dot()


def compress(draw: random.Random, vectors: int, width: int) -> Drawn:
    outputs = draw.randint(1, 30)
    return {"kind": "compress", "vectors": outputs}, Compress(vectors, outputs)


def machine(draw: random.Random, vectors: int, width: int) -> Drawn:
    outputs, rank = draw.randint(1, 9), draw.randint(1, 9)
    sizes = [draw.randint(1, 50) for _ in range(draw.randint(1, 3))]
    stated = {"kind": "fm", "vectors": outputs, "rank": rank, "sizes": sizes}
    return stated, Machine(vectors, width, outputs, rank, sizes)


def wukong(draw: random.Random, vectors: int, width: int) -> Drawn:
    outputs, compressed, rank = draw.randint(1, 9), draw.randint(1, 9), draw.randint(1, 9)
    sizes, count = [draw.randint(1, 50) for _ in range(draw.randint(1, 3))], draw.randint(1, 3)
    counts = [vectors, *([outputs + compressed] * count)]
    layers = [Wukong(each, width, outputs, compressed, rank, sizes) for each in counts[:-1]]
    stated = {"vectors": outputs, "compressed": compressed, "rank": rank, "sizes": sizes, "count": count}
    return {"kind": "wukong", **stated}, nn.Sequential(*layers)


def attention(draw: random.Random, _: int, width: int) -> Drawn:
    kv_heads, head_dim = draw.randint(1, 4), draw.randint(1, 30)
    heads = kv_heads * draw.randint(1, 4)
    stated = {"kind": "attention", "heads": heads, "kv_heads": kv_heads, "head_dim": head_dim}
    return stated, Attention(width, heads, kv_heads, head_dim)


def tower(draw: random.Random, _: int, width: int) -> Drawn:
    heads, head_dim, hidden, count = (draw.randint(1, most) for most in (4, 20, 99, 3))
    stated = {"kind": "attention_tower", "heads": heads, "head_dim": head_dim, "sizes": [hidden], "count": count}
    return stated, Tower(width, heads, head_dim, hidden, count)


def norm(_: random.Random, vectors: int, width: int) -> Drawn:
    return {"kind": "norm"}, nn.LayerNorm(width)


KINDS = (linear, layers_per_token, cross, full_cross, dot, compress, machine, wukong, attention, tower, norm)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_flops_and_parameters_are_torchs(kind: Callable[[random.Random, int, int], Drawn]) -> None:
    """Forward FLOPs of a batch as torch counts them, and the parameters of the modules, for drawn shapes."""
    for seed in range(SHAPES):
        draw = random.Random(seed)
        vectors, width = draw.randint(2, 12), 4 * draw.randint(1, 12)
        stated, module = kind(draw, vectors, width)
        table = {"name": "t", "rows": 9, "dim": width, "pooling_factor": vectors}
        table |= {"pooled": False} if kind in (attention, tower) else {"features": vectors}
        read = {"kind": "embeddings", "tables": "t", "name": "vectors"}
        size = dense_size(workload([table], dense={"layers": [read, stated]}))
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            module(torch.zeros(BATCH, vectors, width))
        assert counter.get_total_flops() == 2 * size.macs * BATCH, stated
        assert sum(weight.numel() for weight in module.parameters()) == size.parameters, stated
