"""A smoothed step: each stage's maximum replaced by a K-norm, so that progress on the second-fullest counts too.

Local search by a high norm instead of the maximum follows Awerbuch, Azar, Grove, Kao, Krishnan and Vitter (FOCS 1995),
who balance loads greedily in such norms.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.problem.arrays import Problem
from planner.problem.load_state import LoadState
from planner.problem.numbers import Floats, Ints
from planner.problem.products import product

Numbers = NDArray[np.floating[Any]]
"""Arrays of single or double precision."""
NEGLIGIBLE = 1e-3
"""Columns in which the loads of two of the fullest resources together add less than this to its norm are left out."""
EMPTY = 1e-3
"""Share of the step that a stage is taken to last at least, so that loads in an empty stage can be compared."""
MOST = 1.6
"""Loads above this many times the stage's time count alike: their powers would leave single precision."""


class Smoothing:
    """The norm linearised around one state: sum over columns and ranks of weight x (load / stage time)^K.

    K is 2 to the power `squarings`; a unit of the value is a second of the step. What no block of single ranks or nodes
    loads is a stage's `floor`: loads below it count alike.
    """

    def __init__(self, problem: Problem, state: LoadState, squarings: int, negligible: float = NEGLIGIBLE) -> None:
        stage = problem.stage_of_column
        longest = state.stage_seconds() - problem.stage_constants
        longest = np.maximum(longest, max(EMPTY * float(longest.sum()), 1e-15))
        self.squarings = squarings
        peak = state.load.max(axis=1) / longest[stage]
        moved = problem.moved_columns
        floor = np.zeros(len(longest))
        np.maximum.at(floor, stage[~moved], peak[~moved])
        self.columns: Ints = np.flatnonzero(moved & (2 * peak >= negligible ** (1 / 2**squarings)))
        self._aim: Floats = longest[stage[self.columns]]
        self.floor: Floats = floor[stage[self.columns]]
        """[C'] shares of the stages' times."""
        x = state.load[self.columns] / self._aim[:, None]
        powers = self.power(np.maximum(x, self.floor[:, None]))
        total = np.zeros(len(longest))
        np.add.at(total, stage[self.columns], powers.sum(axis=1))
        of_column = np.maximum(total[stage[self.columns]], 1.0)
        self.weight: Floats = self._aim / of_column / 2**squarings
        slope = np.where(x > self.floor[:, None], powers / np.maximum(x, 1e-9), 0.0)
        self._slope: Floats = slope.sum(axis=1) / of_column

    def power(self, x: Floats) -> Floats:
        """Return the K-th power of relative loads, in their precision."""
        x = np.minimum(x, MOST if x.dtype == np.float32 else MOST**2)
        for _ in range(self.squarings):
            np.square(x, out=x)
        return x

    def fullness(self, load: Floats) -> Floats:
        """Return what each rank [W] of `load` [C, W] contributes to the value."""
        x = np.maximum(load[self.columns] / self._aim[:, None], self.floor[:, None])
        return np.asarray(product(self.weight, self.power(x)))

    def uniform_growth(self, seconds: Floats) -> Floats:
        """Return the growth [...], to first order, if every rank took `seconds` [..., C] more."""
        return np.asarray(product(seconds[..., self.columns], self._slope))

    def relative(self, load: Floats) -> Floats:
        """Return loads [..., C] of the columns that matter [..., C'], as shares of their stage's time."""
        return load[..., self.columns] / self._aim

    def value_of(self, relative: Floats) -> Floats:
        """Return the value [...] of relative loads [..., R, C'], summed over ranks and columns; in their precision."""
        felt = np.maximum(relative, self.floor.astype(relative.dtype))
        return np.asarray(product(self.power(felt), self.weight.astype(relative.dtype)).sum(axis=-1))
