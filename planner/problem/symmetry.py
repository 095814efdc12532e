"""Ranks that nothing tells apart: plans in which they change places are equally good.

An instance that ranks of several nodes share, but not all of any (the leaf of a rail), ties these together: ranks of a
node change places with those of another such instance only as all of them do.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.numbers import Bools, Floats, Ints
from planner.problem.row_shares import row_shares
from planner.problem.sites import Sites


@dataclass(frozen=True)
class RankSymmetry:
    """Which ranks of a node, and which nodes, may change places before anything is placed."""

    problem: Problem
    color: Ints
    """[W] equal for ranks that are alike, if their nodes are the same one or alike; ranks of unlike rails never are."""
    rail: Ints | None = None
    """[W] the first rank of each rank's rail; None where no resource is one's of a rail."""
    color_on_rail: Ints | None = None
    """[W] equal for ranks that are alike but for their rails; None without rails."""

    def labels(self, state: Floats) -> Ints:
        """[W] equal for ranks that are interchangeable, if their nodes are, where `state` [n, W] is on the ranks."""
        if self.rail is None or self.color_on_rail is None:
            return labels(np.concatenate([[self.color.astype(float)], state]))
        own = labels(np.concatenate([[self.color_on_rail.astype(float)], state]))
        return labels(np.stack([own, self._rail_labels(own)]).astype(float))

    def _rail_labels(self, of_rank: Ints) -> Ints:
        """[W] equal for ranks of rails that are alike node by node, with such labels [W] of their ranks."""
        found, known = np.empty_like(of_rank), dict[bytes, int]()
        for ranks in self._rails:
            found[ranks] = known.setdefault(
                np.stack([self.problem.node_of_rank, of_rank])[:, ranks].tobytes(), len(known)
            )
        return found

    @cached_property
    def _rails(self) -> list[Ints]:
        """The ranks of each rail."""
        if self.rail is None:
            return []
        order = np.argsort(self.rail, kind="stable")
        return np.split(order, np.flatnonzero(np.diff(self.rail[order])) + 1)

    @cached_property
    def _alike_rails(self) -> list[Ints]:
        """[rails, ranks of each] those that may change places as wholes; of at least two."""
        if self.color_on_rail is None:
            return []
        label = self._rail_labels(self.color_on_rail)
        first = np.array([ranks[0] for ranks in self._rails])
        sorts = [np.flatnonzero(label[first] == one) for one in np.unique(label)]
        return [np.stack([self._rails[number] for number in alike]) for alike in sorts if len(alike) > 1]

    @cached_property
    def _alike(self) -> tuple[list[Ints], list[Ints]]:
        """Ranks of one node that are alike, and nodes that are; each of at least two."""
        start = self.problem.node_start
        nodes = site_labels(self.problem.nodes, self.color)
        within = [
            first + np.flatnonzero(self.color[first:last] == color)
            for first, last in zip(start[:-1].tolist(), start[1:].tolist(), strict=True)
            for color in np.unique(self.color[first:last])
        ]
        between = [np.flatnonzero(nodes == label) for label in np.unique(nodes)]
        return [ranks for ranks in within if len(ranks) > 1], [alike for alike in between if len(alike) > 1]

    def order(self, marks: Ints, draw: np.random.Generator) -> Ints:
        """[n, W] an order of the ranks in which rows of `marks` [n, W] are equal if they are but for a symmetry.

        Marks that are equal only by chance may be ordered differently.
        """
        order = np.tile(np.arange(marks.shape[1]), (len(marks), 1))
        for rails in self._alike_rails:
            by_mark = np.argsort(marks[:, rails].sum(axis=2), axis=1, kind="stable")
            order[:, rails.ravel()] = rails[by_mark].reshape(len(marks), -1)
        within, between = self._alike
        for ranks in within:
            order[:, ranks] = ranks[np.argsort(marks[:, ranks], axis=1, kind="stable")]
        start = self.problem.node_start
        for nodes in between:
            members = start[nodes][:, None] + np.arange(start[nodes[0] + 1] - start[nodes[0]])
            sorted_marks = np.take_along_axis(marks, order[:, members.ravel()], axis=1)
            place = draw.integers(1, 2**62, size=members.shape[1], dtype=np.int64) * 2 + 1
            of_node = (sorted_marks.reshape(len(marks), *members.shape) * place).sum(axis=2)
            by_mark = np.argsort(of_node, axis=1, kind="stable")
            ranks = order[:, members.ravel()].reshape(len(marks), *members.shape)
            order[:, members.ravel()] = np.take_along_axis(ranks, by_mark[..., None], axis=1).reshape(len(marks), -1)
        return order


def rank_symmetry(problem: Problem) -> RankSymmetry:
    """What tells ranks apart: kind, resources and memory shared, rows of blocks cut over many ranks, and the policy."""
    node = problem.node_of_rank
    start, stop = problem.node_start[node], problem.node_start[node + 1]
    rail, marks, of_rails = None, [problem.kind_of_rank], list[Ints]()
    zones = [group.zone_of_rank for group in (*problem.affinity_groups, *problem.anti_affinity_groups)]
    for instance in (*problem.resource_of_rank, *problem.pool_of_rank, *zones):
        _, opens, which, count = np.unique(instance, return_index=True, return_inverse=True, return_counts=True)
        last_of = np.zeros_like(opens)
        last_of[which] = np.arange(problem.world)
        first, sharing = opens[which], count[which]
        within = (node[first] == node) & (node[last_of[which]] == node)
        part = within & (sharing > 1) & (sharing < stop - start)
        marks.append(np.where(part, first - start, -1))
        if (last_of - opens + 1 != count).any() and (rail is None or (rail == first).all()):
            rail = first
            of_rails.append(np.where(within, -1, instance))
        else:
            marks.append(np.where(within, -1, instance))
    for extent in np.unique(problem.block_extent[problem.is_on_group]).tolist():
        if problem.sites[extent].sizes.max() == 1:
            continue  # a rank by itself is told apart by nothing
        site = problem.sites[extent].of_rank
        is_within = bool((node[problem.sites[extent].first[site]] == node).all())
        marks.append(site - site[start] if is_within else site)
    capacity = [of_pool[pool] for pool, of_pool in zip(problem.pool_of_rank, problem.pool_capacity, strict=True)]
    sets = problem.rank_sets[np.unique(problem.table_rank_set)]
    table = [np.array(marks, dtype=float), np.array(capacity), sets.astype(float), *_row_shares(problem)]
    color = labels(np.concatenate(table))
    if rail is None:
        return RankSymmetry(problem, color)
    on_rail = labels(np.stack([color, node[rail]]).astype(float))
    return RankSymmetry(problem, labels(np.stack([on_rail, *of_rails]).astype(float)), rail, on_rail)


def _row_shares(problem: Problem) -> list[Floats]:
    """[n, W] what ranks get of the blocks that are cut by rows."""
    by_rows: Bools = np.asarray((problem.by_rows > 0).any(axis=(0, 2)) | (problem.bytes_by_rows > 0).any(axis=(0, 2)))
    by_rows &= ~problem.block_replicated & ~problem.is_on_rank
    shares = []
    for extent, sites in enumerate(problem.sites):
        here = (problem.block_extent == extent) & by_rows
        cuts = np.unique(np.stack([problem.block_rows[here], problem.block_copies[here]]), axis=1)
        for rows, copies in cuts.T.tolist():
            of_rank = np.empty(problem.world)
            of_sites = (row_shares(rows, n, copies, apart=problem.copies_apart) for n in sites.sizes.tolist())
            of_rank[sites.order] = np.concatenate([*of_sites])
            shares.append(of_rank[None])
    return shares


def labels(table: Floats) -> Ints:
    """[W] equal for equal columns of `table` [R, W], numbered in the order of their first column."""
    known: dict[bytes, int] = {}
    columns = np.ascontiguousarray(np.asarray(table, dtype=float).T + 0.0)
    return np.array([known.setdefault(column.tobytes(), len(known)) for column in columns])


def site_labels(sites: Sites, of_rank: Ints) -> Ints:
    """[N] equal for sites whose ranks have the same labels, one by one."""
    known: dict[bytes, int] = {}
    labels_of_site = [of_rank[sites.ranks(site)].tobytes() for site in range(sites.count)]
    return np.array([known.setdefault(ranks, len(known)) for ranks in labels_of_site])
