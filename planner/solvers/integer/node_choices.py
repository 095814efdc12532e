"""Ways to hold a table of a class that fill nodes alike, and what they ask: the columns of programmes over nodes."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.numbers import Bools, Floats, Ints
from planner.problem.row_shares import shares_at
from planner.problem.table_classes import table_classes

if TYPE_CHECKING:
    from ortools.math_opt.python import mathopt


@dataclass(frozen=True)
class NodeChoices:
    """Ways to hold a table: an option, or a splittable one cut into blocks of one width. Q of them, with H types of
    blocks together."""

    of_class: Ints
    """[Q] ascending."""
    block: Ints
    """[H] of the first table of the class, the widest where cuts are uneven."""
    choice: Ints
    """[H]"""
    count: Ints
    """[H] how often a table has the block, or narrower ones of the same cut."""

    def first(self, usable: Bools, most: int) -> Bools:
        """Return [Q] the first of the `usable` [Q] choices of each class, as many as `most`."""
        return usable & (self.numbers(usable) < most)

    def numbers(self, usable: Bools) -> Ints:
        """Return [Q] how many `usable` [Q] choices of the same class there are before each."""
        before: Ints = np.cumsum(usable) - usable
        first = np.flatnonzero(np.diff(self.of_class, prepend=-1))
        return before - np.repeat(before[first], np.diff(first, append=len(before)))

    def only(self, kept: Bools) -> "NodeChoices":
        """Return the choices that are `kept` [Q]."""
        blocks, renumbered = kept[self.choice], np.cumsum(kept) - 1
        return NodeChoices(self.of_class[kept], self.block[blocks], renumbered[self.choice[blocks]], self.count[blocks])


def tables_of_classes(problem: Problem) -> list[Ints]:
    """The tables of each class of those that nothing tells apart."""
    of_table = table_classes(problem)
    return [np.flatnonzero(of_table == number) for number in range(int(of_table.max()) + 1)]


def node_choices(
    problem: Problem, classes: list[Ints], value: Floats, slack_s: float, most: int | None, *, uneven: bool = False
) -> NodeChoices:
    """Return of each class as many ways to hold its tables as `most`, or all, the cheapest first.

    Options cost `value` [B] at the relaxation's multipliers (`Fluid.choice_values`); those that cost more than
    `slack_s` above the cheapest one of their table are left out. Where cuts may be `uneven`, so are parts by a unit.
    """
    of_class, block, choice = list[int](), list[Ints](), list[Ints]()
    named = _named(problem, value, uneven=uneven)
    for number, tables in enumerate(classes):
        own = np.arange(*problem.table_block_start[tables[0] :][:2])
        own = own[named[own] & (value[own] <= value[own].min() + slack_s)]
        for first in own[np.argsort(value[own], kind="stable")][:most].tolist():
            option = int(problem.block_option[first])
            free = problem.option_units[option] > 0
            block.append(np.array([first]) if free else np.arange(*problem.block_start[option:][:2]))
            choice.append(np.full(len(block[-1]), len(of_class)))
            of_class.append(number)
    blocks = np.concatenate(block)
    parts = -(-problem.option_units[problem.block_option[blocks]] // np.maximum(problem.block_units[blocks], 1))
    count = np.where(parts > 0, parts, problem.block_count[blocks])
    return NodeChoices(np.array(of_class), blocks, np.concatenate(choice), count)


def _named(problem: Problem, value: Floats, *, uneven: bool) -> Bools:
    """[B] blocks that name a way to hold a table: the first one of a fixed option; one that cuts a splittable one
    evenly, or the widest of a cut that is as even as can be. Sites of either lie each in a node, equally many in all
    nodes, or are the world."""
    node = problem.node_of_rank
    whole, width = problem.option_units[problem.block_option], np.maximum(problem.block_units, 1)
    parts = np.maximum(-(-whole // width), 1)
    first = np.zeros(len(whole), dtype=bool)
    first[problem.block_start[:-1]] = True
    alike = [
        sites.reach == "world"
        or (sites.count % problem.nodes.count == 0 and (node[sites.first[sites.of_rank]] == node).all())
        for sites in problem.sites
    ]
    usable = np.logical_and.reduceat(np.array(alike)[problem.block_extent], problem.block_start[:-1])
    usable &= ~problem.option_colocated & ~problem.option_apart
    cuts = width == -(-whole // parts) if uneven else whole % width == 0
    named = np.where(whole > 0, cuts, first) & np.isfinite(value)
    return np.asarray(named & usable[problem.block_option])


def asked(problem: Problem, choices: NodeChoices) -> tuple[Floats, Floats]:
    """[Q, C + M] seconds and bytes that each choice asks of every rank wherever its blocks are, and [H, C + M] what
    each block asks of every rank of its site."""
    blocks = choices.block
    world = problem.is_world_wide[blocks]
    ranks = np.array([int(problem.sites_of(block).sizes[0]) for block in blocks.tolist()])
    share = shares_at(problem.block_rows[blocks], ranks, 0 * ranks, problem.block_copies[blocks])
    share[problem.block_replicated[blocks] | problem.is_on_rank[blocks]] = 1.0
    load = problem.fixed[0, blocks] + problem.by_rows[0, blocks] * share[:, None]
    size = problem.bytes_fixed[0, blocks] + problem.bytes_by_rows[0, blocks] * share[:, None]
    placed = np.concatenate([load, size], axis=1)
    wide = placed * world[:, None]
    wide[:, : load.shape[1]] += problem.everywhere[0, blocks]
    of_choice = np.zeros((len(choices.of_class), placed.shape[1]))
    np.add.at(of_choice, choices.choice, wide * choices.count[:, None])
    return of_choice, np.asarray(placed * ~world[:, None])


def instances_of_ranks(problem: Problem) -> Ints:
    """[C + M, W] the instance of each resource, and the pool of each memory, of every rank."""
    return np.concatenate([problem.resource_of_rank, problem.pool_of_rank])


def ranks_sharing(problem: Problem) -> Ints:
    """[C + M] ranks that share an instance of each resource and a pool of each memory, at most."""
    return np.array([np.bincount(of).max() for of in instances_of_ranks(problem)])


def weighted(variables: "list[mathopt.Variable]", weights: Floats) -> "list[mathopt.LinearTerm]":
    """The terms of a sum whose `weights` are not 0."""
    return [float(weights[at]) * variables[at] for at in np.flatnonzero(weights).tolist()]


def dominant(rows: Floats, stage: Ints) -> Ints:
    """Of the rows [C, n] those that no other one of the same `stage` [C] is at least as high as everywhere; of equal
    ones the first."""
    kept = list[int]()
    for row in np.lexsort((np.arange(len(rows)), -rows.sum(axis=1))).tolist():
        if not any(stage[other] == stage[row] and (rows[other] >= rows[row]).all() for other in kept):
            kept.append(row)
    return np.array(sorted(kept), dtype=np.int64)
