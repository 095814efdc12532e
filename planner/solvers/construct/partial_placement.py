"""A placement that grows block by block: what has a place so far, what that loads, and where tables may still go."""

from dataclasses import dataclass

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.load_state import (
    LoadState,
    load_state,
    place_block,
    place_everywhere,
    place_on_groups,
    place_world,
)
from planner.problem.numbers import Floats, Ints
from planner.problem.placement import Placement
from planner.problem.sites import NOWHERE
from planner.solvers.construct.capacity_regions import OpenRanks, TableUnit


@dataclass(frozen=True)
class Snapshot:
    """A partial placement as it was at one time, to go back to."""

    state: LoadState
    open_ranks: OpenRanks
    blocks: int
    """How many blocks had a place."""


class PartialPlacement:
    """Blocks with their places so far, the loads that follow from them, and the ranks that are open to tables."""

    def __init__(self, problem: Problem, preplaced: Placement | None, spare: Floats | None) -> None:
        """`preplaced` blocks have their places already; of each tier's pools `spare` [M] bytes are kept free."""
        self.problem = problem
        self.state = LoadState(problem) if preplaced is None else load_state(problem, preplaced)
        self._spare = np.zeros((len(problem.pool_capacity), 1)) if spare is None else spare[:, None]
        self.state.free -= self._spare
        self._blocks: list[int] = [] if preplaced is None else preplaced.item_block.tolist()
        self._places: list[int] = [] if preplaced is None else preplaced.item_place.tolist()
        self.open_ranks = OpenRanks(problem, [])

    def taken_by(self, option: int) -> list[int]:
        """Return the places of an option's blocks so far."""
        of = self.problem.block_option
        return [place for block, place in zip(self._blocks, self._places, strict=True) if of[block] == option]

    def charge_everywhere(self, blocks: Ints) -> None:
        """Charge what all blocks that are to be placed cost every rank, and give the world-wide ones their place."""
        place_everywhere(self.problem, self.state, blocks)
        world_wide = blocks[self.problem.is_world_wide[blocks]]
        place_world(self.problem, self.state, world_wide)
        for block in world_wide.tolist():
            self._record(block, NOWHERE)

    def confine(self, units: list[TableUnit]) -> None:
        """Keep the tables of units to the ranks that they may use, beside the blocks that are placed already."""
        self.open_ranks = OpenRanks(self.problem, units)
        if not units:
            return
        for block, place in zip(self._blocks, self._places, strict=True):
            if not self.problem.is_world_wide[block]:
                self.open_ranks.take(block, self.problem.sites_of(block).members(place))

    def put(self, block: int, place: int, ranks: Ints) -> None:
        """Give a block its place, which are these ranks."""
        place_block(self.problem, self.state, block, place)
        self._record(block, place)
        self.open_ranks.take(block, ranks)

    def put_on_different_ranks(self, blocks: list[int], ranks: list[int], load: Floats, size: Floats) -> None:
        """Give blocks of unconfined tables a rank each, all different: they take `load` [C, n] and `size` [M, n]."""
        more_load, more_size = np.zeros_like(self.state.load), np.zeros_like(self.state.free)
        more_load[:, ranks], more_size[:, ranks] = load, size
        self.state.add(more_load, more_size, slice(0, self.problem.world))
        self._blocks += blocks
        self._places += ranks

    def put_on_sites(self, blocks: Ints, sites: Ints) -> None:
        """Give group-wide blocks of unconfined tables their sites."""
        place_on_groups(self.problem, self.state, blocks, sites)
        self._blocks += blocks.tolist()
        self._places += sites.tolist()

    def snapshot(self) -> Snapshot:
        """Return the placement as it is now."""
        return Snapshot(self.state.copy(), self.open_ranks.copy(), len(self._blocks))

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to what the placement was; a snapshot serves once."""
        self.state, self.open_ranks = snapshot.state, snapshot.open_ranks
        del self._blocks[snapshot.blocks :], self._places[snapshot.blocks :]

    def finished(self) -> tuple[Placement, LoadState]:
        """Return the placement in order of its blocks, with its loads and all free memory."""
        order = np.argsort(self._blocks, kind="stable")
        self.state.free += self._spare
        return Placement(np.array(self._blocks)[order], np.array(self._places)[order]), self.state

    def _record(self, block: int, place: int) -> None:
        self._blocks.append(block)
        self._places.append(place)
