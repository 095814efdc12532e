"""Dense parts of recommendation models in PyTorch, each from numerical features and 26 vectors of 128 to one number."""

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

VECTORS, WIDTH, NUMERICAL = 26, 128, 13


class Mlp(nn.Module):
    """Eight layers of 2,048."""

    def __init__(self, width: int = 2048, count: int = 8) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(count))
        self.inputs = width
        self.again = False

    def forward(self, numbers: torch.Tensor, _vectors: torch.Tensor) -> torch.Tensor:
        """The mean of all samples' numbers."""
        for block in self.blocks:
            numbers = checkpoint(block, numbers, use_reentrant=False) if self.again else block(numbers)
        return numbers.float().mean()


def tower(sizes: list[int]) -> nn.Sequential:
    """Linear layers with activations between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes):
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
        """The mean of all samples' numbers."""
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
        """The mean of all samples' numbers."""
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
        """The mean of all samples' numbers."""
        low = torch.relu(self.bottom(numbers))
        all_of = torch.cat([low.unsqueeze(1), vectors.to(low.dtype)], dim=1)
        dots = torch.bmm(all_of, all_of.transpose(1, 2))[:, self.rows, self.columns]
        return self.top(torch.cat([low, dots], dim=1)).float().mean()


class WukongLayer(nn.Module):
    """A factorization machine beside weighted sums, a residual and a norm (arXiv:2403.02545)."""

    def __init__(
        self, tokens: int, vectors: int = 32, compressed: int = 32, rank: int = 24, hidden: int = 2048
    ) -> None:
        super().__init__()
        self.compress = nn.Parameter(torch.randn(compressed, tokens) / tokens)
        self.rank = nn.Parameter(torch.randn(tokens, rank) / tokens)
        self.norm = nn.LayerNorm(tokens * rank)
        self.mlp = tower([tokens * rank, hidden, hidden, vectors * WIDTH])
        self.residual = nn.Parameter(torch.randn(vectors + compressed, tokens) / tokens)
        self.last = nn.LayerNorm(WIDTH)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """As many tokens as the vectors and the weighted sums."""
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
        """The mean of all samples' numbers."""
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
        """The mean of all samples' numbers."""
        tokens = vectors
        for at, (joint, out, mlp) in enumerate(zip(self.joint, self.out, self.mlp, strict=True)):
            parts = joint(tokens).view(len(tokens), VECTORS, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            met = nn.functional.scaled_dot_product_attention(*parts).transpose(1, 2).flatten(2)
            tokens = self.norms[2 * at](tokens + out(met))
            tokens = self.norms[2 * at + 1](tokens + mlp(tokens))
        return self.top(torch.cat([tokens.flatten(1), numbers.to(tokens.dtype)], dim=1)).float().mean()


class Mixed(nn.Module):
    """Two full cross layers beside dots of pairs picked by two lists; the MLP reads both and the numerical features."""

    inputs = NUMERICAL

    def __init__(self, count: int = 2) -> None:
        super().__init__()
        width, pairs = (VECTORS + 1) * WIDTH, torch.triu_indices(VECTORS + 1, VECTORS + 1, offset=1)
        self.bottom = tower([NUMERICAL, 512, WIDTH])
        self.cross = nn.ModuleList(nn.Linear(width, width) for _ in range(count))
        self.top = tower([width + pairs.shape[1] + WIDTH, 1536, 768, 1])
        self.register_buffer("rows", pairs[0].contiguous())
        self.register_buffer("columns", pairs[1].contiguous())

    def forward(self, numbers: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
        """The mean of all samples' numbers."""
        low = torch.relu(self.bottom(numbers))
        all_of = torch.cat([low.unsqueeze(1), vectors.to(low.dtype)], dim=1)
        first = crossed = all_of.flatten(1)
        for square in self.cross:
            crossed = first * square(crossed) + crossed
        dots = torch.bmm(all_of, all_of.transpose(1, 2))[:, self.rows, self.columns]
        return self.top(torch.cat([crossed, dots, low], dim=1)).float().mean()


MODELS: dict[str, Callable[[], Any]] = {
    "mlp": Mlp,
    "dlrm": Dlrm,
    "dlrm_of_pairs": DlrmOfPairs,
    "dcn": Dcn,
    "wukong": Wukong,
    "attention": Attention,
    "mixed": Mixed,
}
