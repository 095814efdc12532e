"""Where the points of a study are computed: in this process, or in processes of this machine (Dask: `dask_runner`).

A runner computes jobs in any order and any place; an answer depends on its job alone. A process that dies takes no
answer with it: what it was computing is computed again, and given up after a few deaths.
"""

from collections import deque
from collections.abc import Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from types import TracebackType
from typing import Protocol, Self

from planner.processes import kill, spawned, usable_cores
from planner.studies.point import Answer, Job, answer, failed

MOST_DEATHS = 2
"""The most processes that may die while they compute one job alone, before the job is given up."""
WAIT_S = 0.2
"""Between looks at whether the user has had enough."""


class Runner(Protocol):
    """Takes jobs under numbers, and hands back answers as they come."""

    def __enter__(self) -> Self:
        """Ready to take jobs."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Drops what is not yet computed."""
        ...

    def submit(self, number: int, job: Job) -> None:
        """Compute a job some time."""
        ...

    def completed(self) -> Mapping[int, Answer]:
        """Answers that came since the last call; waits a moment if there are none."""
        ...


class Serial:
    """One job after the other, in this process."""

    def __init__(self) -> None:
        self._waiting: dict[int, Job] = {}

    def __enter__(self) -> Self:
        """Nothing to make ready."""
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to end."""

    def submit(self, number: int, job: Job) -> None:
        """At the end of the queue."""
        self._waiting[number] = job

    def completed(self) -> Mapping[int, Answer]:
        """The first one's answer."""
        number = next(iter(self._waiting))
        return {number: answer(self._waiting.pop(number))}


class Processes:
    """A pool of processes on this machine.

    After a death, the jobs that were in the pool are computed one by one, to see which of them kills.
    """

    def __init__(self, workers: int | None = None) -> None:
        self._workers = workers or usable_cores()
        self._pool: ProcessPoolExecutor | None = None
        self._queue: deque[tuple[int, Job]] = deque()
        self._suspects: deque[tuple[int, Job]] = deque()
        self._deaths: dict[int, int] = {}
        self._running: dict[Future[Answer], tuple[int, Job]] = {}

    def __enter__(self) -> Self:
        """Processes start when they are needed."""
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the processes, whatever they compute."""
        if self._pool is not None:
            kill(self._pool)

    def submit(self, number: int, job: Job) -> None:
        """At the end of the queue."""
        self._queue.append((number, job))
        self._fill()

    def completed(self) -> Mapping[int, Answer]:
        """Waits for the first."""
        self._fill()
        done, _ = wait(self._running, timeout=WAIT_S, return_when=FIRST_COMPLETED)
        answers: dict[int, Answer] = {}
        dead = []
        for future in done:
            number, job = self._running.pop(future)
            try:
                answers[number] = future.result()
            except BrokenProcessPool:
                dead.append((number, job))
        return answers | self._after_death(dead) if dead else answers

    def _fill(self) -> None:
        """As many jobs as processes, or one suspect alone."""
        source, most = (self._suspects, 1) if self._suspects or self._is_trial else (self._queue, self._workers)
        while source and len(self._running) < most:
            number, job = source.popleft()
            if self._pool is None:
                self._pool = spawned(self._workers)
            self._running[self._pool.submit(answer, job)] = number, job

    @property
    def _is_trial(self) -> bool:
        """Whether a suspect is at work."""
        return any(number in self._deaths for number, _ in self._running.values())

    def _after_death(self, dead: list[tuple[int, Job]]) -> dict[int, Answer]:
        """What is given up; the rest is tried again."""
        dead += self._running.values()
        self._running.clear()
        self._pool = None
        answers = {}
        for number, job in dead:
            self._deaths[number] = self._deaths.get(number, 0) + (len(dead) == 1)
            if self._deaths[number] >= MOST_DEATHS:
                reason = f"the process that computed it died {MOST_DEATHS} times; it may need more memory than there is"
                answers[number] = Answer(failed(job, reason), is_bug=True)
            else:
                self._suspects.append((number, job))
        return answers
