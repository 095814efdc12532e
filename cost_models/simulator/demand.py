"""What a placement asks of every rank in a step: rows to read, bytes to send, counted from its shards.

The counts follow the meaning of the shardings, not the closed form's loads; coefficients are the shared ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from cost_models.coefficients import SoftwareCoefficients
from cost_models.kinds import RankKind
from cost_models.shards import HBM, PLACEMENT_TIERS, Floats, Ints
from cost_models.simulator.long_bags import BagWork
from cost_models.simulator.lookups import LookupWork
from cost_models.simulator.payloads import exchanged, rearranged
from cost_models.simulator.shard_counts import Flags, ShardCounts
from cost_models.tables import LENGTH_BYTES


@dataclass(frozen=True)
class Demand:
    """What one step asks of every rank; arrays are [W] and figures are the rank's own, unless they say otherwise."""

    forward_s: Floats
    """[tiers, W] device time of the lookup, by the placement tier of the tables: each has a kernel of its own."""
    backward_s: Floats
    """[tiers, W] device time of the update."""
    forward_host_bytes: Floats
    """[memories, W] over PCIe while the lookup waits: rows read in place."""
    forward_host_s: Floats
    """[memories, W] busy time of the memory for them."""
    backward_host_bytes: Floats
    """[memories, W] over PCIe while the update waits: rows and optimizer state below HBM."""
    backward_host_s: Floats
    """[memories, W]"""
    fetched_bytes: Floats
    """[memories, W] missed rows of caches over each memory, one direction."""
    fetched_s: Floats
    """[memories, W] busy time of the memory for them."""
    stashed_bytes: Floats
    """[tiers, W] what leaves the rank's HBM between the passes, and comes back."""
    ids_per_sample_bytes: Floats
    """Ids, and how many there are of each feature, that the rank sends for each of its samples."""
    raw_ids_per_sample_bytes: float
    """Ids of one sample as they are stored, before deduplication, each once, and their numbers."""
    ids_received_bytes: Floats
    """Ids that the rank gets for the rows it holds, of the whole batch, and their numbers."""
    vectors_to_each_bytes: Floats
    """Whole vectors for the samples of one rank (table- and column-wise blocks), forward."""
    sums_bytes: Floats
    """[extents, W] partial sums of all samples, to be reduced over the ranks of the block's extent, forward; nothing of
    blocks that one rank holds."""
    replica_gradient_bytes: Floats
    """Dense gradients of replicated tables."""
    sharded_weight_bytes: Floats
    """Weights that it holds of tables that are not replicated."""
    sharded_state_bytes: Floats
    """Their optimizer state."""

    @property
    def parts(self) -> "tuple[Demand, ...]":
        """Those of tables that exchange among the ranks of different groups; one where all are the same."""
        return (self,)


@dataclass(frozen=True)
class JointDemand(Demand):
    """That of tables with different numbers of copies together, and of those with equally many each."""

    of_copies: tuple[Demand, ...]

    @property
    def parts(self) -> tuple[Demand, ...]:
        """One of each number of copies."""
        return self.of_copies

    @classmethod
    def of(cls, parts: Sequence[Demand]) -> Demand:
        """The sum of the parts, which is the only one where there are no others."""
        if len(parts) == 1:
            return parts[0]
        summed = {
            each.name: sum(getattr(part, each.name) for part in parts)
            for each in fields(Demand)
            if each.name != "raw_ids_per_sample_bytes"
        }
        raw = parts[0].raw_ids_per_sample_bytes  # of all tables, whoever holds them
        return cls(**summed, raw_ids_per_sample_bytes=raw, of_copies=tuple(parts))


class Counter:
    """Counts the demand of a placement: per shard once, per step with any numbers of ids."""

    def __init__(
        self,
        counts: ShardCounts,
        kinds: tuple[RankKind, ...],
        kind_of_rank: Ints,
        software: SoftwareCoefficients,
        *,
        has_bags: bool = True,
    ) -> None:
        """`has_bags`: whether bags are read row after row; else they are beside those of other tables, and no
        longer."""
        self._has_bags = has_bags
        self._counts, self._kinds, self._kind_of_rank, self._software = counts, kinds, kind_of_rank, software

    def count(self, ids: Floats | None = None) -> Demand:
        """The demand of a step in which the samples of each rank have `ids` [W, T] times their average ids."""
        counts, tables = self._counts, self._counts.tables
        factor = np.ones(len(counts))
        if ids is not None:
            factor[~counts.replicated] = ids.mean(axis=0)[counts.table[~counts.replicated]]
        replica_ids = None if ids is None else ids[:, counts.table[counts.replicated]]
        works = [LookupWork(counts, kind, self._software, factor) for kind in self._kinds]
        by_kind = [work.all() for work in works]
        in_tier = [counts.blocks.tier == tier for tier in range(len(PLACEMENT_TIERS))]
        everything = np.ones(len(counts), dtype=bool)
        work: dict[str, Floats] = {}
        for name, values in by_kind[0].items():
            if values.ndim == 1:
                rows = [self._summed([each[name] for each in by_kind], kept, replica_ids) for kept in in_tier]
            else:
                memories = range(len(values))
                rows = [self._summed([each[name][m] for each in by_kind], everything, replica_ids) for m in memories]
            work[name] = np.stack(rows)
        forward, backward = rearranged(counts, self._software, self._kinds, self._kind_of_rank)
        work["forward_s"][HBM] += forward
        work["backward_s"][HBM] += backward
        if self._has_bags:
            for name, bags in zip(
                ("forward_s", "backward_s"), zip(*(each.bags() for each in works), strict=True), strict=True
            ):
                work[name][HBM] += self._waited_for_bags(bags, replica_ids)
        raw = float((tables.ids_per_sample * tables.id_bytes + LENGTH_BYTES * tables.features).sum())
        return Demand(**work, **exchanged(counts, factor, ids), raw_ids_per_sample_bytes=raw)

    def _waited_for_bags(self, by_kind: Sequence[BagWork], replica_ids: Floats | None) -> Floats:
        """[W] what the longest bag of a rank takes longer than all that its kernels do beside it."""
        counts = self._counts
        beside = self._summed([each.beside_s for each in by_kind], np.ones(len(counts), dtype=bool), replica_ids)
        longest, single = np.zeros(counts.world), np.flatnonzero(~counts.replicated)
        for kind, bags in enumerate(by_kind):
            here = self._kind_of_rank == kind
            of_kind = single[here[counts.rank[single]]]
            np.maximum.at(longest, counts.rank[of_kind], bags.longest_s[of_kind])
            everywhere = bags.longest_s[counts.replicated].max(initial=0.0)
            longest[here] = np.maximum(longest[here], everywhere)
        return np.maximum(longest - beside, 0.0)

    def _summed(self, by_kind: list[Floats], kept: Flags, replica_ids: Floats | None) -> Floats:
        """[W] of the shards that are `kept`, on their ranks; a replicated one counts on every rank, at the cost of its
        kind and for the rank's own ids, [W, replicated] over their mean."""
        counts = self._counts
        total = np.zeros(counts.world)
        if not any(values.any() for values in by_kind):
            return total
        single = np.flatnonzero(~counts.replicated & kept)
        for kind, values in enumerate(by_kind):
            here = self._kind_of_rank == kind
            of_kind = single[here[counts.rank[single]]]
            total += np.bincount(counts.rank[of_kind], weights=values[of_kind], minlength=counts.world)
            everywhere = np.where(kept, values, 0.0)[counts.replicated]
            total[here] += everywhere.sum() if replica_ids is None else replica_ids[here] @ everywhere
        return total
