"""One problem searched from several seeds, side by side in processes of this machine.

It is an algorithm portfolio of runs that differ in their seed alone (Huberman, Lukose and Hogg, Science 275, 1997). The
first seed searches and raises the bound, in this process; the others search only, so that search goes on beside the
bound. What each finds follows from the problem and its seed, and is taken in the order of seeds as long as the plan is
not near enough to the bound: so the outcome is the same however many processes there are, unless time decides.
"""

import math
import pickle
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Self

from planner.problem.arrays import Problem
from planner.problem.numbers import Bools
from planner.processes import kill, spawned, usable_cores
from planner.solvers.incumbent import Outcome
from planner.solvers.limits import SearchLimits
from planner.solvers.portfolio import Portfolio

WAIT_S = 0.2
"""Between looks at whether the user has had enough."""
BEGIN_S = 1.0
"""Seconds of a time limit that are left to a process to begin in."""

PATTERN_SHARE = 0.8
"""Share of the first seed's time for rank patterns, while others search."""


class FurtherSeeds:
    """The seeds beside the first one, and the processes that search from them, which are kept from one search to the
    next. Used as a context, which ends these."""

    def __init__(self, count: int, workers: int | None = None) -> None:
        """So many seeds beside the first one, searched from in as many processes as `workers` leaves beside this one:
        None, as many as there are cores. Where it leaves none, this process searches from them, too, one by one."""
        self.count = count
        self._processes = min((workers or usable_cores()) - 1, count)
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        """Processes begin when they are needed."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Ends them, whatever they do."""
        self._end()

    def of_first(self, limits: SearchLimits) -> SearchLimits:
        """The limits of the first seed, which is mostly there for the bound: all time, where the others have processes
        of their own."""
        time_limit_s = limits.time_limit_s if self._processes else limits.time_limit_s / (1 + self.count)
        return replace(limits, time_limit_s=time_limit_s, pattern_share=PATTERN_SHARE)

    @contextmanager
    def searching(
        self, problem: Problem, restrictions: Sequence[Bools], limits: SearchLimits
    ) -> Iterator[Iterator[Outcome]]:
        """Begin to search from the other seeds within the limits of the first one; gives their outcomes in the order of
        seeds, those that are there when somebody says stop. What nobody waited for is dropped at the end."""
        further = self._limits(limits)
        futures: list[Future[Outcome]] = []
        if self._processes:
            self._pool = self._pool or spawned(self._processes)
            told = pickle.dumps((problem, tuple(restrictions)))
            futures = [self._pool.submit(_found_elsewhere, told, each) for each in further]

        def outcomes() -> Iterator[Outcome]:
            for number, within in enumerate(further):
                here = replace(within, stop=limits.stop)
                try:
                    found = _awaited(futures[number], limits) if futures else _found(problem, restrictions, here)
                except BrokenProcessPool:  # one was killed, maybe for want of memory: the same is found here
                    self._pool = None
                    found = _found(problem, restrictions, here)
                if found is not None:
                    yield found

        try:
            yield outcomes()
        finally:
            if not all(future.done() for future in futures):
                self._end()

    def _limits(self, limits: SearchLimits) -> list[SearchLimits]:
        """The limits of each of the other seeds: they search only, and share the time with those before and after
        them in their process."""
        time_limit_s = limits.time_limit_s / (1 + self.count)
        if self._processes:
            time_limit_s = max(limits.time_limit_s - BEGIN_S, 0.0) / math.ceil(self.count / self._processes)
        search_only = replace(limits, time_limit_s=time_limit_s, branch_nodes=0, pattern_work=0.0, stop=None)
        return [replace(search_only, seed=limits.seed + 1 + number) for number in range(self.count)]

    def _end(self) -> None:
        if self._pool is not None:
            kill(self._pool)
            self._pool = None


def _found(problem: Problem, restrictions: Sequence[Bools], limits: SearchLimits) -> Outcome:
    """What one seed finds."""
    portfolio = Portfolio(problem, restrictions, limits, lambda *_: None)
    portfolio.run()
    return portfolio.outcome()


def _found_elsewhere(told: bytes, limits: SearchLimits) -> Outcome:
    """The same in a process that is told the problem and its restrictions."""
    problem, restrictions = pickle.loads(told)
    return _found(problem, restrictions, limits)


def _awaited(future: Future[Outcome], limits: SearchLimits) -> Outcome | None:
    """What a process finds, once it is there; None where somebody says stop before."""
    while True:
        try:
            return future.result(timeout=WAIT_S)
        except TimeoutError:
            if limits.stop is not None and limits.stop():
                return None
