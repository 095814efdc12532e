"""What a block asks of a resource, in the three ways that a block can ask."""

from dataclasses import dataclass

from cost_models.resources import Resource
from cost_models.shards import Floats


@dataclass(frozen=True)
class BlockLoad:
    """Seconds (or bytes) that each of n column blocks costs. Every part is [n] or a number for all.

    A rank that holds a part of the block is charged `fixed + by_rows x (its rows / rows of the table)`; every rank
    of the world, holder or not, is charged `everywhere`, once per block.
    """

    fixed: Floats | float = 0.0
    by_rows: Floats | float = 0.0
    everywhere: Floats | float = 0.0

    def __add__(self, other: "BlockLoad") -> "BlockLoad":
        return BlockLoad(self.fixed + other.fixed, self.by_rows + other.by_rows, self.everywhere + other.everywhere)

    def __truediv__(self, rate: float) -> "BlockLoad":
        return BlockLoad(self.fixed / rate, self.by_rows / rate, self.everywhere / rate)

    def __mul__(self, factor: Floats | float) -> "BlockLoad":
        return BlockLoad(self.fixed * factor, self.by_rows * factor, self.everywhere * factor)


Loads = dict[Resource, BlockLoad]
