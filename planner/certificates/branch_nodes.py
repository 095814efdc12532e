"""Branch nodes: plans told apart by what they do with some tables, and the least that each branch node takes.

A branch node decides parts of tables: which block the largest part is, or between which widths, and where it is. Its
bound is the Lagrangian one with a weight for every instance of a resource and a multiplier for every memory pool: the
decided parts load their places, and every other table costs at least its cheapest option where that may be. A block may
not be where it overfills the memory or makes the step as long as the threshold. Ranks that nothing tells apart are
equal: a branch node that places a part on one of them stands for all.

Nothing here searches: the branching solver and the check of a proof both take their arithmetic from this module.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from planner.certificates.node_weights import NodeMultipliers, WeightRules, opens
from planner.certificates.parts import Decisions, PartDecision, PartRules
from planner.problem.arrays import Problem
from planner.problem.load_state import LoadState, place_block
from planner.problem.numbers import Bools, Floats, Ints
from planner.problem.placement import Placement
from planner.problem.products import product
from planner.problem.rounding import ROUNDING
from planner.problem.sites import NOWHERE, Sites
from planner.problem.symmetry import RankSymmetry, labels, rank_symmetry, site_labels


@dataclass(frozen=True)
class NodeState:
    """A branch node on its ranks."""

    decisions: Decisions
    load: Floats
    """[C, W] of the instance that the rank uses, by base and decided parts."""
    free: Floats
    """[M, W] of the pool that the rank uses."""
    labels: Ints
    """[W] equal for ranks that are interchangeable; numbered in the order of their first rank."""
    node_labels: Ints
    """[N] equal for nodes that are."""
    site_labels: dict[int, Ints]
    """[N] equal for interchangeable sites, of each extent of several groups that has blocks."""
    step_s: float
    """That the decided parts take by themselves."""
    stage_seconds: Floats
    """[S] and no plan takes less in any stage."""
    known_places: "list[OpenPlaces]"
    """Where blocks may be, once it was asked for."""


@dataclass(frozen=True)
class OpenPlaces:
    """Where the blocks may be in a branch node: by memory, by the threshold, by the kind of rank. G groups of equal
    ranks."""

    ranks: Ints
    """[G] first rank of each group."""
    count: Ints
    """[G] ranks of each group."""
    nodes: Ints
    """First node of each sort."""
    on_rank: Bools
    """[blocks of one rank, G]"""
    on_groups: "tuple[OpenSites, ...]"
    """One for each extent, as in `BranchingRules.groups`."""
    on_world: Bools
    """[world-wide blocks]"""
    usable: Bools
    """[B] whether the block may be somewhere."""


@dataclass(frozen=True)
class OpenSites:
    """The groups of ranks at which the blocks of one extent may be."""

    sites: Ints
    """First site of each sort."""
    is_open: Bools
    """[blocks of the extent, sorts of site]"""


@dataclass(frozen=True)
class GroupBlocks:
    """The blocks of one extent whose sites are groups of ranks."""

    extent: int
    sites: Sites
    blocks: Ints
    row_shares: dict[int, Floats]
    """[blocks, ranks] of the block's rows on each rank of a site, by the ranks of the site."""


class BranchingRules:
    """All branch nodes of one problem under a threshold: no plan that takes `threshold_s` or more is of interest.

    `least` [S] are seconds that every plan takes in each stage.
    """

    def __init__(self, problem: Problem, threshold_s: float, least: Floats) -> None:
        self.problem, self.threshold_s, self.least = problem, threshold_s, least
        self.columns = len(problem.stage_of_column)
        self._is_confined = problem.is_confined
        self._blank = LoadState(problem)
        self.fixed = np.concatenate([problem.fixed, problem.bytes_fixed], axis=2)
        self.by_rows = np.concatenate([problem.by_rows, problem.bytes_by_rows], axis=2)
        self.of_rank, self.of_world = np.flatnonzero(problem.is_on_rank), np.flatnonzero(problem.is_world_wide)
        self.row_of = np.cumsum(problem.is_on_rank) - 1
        extents = [extent for extent in problem.group_extents if (problem.block_extent == extent).any()]
        self.groups = tuple(_group_blocks(problem, extent) for extent in extents)
        self.parts = PartRules(problem)
        self.whole = self.fixed + self.by_rows
        world_shares = [problem.row_shares.on_site(int(block), problem.world) for block in self.of_world]
        self.world_share = np.array(world_shares).reshape(-1, problem.world)
        self.weights = WeightRules(problem)
        self.first_of_pool = opens(problem.pool_of_rank)
        self.fixed_options = np.flatnonzero(problem.option_units == 0)
        self.colocated_options = np.flatnonzero(problem.option_colocated)

    # -- the places of a branch node ------------------------------------------------------------------------------

    @cached_property
    def _symmetry(self) -> RankSymmetry:
        """Which ranks are alike before anything is placed."""
        return rank_symmetry(self.problem)

    def state(self, decisions: Decisions) -> NodeState:
        """Loads, free memory and equal ranks of a branch node."""
        state = self._blank.copy()
        for table in sorted(decisions):
            for part in self.parts.placed(decisions[table]):
                self._add(state, part)
        return self._settled(decisions, state)

    def _settled(self, decisions: Decisions, state: LoadState) -> NodeState:
        """A branch node by its loads."""
        problem = self.problem
        marks = []
        for table in sorted(decisions):
            placed = self.parts.placed(decisions[table])
            if problem.grouped[table]:
                marks.append(self._ranks_held(placed).astype(float))
            option = problem.block_option[placed[0].first] if placed else -1
            if placed and (problem.option_colocated[option] or problem.option_apart[option]):
                marks.append(self._ranks_held(placed).astype(float))
        of_rank = self._symmetry.labels(np.concatenate([state.load, state.free, *[[mark] for mark in marks]]))
        of_node = site_labels(problem.nodes, of_rank)
        of_site = {group.extent: site_labels(group.sites, of_rank) for group in self.groups}
        both = labels(np.stack([of_node[problem.node_of_rank], of_rank]).astype(float))
        longest = np.zeros(len(problem.stage_constants))
        np.maximum.at(longest, problem.stage_of_column, state.load.max(axis=1))
        stages = np.maximum(longest, self.least)
        alone = float((longest + problem.stage_constants).sum())
        return NodeState(decisions, state.load, state.free, both, of_node, of_site, alone, stages, [])

    def _add(self, state: LoadState, part: PartDecision) -> None:
        """Charge a decided part with the least of its range."""
        problem, place = self.problem, part.place
        assert place is not None
        types = np.arange(part.first, part.last + 1)
        state.add_everywhere(problem.everywhere[:, types].min(axis=1))
        if part.first == part.last:
            place_block(problem, state, part.first, place)
            return
        kind = problem.kind_of_rank[place]
        load = (problem.fixed[kind, types] + problem.by_rows[kind, types]).min(axis=0)
        size = (problem.bytes_fixed[kind, types] + problem.bytes_by_rows[kind, types]).min(axis=0)
        state.add_on_rank(load, size, place)

    def _ranks_held(self, placed: Iterable[PartDecision]) -> Bools:
        """[W] ranks that hold decided parts of one table."""
        problem, holds = self.problem, np.zeros(self.problem.world, dtype=bool)
        for part in placed:
            if part.place is not None:
                holds[problem.sites_of(part.first).ranks(part.place)] = True
        return holds

    def _open_ranks(self, state: NodeState, table: int) -> Bools:
        """[W] ranks that the policy leaves to a table, by its rank set and by what tables of its groups hold."""
        problem = self.problem
        open_ranks: Bools = problem.rank_sets[problem.table_rank_set[table]].copy()
        for groups, stay in ((problem.affinity_groups, True), (problem.anti_affinity_groups, False)):
            for group in groups:
                if table not in group.tables:
                    continue
                for other in group.tables.tolist():
                    if stay or other != table:
                        holders = self._ranks_held(self.parts.placed(state.decisions.get(other, ())))
                        near = np.isin(group.zone_of_rank, group.zone_of_rank[holders])
                        open_ranks &= (near | (not holders.any())) if stay else ~near
        return open_ranks

    def places(self, state: NodeState, block: int) -> list[int]:
        """One place of each sort at which a block may be; the smallest of its sort."""
        problem, sites = self.problem, self.problem.sites_of(block)
        table = int(problem.table_of_block[block])
        is_open = sites.all(problem.allowed[problem.kind_of_rank, block] & self._open_ranks(state, table))
        if sites.reach == "world":
            return [NOWHERE] if is_open[NOWHERE] else []
        first = np.unique(self._labels(state, block), return_index=True)[1]
        return sorted(first[is_open[first]].tolist())

    def _labels(self, state: NodeState, block: int) -> Ints:
        """[N] equal for interchangeable sites of a block that has a choice."""
        return state.site_labels.get(int(self.problem.block_extent[block]), state.labels)

    def stands_for(self, state: NodeState, block: int, place: int) -> int:
        """The smallest place of its sort."""
        if self.problem.is_world_wide[block]:
            return NOWHERE
        labels = self._labels(state, block)
        return int(np.flatnonzero(labels == labels[place])[0])

    def child(self, state: NodeState, table: int, index: int, part: PartDecision) -> NodeState | None:
        """The branch node with one more decision: the table's part number `index`; None where no plan is of it."""
        problem, place = self.problem, part.place
        before = state.decisions.get(table, ())[:index]
        if before and place is not None and problem.option_colocated[problem.block_option[part.first]]:
            ranks = [other.place for other in before if other.place is not None]
            if place in ranks or problem.node_of_rank[place] != problem.node_of_rank[ranks[0]]:
                return None
        is_apart = place is not None and problem.option_apart[problem.block_option[part.first]]
        if is_apart and place in [other.place for other in before]:
            return None
        decisions = {**state.decisions, table: (*before, part)}
        if place is None:
            return replace(state, decisions=decisions)
        if self._is_confined and (self._ranks_held([part]) & ~self._open_ranks(state, table)).any():
            return None
        if index < len(state.decisions.get(table, ())) and state.decisions[table][index].place is not None:
            after = self.state(decisions)
        else:
            loads = self._blank.copy()
            loads.load[:], loads.free[:] = state.load, state.free
            self._add(loads, part)
            after = self._settled(decisions, loads)
        return after if self.is_possible(after) else None

    def is_possible(self, state: NodeState) -> bool:
        """Whether a plan below the threshold may be of the branch node: its parts fit and are not too slow."""
        capacity = max(float(of_pool.max(initial=0.0)) for of_pool in self.problem.pool_capacity)
        if state.free.min() < -(1.0 + ROUNDING * capacity):
            return False
        step_s = float((state.stage_seconds + self.problem.stage_constants).sum())
        return bool(step_s * (1 - ROUNDING) < self.threshold_s)

    # -- tables ---------------------------------------------------------------------------------------------------

    def spread(self, multipliers: NodeMultipliers, part: PartDecision) -> float:
        """What the widest block of a part's range is worth above the narrowest."""
        rank = part.place
        kind = self.problem.kind_of_rank[rank]
        both = np.concatenate([multipliers.weight[:, rank], multipliers.byte[:, rank]])
        ask = product(self.whole[kind, [part.first, part.last]], both)
        return float(abs(ask[1] - ask[0]))

    def plan(self, state: NodeState) -> Placement | None:
        """The placement that a branch node is, where it decides everything."""
        if len(state.decisions) < self.problem.tables:
            return None
        if any(self.parts.is_inexact(parts) or self.parts.is_unfinished(parts) for parts in state.decisions.values()):
            return None
        every = [part for table in sorted(state.decisions) for part in state.decisions[table]]
        return Placement(np.array([part.first for part in every]), np.array([part.place for part in every]))

    # -- where blocks may be --------------------------------------------------------------------------------------

    def open_places(self, state: NodeState) -> OpenPlaces:
        """Where the blocks may be in a branch node."""
        if not state.known_places:
            state.known_places.append(self._open_places(state))
        return state.known_places[0]

    def _open_places(self, state: NodeState) -> OpenPlaces:
        problem = self.problem
        _, ranks, count = np.unique(state.labels, return_index=True, return_counts=True)
        kind = problem.kind_of_rank[ranks]
        ask = self.whole[kind][:, self.of_rank].transpose(1, 0, 2)
        on_rank = problem.allowed[kind][:, self.of_rank].T & self._fits(state, ask, ranks)
        on_groups = tuple(self._open_sites(state, group) for group in self.groups)
        share = self.world_share[:, ranks].T[..., None]
        ask = (self.fixed[kind][:, self.of_world] + self.by_rows[kind][:, self.of_world] * share).transpose(1, 0, 2)
        on_world = np.asarray(self._fits(state, ask, ranks).all(axis=1) & problem.allowed[:, self.of_world].all(axis=0))
        if self._is_confined:
            self._confine(state, ranks, on_rank, on_groups, on_world)
        usable = np.zeros(len(problem.block_option), dtype=bool)
        usable[self.of_rank], usable[self.of_world] = on_rank.any(axis=1), on_world
        for group, places in zip(self.groups, on_groups, strict=True):
            usable[group.blocks] = places.is_open.any(axis=1)
        nodes = np.unique(state.node_labels, return_index=True)[1]
        return OpenPlaces(ranks, count, nodes, on_rank, on_groups, on_world, usable)

    def _open_sites(self, state: NodeState, group: GroupBlocks) -> OpenSites:
        problem, blocks = self.problem, group.blocks
        sites = np.unique(state.site_labels[group.extent], return_index=True)[1]
        is_open = np.zeros((len(blocks), len(sites)), dtype=bool)
        for i, site in enumerate(sites.tolist()):
            ranks = group.sites.members(site)
            first = np.unique(state.labels[ranks], return_index=True)[1]
            share = group.row_shares[len(ranks)][:, first]
            kind = problem.kind_of_rank[ranks[0]]
            ask = self.fixed[kind][blocks][:, None] + self.by_rows[kind][blocks][:, None] * share[..., None]
            is_open[:, i] = self._fits(state, ask, ranks[first]).all(axis=1) & problem.allowed[kind, blocks]
        return OpenSites(sites, is_open)

    def _confine(
        self, state: NodeState, ranks: Ints, on_rank: Bools, on_groups: tuple[OpenSites, ...], on_world: Bools
    ) -> None:
        """Take away what the policy does not leave to the tables."""
        problem = self.problem
        leaves = np.stack([self._open_ranks(state, table) for table in range(problem.tables)])
        on_rank &= leaves[problem.table_of_block[self.of_rank]][:, ranks]
        for group, places in zip(self.groups, on_groups, strict=True):
            is_whole = group.sites.all(leaves)
            places.is_open[:] &= is_whole[problem.table_of_block[group.blocks]][:, places.sites]
        on_world &= leaves[problem.table_of_block[self.of_world]].all(axis=1)

    def _fits(self, state: NodeState, ask: Floats, ranks: Ints) -> Bools:
        """[n, g] whether blocks that add seconds and bytes `ask` [n, g, C + M] to these ranks may be there."""
        free = state.free[:, ranks].T
        room = (ask[..., self.columns :] <= free + 1.0 + ROUNDING * np.abs(free)).all(axis=2)
        busy = ask[..., : self.columns] + state.load[:, ranks].T
        step = np.full(busy.shape[:2], float(self.problem.stage_constants.sum()))
        for stage, least in enumerate(state.stage_seconds):
            of_stage = busy[:, :, self.problem.stage_of_column == stage]
            step += np.maximum(of_stage.max(axis=2, initial=0.0), least)
        return np.asarray(room & (step * (1 - ROUNDING) < self.threshold_s))


def _group_blocks(problem: Problem, extent: int) -> GroupBlocks:
    sites, blocks = problem.sites[extent], np.flatnonzero(problem.block_extent == extent)
    sizes, shares = np.unique(sites.sizes).tolist(), problem.row_shares
    shares_of = {n: np.array([shares.on_site(block, n) for block in blocks.tolist()]).reshape(-1, n) for n in sizes}
    return GroupBlocks(extent, sites, blocks, shares_of)
