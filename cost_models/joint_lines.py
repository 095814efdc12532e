"""The collectives of tables with different numbers of copies, in one stage: each takes a line of its own.

Modules whose tables have other copies exchange within groups of other ranks, over communicators of their own: vectors
and ids of all of them are on their way at once, so that a stage waits for the longest latency and links carry the
sum. Copies are averaged one set of groups after the other (`DMPCollection.sync`), so that latencies add up, too.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from cost_models.averaging import AveragingLine
from cost_models.batch_copy import CopyLine
from cost_models.exchange_lines import ExchangeLine
from cost_models.first_answers import AnswerLine
from cost_models.prefetch_lines import PrefetchLine

Line = ExchangeLine | AveragingLine | CopyLine | AnswerLine | PrefetchLine


@dataclass(frozen=True)
class JointLine:
    """The line of each of several collectives of a stage, by number; of one that it does not have, 0."""

    latency_s: float
    numbers: tuple[int, ...]


def at_once(lines: Sequence[Sequence[Line]]) -> tuple[JointLine, ...]:
    """Those of collectives that run beside each other, some of which there may be none of, by latency: each takes the
    highest rate that is to be had within the longest latency, which is all that the stage waits for."""
    shortest = max(of_one[0].latency_s for of_one in lines if of_one)
    waits = sorted({line.latency_s for of_one in lines for line in of_one if line.latency_s >= shortest})
    return tuple(
        JointLine(
            wait,
            tuple(max((n for n, line in enumerate(of_one) if line.latency_s <= wait), default=0) for of_one in lines),
        )
        for wait in waits
    )


def in_turn(lines: Sequence[Sequence[Line]]) -> tuple[JointLine, ...]:
    """Those of collectives one after the other, some of which there may be none of."""
    numbers = itertools.product(*(range(max(1, len(of_one))) for of_one in lines))
    joint = [
        JointLine(sum(of_one[n].latency_s for of_one, n in zip(lines, each, strict=True) if of_one), each)
        for each in numbers
    ]
    return tuple(sorted(joint, key=lambda line: line.latency_s))


def alike(lines: Sequence[Sequence[Line]]) -> tuple[JointLine, ...]:
    """Those of lines of which all take the same one, where they have any."""
    longest = max(lines, key=len)
    return tuple(JointLine(line.latency_s, (n,) * len(lines)) for n, line in enumerate(longest))
