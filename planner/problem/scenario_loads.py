"""What a placement takes in each of many scenarios, and what moves and swaps of blocks of single ranks would make of
the longest steps: all scenarios and all ranks at once.

Sizes: N scenarios, C columns (a resource in a stage), W ranks, K kinds of rank, D block types that may move. As in
`planner.problem.load_state`, the load of an instance stands at each of its ranks.
"""

from dataclasses import dataclass

import numpy as np

from planner.problem.numbers import Bools, Floats, Ints

NEAR = 1e-3
"""Share by which a load may be below the longest of its stage and still count as binding."""


@dataclass(frozen=True)
class ScenarioCosts:
    """Costs that differ from one scenario to another."""

    stage_of_column: Ints
    """[C]"""
    resource_of_rank: Ints
    """[C, W] instance of the column's resource that the rank uses."""
    kind_of_rank: Ints
    """[W]"""
    constants: Floats
    """[N] seconds of all stages, whatever is placed."""
    least_s: Floats
    """[N] no step is shorter."""
    blocks: Ints
    """[D] ascending."""
    whole_load: Floats
    """[N, K, D, C] load of a rank that holds the block, at usual speed."""
    slowness: Floats
    """[N, W] how many times as long the devices take."""
    is_device: Bools
    """[C] columns that this is of."""


def quantile_index(percent: float, count: int) -> int:
    """The place, in ascending order from 0, of the least of `count` values that so many per cent of them do not
    exceed."""
    return min(max(int(np.ceil(round(percent * count / 100, 9))) - 1, 0), count - 1)


def quantile(values: Floats, percent: float) -> float:
    """The least of some values that so many per cent of them do not exceed."""
    place = quantile_index(percent, len(values))
    return float(np.partition(values, place)[place])


class ScenarioLoads:
    """Loads [N, C, W] of some scenarios as blocks of single ranks move, judged by the mean of the `longest` steps."""

    def __init__(self, costs: ScenarioCosts, load: Floats, longest: int) -> None:
        self._costs, self.load, self._longest = costs, load, longest
        self._order: Ints = np.argsort(costs.stage_of_column, kind="stable")
        stages = costs.stage_of_column[self._order]
        self._starts: Ints = np.flatnonzero(np.concatenate([[True], stages[1:] != stages[:-1]]))

    def tail_s(self) -> float:
        """The mean of the longest steps."""
        return float(self._tails(self.load.max(axis=2, keepdims=True))[0])

    def binding(self) -> Bools:
        """[W] ranks that are the busiest in some column that binds a stage of some scenario."""
        columns = self.load.max(axis=2)
        of_stage = np.maximum.reduceat(columns[:, self._order], self._starts, axis=1)
        longest = np.empty_like(columns)
        lengths = np.diff(np.append(self._starts, len(self._order)))
        longest[:, self._order] = np.repeat(of_stage, lengths, axis=1)
        return np.asarray(((self.load >= longest[:, :, None] * (1 - NEAR)) & (self.load > 0)).any(axis=(0, 1)))

    def after_moves(self, block: int, rank: int) -> Floats:
        """[W] the mean of the longest steps if a block that is on `rank` were on each of the ranks."""
        held = self._held(np.array([block]), np.arange(len(self._costs.kind_of_rank)))
        rest = self.load - np.where(self._shares(rank), held[:, :, [rank]], 0.0)
        return self._tails(np.maximum(self._others(rest), rest + held))

    def after_swaps(self, block: int, rank: int, blocks: Ints, ranks: Ints) -> Floats:
        """[n] the same if a block on `rank` changed places with each of `blocks` [n] on other `ranks` [n]."""
        own, here = np.array([block]), np.array([rank])
        comes = self._held(blocks, here) - self._held(own, here)
        goes = self._held(own, ranks) - self._held(blocks, ranks)
        same = (self._costs.resource_of_rank[:, ranks] == self._costs.resource_of_rank[:, [rank]])[None]
        beside = self._others(np.where(self._shares(rank), -np.inf, self.load))[:, :, ranks]
        peak = np.maximum(beside, self.load[:, :, [rank]] + comes + np.where(same, goes, 0.0))
        return self._tails(np.maximum(peak, self.load[:, :, ranks] + goes + np.where(same, comes, 0.0)))

    def move(self, block: int, rank: int, to: int) -> None:
        """Let a block change its rank."""
        for where, sign in ((rank, -1.0), (to, 1.0)):
            held = self._held(np.array([block]), np.array([where]))
            self.load = self.load + np.where(self._shares(where), sign * held, 0.0)

    def _shares(self, rank: int) -> Bools:
        """[1, C, W] ranks that use the same instance as `rank`."""
        resource = self._costs.resource_of_rank
        return np.asarray(resource == resource[:, [rank]])[None]

    def _held(self, blocks: Ints, ranks: Ints) -> Floats:
        """[N, C, n] loads of blocks at ranks; one of either stands for n."""
        costs = self._costs
        at, ranks = np.broadcast_arrays(np.searchsorted(costs.blocks, blocks), ranks)
        load = costs.whole_load[:, costs.kind_of_rank[ranks], at].transpose(0, 2, 1)
        return np.where(costs.is_device[:, None], load * costs.slowness[:, None, ranks], load)

    def _others(self, load: Floats) -> Floats:
        """[N, C, W] of loads of this shape, the longest on an instance that the rank does not use."""
        resource, fullest = self._costs.resource_of_rank, load.argmax(axis=2)
        every = np.arange(len(resource))
        of_fullest = resource[None] == resource[every, fullest][:, :, None]
        second = np.where(of_fullest, -np.inf, load).max(axis=2)
        most = np.take_along_axis(load, fullest[:, :, None], axis=2)
        return np.where(of_fullest, second[:, :, None], most)

    def _tails(self, peak: Floats) -> Floats:
        """[n] the mean of the longest steps, of the longest load [N, C, n] of each column."""
        stages = np.maximum.reduceat(peak[:, self._order], self._starts, axis=1)
        steps = np.maximum(stages.sum(axis=1) + self._costs.constants[:, None], self._costs.least_s[:, None])
        first = len(steps) - self._longest
        return np.asarray(np.partition(steps, first, axis=0)[first:].mean(axis=0))
