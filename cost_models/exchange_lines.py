"""The straight lines that a collective's law is made of, for costs that add up over tables.

A law is the least of a few lines of latency and rate. A stage takes one of them on all ranks: the one with which it
ends first. Ranks of different kinds have laws of their own, so that a line is a latency that the stage waits for, and
for each kind the highest rate that is to be had within it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from cost_models.collective_laws import Protocol
from cost_models.shards import Floats

Case = Literal["apart", "nothing", "around"]
"""What placements lines are of: those that exchange something, without sums around all ranks; nothing; or such sums."""


@dataclass(frozen=True)
class ExchangeLine:
    """A latency, and the rate of a port of each of K kinds of rank."""

    latency_s: float
    port_bytes_per_s: tuple[float, ...]
    """[K]"""


def exchange_lines(
    protocols_of_kinds: Sequence[tuple[Protocol, ...]], path_s: float, joined: Callable[[float, float], float]
) -> tuple[ExchangeLine, ...]:
    """The lines of a collective, by latency; each but the first has a higher rate than the one before.

    `path_s` is the latency of the path, which kinds without a measured one have inside their domains, too; what a stage
    waits for is that of both, `joined`.
    """
    waits = [
        [(joined(path_s if each.latency_s is None else each.latency_s, path_s), each.bytes_per_s) for each in protocols]
        for protocols in protocols_of_kinds
    ]
    shortest = max(min(latency for latency, _ in of_kind) for of_kind in waits)
    lines: list[ExchangeLine] = []
    for allowed in sorted({latency for of_kind in waits for latency, _ in of_kind if latency >= shortest}):
        rates = tuple(max(rate for latency, rate in of_kind if latency <= allowed) for of_kind in waits)
        if not lines or rates != lines[-1].port_bytes_per_s:
            lines.append(ExchangeLine(allowed, rates))
    return tuple(lines)


def end_s(line: ExchangeLine, port_bytes: Floats) -> float:
    """Seconds for so many bytes [K] on the busiest port of each kind."""
    return line.latency_s + float((port_bytes / np.array(line.port_bytes_per_s)).max())


def fastest_line(lines: Sequence[ExchangeLine], port_bytes: Floats) -> int:
    """Which line ends first for so many bytes [K] on the busiest port of each kind; the first of equals."""
    return int(np.argmin([end_s(line, port_bytes) for line in lines]))
