"""What an average step asks of the shards of a placement, counted from rows that are drawn: the simulator's own eyes.

Tables, batch and placement are read anew: ids after deduplication, the law by which they read rows, which ranks hold
these rows, distinct rows, misses, bytes by the names of formats. None of it is the closed form's, nor its access
curves'. Rows are hashed: a hot row is at a random place of its table, whole, with the rank that holds this place.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cost_models.shards import (
    DATA_PARALLEL,
    IS_CACHED,
    IS_IN_PLACE,
    IS_MIXED,
    IS_SPLIT,
    KEEPS_STATE_BELOW,
    Floats,
    Ints,
    PlacedShards,
)
from cost_models.simulator.graph import Flags
from cost_models.simulator.named_bytes import NamedTables, bytes_of_row
from cost_models.simulator.pipelines import ahead_of
from cost_models.simulator.row_samples import (
    LEAST_SAMPLED,
    MOST_SAMPLED,
    SAMPLED_IN_ALL,
    Draw,
    law_of_distinct,
    law_of_reads,
)
from cost_models.simulator.shard_counts import ShardCounts
from cost_models.workload.formats import DTYPES, FORMATS
from cost_models.workload.models import Workload
from cost_models.workload.words import Dtype


class SampledCounts(ShardCounts):
    """The counts of one drawn batch; the same for the same seed."""

    def __init__(self, workload: Workload, placed: PlacedShards, world: int, seed: int = 0) -> None:
        """Raises ValueError for formats in which ids share rows: their rows are not drawn."""
        self._workload, self._seed = workload, seed
        if shared := [table.name for table in workload.tables if workload.stored_rows(table) < table.rows]:
            raise ValueError(f"ids of {shared[0]} share rows, which are not drawn one by one")
        self._size = int(np.clip(SAMPLED_IN_ALL / len(workload.tables), LEAST_SAMPLED, MOST_SAMPLED))
        self._in_place: list[_ReadInPlace] = []
        self._start = _starts(placed)[(placed.blocks.sharding != DATA_PARALLEL) | placed.opens_block]
        tables, samples = NamedTables.named(workload, world), workload.batch(world)
        super().__init__(tables, placed, world, samples, is_prefetched=ahead_of(workload).fetch > 0)

    def _read_rows(self) -> None:
        """Draw each table's rows, once for the batch and once for the samples of one rank where it is replicated."""
        self.lookups = self.lookups.copy()
        for replicated in (False, True):
            for table in np.unique(self.table[self.replicated == replicated]).tolist():
                self._read_table(table, np.flatnonzero((self.table == table) & (self.replicated == replicated)))

    def _read_table(self, table: int, shards: Ints) -> None:
        profile, batch = self._workload.tables[table], self._workload.batch(self.world)
        rows, (ids, draw, place, random) = float(profile.rows), self._drawn(table, shards)
        self.lookups[shards] = place.summed(draw.ids, total=ids)
        self.unique[shards] = place.summed(draw.rows)
        tier, fraction = self.blocks.tier[shards], self.held_share[shards]
        cold = np.where(IS_IN_PLACE[tier], self.unique[shards], 0.0)
        for share in np.unique(fraction[self.cached[shards] | IS_SPLIT[tier]]).tolist():
            cached, split = self.cached[shards] & (fraction == share), IS_SPLIT[tier] & (fraction == share)
            if cached.any():
                missed = place.summed(np.where(draw.is_held(share * rows), 0.0, draw.rows))
                self.missed[shards[cached]] = missed[cached]
            if (locked := cached & KEEPS_STATE_BELOW[tier]).any():
                without = draw.without_place(share * rows, ids, is_prefetched=self.is_prefetched)
                left_out = place.summed(without * draw.rows), place.summed(without * draw.ids)
                self._leave_out(shards[locked], left_out[0][locked], left_out[1][locked])
            if split.any():
                of_reads = Draw.of(law_of_reads(profile, rows, batch), ids, self._size, random)
                below = (1 - of_reads.hit_share(share * rows)) * ids  # reads that hot rows, in HBM, leave even
                self.hot[shards[split]] = np.clip(1 - below / np.maximum(self.lookups[shards[split]], 1e-300), 0.0, 1.0)
                beyond = draw.rank > share * rows + 0.5
                read = place.summed(np.where(beyond, draw.rows, 0.0))
                cold[split] = np.minimum(read, (1 - self.hot[shards]) * self.lookups[shards])[split]
                self._in_place.append(_ReadInPlace(shards[split], None, of_reads, share * rows))
        if (whole := IS_IN_PLACE[tier]).any():
            of_reads = Draw.of(law_of_reads(profile, rows, batch), ids, self._size, random)
            self._in_place.append(_ReadInPlace(shards[whole], place.of(whole), of_reads, 0.0))
        self.cold[shards] = np.maximum(self.cold[shards], cold)

    def _drawn(self, table: int, shards: Ints) -> "tuple[float, Draw, _Places, np.random.Generator]":
        """The ids of a table, how many, and where its rows are among shards that are all replicated or all not; and
        what goes on to draw. The same whenever it is asked."""
        profile, ids = self._workload.tables[table], float(self._ids(table, bool(self.replicated[shards[0]])))
        random = np.random.default_rng((self._seed, 2, table, int(self.replicated[shards[0]])))
        batch, rows = self._workload.batch(self.world), float(profile.rows)
        draw = Draw.of(law_of_distinct(profile, rows, batch), ids, self._size, random)
        return (
            ids,
            draw,
            _Places(self._start[shards] / rows, self.share[shards], _places(draw, random)),
            random,
        )

    def _reads_beyond(self, held: Floats) -> Floats:
        """Of drawn ids, by how long ago each row was read."""
        found = np.zeros(len(self))
        cases = np.stack([self.table, self.replicated, held], axis=1)
        for case in np.unique(cases, axis=0):
            shards = np.flatnonzero((cases == case).all(axis=1))
            ids, draw, place, _ = self._drawn(int(case[0]), shards)
            found[shards] = place.summed(draw.read_from_memory(float(case[2]), ids))
        return found

    def read_again(self, hottest: float) -> Floats:
        """[n] ids that read so many of the hottest rows in host memory when another one has read them, for each 1 of
        its share: drawn ids less drawn rows, with the rank that holds them where no rows are in HBM."""
        again = np.zeros(len(self))
        for each in self._in_place:
            draw, first = each.reads, each.in_hbm + 0.5
            there = (draw.rank > first) & (draw.rank <= first + hottest)
            kept = np.where(there, np.maximum(draw.ids - draw.rows, 0.0), 0.0)
            again[each.shards] = kept.sum() if each.place is None else each.place.summed(kept)
        return again

    def _ids(self, table: int, replicated: bool) -> float:
        """Ids of the batch, or of one rank's samples, after deduplication."""
        profile, batch = self._workload.tables[table], self._workload.batch(self.world)
        return (batch / self.world if replicated else batch) * profile.pooling_factor / profile.dedup_factor

    def row_bytes(self) -> Floats:
        """[n] bytes of a row's columns as they are stored."""
        return self._bytes(self._stored())

    def cached_row_bytes(self) -> Floats:
        """[n] the same of a row in a cache, which may have a format of its own, or full precision."""
        held = []
        for stored, table, tier in zip(self._stored(), self.table.tolist(), self.blocks.tier.tolist(), strict=True):
            profile = self._workload.tables[table]
            is_rigid = self._workload.mode == "training" and not FORMATS[stored].updates_in_place
            is_precise = IS_MIXED[tier] or profile.precision_cache or (IS_CACHED[tier] and is_rigid)
            held.append("fp32" if is_precise else profile.kernel.cache_dtype or stored)
        return self._bytes(held)

    def _stored(self) -> list[Dtype]:
        """[n] the format of each shard's rows: its table's, or the one that the plan has chosen."""
        own = [self._workload.dtype_of(self._workload.tables[table]) for table in self.table.tolist()]
        if self.blocks.dtype is None:
            return own
        return [word if code < 0 else DTYPES[code] for word, code in zip(own, self.blocks.dtype, strict=True)]

    def _bytes(self, formats: Sequence[Dtype]) -> Floats:
        """[n] bytes of a row of each shard in such formats."""
        cases = list(zip(formats, self.blocks.columns.tolist(), strict=True))
        known = {case: bytes_of_row(*case) for case in set(cases)}
        return np.array([known[case] for case in cases], dtype=np.float64)


def _places(draw: Draw, random: np.random.Generator) -> Floats:
    """Where the hottest rows of a table are: anywhere; where these are all of its rows, each at a place of its own."""
    hottest = draw.law.hottest
    return random.random(hottest) if draw.law.rows > hottest else (random.permutation(hottest) + 0.5) / hottest


@dataclass(frozen=True)
class _ReadInPlace:
    """What is read in host memory of a table."""

    shards: Ints
    """[n] that read there."""
    place: "_Places | None"
    """None of a table that is partly in HBM: each shard has its own hottest rows there, so that those after them are
    spread evenly."""
    reads: Draw
    in_hbm: float
    """Its hottest rows that are not."""


class _Places:
    """Where the rows of a drawn table are, and thus with which of n shards."""

    def __init__(self, first: Floats, share: Floats, place_of_hot: Floats) -> None:
        """`first` and `share` [n] are of the table's rows; `place_of_hot` are the places of the hottest ones."""
        self._share = share
        self._order = np.argsort(place_of_hot, kind="stable")
        places = place_of_hot[self._order]
        self._low, self._high = (np.searchsorted(places, ends) for ends in (first, first + share))

    def of(self, shards: Flags) -> "_Places":
        """The same of some of the shards [n]."""
        some = copy.copy(self)
        some._share, some._low, some._high = self._share[shards], self._low[shards], self._high[shards]
        return some

    def summed(self, values: Floats, total: float | None = None) -> Floats:
        """[n] `values` [drawn] added up over the rows of each shard, for each 1 of its share. The hottest rows are
        where they are; of the others there are so many that every shard has its share. Of all there are `total`."""
        hot = values[: len(self._order)][self._order]
        others = (values.sum() if total is None else total) - hot.sum()
        up_to = np.concatenate([[0.0], np.cumsum(hot)])
        own = up_to[self._high] - up_to[self._low]
        whole = self._share >= 1
        share = np.where(self._share > 0, self._share, 1.0)
        return np.asarray(np.where(whole, hot.sum() + others, own / share + others))


def _starts(placed: PlacedShards) -> Floats:
    """[shards] rows of its block that come before each."""
    before = np.concatenate([[0], np.cumsum(placed.rows)[:-1]])
    opening = np.maximum.accumulate(np.where(placed.opens_block, np.arange(len(before)), 0))
    return np.asarray(before - before[opening], dtype=np.float64)
