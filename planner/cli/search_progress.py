"""What `plan` and `size` say while they search: best plan, bound and gap, and on terminals how the gap fell."""

import time
from collections.abc import Callable, Sequence
from math import log

from planner.cli import streams

CURVE, BLOCKS = 12, "▁▂▃▄▅▆▇█"
LEAST_GAP = 1e-4
"""Gaps below this look alike in the curve."""


def progress_lines(report: Callable[[str], None], unit: str) -> Callable[[str, float | None, float | None], None]:
    """Reports progress of the search: every bound and start, and one plan of the local search a second.

    What begins without a plan or bound so far is shown on terminals only; elsewhere lines begin with the seconds since
    the start, which a terminal shows by itself.
    """
    began = time.monotonic()
    said = 0.0
    gaps: list[tuple[float, float]] = []

    def tell(step: str, best_s: float | None, bound_s: float | None) -> None:
        nonlocal said
        now = time.monotonic()
        if best_s is not None and bound_s is not None:
            gaps.append((now - began, best_s / bound_s - 1))
        if best_s is None and bound_s is None:
            streams.doing(step)
        elif not step.endswith("local search") or now - said >= 1:
            said = now
            line = progress_line(step, best_s, bound_s, unit)
            report(f"{line} {gap_curve(gaps)}".rstrip() if streams.is_watched() else f"{now - began:.0f} s: {line}")

    return tell


def size_lines(report: Callable[[str], None]) -> Callable[[str, float | None, float | None], None]:
    """Reports progress of a search for a size: each size that is begun, on terminals with best plan, bound and gap."""
    size, lines = "", progress_lines(report, "s")

    def tell(step: str, best_s: float | None, bound_s: float | None) -> None:
        nonlocal size, lines
        if best_s is None and bound_s is None:
            size, lines = step, progress_lines(report, "s")
            report(step)
        elif streams.is_watched():
            lines(f"{size}: {step}", best_s, bound_s)

    return tell


def progress_line(step: str, best_s: float | None, bound_s: float | None, unit: str = "s") -> str:
    """One line of progress: the step that ended, the best plan and the bound so far."""
    from topologies.units import format_seconds

    def amount(value: float) -> str:
        return format_seconds(value) if unit == "s" else f"{value:,.3f}"

    words = [step]
    if best_s is not None:
        words.append(f"best {amount(best_s)}")
    if bound_s is not None:
        words.append(f"bound {amount(bound_s)}")
    if best_s is not None and bound_s is not None:
        words.append(f"gap {best_s / bound_s - 1:.2%}")
    return ", ".join(words)


def gap_curve(gaps: Sequence[tuple[float, float]]) -> str:
    """How the gap fell over equal parts of the time since the first plan, on a logarithmic scale: `█▆▃▁`.

    `gaps`: (seconds, gap), ascending in time; empty until the gap has changed.
    """
    heights = [log(max(gap, LEAST_GAP)) for _, gap in gaps]
    if not heights or max(heights) == min(heights):
        return ""
    first, last = gaps[0][0], gaps[-1][0]
    blocks = []
    for part in range(CURVE):
        until = first + (last - first) * (part + 1) / CURVE
        reached = [height for (at, _), height in zip(gaps, heights, strict=True) if at <= until or part == CURVE - 1]
        share = (reached[-1] - min(heights)) / (max(heights) - min(heights))
        blocks.append(BLOCKS[round(share * (len(BLOCKS) - 1))])
    return "".join(blocks)
