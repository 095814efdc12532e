"""Random complete placements, and what every placement must keep."""

import functools
from dataclasses import replace

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.load_state import load_state
from planner.problem.numbers import Ints
from planner.problem.placement import Placement
from tests.oracles.instances import tiny_instance


def random_blocks(problem: Problem, option: int, random: np.random.Generator) -> list[int]:
    """Block types that make up the option: of a free one, some tiling; widths that tile nothing are drawn again."""
    types = np.arange(problem.block_start[option], problem.block_start[option + 1])
    whole = int(problem.option_units[option])
    if not whole:
        return np.repeat(types, problem.block_count[types]).tolist()
    while True:
        blocks: list[int] = []
        left = whole
        while left and len(fitting := types[problem.block_units[types] <= left]):
            blocks.append(int(random.choice(fitting)))
            left -= int(problem.block_units[blocks[-1]])
        if not left:
            return blocks


def random_placement(problem: Problem, random: np.random.Generator, *, legal: bool = False) -> Placement:
    """Some option of each table and some place for each of its blocks, whether or not it fits.

    A `legal` one keeps to the kinds that are allowed and to the ties of options; tables without such a place are
    the caller's to avoid.
    """
    blocks: list[int] = []
    places: list[int] = []
    for table in range(problem.tables):
        while True:
            option = int(random.integers(*problem.option_start[table : table + 2]))
            drawn = random_blocks(problem, option, random)
            where = [_random_place(problem, block, random, legal=legal) for block in drawn]
            if not legal or (None not in where and _is_tied_right(problem, option, where)):
                break
        blocks += drawn
        places += [-1 if place is None else place for place in where]
    return Placement(np.array(blocks), np.array(places))


def random_placements(problem: Problem, count: int = 5) -> list[Placement]:
    """Some placements, whether or not they fit; the same ones every time."""
    random = np.random.default_rng(problem.tables)
    return [random_placement(problem, random) for _ in range(count)]


def _random_place(problem: Problem, block: int, random: np.random.Generator, *, legal: bool) -> int | None:
    """None where no place is legal."""
    allowed = problem.allowed[:, block] if legal else np.ones(problem.kinds, dtype=bool)
    sites = problem.sites[problem.block_extent[block]]
    if sites.reach == "world":
        where = np.array([-1] if allowed.all() else [])
    else:
        where = np.unique(sites.of_rank[allowed[problem.kind_of_rank]])
    return int(random.choice(where)) if len(where) else None


def _is_tied_right(problem: Problem, option: int, places: list[int | None]) -> bool:
    nodes = {int(problem.node_of_rank[place]) for place in places if place is not None}
    return not problem.option_colocated[option] or (len(nodes) == 1 and len(set(places)) == len(places))


@functools.cache
def tiny_placement(seed: int) -> tuple[Problem, Placement] | None:
    """A tiny problem and a random placement that is legal and fits; None where some tables have none."""
    problem = tiny_instance(seed).problem
    for option in range(len(problem.option_table)):
        types = slice(*problem.block_start[option : option + 2])
        if not problem.allowed[:, types].all() or problem.option_colocated[option]:
            return None
    placement = random_placement(problem, np.random.default_rng(seed), legal=True)
    return (problem, placement) if load_state(problem, placement).overflow_bytes() == 0 else None


def tiny_placements(seeds: int) -> list[tuple[Problem, Placement]]:
    """`tiny_placement` of so many seeds, where there is one."""
    return [placed for seed in range(seeds) if (placed := tiny_placement(seed)) is not None]


def just_large_enough(problem: Problem, placement: Placement) -> Problem:
    """The problem with memory pools that the placement, which must fit, fills up to a hundredth of a byte."""
    free = load_state(problem, placement).free
    capacity = []
    for m, pool in enumerate(problem.pool_of_rank):
        spare = np.zeros(len(problem.pool_capacity[m]))
        spare[pool] = free[m]
        capacity.append(problem.pool_capacity[m] - np.maximum(spare - 0.01, 0.0))
    return replace(problem, pool_capacity=tuple(capacity))


def faults(problem: Problem, placement: Placement) -> list[str]:
    """Tables that are not held by exactly one option, blocks that do not make it up, and places that are not legal."""
    found = []
    option_of_item = problem.block_option[placement.item_block]
    for table in range(problem.tables):
        options: Ints = np.unique(option_of_item[problem.option_table[option_of_item] == table])
        if len(options) != 1:
            found.append(f"table {table} has options {options}")
            continue
        option = int(options[0])
        blocks = placement.item_block[option_of_item == option]
        places = placement.item_place[option_of_item == option]
        types = np.flatnonzero(problem.block_option == option)
        if problem.option_units[option]:
            complete = problem.block_units[blocks].sum() == problem.option_units[option]
        else:
            complete = sorted(blocks.tolist()) == np.repeat(types, problem.block_count[types]).tolist()
        if not complete:
            found.append(f"table {table} is not complete")
        if not _is_tied_right(problem, option, places.tolist()):
            found.append(f"table {table} is not on different ranks of one node")
    for block, place in zip(placement.item_block.tolist(), placement.item_place.tolist(), strict=True):
        ranks = _ranks(problem, block, place)
        if (problem.sites[problem.block_extent[block]].reach == "world") != (place < 0) or not len(ranks):
            found.append(f"block {block} has no place, or one it does not need")
        elif not problem.allowed[problem.kind_of_rank[ranks], block].all():
            found.append(f"block {block} is on a kind that may not hold it")
        elif not problem.rank_sets[problem.table_rank_set[problem.table_of_block[block]], ranks].all():
            found.append(f"block {block} is outside the rank set of its table")
    return found + _faults_of_groups(problem, placement)


def _ranks(problem: Problem, block: int, place: int) -> Ints:
    """Return the ranks of a placed block."""
    sites = problem.sites[problem.block_extent[block]]
    return np.arange(problem.world) if sites.reach == "world" else np.flatnonzero(sites.of_rank == place)


def _faults_of_groups(problem: Problem, placement: Placement) -> list[str]:
    """Tables that are not together, or not apart."""
    ranks_of: dict[int, set[int]] = {table: set() for table in range(problem.tables)}
    for block, place in zip(placement.item_block.tolist(), placement.item_place.tolist(), strict=True):
        ranks = _ranks(problem, block, place)
        ranks_of[int(problem.table_of_block[block])] |= {int(rank) for rank in ranks}
    found = []
    for group in problem.affinity_groups:
        zones = {int(group.zone_of_rank[rank]) for table in group.tables.tolist() for rank in ranks_of[table]}
        if len(zones) > 1:
            found.append(f"tables {group.tables} are in zones {zones}")
    for group in problem.anti_affinity_groups:
        seen = [int(z) for t in group.tables.tolist() for z in {group.zone_of_rank[rank] for rank in ranks_of[t]}]
        if len(seen) > len(set(seen)):
            found.append(f"tables {group.tables} share a zone")
    return found
