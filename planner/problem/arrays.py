"""The planning problem as arrays: all that a solver sees.

Sizes: T tables, O options, B blocks, W ranks, K kinds of rank, C columns (a resource in a stage), S stages, M memory
tiers. An option is one legal way to hold one table; it consists of blocks. There are two forms of option:

* a fixed one takes each of its block types `block_count` times;
* a splittable one (`option_units` U above 0) takes any of its block types, any number of times, as long as their
  `block_units` sum to U: the columns of the table cut as one likes.

Every block is placed on its own. The step that a placement takes is

    sum over stages s of (stage_constants[s] + max over columns c of s, instances i of the column, of load[c, i])

and load[c, i] sums, over the ranks that use instance i, their base load and what the placed blocks ask of them.
"""

import weakref
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from planner.problem.extremes import Extremes
from planner.problem.numbers import Bools, Floats, Ints
from planner.problem.regions import CapacityRegions, TableGroup, capacity_regions_of, ranks_beside
from planner.problem.row_shares import RowShares
from planner.problem.shared_instances import SharedInstances
from planner.problem.sites import Reach, Sites
from planner.problem.stage_limits import StageLimits


@dataclass(frozen=True)
class Problem:
    """See the module for the letters. Seconds and bytes throughout; R sets of ranks."""

    kind_of_rank: Ints
    """[W]"""
    node_of_rank: Ints
    """[W] ascending; the ranks of a node are consecutive and of one kind."""
    sites: tuple[Sites, ...]
    """Where blocks of each extent may be."""
    copies_apart: bool
    """Whether the ranks of a site that hold the same rows are each one of a run of all rows, instead of neighbours."""
    stage_of_column: Ints
    """[C]"""
    resource_of_rank: Ints
    """[C, W] instance of the column's resource that the rank uses, numbered from 0."""
    stage_constants: Floats
    """[S]"""
    base_loads: Floats
    """[K, C] load of each rank before any table."""
    pool_of_rank: Ints
    """[M, W] memory pool that the rank draws on; ascending along the ranks."""
    pool_capacity: tuple[Floats, ...]
    """M arrays [pools of the tier]: bytes that tables and base may use."""
    base_bytes: Floats
    """[M] bytes of each rank before any table."""

    table_rows: Ints
    """[T]"""
    option_table: Ints
    """[O] ascending."""
    option_units: Ints
    """[O] column units that the blocks of a splittable option must tile; 0 for a fixed option."""
    option_colocated: Bools
    """[O] whether the option's blocks must be on different ranks of one node."""
    option_apart: Bools
    """[O] whether the option's blocks must be on different sites: each is a part of the table's rows, the last one in
    the order of the blocks that of the last rows."""
    block_option: Ints
    """[B] ascending."""
    block_count: Ints
    """[B] how often a fixed option takes the block; 1 in a splittable option."""
    block_units: Ints
    """[B] column units of a splittable option's block, ascending within the option; 0 in a fixed option."""
    block_usual: Bools
    """[B] blocks that the starts of a search keep to, where there are others that seldom help."""
    block_extent: Ints
    """[B] index into `sites`."""
    block_replicated: Bools
    """[B] of world-wide blocks: every rank holds all rows, instead of ceil(rows / W) each in rank order."""
    block_copies: Ints
    """[B] how many ranks of a site hold the same rows: a block that is cut over n of its ranks has n / copies parts. 1
    but for tables with more replicas than others; of replicated blocks, too."""
    block_rows: Ints
    """[B] rows of the block: the table's, or those of its part of them."""
    fixed: Floats
    """[K, B, C] load of each rank that takes part in the block, whatever rows it holds."""
    by_rows: Floats
    """[K, B, C] load times the rank's share of all rows that the block's ranks hold, copies included."""
    everywhere: Floats
    """[K, B, C] load of every rank of the world, once per block."""
    bytes_fixed: Floats
    """[K, B, M]"""
    bytes_by_rows: Floats
    """[K, B, M]"""
    allowed: Bools
    """[K, B] whether some site of the kind may hold the block; of a world-wide one, whether its ranks may."""
    rank_sets: Bools
    """[R, W] the first one holds all ranks."""
    table_rank_set: Ints
    """[T] the set within which all blocks of the table must stay."""
    affinity_groups: tuple[TableGroup, ...]
    """Tables that must be together. Where zones are single ranks, each option of the tables is one block of one rank;
    no option has world-wide blocks."""
    anti_affinity_groups: tuple[TableGroup, ...]
    """Tables of which no two may share a zone. No option of the tables has world-wide blocks."""
    stage_limits: StageLimits | None = None
    """Where only plans are asked for whose stages keep to limits, for the bound of one case among several; a placement
    that does not keep to them is none of the problem."""

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process is told: the fields, of which all else follows."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def without_seconds(self) -> "Problem":
        """The same blocks and bytes with one stage that nothing loads: what fits, whatever it costs."""
        none = np.zeros((self.kinds, len(self.block_option), 1))
        return replace(
            self,
            stage_of_column=np.zeros(1, dtype=np.int64),
            resource_of_rank=np.arange(self.world)[None],
            stage_constants=np.zeros(1),
            base_loads=np.zeros((self.kinds, 1)),
            fixed=none,
            by_rows=none,
            everywhere=none,
        )

    @property
    def tables(self) -> int:
        """T"""
        return len(self.table_rows)

    @property
    def world(self) -> int:
        """W"""
        return len(self.kind_of_rank)

    @property
    def kinds(self) -> int:
        """K"""
        return len(self.base_loads)

    @cached_property
    def option_start(self) -> Ints:
        """[T + 1] where each table's options begin."""
        return np.searchsorted(self.option_table, np.arange(self.tables + 1))

    @cached_property
    def block_start(self) -> Ints:
        """[O + 1] where each option's blocks begin."""
        return np.searchsorted(self.block_option, np.arange(len(self.option_table) + 1))

    @cached_property
    def table_block_start(self) -> Ints:
        """[T + 1] where each table's blocks begin."""
        return self.block_start[self.option_start]

    @cached_property
    def table_of_block(self) -> Ints:
        """[B]"""
        return self.option_table[self.block_option]

    @cached_property
    def reach(self) -> Bools:
        """[W] ranks that any table may use."""
        return np.asarray(self.rank_sets[np.unique(self.table_rank_set)].any(axis=0))

    def tables_within(self, ranks: Bools) -> Bools:
        """[T] tables that may use none but these ranks [W]."""
        leaves = np.asarray((self.rank_sets & ~ranks).any(axis=1))
        return np.asarray(~leaves[self.table_rank_set])

    @cached_property
    def is_confined(self) -> bool:
        """Whether some table may not be everywhere, or not beside every other."""
        return bool(self.grouped.any() or not self.rank_sets[self.table_rank_set].all())

    @cached_property
    def grouped(self) -> Bools:
        """[T] tables that must stay with others or away from them."""
        is_grouped = np.zeros(self.tables, dtype=bool)
        for group in self.affinity_groups + self.anti_affinity_groups:
            is_grouped[group.tables] = True
        return is_grouped

    def may_hold(self, block: int) -> Bools:
        """[W] ranks that may hold the block or a part of it."""
        ranks = self.rank_sets[self.table_rank_set[self.table_of_block[block]]]
        return np.asarray(self.allowed[self.kind_of_rank, block] & ranks)

    def is_within(self, tables: Ints, ranks: Ints) -> Bools:
        """[n] whether each of `tables` [n] may use the rank at its position."""
        return np.asarray(self.rank_sets[self.table_rank_set[tables], ranks])

    @cached_property
    def block_is_splittable(self) -> Bools:
        """[B] whether the block belongs to a splittable option."""
        return self.block_units > 0

    def blocks_of_choice(self, block: int) -> list[int]:
        """The blocks that an option is made of, each as often as it occurs; the option is named by one of its blocks.

        A fixed option has no choice. A splittable one is cut into as few equal parts as fit under the chosen block.
        """
        option = self.block_option[block]
        first, stop = int(self.block_start[option]), int(self.block_start[option + 1])
        if stop == first + 1 and not self.block_units[first]:
            return [first] * int(self.block_count[first])
        types = np.arange(first, stop)
        units, whole = int(self.block_units[block]), int(self.option_units[option])
        if not units:
            return [int(taken) for taken in np.repeat(types, self.block_count[types])]
        sizes = self.block_units[types]
        parts = min(-(-whole // units), whole // int(sizes[0]))
        wanted = [whole // parts + (i < whole % parts) for i in range(parts)]
        which = np.searchsorted(sizes, wanted)
        return [int(taken) for taken in types[which]]

    @cached_property
    def usual(self) -> Bools:
        """[B] usual blocks that may be somewhere; of a table that has none, all of its blocks."""
        usual = self.block_usual & self.allowed.any(axis=0)
        has_usual = np.zeros(self.tables, dtype=bool)
        has_usual[self.table_of_block[usual]] = True
        return np.asarray(usual | ~has_usual[self.table_of_block])

    @cached_property
    def node_start(self) -> Ints:
        """[N + 1] first rank of each node."""
        return np.searchsorted(self.node_of_rank, np.arange(self.node_of_rank[-1] + 2))

    @cached_property
    def nodes(self) -> Sites:
        """The nodes as groups of ranks."""
        return Sites("group", self.node_of_rank)

    @cached_property
    def ranks_of_kind(self) -> Ints:
        """[K]"""
        return np.bincount(self.kind_of_rank, minlength=self.kinds)

    @cached_property
    def capacity_regions(self) -> CapacityRegions:
        """The ranks in reach of each kind; then, for each set that is a part of these, its ranks of each kind."""
        return capacity_regions_of(self)

    @cached_property
    def ranks_beside(self) -> Floats:
        """[D, C, K] ranks that share instances with those of a capacity region; see `regions.ranks_beside`."""
        return ranks_beside(self)

    @cached_property
    def base_of_regions(self) -> Floats:
        """[D, C] seconds of the ranks of each capacity region before any table is placed; and of what is below zero
        (windows that hide work) also those of the ranks beside, who bring it to the same instances."""
        regions = self.capacity_regions
        own = self.base_loads[regions.kind] * regions.ranks.sum(axis=1).astype(float)[:, None]
        below = np.minimum(self.base_loads, 0.0)
        return np.asarray(own + (self.ranks_beside * below.T).sum(axis=2)) if below.any() else own

    @cached_property
    def whole_load(self) -> Floats:
        """[K, B + 1, C] load of a rank that holds the block with all its rows; the last one is an empty block."""
        return _with_nothing(self.fixed, self.by_rows)

    @cached_property
    def whole_bytes(self) -> Floats:
        """[K, B + 1, M] bytes of such a rank."""
        return _with_nothing(self.bytes_fixed, self.bytes_by_rows)

    @cached_property
    def loaded_columns(self) -> Bools:
        """[K, C] columns that some block loads where it is placed on ranks of a kind."""
        return np.asarray(self.fixed.any(axis=1) | self.by_rows.any(axis=1))

    @cached_property
    def moved_columns(self) -> Bools:
        """[C] columns that blocks with a choice of sites load; the others are as loaded wherever these are."""
        loads = (self.fixed, self.by_rows, self.everywhere)
        return np.asarray(np.logical_or.reduce([part[:, ~self.is_world_wide].any(axis=(0, 1)) for part in loads]))

    @cached_property
    def group_extents(self) -> tuple[int, ...]:
        """Extents whose sites are groups of ranks."""
        return tuple(extent for extent, sites in enumerate(self.sites) if sites.reach == "group")

    @cached_property
    def is_on_rank(self) -> Bools:
        """[B] blocks of one rank."""
        return self._reaches("rank")

    @cached_property
    def is_on_group(self) -> Bools:
        """[B] blocks of a group of ranks, at a choice of several groups."""
        return self._reaches("group")

    @cached_property
    def is_world_wide(self) -> Bools:
        """[B] blocks of all ranks, which have no choice."""
        return self._reaches("world")

    def _reaches(self, reach: Reach) -> Bools:
        return np.array([sites.reach == reach for sites in self.sites])[self.block_extent]

    def sites_of(self, block: int) -> Sites:
        """Where the block may be."""
        return self.sites[int(self.block_extent[block])]

    @cached_property
    def shared_resources(self) -> SharedInstances:
        """Whom loads of a rank meet, too."""
        return SharedInstances(self.resource_of_rank, self.kind_of_rank)

    @cached_property
    def shared_pools(self) -> SharedInstances:
        """Whose memory bytes of a rank take, too."""
        return SharedInstances(self.pool_of_rank, self.kind_of_rank)

    @cached_property
    def extremes(self) -> Extremes:
        """What blocks ask at most, each by itself."""
        return Extremes(weakref.proxy(self))

    @cached_property
    def row_shares(self) -> RowShares:
        """What each rank of a block's site holds of the table's rows."""
        return RowShares(weakref.proxy(self))


def _with_nothing(first: Floats, *others: Floats) -> Floats:
    """The sum of arrays [K, B, n], with a row of zeros behind the last block."""
    total = np.zeros((first.shape[0], first.shape[1] + 1, first.shape[2]))
    total[:, :-1] = first
    for other in others:
        total[:, :-1] += other
    return total
