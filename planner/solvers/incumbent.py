"""What all parts of a search share: the best placement so far, the bound, and whether that is enough."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from planner.certificates.multipliers import Bound, ProtocolBound
from planner.certificates.shortage import Shortage
from planner.problem.placement import Placement
from planner.solvers.limits import Clock, SearchLimits

OPTIMAL_GAP = 1e-6
"""A plan this near to its bound is called optimal: the bound is rounded down by 1e-9 and solved to 1e-5 at worst."""

Status = Literal["optimal", "feasible", "infeasible", "timeout"]
Progress = Callable[[str, float | None, float | None], None]
"""Called with (step of the search, best step so far in seconds, bound in seconds)."""
Start = tuple[Placement, float]
"""A placement that fits, and its step in seconds."""


@dataclass(frozen=True)
class Outcome:
    """What a search found. The bound holds for what every placement costs in the problem that was searched; a shortage
    proves that there is none."""

    status: Status
    placement: Placement | None
    step_s: float | None
    bound: Bound | None
    shortage: Shortage | None
    tried: bool = False
    """Whether every placement was tried, and none fits."""
    ran_out_of_time: bool = False
    """Whether a time limit ended something that would have gone on."""
    earlier: tuple[Placement, ...] = ()
    """The best placements after fewer passes, the first ones first; `placement` itself is none of them."""
    elsewhere: tuple[ProtocolBound, ...] = ()
    """Bounds at all other protocols of the cost model, once these are known."""
    solver_bound_s: float | None = None
    """What the solver of the integer programme says no placement takes less than, at whatever protocols: without a
    certificate. 0 where it says nothing of the options as they are now; None where there was no such solver."""

    @property
    def bound_s(self) -> float | None:
        """The seconds of the least bound, at whatever protocols."""
        return None if self.bound is None else min(each.seconds for each in (self.bound, *self._others))

    @property
    def best_s(self) -> float:
        """The step of the placement; infinite where there is none."""
        return np.inf if self.step_s is None else self.step_s

    def is_within(self, gap: float) -> bool:
        """Whether the placement is as near to the bound as that (step / bound - 1), or nothing fits."""
        if self.bound is None or self.status == "infeasible":
            return True
        return self.best_s <= self.bound.seconds * (1 + max(gap, OPTIMAL_GAP))

    @property
    def _others(self) -> tuple[Bound, ...]:
        return tuple(each.bound for each in self.elsewhere)


class Incumbent:
    """The best placement and the bound of one run; whoever follows it hears of everything better."""

    def __init__(self, bound: Bound, limits: SearchLimits, tell: Progress) -> None:
        self.best: Start | None = None
        self.bound = bound
        self.clock = Clock(limits)
        self._near, self._tell = 1 + max(limits.gap, OPTIMAL_GAP), tell
        tell("bound", None, bound.seconds)

    @property
    def best_s(self) -> float:
        """The step of the best placement; infinite where there is none yet."""
        return np.inf if self.best is None else self.best[1]

    def offer(self, placement: Placement | Callable[[], Placement], step_s: float, source: str) -> None:
        """Keep a placement that fits, or the one that it gives, if it is the best so far."""
        if step_s < self.best_s:
            self.best = (placement() if callable(placement) else placement), step_s
            self._tell(source, step_s, self.bound.seconds)

    def raise_to(self, bound: Bound) -> None:
        """Keep a bound if it is the highest so far."""
        if bound.seconds > self.bound.seconds:
            self.bound = bound
            self._tell("bound", None if self.best is None else self.best[1], bound.seconds)

    def is_within(self, gap: float) -> bool:
        """Whether the best placement is as near to the bound as that (step / bound - 1)."""
        return self.best is not None and self.best[1] <= self.bound.seconds * (1 + gap)

    def is_done(self) -> bool:
        """Whether the best placement is near enough to the bound, or the search is over."""
        return (self.best is not None and self.best[1] <= self.bound.seconds * self._near) or self.clock.is_over()
