"""Ruin and recreate: a few tables are taken out and put back one after the other, each in its best way.

Judged against a target (`target`) that falls with every better plan. Memory may be exceeded on the way, at a penalty,
so that tables can change their tiers and places together. This changes how tables are cut, which other moves hardly do
(Schrimpf, Schneider, Stamm-Wilbrandt and Dueck, J. Comput. Phys. 159, 2000). Where memory is scarce, a few large tables
may have options that cost far more than others, since nobody made room for them: those that lose most by theirs are
taken out more often (worst removal: Ropke and Pisinger, Transp. Sci. 40, 2006).
"""

import random
from collections.abc import Callable

import numpy as np

from planner.certificates.multipliers import Multipliers
from planner.problem.arrays import Problem
from planner.problem.load_state import LoadState, load_state
from planner.problem.numbers import Bools, Floats
from planner.problem.placement import Placement
from planner.problem.rounding import ROUNDING_BYTES
from planner.solvers.improve.insertion import Insertion, PlacedBlocks
from planner.solvers.improve.target import Target
from planner.solvers.improve.wide import WideBlocks

MOST_RUINED = 4
"""Tables that are taken out at once."""
FROM_OVER, NEARBY, HEAVIEST_FIRST = 0.8, 0.5, 0.7
"""Chances: to begin on a rank above its target, to go on where a chosen table is, to put heavy ones in first."""
DEAREST = 0.5
"""Where bytes have a price, the chance that a table is among them which costs more, at the prices, than it need."""
COOLING, HOT_COOLING = 0.01, 0.1
"""Temperature at the end of a run over that at its beginning; the latter of hot passes, which find nothing below."""
STEP_DOWN = 0.002
"""Relative distance of the target below the best plan."""
RUIN_WORK = 150_000
"""Tables x ranks x columns up to which tables are taken out one by one."""
RUIN_PRICED, FEWEST_STEPS, MOST_STEPS = 30_000, 50, 1_500
"""Columns of options that are priced in one pass, and limits on how often tables are taken out in it."""
STEPS_PER_TABLE = 5
"""Another such limit."""
LONGER_PASSES = 3
"""How often a pass may take twice the steps of the one before; four times as many, where tables are few."""
TEMPERATURES = (1e-3, 1e-4, 1e-2)
"""Temperatures of passes, in turn."""
HOT, FEW_TABLES = 3e-2, 3
"""Temperature of all passes but the first, where ranks hold so many tables at most, mostly one large shard each: from
one set of these to another one the way leads through several worse plans."""
HOT_DOUBLINGS, MOST_HOT_DOUBLINGS = 3, 5
"""How often the steps of a hot pass are doubled, beside its number, and how often at most."""


def may_ruin(problem: Problem) -> bool:
    """Whether the problem is small enough to take tables out and put them back one by one."""
    return problem.tables * problem.world * len(problem.stage_of_column) <= RUIN_WORK


def is_hot(problem: Problem, number: int) -> bool:
    """Whether the pass of that number, from 0, is hot."""
    return number > 0 and problem.tables <= FEW_TABLES * problem.world


def temperature_of(problem: Problem, number: int) -> float:
    """Return the temperature of a pass, from 0."""
    return HOT if is_hot(problem, number) else TEMPERATURES[number % len(TEMPERATURES)]


def ruin_steps(problem: Problem, number: int) -> int:
    """Return the steps of ruin and recreate in a pass: few in the first one, more in each that follows."""
    columns_of_table = len(problem.option_table) / problem.tables * len(problem.stage_of_column)
    most = int(np.clip(RUIN_PRICED / columns_of_table, FEWEST_STEPS, MOST_STEPS))
    later = min(number, LONGER_PASSES)
    doublings = min(number + HOT_DOUBLINGS, MOST_HOT_DOUBLINGS) if is_hot(problem, number) else 2 * later
    return min(most << later, STEPS_PER_TABLE * problem.tables << doublings)


class Ruin:
    """One placement under repair; deterministic for its seed."""

    def __init__(
        self,
        problem: Problem,
        multipliers: Multipliers,
        usable: Bools,
        stage_seconds: Floats,
        seed: int,
        movable_tables: Bools | None = None,
        wide: WideBlocks | None = None,
    ) -> None:
        """Aims at the `stage_seconds` [S] at the `multipliers`; `usable` [B] says which choices are worth weighing.
        `wide` are the problem's wide blocks, where somebody knows them already.

        Tables outside `movable_tables` [T], and those that a policy confines or groups, stay as they are.
        """
        self._problem = problem
        everywhere: Bools = np.asarray(problem.rank_sets.all(axis=1))
        may_move = ~problem.grouped & everywhere[problem.table_rank_set]
        if movable_tables is not None:
            may_move &= movable_tables
        self._movable: list[int] = np.flatnonzero(may_move).tolist()
        self._may_move: list[bool] = may_move.tolist()
        self._random = random.Random(seed)
        self._target = Target(problem, multipliers, stage_seconds)
        self._insertion = Insertion(problem, self._target, usable, wide)
        self._state = LoadState(problem)
        self._blocks_of: list[PlacedBlocks] = [[] for _ in range(problem.tables)]
        self._is_scarce = bool(multipliers.byte.any())
        self._excess: list[float] = [0.0] * problem.tables
        self._tables_on: list[set[int]] = [set() for _ in range(problem.world)]
        self._members: dict[tuple[int, int], list[int]] = {}
        """Ranks of the sites (extent, place) that were asked for."""
        self.best_s = np.inf
        self._best: Placement | None = None
        self._cheapest: tuple[float, float, list[PlacedBlocks]] | None = None

    def best(self) -> Placement | None:
        """Return the best placement so far that fits into memory."""
        return self._best

    def promising(self) -> tuple[Placement, float] | None:
        """Return, of the placements of the last run that fit, the one of the least value, and the step it would take
        with all resources loaded evenly; None where none was met."""
        if self._cheapest is None:
            return None
        _, even_s, placed_blocks = self._cheapest
        return _placement(placed_blocks), even_s

    def start_from(self, placement: Placement) -> None:
        """Hold this placement."""
        problem = self._problem
        self._state = load_state(problem, placement)
        for table, placed_blocks in enumerate(self._blocks_of):
            self._set_blocks(table, [], placed_blocks)
        blocks_of: list[PlacedBlocks] = [[] for _ in range(problem.tables)]
        of_item = problem.option_table[problem.block_option[placement.item_block]].tolist()
        pairs = zip(placement.item_block.tolist(), placement.item_place.tolist(), strict=True)
        for table, pair in zip(of_item, pairs, strict=True):
            blocks_of[table].append(pair)
        for table, placed_blocks in enumerate(blocks_of):
            self._set_blocks(table, placed_blocks, [])
        self._note()

    def build(self) -> None:
        """Put in all tables that are not there, the heaviest first; some stay out if there is no place for them."""
        for table in sorted(range(self._problem.tables), key=self._lightness):
            offer = None if self._blocks_of[table] else self._insertion.best(self._state, table)
            if offer is not None:
                self._insertion.charge(self._state, offer.blocks, 1.0)
                self._set_blocks(table, offer.blocks, [])
        self._note()

    def run(self, steps: int, temperature: float, is_over: Callable[[], bool], cooling: float = COOLING) -> None:
        """Ruin and recreate so many times; worse states are taken with a chance that the temperature governs.

        It is the growth, as a share of the step, at which the chance is 1 / e; it falls while the run goes on, to the
        share `cooling` of what it was.
        """
        value, self._cheapest = self._target.value(self._state), None
        for step in range(steps if self._movable else 0):
            heat = temperature * cooling ** (step / steps) * float(self._target.aim.max())
            value = self._recreate(self._ruined(), value, heat * self._random.expovariate(1.0))
            if self._note():
                value, self._cheapest = self._target.value(self._state), None
            if self._cheapest is None or value < self._cheapest[0]:
                self._note_cheapest(value)
            if is_over():
                break

    def _note_cheapest(self, value: float) -> None:
        """Remember the state as the one of the least value, if it is complete and fits."""
        if self._state.free.min() >= -ROUNDING_BYTES and all(self._blocks_of):
            self._cheapest = value, self._target.even_s(self._state), list(self._blocks_of)

    def _ruined(self) -> list[int]:
        """Draw tables to take out, in the order to put them back: one or two of a rank, others near by or anywhere."""
        problem, draw = self._problem, self._random
        over = self._target.over(self._state).tolist() if draw.random() < FROM_OVER else []
        rank = draw.choice(over) if over else draw.randrange(problem.world)
        wanted = min(draw.randint(1, MOST_RUINED), len(self._movable))
        here = [table for table in sorted(self._tables_on[rank]) if self._may_move[table]]
        draw.shuffle(here)
        chosen = here[: min(wanted, 2)]
        if self._is_scarce and draw.random() < DEAREST and any(self._excess):
            dear = draw.choices(range(problem.tables), self._excess)[0]
            if dear not in chosen:
                chosen = [dear, *chosen[: wanted - 1]]
        while len(chosen) < wanted:
            near = draw.choice(self._movable)
            if chosen and draw.random() < NEARBY:
                block, place = draw.choice(self._blocks_of[draw.choice(chosen)])
                if problem.is_on_rank[block]:
                    near = draw.choice(sorted(self._tables_on[place]))
            if near not in chosen and self._may_move[near]:
                chosen.append(near)
        if draw.random() < HEAVIEST_FIRST:
            return sorted(chosen, key=self._lightness)
        draw.shuffle(chosen)
        return chosen

    def _lightness(self, table: int) -> tuple[float, int]:
        return -self._insertion.least(table), table

    def _recreate(self, tables: list[int], value: float, tolerance: float) -> float:
        """Take the tables out and put them back in this order; the new value, or the old one with nothing changed."""
        state = self._state
        load, free = state.load.copy(), state.free.copy()
        for table in tables:
            self._insertion.charge(state, self._blocks_of[table], -1.0)
        new: list[PlacedBlocks] = []
        for table in tables:
            offer = self._insertion.best(state, table)
            if offer is None:
                break
            self._insertion.charge(state, offer.blocks, 1.0)
            new.append(offer.blocks)
        recreated_value = self._target.value(state) if len(new) == len(tables) else np.inf
        if recreated_value > value + tolerance:
            state.load[:], state.free[:] = load, free
            return value
        for table, placed_blocks in zip(tables, new, strict=True):
            self._set_blocks(table, placed_blocks, self._blocks_of[table])
        return recreated_value

    def _set_blocks(self, table: int, placed_blocks: PlacedBlocks, old: PlacedBlocks) -> None:
        for rank in self._ranks_of(old):
            self._tables_on[rank].discard(table)
        for rank in self._ranks_of(placed_blocks):
            self._tables_on[rank].add(table)
        self._blocks_of[table] = placed_blocks
        if self._is_scarce and self._may_move[table]:
            self._excess[table] = self._insertion.excess(table, placed_blocks)

    def _ranks_of(self, placed_blocks: PlacedBlocks) -> list[int]:
        """Return the ranks of a table's blocks, world-wide ones aside."""
        problem = self._problem
        ranks: list[int] = []
        for block, place in placed_blocks:
            if not problem.is_world_wide[block]:
                site = int(problem.block_extent[block]), place
                if site not in self._members:
                    self._members[site] = problem.sites_of(block).members(place).tolist()
                ranks += self._members[site]
        return ranks

    def _note(self) -> bool:
        """Remember the state if it is complete, fits and is the best one; and aim below it."""
        step_s = self._state.step_s()
        is_better = step_s < self.best_s * (1 - 1e-9) and self._state.free.min() >= -ROUNDING_BYTES
        if not is_better or not all(self._blocks_of):
            return False
        self.best_s, self._best = step_s, _placement(self._blocks_of)
        self._target.lower(self._state.stage_seconds() * (1 - STEP_DOWN))
        return True


def _placement(blocks_of: list[PlacedBlocks]) -> Placement:
    pairs = np.array([pair for placed_blocks in blocks_of for pair in placed_blocks], dtype=np.int64)
    by_block = np.lexsort((pairs[:, 1], pairs[:, 0]))
    return Placement(pairs[by_block, 0], pairs[by_block, 1])
