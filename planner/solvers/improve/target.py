"""What a state costs against a target for every stage: multipliers below the target, penalties above it.

A resource below its target costs what the fluid relaxation charges for its seconds, so that a table is cut no finer
than it must be; where few tables share a rank, a little less when it is nearly full, so that holes stay large. Above
the target, and above a memory pool's capacity, penalties come on top.
"""

import numpy as np

from planner.certificates.multipliers import Multipliers
from planner.problem.arrays import Problem
from planner.problem.load_state import LoadState
from planner.problem.numbers import Floats, Ints
from planner.solvers.bound.cutting_planes import FluidSolution
from planner.solvers.bound.fluid import Fluid

LINEAR, QUADRATIC = 4.0, 100.0
"""The penalty for a share o above the target: so many times o, and o squared, times a resource's part of the stage."""
FULLNESS, CROWD = 0.1, 0.3
"""Seconds on a resource that is about to reach its target cost less by twice the first share, or by twice the second
over the tables per rank, if that is less."""
BYTE_FULLNESS = 0.4
"""Bytes of a pool that is about to be full cost less by twice this share, so that its holes stay large."""
EMPTY = 1e-3
"""Share of the step that a stage is taken to last at least."""


def target_seconds(fluid: Fluid, relaxed: FluidSolution, step_s: float) -> Floats:
    """Return stage times [S] that make up a step, each as long in proportion as in the relaxation."""
    constants = fluid.problem.stage_constants
    working = np.maximum(relaxed.stage_seconds - constants, 0.0)
    return np.asarray(constants + working * (step_s - constants.sum()) / max(float(working.sum()), 1e-15))


class Target:
    """Stage times to aim at, and what loads [C, W] and free bytes [M, W] of a `LoadState` cost, in seconds."""

    def __init__(self, problem: Problem, multipliers: Multipliers, stage_seconds: Floats) -> None:
        """Prices are those of a bound; `stage_seconds` [S] are aimed at."""
        self._problem = problem
        self._kind = problem.kind_of_rank
        self.weight: Floats = multipliers.weight[self._kind].T
        """[C, W] of one second."""
        self.byte: Floats = multipliers.byte[self._kind].T
        """[M, W] of one byte."""
        self._has_price = [bool(prices.any()) for prices in self.byte]
        """Of each memory, whether its bytes have one anywhere: else those that fit cost nothing."""
        self.fullness = min(FULLNESS, CROWD * problem.world / problem.tables)
        self._sharing: Floats = np.stack([np.bincount(of)[of] for of in problem.resource_of_rank]).astype(float)
        self._pool_sharing: Floats = np.stack([np.bincount(of)[of] for of in problem.pool_of_rank]).astype(float)
        pools = zip(problem.pool_of_rank, problem.pool_capacity, strict=True)
        self._room: Floats = np.stack([np.maximum(capacity, 1.0)[pool] for pool, capacity in pools])
        self._stage_seconds: Floats = np.full(len(problem.stage_constants), np.inf)
        self.lower(stage_seconds)

    def lower(self, stage_seconds: Floats) -> None:
        """Aim at these stage times [S] where they are below the present ones."""
        problem = self._problem
        self._stage_seconds = np.minimum(stage_seconds, self._stage_seconds)
        working = self._stage_seconds - problem.stage_constants
        working = np.maximum(working, max(EMPTY * float(working.sum()), 1e-15))
        aim = working[problem.stage_of_column][:, None]
        self.aim: Floats = aim
        """[C, 1] seconds, without the stage's constant."""
        self._price: Floats = self.weight * aim
        self._penalty: Floats = np.broadcast_to(aim, self._sharing.shape) * self._sharing / problem.world
        self._byte_penalty: Floats = self.byte * self._room + float(working.sum()) / problem.world

    def value(self, state: LoadState) -> float:
        """Return the value of the whole state, up to a constant."""
        cost = self._cost(state.load / self.aim, self._price, self._penalty) / self._sharing
        if not any(self._has_price) and state.free.min() >= 0:
            return float(cost.sum())
        return float(cost.sum() + (self._byte_cost(state.free) / self._pool_sharing).sum())

    def even_s(self, state: LoadState) -> float:
        """Return the seconds of the step at the duals of its resources: what it takes at least, however loads are
        balanced."""
        return float((self.weight * state.load / self._sharing).sum() + self._problem.stage_constants.sum())

    def over(self, state: LoadState) -> Ints:
        """Return the ranks that use a resource above its target or a pool above its capacity."""
        return np.flatnonzero((state.load > self.aim).any(axis=0) | (state.free < 0).any(axis=0))

    def fullness_of_ranks(self, state: LoadState) -> Floats:
        """Return the highest load of each rank [W], relative to its target."""
        return np.asarray((state.load / self.aim).max(axis=0))

    def growth(self, state: LoadState, load: Floats, ranks: Ints) -> Floats:
        """Return the growth [R, n] if each of the `ranks` took `load` [R or 1, n, C] more, memory aside."""
        if len(self.aim) == 1:
            loaded = (state.load[0, ranks] / self.aim[0])[:, None]
            prices, penalties = self._price[0, ranks][:, None], self._penalty[0, ranks][:, None]
            more = self._cost(loaded + load[..., 0] / self.aim[0], prices, penalties)
            return more - self._cost(loaded, prices, penalties)
        now = (state.load[:, ranks] / self.aim).T[:, None]
        price, penalty = self._price[:, ranks].T[:, None], self._penalty[:, ranks].T[:, None]
        grown = self._cost(now + load / self.aim[:, 0], price, penalty) - self._cost(now, price, penalty)
        return np.asarray(grown[..., 0] if grown.shape[-1] == 1 else grown.sum(axis=-1))

    def byte_growth(self, state: LoadState, size: Floats, tier: int, ranks: Ints) -> Floats:
        """Return the growth [R, n] if the pool of each of the `ranks` took `size` [R or 1, n] more bytes of a tier;
        [1, 1] of 0 where these cost nothing."""
        free = state.free[tier, ranks][:, None]
        if not self._has_price[tier] and size.max() <= free.min():
            return np.zeros((1, 1))
        room = self._room[tier, ranks][:, None]
        penalized = _penalized(np.maximum((size - free) / room, 0.0)) - _penalized(np.maximum(-free / room, 0.0))
        taken = np.clip((room - free + size) / room, 0.0, 1.0), np.clip((room - free) / room, 0.0, 1.0)
        holes = BYTE_FULLNESS * room * (taken[0] ** 2 - taken[1] ** 2)
        price = self.byte[tier, ranks][:, None]
        return np.asarray(price * (size - holes) + self._byte_penalty[tier, ranks][:, None] * penalized)

    def wide_growth(self, state: LoadState, load: Floats, size: Floats, columns: Ints | slice = slice(None)) -> Floats:
        """Return each rank's part [..., W] of the growth if all instances of some columns took `load` [..., c, W] and
        all pools `size` [..., M, W] more."""
        aim, price, penalty = self.aim[columns], self._price[columns], self._penalty[columns]
        now = state.load[columns] / aim
        cost = self._cost(now + load / aim, price, penalty) - self._cost(now, price, penalty)
        loaded = np.asarray((cost / self._sharing[columns]).sum(axis=-2))
        if not any(self._has_price) and (size <= state.free).all():
            return loaded
        taken = self._byte_cost(state.free - size) - self._byte_cost(state.free)
        return np.asarray(loaded + (taken / self._pool_sharing).sum(axis=-2))

    def _cost(self, x: Floats, price: Floats, penalty: Floats) -> Floats:
        """Return the cost of relative loads `x` on instances with these multipliers and penalties of the whole
        target."""
        return np.asarray(price * x * (1.0 - self.fullness * x) + penalty * _penalized(np.maximum(x - 1.0, 0.0)))

    def _byte_cost(self, free: Floats) -> Floats:
        """Return the cost [M, W] of pools with so many bytes `free` (less than none, where they are over-full)."""
        holes = BYTE_FULLNESS * self._room * np.clip(1.0 - free / self._room, 0.0, 1.0) ** 2
        return np.asarray(
            self._byte_penalty * _penalized(np.maximum(-free / self._room, 0.0)) - self.byte * (free + holes)
        )


def _penalized(over: Floats) -> Floats:
    return np.asarray(over * (LINEAR + QUADRATIC * over))
