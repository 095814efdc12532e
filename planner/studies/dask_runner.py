"""The points of a study on a Dask cluster: one that runs already, or one of processes on this machine.

Needs the extra `dask`. Dask computes again what a worker that died was computing.
"""

import queue
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Self

from planner.processes import usable_cores
from planner.studies.dask_cluster import RETRIES, connected
from planner.studies.point import Answer, Job, answer, failed
from planner.studies.runners import WAIT_S
from topologies.errors import InputError


class Cluster:
    """A Dask cluster: the one at `address`, or one of `workers` processes on this machine."""

    def __init__(self, address: str | None = None, workers: int | None = None) -> None:
        self._address, self._workers = address, workers or usable_cores()
        self._jobs: dict[Any, tuple[int, Job]] = {}
        self._done: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._client: Any = None
        self._open = ExitStack()

    def __enter__(self) -> Self:
        """Connects. Raises InputError where no scheduler or worker answers in time, or they run another planner."""
        self._client = self._open.enter_context(connected(self._address, self._workers))
        return self

    def __exit__(self, *_: object) -> None:
        """Drops what is not yet computed; ends a cluster of our own."""
        for future in self._jobs:
            future.cancel(force=True)
        self._jobs.clear()
        self._open.close()

    def submit(self, number: int, job: Job) -> None:
        """To the scheduler."""
        future = self._client.submit(answer, job, pure=False)
        self._jobs[future] = number, job
        future.add_done_callback(self._done.put)

    def completed(self) -> Mapping[int, Answer]:
        """Waits for the first. Raises InputError where the scheduler is gone."""
        from distributed.scheduler import KilledWorker

        try:
            future = self._done.get(timeout=WAIT_S)
        except queue.Empty:
            if self._client.status not in ("running", "connecting"):
                raise InputError.at(str(self._address), "the scheduler is gone; run again to go on") from None
            return {}
        number, job = self._jobs.pop(future)
        if future.status == "cancelled" or future.status == "lost":
            raise InputError.at(str(self._address), "the scheduler is gone; run again to go on")
        error = future.exception()
        if error is None:
            return {number: future.result()}
        reason = f"{type(error).__name__}: {error}"
        if isinstance(error, KilledWorker):
            reason = f"the workers that computed it died {RETRIES} times; it may need more memory than they have"
        return {number: Answer(failed(job, reason), is_bug=True)}
