"""Choices of one option per table in the order of their value: the K best, by enumeration from the best one on.

The procedure is Lawler's for the K best solutions of a discrete optimization problem (Manage. Sci. 18, 1972).
"""

import heapq
import itertools
from collections.abc import Iterator

import numpy as np

from planner.problem.numbers import Floats, Ints


def cheapest_first(values: Floats, start: Ints) -> Iterator[Ints]:
    """Yield every choice [T] of one position of `values` per table, by ascending sum; infinite ones are left out.

    `start` [T + 1] says where each table's positions begin. Each step takes O(T) time and memory: a choice is
    reached only from the one that is cheaper in the last table in which it is not the cheapest.
    """
    ranked = []
    for first_of_table, stop in itertools.pairwise(start.tolist()):
        order = first_of_table + np.argsort(values[first_of_table:stop], kind="stable")
        ranked.append([(float(values[at]), int(at)) for at in order if np.isfinite(values[at])])
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
