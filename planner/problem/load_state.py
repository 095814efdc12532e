"""What a placement asks of every rank: loads and free memory, and the step that follows from them."""

import copy

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.numbers import Floats, Ints
from planner.problem.placement import Placement
from planner.problem.row_shares import shares_at
from planner.problem.sites import Ranks


class LoadState:
    """Loads and free memory as a placement grows; the arithmetic of the objective, for solvers.

    `load` is [C, W]: for each rank the load of the instance it uses, so a shared instance's load stands at each of
    its ranks. `free` is [M, W] in the same way.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        base = problem.base_loads[problem.kind_of_rank].T
        self.load: Floats = np.empty_like(base)
        for c, instance in enumerate(problem.resource_of_rank):
            self.load[c] = np.bincount(instance, weights=base[c])[instance]
        self.free: Floats = np.empty((len(problem.pool_capacity), problem.world))
        for m, (pool, capacity) in enumerate(zip(problem.pool_of_rank, problem.pool_capacity, strict=True)):
            taken = np.bincount(pool, minlength=len(capacity)) * problem.base_bytes[m]
            self.free[m] = (capacity - taken)[pool]

    def copy(self) -> "LoadState":
        """The same loads and free memory, to grow on its own."""
        twin = copy.copy(self)
        twin.load, twin.free = self.load.copy(), self.free.copy()
        return twin

    def add(self, item_load: Floats, item_bytes: Floats, ranks: Ranks) -> None:
        """Charge n ranks: `item_load` [C, n] seconds and `item_bytes` [M, n]."""
        if not isinstance(ranks, slice):
            item_load, item_bytes = (self._on_all_ranks(values, ranks) for values in (item_load, item_bytes))
            ranks = slice(0, self._problem.world)
        problem = self._problem
        if ranks.start == 0 and ranks.stop == problem.world:
            self.load += problem.shared_resources.met(item_load)
            self.free -= problem.shared_pools.met(item_bytes)
            return
        problem.shared_resources.charge(self.load, item_load, ranks)
        problem.shared_pools.charge(self.free, -item_bytes, ranks)

    def _on_all_ranks(self, values: Floats, ranks: Ints) -> Floats:
        """[R, W] of values [R, n] on these ranks."""
        wide = np.zeros((len(values), self._problem.world))
        wide[:, ranks] = values
        return wide

    def add_on_rank(self, load: Floats, size: Floats, rank: int) -> None:
        """Charge one rank: `load` [C] seconds and `size` [M] bytes (negative ones take a block away)."""
        self._problem.shared_resources.charge_rank(self.load, load, rank)
        self._problem.shared_pools.charge_rank(self.free, -size, rank)

    def add_everywhere(self, per_kind: Floats) -> None:
        """Charge every rank `per_kind` [K, C] seconds."""
        if per_kind.any():
            self.load += self._problem.shared_resources.met_everywhere(per_kind)

    def stage_seconds(self) -> Floats:
        """[S]"""
        longest = self.load.max(axis=1)
        seconds = np.zeros(len(self._problem.stage_constants))
        np.maximum.at(seconds, self._problem.stage_of_column, longest)
        return seconds + self._problem.stage_constants

    def step_s(self) -> float:
        """The objective."""
        return float(self.stage_seconds().sum())

    def overflow_bytes(self) -> float:
        """Bytes by which the fullest pool is over its capacity; 0 when everything fits."""
        return float(max(0.0, -self.free.min()))


def load_state(problem: Problem, placement: Placement) -> LoadState:
    """The state of a complete placement."""
    state = LoadState(problem)
    block, place = placement.item_block, placement.item_place
    place_everywhere(problem, state, block)
    place_world(problem, state, block[problem.is_world_wide[block]])
    on_rank, on_group = problem.is_on_rank[block], problem.is_on_group[block]
    place_on_ranks(problem, state, block[on_rank], place[on_rank])
    place_on_groups(problem, state, block[on_group], place[on_group])
    return state


def place_everywhere(problem: Problem, state: LoadState, item_block: Ints) -> None:
    """Charge the `everywhere` part of all items at once."""
    count = np.bincount(item_block, minlength=len(problem.block_option))
    chosen = np.flatnonzero(count)
    state.add_everywhere(np.einsum("kbc,b->kc", problem.everywhere[:, chosen], count[chosen].astype(float)))


def place_world(problem: Problem, state: LoadState, blocks: Ints) -> None:
    """Charge world-wide blocks, the replicated ones all at once."""
    replicated = problem.block_replicated[blocks]
    for block in blocks[~replicated].tolist():
        place_block(problem, state, block, -1)
    alike = blocks[replicated]
    load = (problem.fixed[:, alike] + problem.by_rows[:, alike]).sum(axis=1)
    size = (problem.bytes_fixed[:, alike] + problem.bytes_by_rows[:, alike]).sum(axis=1)
    kind = problem.kind_of_rank
    state.add(load[kind].T, size[kind].T, slice(0, problem.world))


def place_on_ranks(problem: Problem, state: LoadState, blocks: Ints, ranks: Ints) -> None:
    """Charge blocks of one rank, each at its rank, without their `everywhere` parts."""
    _place_parts(problem, state, blocks, ranks, np.ones(len(ranks)))


def place_on_groups(problem: Problem, state: LoadState, blocks: Ints, places: Ints, sign: float = 1.0) -> None:
    """Charge blocks over groups of ranks, each at its site, without their `everywhere` parts.

    A `sign` of -1 takes them away.
    """
    rows = problem.block_rows[blocks]
    for extent in np.unique(problem.block_extent[blocks]).tolist():
        of_extent, sites = problem.block_extent[blocks] == extent, problem.sites[extent]
        block, start, size = blocks[of_extent], sites.start[places[of_extent]], sites.sizes[places[of_extent]]
        item = np.repeat(np.arange(len(block)), size)
        place_in_group = np.arange(len(item)) - np.repeat(size.cumsum() - size, size)
        copies = problem.block_copies[block[item]]
        share = shares_at(rows[of_extent][item], size[item], place_in_group, copies, apart=problem.copies_apart)
        share[problem.block_replicated[block[item]]] = 1.0
        _place_parts(problem, state, block[item], sites.order[start[item] + place_in_group], share, sign)


def _place_parts(
    problem: Problem, state: LoadState, blocks: Ints, ranks: Ints, share: Floats, sign: float = 1.0
) -> None:
    """Charge parts [n] of blocks, each with its share of the rows, at their ranks."""
    kind = problem.kind_of_rank[ranks]
    load = problem.fixed[kind, blocks] + problem.by_rows[kind, blocks] * share[:, None]
    size = problem.bytes_fixed[kind, blocks] + problem.bytes_by_rows[kind, blocks] * share[:, None]
    more_load, more_size = np.zeros_like(state.load), np.zeros_like(state.free)
    for target, amounts in ((more_load, load), (more_size, size)):
        for row, values in zip(target, amounts.T, strict=True):
            row += np.bincount(ranks, weights=values, minlength=problem.world)
    state.add(sign * more_load, sign * more_size, slice(0, problem.world))


def place_block(problem: Problem, state: LoadState, block: int, place: int, sign: float = 1.0) -> None:
    """Charge one block at its place, without its `everywhere` part.

    A `sign` of -1 takes it away.
    """
    sites = problem.sites_of(block)
    if sites.reach == "rank":
        kind = problem.kind_of_rank[place]
        load = problem.fixed[kind, block] + problem.by_rows[kind, block]
        size = problem.bytes_fixed[kind, block] + problem.bytes_by_rows[kind, block]
        state.add_on_rank(sign * load, sign * size, place)
        return
    ranks = sites.ranks(place)
    kinds = problem.kind_of_rank[ranks]
    load, size = spread(problem, block, problem.row_shares.on_site(block, len(kinds)), kinds)
    state.add(sign * load, sign * size, ranks)


def spread(problem: Problem, block: int, share: Floats, kinds: Ints) -> tuple[Floats, Floats]:
    """Loads [C, n] and bytes [M, n] of a block cut by rows over n ranks with these row shares and kinds."""
    load = problem.fixed[kinds, block] + problem.by_rows[kinds, block] * share[:, None]
    size = problem.bytes_fixed[kinds, block] + problem.bytes_by_rows[kinds, block] * share[:, None]
    return load.T, size.T
