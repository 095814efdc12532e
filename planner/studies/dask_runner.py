"""The points of a study on a Dask cluster: one that runs already, or one of processes on this machine.

Needs the extra `dask`. Dask computes again what a worker that died was computing.
"""

import asyncio
import queue
from collections.abc import Mapping
from typing import Any, Self

from planner.studies.point import Answer, Job, answer, code_digest, failed
from planner.studies.runners import WAIT_S, usable_cores
from topologies.errors import InputError

CONNECT_S = 5.0
"""How long a scheduler, and then its first worker, is waited for."""
RETRIES = 3
"""Deaths of workers over one job, before it is given up."""


class Cluster:
    """A Dask cluster: the one at `address`, or one of `workers` processes on this machine."""

    def __init__(self, address: str | None = None, workers: int | None = None) -> None:
        self._address, self._workers = address, workers or usable_cores()
        self._jobs: dict[Any, tuple[int, Job]] = {}
        self._done: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._client: Any = None
        self._cluster: Any = None

    def __enter__(self) -> Self:
        """Connects. Raises InputError where no scheduler or worker answers in time, or they run another planner."""
        import dask
        import distributed

        library: Any = distributed
        dask.config.set({"distributed.scheduler.allowed-failures": RETRIES})
        if self._address is None:
            self._cluster = library.LocalCluster(n_workers=self._workers, threads_per_worker=1, dashboard_address=None)
        else:
            _expect_scheduler(self._address)
        try:
            self._client = library.Client(self._cluster or self._address, timeout=CONNECT_S, set_as_default=False)
            self._client.wait_for_workers(1, timeout=CONNECT_S)
            digests = self._client.run(code_digest)
        except TimeoutError:
            self.__exit__()
            message = f"the scheduler has no workers after {CONNECT_S:.0f} s; start some with `dask worker`"
            raise InputError.at(str(self._address), message) from None
        except Exception as error:  # noqa: BLE001 - whatever a worker without the planner raises
            self.__exit__()
            raise InputError.at(str(self._address), f"its workers cannot run the planner: {error}") from None
        if others := [worker for worker, digest in digests.items() if digest != code_digest()]:
            self.__exit__()
            message = f"the worker {others[0]} runs another version of the planner, or of numpy or ortools"
            raise InputError.at(str(self._address), f"{message}; install the same everywhere")
        return self

    def __exit__(self, *_: object) -> None:
        """Drops what is not yet computed; ends a cluster of our own."""
        for future in self._jobs:
            future.cancel(force=True)
        self._jobs.clear()
        for each in (self._client, self._cluster):
            if each is not None:
                each.close()

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


def _expect_scheduler(address: str) -> None:
    """Raise InputError unless a scheduler answers at an address in time; nothing is left open."""
    import distributed

    library: Any = distributed

    async def ask() -> str:
        async with library.rpc(address) as scheduler:
            return str((await scheduler.identity())["type"])

    try:
        kind = asyncio.run(asyncio.wait_for(ask(), CONNECT_S))
    except Exception as error:  # noqa: BLE001 - what stands behind a wrong address may answer anything
        kind = f"{type(error).__name__} {error}".strip()
    if kind != "Scheduler":
        message = f"no Dask scheduler answers there within {CONNECT_S:.0f} s ({kind}); start one with `dask scheduler`,"
        raise InputError.at(address, f"{message} or leave --scheduler out")
