"""Dense models whose steps are measured: an MLP, a DCNv2 and attention over histories, each in three sizes."""

import torch
import torch.distributed as dist
from torch import nn

KINDS, SIZES = ("mlp", "cross", "attention"), ("small", "middle", "large")
SAMPLES = 128
"""Of a rank."""


class Cross(nn.Module):
    """A low-rank cross layer of DCNv2; it hands its first input on."""

    def __init__(self, width: int, rank: int) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(width, rank), nn.Linear(rank, width)

    def forward(self, both: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """The first input, and the next one."""
        first, last = both
        return first, first * self.outer(self.inner(last)) + last


class Attention(nn.Module):
    """Attention over a history and an MLP of each place, with residuals and norms."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix = nn.MultiheadAttention(width, 4, batch_first=True)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))

    def forward(self, places: torch.Tensor) -> torch.Tensor:
        """Places of the same shape."""
        places = self.norms[0](places + self.mix(places, places, places, need_weights=False)[0])
        return self.norms[1](places + self.mlp(places))


class Model(nn.Module):
    """Blocks of one kind, and a number of each sample."""

    def __init__(self, kind: str, size: str) -> None:
        super().__init__()
        self.kind, grown = kind, SIZES.index(size)
        self.width = {"mlp": (384, 512, 768), "cross": (768, 1024, 1536), "attention": (128, 192, 256)}[kind][grown]
        make = {
            "mlp": lambda: nn.Sequential(nn.Linear(self.width, self.width), nn.ReLU()),
            "cross": lambda: Cross(self.width, self.width // 4),
            "attention": lambda: Attention(self.width),
        }[kind]
        self.blocks = nn.ModuleList(make() for _ in range({"mlp": 6, "cross": 4, "attention": 3}[kind]))
        self.head = nn.Linear(self.width, 1)

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        """One number of each sample."""
        flow = (numbers, numbers) if self.kind == "cross" else numbers
        for block in self.blocks:
            flow = block(flow)
        flow = flow[1] if self.kind == "cross" else flow.mean(1) if self.kind == "attention" else flow
        return self.head(flow)

    def batch(self) -> torch.Tensor:
        """Samples of a rank: histories of 16 places for attention."""
        shape = (SAMPLES // 4, 16, self.width) if self.kind == "attention" else (SAMPLES, self.width)
        return torch.randn(shape, generator=torch.Generator().manual_seed(dist.get_rank()))

    @property
    def units(self) -> list[nn.Module]:
        """What FSDP gathers at once."""
        return [*self.blocks, self.head]
