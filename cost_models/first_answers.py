"""The first answer of remote hosts, for which a step waits once where any cache misses rows there.

However many tables have rows there, and however many are missed: that is no sum over tables. It is a law of two lines
(see `costs_at_lines`), one of placements that have no rows in such a memory, and one of the others, which wait. At the
first, a block that does have rows there costs many times the wait. Misses that are prefetched have no stage: the wait
is one more load of what they are shared over (see `prefetch_lines`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cost_models.kinds import RankKind
from cost_models.shards import HOME, IS_CACHED, MEMORY_TIERS, SHARED_BY, Blocks

CACHE_FETCH = "cache_fetch"
"""The stage of misses that are not prefetched, and what the law is called among those of lines of stages."""
BEYOND = 1000.0
"""How many times the wait a block costs at the line of placements that do not wait; 1 would do (see `exchanged`)."""


@dataclass(frozen=True)
class AnswerLine:
    """A line of what misses wait for: `latency_s` in a stage of their own, whatever they are."""

    latency_s: float
    asks: bool
    """Whether it is of placements that wait."""


def first_answer_s(kinds: Sequence[RankKind]) -> float:
    """From a request for missed rows until the first one is there, from the memories that take long for it."""
    return max(sum(rates.latency_s for rates in kind.memories.values()) for kind in kinds)


def answer_lines(kinds: Sequence[RankKind], *, is_prefetched: bool) -> tuple[AnswerLine, AnswerLine]:
    """Those of placements that ask no such memory, and of the others."""
    return AnswerLine(0.0, asks=False), AnswerLine(0.0 if is_prefetched else first_answer_s(kinds), asks=True)


def asking(blocks: Blocks, kinds: Sequence[RankKind]) -> NDArray[np.bool_]:
    """[n] whether misses of blocks wait for such a memory."""
    late = {memory for kind in kinds for memory, rates in kind.memories.items() if rates.latency_s}
    asks: NDArray[np.bool_] = np.isin(HOME[blocks.tier], [MEMORY_TIERS.index(memory) for memory in late])
    return np.asarray(asks & IS_CACHED[blocks.tier])


def must_ask(table_bytes: float, kinds: Sequence[RankKind]) -> bool:
    """Whether tables of so many bytes fit nowhere else."""
    room = 0.0
    for kind in kinds:
        for memory, size in zip(MEMORY_TIERS, kind.memory_bytes, strict=True):
            ranks = {"rank": 1, "node": kind.node_ranks, "group": kind.group_ranks}[SHARED_BY[memory]]
            answers = kind.memories.get(memory)
            room += 0.0 if answers is not None and answers.latency_s else size * kind.group_ranks / ranks
    return table_bytes > room
