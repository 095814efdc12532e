"""A smoothed step: each stage's maximum replaced by a K-norm, so that progress on the second-fullest counts too."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.problem import Floats, Ints, LoadState, Problem

Numbers = NDArray[np.floating[Any]]
"""Of single or double precision."""
NEGLIGIBLE = 1e-3
"""Columns in which the loads of two of the fullest resources together add less than this to its norm are left out."""
EMPTY = 1e-3
"""Share of the step that a stage is taken to last at least, so that loads in an empty stage can be compared."""
MOST = 1.6
"""Loads above this many times the stage's time count alike: their powers would leave single precision."""


class Smoothing:
    """The norm linearised around one state: sum over columns and ranks of weight x (load / stage time)^K.

    K is 2 to the power `squarings`; a unit of the value is a second of the step.
    """

    def __init__(self, problem: Problem, state: LoadState, squarings: int, negligible: float = NEGLIGIBLE) -> None:
        stage = problem.stage_of_column
        longest = state.stage_seconds() - problem.stage_constants
        longest = np.maximum(longest, max(EMPTY * float(longest.sum()), 1e-15))
        self.squarings = squarings
        peak = state.load.max(axis=1) / longest[stage]
        self.columns: Ints = np.flatnonzero(2 * peak >= negligible ** (1 / 2**squarings))
        self._aim: Floats = longest[stage[self.columns]]
        x = state.load[self.columns] / self._aim[:, None]
        powers = self.power(x)
        total = np.zeros(len(longest))
        np.add.at(total, stage[self.columns], powers.sum(axis=1))
        of_column = np.maximum(total[stage[self.columns]], 1.0)
        self.weight: Floats = self._aim / of_column / 2**squarings
        self._slope: Floats = (powers / np.maximum(x, 1e-9)).sum(axis=1) / of_column

    def power(self, x: Floats) -> Floats:
        """The K-th power of relative loads, in their precision."""
        x = np.minimum(x, MOST if x.dtype == np.float32 else MOST**2)
        for _ in range(self.squarings):
            np.square(x, out=x)
        return x

    def value(self, load: Floats) -> float:
        """Of a state's `load` [C, W], up to a constant."""
        return float(self.weight @ self.power(load[self.columns] / self._aim[:, None]).sum(axis=1))

    def fullness(self, load: Floats) -> Floats:
        """[W] what each rank contributes to the value."""
        return np.asarray(self.weight @ self.power(load[self.columns] / self._aim[:, None]))

    def growth(self, load: Floats, delta: Floats, ranks: Ints) -> Floats:
        """[n, ranks] growth of the value if `delta` [n, C] were added on each of the `ranks` of `load` [C, W]."""
        now = load[self.columns][:, ranks] / self._aim[:, None]
        more = (delta[:, self.columns] / self._aim)[:, :, None]
        return np.asarray(np.einsum("ncr,c->nr", self.power(now[None] + more) - self.power(now), self.weight))

    def growth_each(self, load: Floats, delta: Floats) -> Floats:
        """[W] growth of the value on each rank if `delta` [C, W] were added to `load` [C, W]."""
        now = load[self.columns] / self._aim[:, None]
        then = now + delta[self.columns] / self._aim[:, None]
        return np.asarray(self.weight @ (self.power(then) - self.power(now)))

    def uniform_growth(self, seconds: Floats) -> Floats:
        """[...] growth, to first order, if every rank took `seconds` [..., C] more."""
        return np.asarray(seconds[..., self.columns] @ self._slope)

    def relative(self, load: Floats) -> Floats:
        """[..., C'] loads [..., C] of the columns that matter, as shares of their stage's time."""
        return load[..., self.columns] / self._aim

    def value_of(self, relative: Floats) -> Floats:
        """[...] of relative loads [..., R, C'], summed over ranks and columns; in their precision."""
        return np.asarray((self.power(relative) @ self.weight.astype(relative.dtype)).sum(axis=-1))
