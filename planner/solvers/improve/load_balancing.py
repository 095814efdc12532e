"""Load balancing: ranks above an aim exchange a few blocks with whichever other rank suits best, and the aim goes down.

The neighbourhood is that of cyclic exchanges of length two between machines (Frangioni, Necciari and Scutellà, J. Comb.
Optim. 8, 2004), with sets of several blocks on either side.
"""

import numpy as np

from planner.problem.numbers import Floats
from planner.solvers.bound.load_steps import HEIGHTS, NEAR, level_below
from planner.solvers.improve.exchanges import Aim, ExchangeRound
from planner.solvers.improve.state import SearchState

CRITICAL = 0.9
"""Share of its stage's time that the fullest resource of a column has where a round looks at the column."""
FIRST_STEP, LAST_STEP = 0.2, 0.005
"""Share of the way from a stage's longest to its mean that is aimed at first; less where it is not reached, and in the
end nothing."""
OVER = 0.4
"""Share of the ranks that are above an aim at most: the next one is lower."""
SLOW = 0.1
"""Share of what is above the aim that a round must bring down, or else the aim is too low."""
BLAMED = 0.1
"""Columns with more than this share of what is left above are those whose aim is too low."""
BALANCED_AT_ONCE = 256
"""Ranks, the fullest, that look for an exchange in one round."""
DEAR = 3.0
"""How much more must be gained by dividing or spreading a table than that costs all ranks."""
WORTH = 1e-4
"""Share of what the aim shortens the step by, above which an exchange is worth making."""


class LoadBalancer:
    """Rounds of exchanges towards ever lower aims."""

    def __init__(self, state: SearchState) -> None:
        self._shared = state
        problem = state.problem
        self._steps: Floats = np.full(len(problem.stage_constants), FIRST_STEP)
        self._steps[np.setdiff1d(np.arange(len(self._steps)), problem.stage_of_column)] = 0.0
        self._target_s: Floats | None = None
        self._least_s: Floats = np.zeros(len(self._steps))

    def balance(self) -> bool:
        """Make one round of exchanges that bring ranks below an aim; return False once no lower aim is reached."""
        items, state, stage = self._shared.items, self._shared.loads, self._shared.problem.stage_of_column
        if not len(items.rank) or (self._steps <= LAST_STEP).all():
            return False
        aim = self._aim()
        if not len(aim.columns) or (self._steps <= LAST_STEP).all():  # the aim gives up stages that no level helps
            return False
        over = np.maximum(state.load[aim.columns] - aim.load[:, None], 0.0) * aim.weight[:, None]
        gained = self._exchange(aim, over.sum(axis=0))
        left = np.maximum(state.load[aim.columns] - aim.load[:, None], 0.0) * aim.weight[:, None]
        if gained < SLOW * over.sum():
            for d in np.flatnonzero(left.sum(axis=1) > BLAMED * left.sum()):
                self._steps[stage[aim.columns[d]]] /= 2
            self._target_s = None
        elif not left.any():
            self._target_s = None
        self._shared.note()
        return True

    def _aim(self) -> Aim:
        """Return an aim for every stage, a part of the way from its longest resource to the mean; that of the round
        before, if there is still work to do."""
        problem, load, stage = self._shared.problem, self._shared.loads.load, self._shared.problem.stage_of_column
        peak, longest = load.max(axis=1), np.zeros(len(problem.stage_constants))
        np.maximum.at(longest, stage, peak)
        near = np.flatnonzero(peak >= np.maximum(CRITICAL * longest[stage], 1e-15))
        if self._target_s is None:
            mean, few = np.zeros(len(longest)), np.zeros(len(longest))
            np.maximum.at(mean, stage[near], load[near][:, problem.reach].mean(axis=1))
            np.maximum.at(few, stage[near], np.quantile(load[near][:, problem.reach], 1 - OVER, axis=1))
            levels = self._levels_below(longest)
            for of, level_s in levels.items():
                self._steps[of] *= level_s >= mean[of]
            self._target_s = longest - np.where(self._steps > LAST_STEP, self._steps, 0.0) * (longest - mean)
            self._target_s = np.minimum(np.maximum(self._target_s, few), longest)
            for of, level_s in levels.items():
                if self._steps[of] == FIRST_STEP:
                    self._target_s[of] = min(level_s, float(self._target_s[of]))
            on_level = [of for of, level_s in levels.items() if self._target_s[of] == level_s]
            self._least_s = np.where(self._steps > LAST_STEP, 0.0, longest)
            self._least_s[on_level] = self._target_s[on_level]
        gain_s = float(np.maximum(longest - self._target_s, 0.0).sum())
        excess = load[near] - self._target_s[stage[near], None]
        blocks = self._shared.block_of[self._shared.items.family, self._shared.items.units]
        columns: list[int] = []
        weight: list[float] = []
        for row, column in enumerate(near.tolist()):
            slack_s = 1e-6 * float(self._target_s[stage[column]])
            twin = np.flatnonzero((np.abs(excess[columns] - excess[row]) <= slack_s).all(axis=1))
            if len(twin):
                weight[twin[0]] += 1.0
            elif self._shared.block_load[:, blocks, column].any():
                columns.append(row)
                weight.append(1.0)
        kept = near[columns]
        target_s = self._target_s[stage[kept]]
        reach = np.maximum(longest[stage[kept]] - target_s, 1e-3 * target_s)
        return Aim(kept, np.array(weight), target_s * (1 + 1e-7), reach, gain_s, self._least_s)

    def _levels_below(self, longest: Floats) -> dict[int, float]:
        """Return, for stages that last `longest` [S] for a resource whose loads come in steps, the next level below."""
        problem, load = self._shared.problem, self._shared.loads.load
        stage, peak, level_of_stage = problem.stage_of_column, load.max(axis=1), {}
        for column in np.flatnonzero((peak == longest[stage]) & (self._shared.exchange_index.amount > 0)).tolist():
            for units in HEIGHTS:
                step_s = units * float(self._shared.exchange_index.amount[column])
                level_s = level_below(load[column, problem.reach], step_s, float(peak[column]) - step_s * 2 * NEAR)
                if level_s is not None:
                    level_of_stage[int(stage[column])] = level_s
                    break
        return level_of_stage

    def _exchange(self, aim: Aim, over: Floats) -> float:
        """Let each rank that is over the aim make its best exchange; return what is gained in seconds above the aim."""
        worth = DEAR * float(over.sum()) / max(aim.gain_s, 1e-15)
        effort = FIRST_STEP / float(self._steps[self._steps > LAST_STEP].min())
        shared = self._shared
        exchanges = ExchangeRound(
            shared.exchange_index, shared.items, shared.loads, shared.spare, aim, worth, effort, shared.random
        )
        worth_s = WORTH * aim.gain_s
        gained = 0.0
        fullest = np.argsort(-over, kind="stable")[:BALANCED_AT_ONCE]
        ranks = fullest[over[fullest] > worth_s].tolist()
        for number, rank in enumerate(ranks, start=1):
            if exchanges.free[rank]:
                gained += exchanges.improve(rank, worth_s, ranks[number:])
        if not exchanges.is_changed:
            return 0.0
        self._shared.replace(exchanges.items())
        self._shared.settle(np.array(exchanges.settled, dtype=np.int64))
        return gained
