"""The option space: every way to cut and hold a table that is an option, which is what a lower bound covers.

A table is held whole, cut by columns, by rows, by both, or replicated. Rows are cut into blocks of ceil(rows / ranks),
in the order of the ranks; over several nodes first into ceil(rows / nodes), each part on any other node; over several
ranks of the only node, or scale-up domain, into ceil(rows / ranks), each on any other rank. Columns of
single ranks are cut into blocks of any widths; blocks that are cut by rows, too, or colocated on the ranks of one node,
into widths that are as equal as their multiple allows. Where there are too many such cuts to search, the space is
narrower, and `Cuts` says so.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np

from cost_models.model import CostModel
from cost_models.shards import (
    COLUMN_WISE,
    DATA_PARALLEL,
    EXTENT_OF_SHARDING,
    EXTENTS,
    GRID_SHARD,
    HBM,
    HBM_MIXED,
    IS_STASHED,
    SHARDING_ROWS,
    SHARDINGS,
    TABLE_COLUMN_WISE,
    TABLE_WISE,
    Ints,
)
from planner.formulation.allowed_choices import AllowedChoices
from planner.formulation.sites import sites_on
from planner.problem.numbers import Bools
from planner.problem.sites import Sites
from topologies.documents import Record

COLUMN_UNIT = 4
"""Column widths are multiples of 4 (FBGEMM's vector width)."""
NARROWEST_OF_FEW = 8
"""Columns of the narrowest block of few cuts."""
MOST_UNITS_OF_FEW = 32
"""Column units that a table is divided into at most, of few cuts, where its width allows."""
FEW_SPLITS = (2, 4, 8)
"""Equal column blocks of grids and of tables below HBM, of few cuts."""
FINE_SPLITS = (16, 32)
"""More of these for grids in HBM, of tables of which half as many blocks would each be more than a node's part of all
lookups."""
TIED_SPLITS = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32)
"""Column blocks that are colocated on one node, of few cuts."""
MOST_UNITS = 128
"""Column units of the widest table up to which every cut can be searched: a tiling takes as long as their square."""
MOST_PARTITIONS = 64
"""Partitions of a table into limited numbers of parts up to which each is an option of its own."""

CutsOfTier = Literal["every", "few"]


class Cuts(Record):
    """Which column cuts are options."""

    hbm: CutsOfTier = "every"
    """Cuts of tables in HBM: every one into multiples of 4 columns, and grids and blocks of one node in any number; or
    few of them: at most 32 different widths, none below 8 columns, and few numbers of blocks."""
    below_hbm: CutsOfTier = "every"
    """Cuts of tables in other tiers: the same, or halves, quarters and eighths."""

    @property
    def words(self) -> str:
        """What they are, for a sentence."""
        if self == EVERY_CUT:
            return "every column cut and grid of docs/reference/option-space.md"
        below = "below it halves, quarters and eighths of a table"
        if self.hbm == "every":
            return f"every column cut and grid in HBM; {below}"
        widths = f"{MOST_UNITS_OF_FEW} block widths from {NARROWEST_OF_FEW} columns up"
        return f"{widths} and few sizes of grids in HBM; {below}"

    def of(self, tier: int) -> CutsOfTier:
        """Those of a tier, an index into PLACEMENT_TIERS."""
        return self.hbm if tier in (HBM, HBM_MIXED) or IS_STASHED[tier] else self.below_hbm


EVERY_CUT, EVERY_CUT_IN_HBM, FEW_CUTS = Cuts(), Cuts(below_hbm="few"), Cuts(hbm="few", below_hbm="few")


@dataclass(frozen=True, eq=False)
class Space:
    """The cuts that are options of each table."""

    model: CostModel
    choices: AllowedChoices
    cuts: Cuts

    @cached_property
    def steps(self) -> Ints:
        """[T] columns of which every width is a multiple: the whole width, where the wanted one does not divide it."""
        step = np.lcm(COLUMN_UNIT, self.choices.column_multiple)
        return np.where(self.model.tables.dim % step == 0, step, self.model.tables.dim)

    @cached_property
    def units(self) -> Ints:
        """[T] column units of each table: its steps, or of few cuts as many as divide them, at most 32 if possible."""
        steps = self.model.tables.dim // self.steps
        if self.cuts.hbm == "every":
            return steps
        of_width = {int(n): _few_units(int(n)) for n in np.unique(steps)}
        return np.array([of_width[n] for n in steps.tolist()], dtype=np.int64)

    @cached_property
    def unit_columns(self) -> Ints:
        """[T] columns of a unit."""
        return self.model.tables.dim // self.units

    @cached_property
    def ranks_of_node(self) -> Ints:
        """[N]"""
        return np.bincount(self.model.node_of_rank)

    @cached_property
    def _sites(self) -> tuple[Sites, ...]:
        return sites_on(self.model.node_of_rank, self.model.extents)

    def sites_of(self, sharding: int) -> Sites:
        """Where the blocks of a sharding may be."""
        return self._sites[int(EXTENT_OF_SHARDING[sharding])]

    @cached_property
    def has_copies(self) -> Bools:
        """[T] tables of which several ranks have copies: their blocks are on groups of ranks, and in options of their
        own."""
        return self.model.copies > 1

    @cached_property
    def columns_are_splittable(self) -> bool:
        """Whether blocks of `column_wise` may be on any ranks, in any widths."""
        return COLUMN_WISE not in self.model.node_colocated_shardings

    def may(self, sharding: int, tier: int, splits: int) -> Bools:
        """[T] tables that policy and cost model let be cut so in a tier."""
        return np.asarray(self.model.is_option(sharding, tier, splits) & self.choices.may(sharding, tier))

    # -- blocks of single ranks ------------------------------------------------------------------------------------

    def is_width(self, tier: int, width: int | Ints) -> Bools:
        """[T] tables of which a block of so many units may be one of several that split it freely in a tier; of widths
        [n, 1] in units [n, T]."""
        units = self.units
        narrowest = np.ones_like(units)
        if self.cuts.of(tier) == "few":
            narrowest = -(-NARROWEST_OF_FEW // self.unit_columns)
        parts = np.minimum(self.choices.max_shards, units)
        fewest = np.maximum(narrowest, np.where(self.is_limited, units // (parts + 1) + 1, 1))
        fits = (width >= fewest) & (width <= units - fewest) & ~self.is_listed
        if self.cuts.of(tier) == "few" and not _is_whole(tier):
            fits &= self._is_even_part(width)
        return np.asarray(fits)

    @cached_property
    def is_limited(self) -> Bools:
        """[T] tables that may have fewer parts than they have units."""
        return np.asarray(self.choices.max_shards < self.units)

    @cached_property
    def is_listed(self) -> Bools:
        """[T] those of them of which each partition is an option of its own, as these are few."""
        pairs = zip(self.units.tolist(), self.choices.max_shards.tolist(), self.is_limited.tolist(), strict=True)
        return np.array(
            [limited and _partition_count(units, most) <= MOST_PARTITIONS for units, most, limited in pairs]
        )

    def partitions(self) -> Iterator[tuple[Bools, tuple[int, ...]]]:
        """[T] tables that may be cut into parts of these widths [n] in units, the widest first; of listed tables."""
        for units, most in sorted({*zip(self.units.tolist(), self.choices.max_shards.tolist(), strict=True)}):
            tables = self.is_listed & (self.units == units) & (self.choices.max_shards == most)
            if tables.any():
                for widths in _partitions(units, most, units - 1):
                    yield tables, widths

    def is_usual_width(self, tier: int, width: int | Ints) -> Bools:
        """[T] tables of which a block of so many units is among few cuts, too: starts of a search keep to these; of
        widths [n, 1] in units [n, T]."""
        narrowest = -(-NARROWEST_OF_FEW // self.unit_columns)
        usual = (width == self.units) | ((width >= narrowest) & (width <= self.units - narrowest))
        return np.asarray(usual & (True if _is_whole(tier) else self._is_even_part(width)))

    def _is_even_part(self, width: int | Ints) -> Bools:
        """[T] tables of which so many units are a half, a quarter or an eighth; all whose units are odd in number."""
        return np.asarray(np.isin(self.units / width, (1, *FEW_SPLITS)) | (self.units % 2 > 0))

    # -- blocks of whole nodes and of the world --------------------------------------------------------------------

    def counts(self, sharding: int, tier: int) -> list[int]:
        """Numbers of column blocks that are tried of a sharding whose blocks are fixed; of parts of the rows, where it
        cuts these into parts on several sites."""
        row = SHARDING_ROWS[SHARDINGS[sharding]]
        if row.cuts_into_sites:
            sizes = self.sites_of(sharding).sizes
            has_sites = sizes.min() == sizes.max() and (self.model.topology.is_one_domain or not row.is_within_domain)
            return _parts_of_rows(len(sizes)) if has_sites else []
        if sharding == COLUMN_WISE and self.columns_are_splittable:
            return list(FEW_SPLITS) if self.has_copies.any() else []
        if row.most_blocks == 1:
            return [] if sharding == DATA_PARALLEL and tier != HBM else [1]
        is_grid, every = sharding == GRID_SHARD, self.cuts.of(tier) == "every"
        places = len(self.ranks_of_node) if is_grid else int(self.ranks_of_node.max())
        most = int((self.model.tables.dim // self.steps).max())
        tried = range(2 if is_grid else 1, min(most, max(places, *FINE_SPLITS) if is_grid else places) + 1)
        return [n for n in tried if (every and n <= places) or self.is_usual(sharding, tier, n).any()]

    def applies(self, sharding: int, tier: int, splits: int) -> Bools:
        """[T] tables that may be cut into so many equal column blocks of a sharding with fixed blocks."""
        tables, choices = self.model.tables, self.choices
        if SHARDING_ROWS[SHARDINGS[sharding]].cuts_into_sites:
            return self._applies_on_sites(sharding, tier, splits)
        least = np.array([int(sites.sizes.min()) for sites in self._sites])
        extent = self.model.extent_of(np.arange(len(self.units)), np.array(sharding))
        parts = splits * (least[extent] // self.model.copies)
        is_legal = self.may(sharding, tier, splits)
        if sharding == TABLE_WISE or (sharding == COLUMN_WISE and self.columns_are_splittable):
            is_legal &= self.has_copies
        narrowest = np.maximum(NARROWEST_OF_FEW if self.cuts.of(tier) == "few" else 0, self.steps)
        is_legal &= tables.dim >= (splits * narrowest if splits > 1 else 0)
        if sharding != DATA_PARALLEL:
            is_legal &= choices.max_shards >= parts
        if self.cuts.of(tier) == "few":
            is_legal &= self.is_usual(sharding, tier, splits)
        if sharding == TABLE_COLUMN_WISE:
            is_legal &= ~(choices.may(COLUMN_WISE, tier) & self.columns_are_splittable)
        if splits == 1 and sharding in (TABLE_COLUMN_WISE, COLUMN_WISE):
            is_legal &= ~choices.may(TABLE_WISE, tier)  # at the same cost
        if sharding == COLUMN_WISE:  # also of tables of which several ranks have copies
            is_legal &= tables.dim % (splits * self.steps) == 0  # colocated blocks of a model that cuts evenly
        return np.asarray(is_legal)

    def _applies_on_sites(self, sharding: int, tier: int, parts: int) -> Bools:
        """[T] tables whose rows may be cut into so many parts on different sites, none of which is left without."""
        rows, held = self.model.tables.rows, parts * int(self.sites_of(sharding).sizes[0])
        has_rows = rows > (parts - 1) * -(-rows // parts)
        return np.asarray(self.may(sharding, tier, parts) & has_rows & (self.choices.max_shards >= held))

    def is_usual(self, sharding: int, tier: int, splits: int) -> Bools:
        """[T] tables of which so many column blocks are among few cuts, too: starts of a search keep to these."""
        every = np.ones(len(self.units), dtype=bool)
        if sharding in (TABLE_COLUMN_WISE, COLUMN_WISE):
            return every & (splits == 1 or splits in TIED_SPLITS)
        if sharding == GRID_SHARD and splits in FINE_SPLITS and _is_whole(tier):
            looked_up = self.model.tables.lookups_per_sample * self.model.tables.dim
            return np.asarray(looked_up * len(self.ranks_of_node) > looked_up.sum() * (splits // 2))
        return every & (sharding != GRID_SHARD or splits in FEW_SPLITS)

    # -- membership ------------------------------------------------------------------------------------------------

    def outside(self, table: int, tier: int, sharding: int, widths: Ints, most_ranks: int) -> str | None:
        """Why a table that is held so is none of the options, in words; None where it is one.

        `widths` [n] are the columns of its column blocks, which tile its columns; `most_ranks` hold one of them.
        """
        n, most_parts = len(widths), int(self.choices.max_shards[table])
        most_ranks //= int(self.model.copies[table])
        if self.sites_of(sharding).reach == "group" and n * most_ranks > most_parts:
            return f"{n} column blocks on nodes of {most_ranks} ranks count as {n * most_ranks} parts"
        if n == 1 and sharding in (COLUMN_WISE, TABLE_COLUMN_WISE) and self.choices.may(TABLE_WISE, tier)[table]:
            sharding = TABLE_WISE  # at the same cost
        if sharding == TABLE_WISE:
            return None if self._known(self.may, TABLE_WISE, tier, 1)[table] else "no option of this cost model"
        may_be_split = self.columns_are_splittable and not self.has_copies[table]
        may_be_split = may_be_split and bool(self._known(self.may, COLUMN_WISE, tier, 2)[table])
        if sharding in (COLUMN_WISE, TABLE_COLUMN_WISE) and may_be_split:
            return self._outside_splittable(table, tier, widths)
        if SHARDING_ROWS[SHARDINGS[sharding]].cuts_into_sites:
            return self._outside_sites(table, tier, sharding, most_ranks)
        if n not in self.counts(sharding, tier):
            return f"it has {n} column block{'s' * (n > 1)}, and that number is not tried"
        if not self._known(self.applies, sharding, tier, n)[table]:
            return f"{n} column block{'s' * (n > 1)} would be too narrow, or are no option of policy and cost model"
        step = int(self.steps[table])
        if (widths % step).any() or widths.max() - widths.min() > step:
            return f"its column blocks are not as equal as multiples of {step} columns allow"
        return None

    def _outside_sites(self, table: int, tier: int, sharding: int, ranks: int) -> str | None:
        parts = ranks // int(self.sites_of(sharding).sizes[0])
        on = f"{parts} {EXTENTS[EXTENT_OF_SHARDING[sharding]].sites}"
        if parts not in self.counts(sharding, tier):
            return f"its rows are on {on}, and that number is not tried"
        if not self._known(self.applies, sharding, tier, parts)[table]:
            return f"rows on {on} are no option of policy and cost model, or would leave one without any"
        return None

    def _outside_splittable(self, table: int, tier: int, widths: Ints) -> str | None:
        unit = int(self.unit_columns[table])
        if len(widths) == 1:
            return None
        if (widths % unit).any():
            return f"its column blocks are not multiples of {unit} columns"
        if self.is_listed[table]:
            most = int(self.choices.max_shards[table])
            return None if len(widths) <= most else f"it has more than {most} column blocks"
        for width in np.unique(widths).tolist():
            if not self._known(self.is_width, tier, width // unit)[table]:
                return f"it has a column block of {width} columns, and that width is not tried"
        return None

    def _known(self, asked: Callable[..., Bools], *of: int) -> Bools:
        """[T] what a method says of these arguments, asked once."""
        key = (asked.__name__, of)
        if key not in self._answers:
            self._answers[key] = asked(*of)
        return self._answers[key]

    @cached_property
    def _answers(self) -> dict[tuple[str, tuple[int, ...]], Bools]:
        return {}


def _is_whole(tier: int) -> bool:
    """Whether tables of a tier are whole in HBM when they are looked up."""
    return tier == HBM or bool(IS_STASHED[tier])


def _parts_of_rows(sites: int) -> list[int]:
    """Numbers of parts into which rows are cut, each on another of so many sites: the powers of two and the divisors
    below."""
    return [n for n in range(2, sites) if sites % n == 0 or n & (n - 1) == 0]


def _few_units(steps: int) -> int:
    divisors = [n for n in range(1, steps + 1) if steps % n == 0]
    few = max(n for n in divisors if n <= MOST_UNITS_OF_FEW)
    return few if few * 4 >= MOST_UNITS_OF_FEW or few == steps else min(n for n in divisors if n > few)


@lru_cache(maxsize=4096)
def _partition_count(units: int, most: int) -> int:
    """Partitions of a number into at most `most` parts, up to one more than MOST_PARTITIONS."""
    return sum(1 for _, _ in zip(range(MOST_PARTITIONS + 2), _partitions(units, most, units), strict=False))


def _partitions(units: int, most: int, widest: int) -> Iterator[tuple[int, ...]]:
    """Partitions of a number into at most `most` parts, none above `widest`; parts in descending order."""
    if units == 0:
        yield ()
        return
    if most == 0 or most * widest < units:
        return
    for part in range(min(widest, units), 0, -1):
        for rest in _partitions(units - part, most - 1, part):
            yield (part, *rest)
