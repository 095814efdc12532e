"""Amounts of memory that a question keeps free, beside what the cluster itself reserves."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from cost_models.shards import MemoryTier


@dataclass(frozen=True)
class Amount:
    """Memory to keep free: a share of what a pool has, or bytes."""

    share: float = 0.0
    size: int = 0

    def __str__(self) -> str:
        return f"{self.size}B" if self.size else repr(self.share)


Reserve = Mapping[MemoryTier, Amount]
"""What is kept free of each memory: bytes are those of a rank's HBM, of a node's DDR. A memory that is not in it is
used whole."""
NO_RESERVE: Reserve = MappingProxyType({})
