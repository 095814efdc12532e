"""The variables of the integer programme: which option a table takes, and how many of a block are at a site."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.numbers import Bools, Floats, Ints
from planner.problem.sites import NOWHERE

if TYPE_CHECKING:
    from ortools.math_opt.python import mathopt

COUNT, EVERYWHERE = "count", "all"
"""The first word of a count's name, and the last one of a block that is on all ranks."""


@dataclass(frozen=True)
class Labels:
    """What tables, options, blocks, stages, columns and memories are called in a programme."""

    tables: Sequence[str]
    """[T]"""
    options: Sequence[str]
    """[O] unlike within a table."""
    blocks: Sequence[str]
    """[B] unlike within an option."""
    stages: Sequence[str]
    """[S]"""
    columns: Sequence[str]
    """[C]"""
    memories: Sequence[str]
    """[M]"""

    @classmethod
    def numbered(cls, problem: Problem) -> "Labels":
        """Their numbers."""
        sizes = (
            problem.tables,
            len(problem.option_table),
            len(problem.block_option),
            len(problem.stage_constants),
            len(problem.stage_of_column),
            len(problem.pool_capacity),
        )
        return cls(*([str(number) for number in range(size)] for size in sizes))


def _places(problem: Problem) -> list[Ints]:
    """B arrays of the sites where each block may be; those of blocks alike in this are one and the same."""
    places, known = list[Ints](), dict[tuple[int, int, bytes], Ints]()
    sets, allowed = problem.table_rank_set[problem.table_of_block].tolist(), np.ascontiguousarray(problem.allowed.T)
    for number, (extent, rank_set) in enumerate(zip(problem.block_extent.tolist(), sets, strict=True)):
        alike = extent, rank_set, allowed[number].tobytes()
        if alike not in known:
            may_hold, sites = problem.may_hold(number), problem.sites[extent]
            is_wide = sites.reach == "world"
            known[alike] = np.full(int(may_hold.all()), NOWHERE) if is_wide else np.flatnonzero(sites.all(may_hold))
        places.append(known[alike])
    return places


def _held(problem: Problem, counts: Ints) -> Bools:
    """[O] whether every block that the option needs has a site, where blocks have so many [B]."""
    start = problem.block_start[:-1]
    is_any, is_every = np.add.reduceat(counts, start) > 0, np.minimum.reduceat(counts, start) > 0
    return np.where(problem.option_units > 0, is_any, is_every)


@dataclass(frozen=True)
class Choices:
    """Where blocks may be, and which options can be held at all. V pairs of a block and a site, by block and site."""

    problem: Problem
    option: Bools
    """[O] whether every block that the option needs has a site."""
    block: Ints
    """[V]"""
    place: Ints
    """[V] number of the site; -1 for world-wide blocks."""

    @classmethod
    def of(cls, problem: Problem) -> "Choices":
        """All that kinds of ranks and rank sets leave."""
        places = _places(problem)
        counts = np.array([len(each) for each in places], dtype=np.int64)
        option = _held(problem, counts)
        block = np.repeat(np.arange(len(counts)), counts)
        kept = option[problem.block_option[block]]
        place = np.concatenate([np.zeros(0, dtype=np.int64), *places])
        return cls(problem, option, block[kept], place[kept])

    @staticmethod
    def size_of(problem: Problem) -> int:
        """Options and pairs of a problem, which are not written down: the integer variables of the programme, groups of
        tables aside."""
        counts = np.array([len(each) for each in _places(problem)], dtype=np.int64)
        option = _held(problem, counts)
        return int(option.sum()) + int(counts[option[problem.block_option]].sum())

    @property
    def most_blocks(self) -> int:
        """Blocks that a placement has at most."""
        problem = self.problem
        start = problem.block_start[:-1]
        fixed = np.add.reduceat(problem.block_count, start)
        narrowest = np.maximum(np.minimum.reduceat(problem.block_units, start), 1)
        of_option = np.where(problem.option_units > 0, problem.option_units // narrowest, fixed)
        return int(np.maximum.reduceat(of_option, problem.option_start[:-1]).sum())

    @cached_property
    def most(self) -> Ints:
        """[V] how often the block can be at the site at most."""
        problem, option = self.problem, self.problem.block_option[self.block]
        tiled = problem.option_units[option] // np.maximum(problem.block_units[self.block], 1)
        return np.asarray(np.where(problem.option_units[option] > 0, tiled, problem.block_count[self.block]))

    @cached_property
    def share(self) -> Floats:
        """[V] the part of its option that the block is: those of a whole option sum to one."""
        problem, option = self.problem, self.problem.block_option[self.block]
        taken = np.bincount(problem.block_option, weights=problem.block_count, minlength=len(problem.option_table))
        tiled = problem.block_units[self.block] / np.maximum(problem.option_units[option], 1)
        return np.asarray(np.where(problem.option_units[option] > 0, tiled, 1 / taken[option]))

    def of_option(self, option: int) -> slice:
        """The pairs of an option's blocks."""
        return self._of_blocks(*self.problem.block_start[option : option + 2].tolist())

    def of_table(self, table: int) -> slice:
        """The pairs of a table's blocks."""
        return self._of_blocks(*self.problem.table_block_start[table : table + 2].tolist())

    def of_block(self, block: int) -> slice:
        """The pairs of a block."""
        return self._of_blocks(block, block + 1)

    def _of_blocks(self, first: int, last: int) -> slice:
        return slice(*np.searchsorted(self.block, [first, last]).tolist())

    def members(self, pair: int) -> Ints:
        """The ranks of a pair's site."""
        return self.problem.sites_of(int(self.block[pair])).members(int(self.place[pair]))


@dataclass(frozen=True)
class Variables:
    """The variables of one model."""

    choices: Choices
    option: "dict[int, mathopt.Variable]"
    """1 where the table takes the option, else 0; of options that can be held."""
    count: "list[mathopt.Variable]"
    """[V] how many of the block are at the site."""
    stage: "list[mathopt.Variable]"
    """[S] how long the stage lasts beyond its constant, in units of time of the programme."""

    @classmethod
    def of(cls, model: "mathopt.Model", choices: Choices, labels: Labels) -> "Variables":
        """New variables of a model, each with a name that says what it counts."""
        problem = choices.problem
        option = {
            o: model.add_binary_variable(name=f"option:{labels.tables[problem.option_table[o]]}:{labels.options[o]}")
            for o in np.flatnonzero(choices.option).tolist()
        }
        count = []
        for block, place, most in zip(
            choices.block.tolist(), choices.place.tolist(), choices.most.tolist(), strict=True
        ):
            o = int(problem.block_option[block])
            site = EVERYWHERE if place == NOWHERE else str(place)
            where = f"{labels.tables[problem.option_table[o]]}:{labels.options[o]}:{labels.blocks[block]}:{site}"
            count.append(model.add_integer_variable(lb=0.0, ub=most, name=f"{COUNT}:{where}"))
        stage = [model.add_variable(lb=0.0, name=f"seconds:{name}") for name in labels.stages]
        return cls(choices, option, count, stage)
