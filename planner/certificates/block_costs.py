"""Lagrangian costs of blocks in a branch node: what each block adds at the multipliers where it is cheapest."""

from typing import NamedTuple

import numpy as np

from planner.certificates.branch_nodes import BranchingRules, GroupBlocks, NodeState
from planner.certificates.node_weights import NodeMultipliers
from planner.problem.numbers import Floats, Ints
from planner.problem.products import product


class CheapestBlocks(NamedTuple):
    """Blocks that attain a least cost."""

    cost: float
    """Infinite where there are none."""
    blocks: list[tuple[int, int | None]]
    """(block, group of equal ranks on which it is; None where that is the cheapest place of the block)."""


class NodeChoice(NamedTuple):
    """What attains a bound: how often each block is taken on each group of ranks."""

    seconds: Floats
    """[G, C] on the ranks of each group, by all undecided blocks."""
    size: Floats
    """[G, M]"""
    of_table: Floats
    """[T] least value of what each table still needs."""
    lead: Ints
    """[T] the block with which that begins; -1 where nothing is needed."""


class NodeBlockCosts:
    """The costs of all blocks of a branch node at its multipliers. G groups of equal ranks."""

    def __init__(self, rules: BranchingRules, state: NodeState, multipliers: NodeMultipliers) -> None:
        self.rules, self.problem, self.labels = rules, rules.problem, state.labels
        problem, self._room = rules.problem, rules.open_places(state)
        self.ranks, self.count, self.nodes = self._room.ranks, self._room.count, self._room.nodes
        """[G] first rank and number of ranks of each group; first node of each sort."""
        self._kind = problem.kind_of_rank[self.ranks]
        both = np.concatenate([multipliers.weight, multipliers.byte])[:, self.ranks]
        self._fixed = np.stack([product(rules.fixed[k], both[:, g]) for g, k in enumerate(self._kind)], axis=1)
        self._by_rows = np.stack([product(rules.by_rows[k], both[:, g]) for g, k in enumerate(self._kind)], axis=1)
        of_kind = np.stack([multipliers.weight[:, problem.kind_of_rank == k].sum(axis=1) for k in range(problem.kinds)])
        self.everywhere = np.einsum("kbc,kc->b", problem.everywhere, of_kind)
        """[B] cost of what each block loads wherever it is."""
        self.on_rank = np.where(self._room.on_rank, (self._fixed + self._by_rows)[rules.of_rank], np.inf)
        """[blocks of one rank, G] cost on each group of ranks, without what a block loads everywhere."""
        self._where = np.zeros(len(problem.block_option) + 1, dtype=np.int64)
        self.least = self._least()
        """[B + 1] least cost of each block where it may be; infinite at the end."""

    def _least(self) -> Floats:
        """[B + 1] least cost of each block; the group or sort of site with that cost goes to `_where`."""
        problem, rules, room = self.problem, self.rules, self._room
        least = np.full(len(problem.block_option) + 1, np.inf)
        own, world = rules.of_rank, rules.of_world
        self._where[own], least[own] = self.on_rank.argmin(axis=1), self.on_rank.min(axis=1)
        for group, places in zip(rules.groups, room.on_groups, strict=True):
            cost = np.stack([self._on_site(group, site) for site in places.sites.tolist()], axis=1)
            cost[~places.is_open] = np.inf
            self._where[group.blocks], least[group.blocks] = cost.argmin(axis=1), cost.min(axis=1)
        share = rules.world_share[:, room.ranks]
        on_world = product(self._fixed[world] + self._by_rows[world] * share, room.count)
        least[world] = np.where(room.on_world, on_world, np.inf)
        least[:-1] += self.everywhere
        return least

    def _on_site(self, group: GroupBlocks, site: int) -> Floats:
        """[blocks of the group's extent] cost of each on a site."""
        blocks, labels = group.blocks, self.labels[group.sites.ranks(site)]
        groups = np.unique(labels)
        times = (labels[:, None] == groups).astype(float)
        share = product(group.row_shares[len(labels)], times)
        return np.asarray(
            product(self._fixed[blocks][:, groups], times.sum(axis=0))
            + (self._by_rows[blocks][:, groups] * share).sum(axis=1)
        )

    # -- loads of what attains the costs --------------------------------------------------------------------------

    def charge(self, seconds: Floats, size: Floats, block: int, group: int) -> None:
        """Add a block to one rank of a group, in the loads of the groups: `seconds` [G, C], `size` [G, M]."""
        rules, problem = self.rules, self.problem
        ask = rules.fixed[self._kind[group], block] + rules.by_rows[self._kind[group], block]
        seconds[group] += ask[: rules.columns]
        size[group] += ask[rules.columns :]
        seconds += self.count[:, None] * problem.everywhere[self._kind, block]

    def charge_cheapest(self, seconds: Floats, size: Floats, taken: Floats) -> None:
        """Add blocks that are `taken` [B] so often, each where it is cheapest, to the loads of the groups."""
        rules, problem = self.rules, self.problem
        total = np.zeros((len(self.ranks), rules.fixed.shape[2]))
        for g in range(len(self.ranks)):
            here = rules.of_rank[self._where[rules.of_rank] == g]
            here = here[taken[here] > 0]
            total[g] += product(taken[here].astype(float), rules.whole[self._kind[g], here])
        for group, places in zip(rules.groups, self._room.on_groups, strict=True):
            for i in np.flatnonzero(taken[group.blocks]).tolist():
                block = int(group.blocks[i])
                ranks = group.sites.members(int(places.sites[self._where[block]]))
                for rank, share in zip(ranks.tolist(), group.row_shares[len(ranks)][i], strict=True):
                    kind, label = problem.kind_of_rank[rank], self.labels[rank]
                    total[label] += taken[block] * (rules.fixed[kind, block] + rules.by_rows[kind, block] * share)
        world = np.flatnonzero(taken[rules.of_world])
        if len(world):
            blocks, share = rules.of_world[world], rules.world_share[world][:, self.ranks]
            ask = rules.fixed[self._kind][:, blocks] + rules.by_rows[self._kind][:, blocks] * share.T[..., None]
            total += self.count[:, None] * np.einsum("gbc,b->gc", ask, taken[blocks])
        seconds += total[:, : rules.columns]
        seconds += self.count[:, None] * np.einsum("gbc,b->gc", problem.everywhere[self._kind], taken)
        size += total[:, rules.columns :]
