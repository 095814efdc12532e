"""Sizes of a cluster that were judged, and the order in which more of them are."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from planner.solvers.incumbent import Status

Judge = Literal["plan", "bound", "memory", "search", "input"]
"""What decided about a size: a plan (accepted); the bound, a proof of too little memory, a search that found no such
plan (no proof), or an input that has no such size (rejected)."""


@dataclass(frozen=True)
class Candidate:
    """One size of the cluster and what was found about it. Times in seconds."""

    nodes: int
    """Nodes of the group that is sized."""
    ranks: int
    """Ranks of the whole cluster; 0 where there is no such cluster."""
    suffices: bool
    judged_by: Judge
    status: Status | None = None
    """How the search ended, which it does as soon as the size is decided."""
    step_s: float | None = None
    """The step of the best plan that the search had found then; None where it had none yet."""
    samples_per_s: float | None = None
    lower_bound_s: float | None = None
    target_s: float | None = None
    """The longest step that does; None where that the tables fit is enough."""
    most_samples_per_s: float | None = None
    """The most that the bound allows."""
    gap: float | None = None
    reason: str = ""
    """Why it is rejected."""

    @property
    def is_proven(self) -> bool:
        """Whether no search would change the verdict."""
        return self.judged_by != "search"


def descend(suffices: Callable[[int], bool], seen: dict[int, Candidate], last: int) -> None:
    """Judge sizes until the smallest that suffices is known, if more nodes always do where fewer do.

    By doubling, then by bisection. As more nodes may also be slower, the size below the rejected neighbour is judged
    too, and the one above the answer; and where none suffices, the sizes around the fastest.
    """
    probe = 0
    while not suffices(probe) and probe < last:
        probe = min(2 * probe + 1, last)
    if not seen[probe].suffices and not _climb(suffices, seen, last):
        return
    while True:
        high = min(position for position, candidate in seen.items() if candidate.suffices)
        low = max((position for position in seen if position < high), default=-1)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if suffices(middle) else (middle, high)
        if high < 2 or not suffices(high - 2):
            break
    if high < last:
        suffices(high + 1)


def _climb(suffices: Callable[[int], bool], seen: dict[int, Candidate], last: int) -> bool:
    """Close in on the fastest size from both sides; whether one that suffices is found."""

    def speed(position: int) -> float:
        candidate = seen[position]
        step_s = candidate.step_s or candidate.lower_bound_s
        if candidate.target_s is not None and step_s:
            return candidate.target_s / step_s
        return candidate.samples_per_s or candidate.most_samples_per_s or 0.0

    while True:
        best = max(seen, key=lambda position: (speed(position), -position))
        if best == last or not speed(best):
            return False
        low = max((position for position in seen if position < best), default=best)
        high = min(position for position in seen if position > best)
        middles = {(low + best) // 2, (best + high) // 2} - set(seen)
        if not middles:
            return False
        if any(suffices(middle) for middle in sorted(middles)):
            return True
