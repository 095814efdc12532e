"""The Pareto front of step against moved bytes: of all placements that a search met, those that none dominates."""

from dataclasses import dataclass

import numpy as np

from planner.problem.goals import GIVE
from planner.problem.numbers import Floats, Ints
from planner.problem.placement import Placement
from planner.solvers.improve.path_relinking import RelinkingPath


@dataclass(frozen=True)
class MoveTerms:
    """What moving costs."""

    limit_bytes: float | None = None
    """The most that may move."""
    seconds_per_byte: float = 0.0
    """What is added to the step for each moved byte."""
    least_step_s: float = 0.0
    """No step is shorter, wherever tables are, as the copy of a batch takes as long: what a move saves below that is
    nothing."""
    even: float = GIVE
    """Share of the least cost that may be given up to move less."""


@dataclass(frozen=True)
class FrontPoint:
    """A placement that was met: a point of a path."""

    step_s: float
    moved_bytes: float
    path: RelinkingPath
    point: int

    def placement(self) -> Placement:
        """Return the placement itself."""
        return self.path.placement(self.point)


class Front:
    """The placements met so far, from the fewest moved bytes and the longest step on."""

    def __init__(self) -> None:
        self._step: Floats = np.zeros(0)
        self._moved: Floats = np.zeros(0)
        self._path_number: Ints = np.zeros(0, dtype=np.int64)
        self._point: Ints = np.zeros(0, dtype=np.int64)
        self._paths: dict[int, RelinkingPath] = {}
        self._number = 0

    def add(self, path: RelinkingPath) -> None:
        """Add all placements on a path."""
        step, moved = np.array(path.points).T
        count, number, self._number = len(step), self._number, self._number + 1
        self._paths[number] = path
        steps, bytes_ = np.concatenate([self._step, step]), np.concatenate([self._moved, moved])
        path_numbers = np.concatenate([self._path_number, np.full(count, number)])
        points = np.concatenate([self._point, np.arange(count)])
        order = np.lexsort((steps, bytes_))
        least = np.minimum.accumulate(np.concatenate([[np.inf], steps[order]]))
        kept = order[steps[order] < least[:-1]]
        self._step, self._moved, self._path_number, self._point = (
            steps[kept],
            bytes_[kept],
            path_numbers[kept],
            points[kept],
        )
        left = set(self._path_number.tolist())
        self._paths = {key: value for key, value in self._paths.items() if key in left}

    @property
    def fewest_bytes(self) -> float | None:
        """Return the fewest moved bytes of any placement; None where there is none."""
        return float(self._moved[0]) if len(self._moved) else None

    def within(self, budget_bytes: float) -> FrontPoint | None:
        """Return the point of the shortest step of those that move so much at most."""
        last = int(np.searchsorted(self._moved, budget_bytes, side="right")) - 1
        return None if last < 0 else self._at(last)

    def best(self, terms: MoveTerms, even: float | None = None) -> FrontPoint | None:
        """Return the point that moves least of those on the terms that cost the least, or a share `even` (else: the
        terms') more in a step that is no longer by more than that; None where there is none."""
        even = terms.even if even is None else even
        limit = np.inf if terms.limit_bytes is None else terms.limit_bytes
        step = np.maximum(self._step, terms.least_step_s)
        cost = np.where(self._moved <= limit, step + terms.seconds_per_byte * self._moved, np.inf)
        if not np.isfinite(cost).any():
            return None
        near = (cost <= cost.min() * (1 + even)) & (step <= step[cost.argmin()] * (1 + even))
        return self._at(int(np.argmax(near)))

    def _at(self, index: int) -> FrontPoint:
        path, point = self._paths[int(self._path_number[index])], int(self._point[index])
        return FrontPoint(float(self._step[index]), float(self._moved[index]), path, point)
