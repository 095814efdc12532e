"""Choices of options in the order of their value: the last resort where the optimum's cannot be placed."""

import heapq
from collections.abc import Iterator

import numpy as np

from planner.problem import Floats, Ints


def cheapest_first(values: Floats, option_start: Ints) -> Iterator[Ints]:
    """Every choice [T] of one option per table, by ascending sum of `values` [O]; infinite ones are left out.

    `option_start` [T + 1] says where each table's options begin. Each step takes O(T) time and memory: a choice is
    reached only from the one that is cheaper in the last table in which it is not the cheapest.
    """
    ranked = []
    for start, stop in zip(option_start[:-1].tolist(), option_start[1:].tolist(), strict=True):
        order = start + np.argsort(values[start:stop], kind="stable")
        ranked.append([(float(values[option]), int(option)) for option in order if np.isfinite(values[option])])
    if not all(ranked):
        return
    first = (0,) * len(ranked)
    queue = [(sum(options[0][0] for options in ranked), first, 0)]
    while queue:
        total, places, last = heapq.heappop(queue)
        yield np.array([options[place][1] for options, place in zip(ranked, places, strict=True)])
        for table in range(last, len(ranked)):
            place = places[table] + 1
            if place < len(ranked[table]):
                more = ranked[table][place][0] - ranked[table][place - 1][0]
                heapq.heappush(queue, (total + more, (*places[:table], place, *places[table + 1 :]), table))
