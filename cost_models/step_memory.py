"""The bytes that blocks take in every memory, beside the seconds that they take (`StepCosts`)."""

import copy
from dataclasses import replace
from typing import Self

import numpy as np

from cost_models.cost_arrays import BlockMemory
from cost_models.costs_at_lines import CostsAtLines
from cost_models.kinds import RankKind
from cost_models.memory import Batching, block_bytes, has_way_to_update, is_supported, stashed_bytes
from cost_models.peak import GRADIENT_COPIES, Peak
from cost_models.replication import Replication
from cost_models.shards import IS_STASHED, MEMORY_HBM, MEMORY_TIERS, Blocks, Floats


class StepMemory(CostsAtLines):
    """A cost model that knows the bytes of blocks by tier."""

    kinds: tuple[RankKind, ...]
    """The hardware of each node group."""
    peak: Peak
    """What a rank holds beside its tables when it holds most."""
    batching: Batching
    _replication: Replication | None
    """Groups of ranks with copies of all tables; None where there is one group."""

    def with_output_copies(self, copies: float) -> Self:
        """The same costs with so many copies of a shard's vectors (`Batching.output_copies`)."""
        other = copy.copy(self)
        other.batching = replace(self.batching, output_copies=copies)
        return other

    def block_memory(self, blocks: Blocks, kind: int) -> BlockMemory:
        """The bytes among the costs of each block."""
        supported = is_supported(blocks, self.kinds[kind].memory_bytes) & has_way_to_update(self.tables, blocks)
        supported &= self.stashes | ~IS_STASHED[blocks.tier]
        fixed, by_rows = np.zeros((len(blocks), len(MEMORY_TIERS))), np.zeros((len(blocks), len(MEMORY_TIERS)))
        for (tier, _), load in block_bytes(self.tables, blocks, self.batching).items():
            fixed[:, tier] += load.fixed
            by_rows[:, tier] += load.by_rows
        by_rows[:, MEMORY_HBM] += self.cut_copy_bytes(blocks)
        counted = [MEMORY_TIERS.index(tier) for tier in self.memories]
        return BlockMemory(fixed[:, counted], by_rows[:, counted], supported)

    def returned_memory(self, blocks: Blocks) -> tuple[float, Floats, Floats]:
        """Bytes of HBM when everything that was stashed is back, as gradients of vectors are exchanged."""
        projections = float(self.base_bytes[MEMORY_HBM]) - sum(self.peak.rank_bytes.values())
        memory = self.with_output_copies(GRADIENT_COPIES).block_memory(blocks, 0)
        by_rows = memory.by_rows[:, MEMORY_HBM] + self.stashed_bytes(blocks)
        return self.peak.returned_bytes + projections, memory.fixed[:, MEMORY_HBM], by_rows

    def stashed_bytes(self, blocks: Blocks) -> Floats:
        """[n] bytes of whole blocks that leave HBM between the passes."""
        return stashed_bytes(self.tables, blocks)

    def cut_copy_bytes(self, blocks: Blocks) -> Floats:
        """[n] bytes of HBM of whole blocks beside their gathered weights, where copies are cut over each other."""
        if self._replication is None:
            return np.zeros(len(blocks))
        return self._replication.cut_copy_bytes(self.tables, blocks, self.batching)
