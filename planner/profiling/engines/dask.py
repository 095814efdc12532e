"""Counting on a Dask cluster, whose workers read the same files. Needs the extra `dask`."""

import queue
from collections.abc import Callable, Mapping
from typing import Any

from planner.profiling.engines.local import count_task
from planner.profiling.progress import Progress
from planner.profiling.reads import HotIds
from planner.profiling.sources.source import Task
from planner.profiling.sources.tables import TableSource
from planner.profiling.statistics import FeatureCounts
from planner.studies.dask_cluster import connected
from topologies.errors import InputError

AHEAD = 4
"""Tasks of a worker that wait beside the one that runs."""
POLL_S = 1.0
GONE = "the scheduler is gone; run the same command again to go on"


def dask_engine(address: str | None) -> Callable[..., None]:
    """An engine on the cluster at `address`, or on one of processes of this machine."""

    def count(
        source: TableSource,
        hot: Mapping[str, HotIds],
        progress: Progress,
        capacity: int,
        workers: int,
        stop: Callable[[], bool],
    ) -> None:
        """Count what is left of `progress`, unless `stop` asks for the end. Raises InputError."""
        with connected(address, workers) as client:
            _count(client, source, hot, progress, capacity, stop)

    return count


def _count(
    client: Any,
    source: TableSource,
    hot: Mapping[str, HotIds],
    progress: Progress,
    capacity: int,
    stop: Callable[[], bool],
) -> None:
    ended: queue.SimpleQueue[Any] = queue.SimpleQueue()
    shared = client.scatter((source, dict(hot)), broadcast=True)
    most = AHEAD * max(len(client.ncores()), 1)
    waiting = iter(progress.left)
    running: dict[Any, int] = {}
    try:
        while not stop():
            for _, position in zip(range(most - len(running)), waiting, strict=False):
                task = progress.tasks[position]
                levels = {name: progress.level(name) for name in task.features}
                future = client.submit(_work, shared, task, levels, capacity, pure=False)
                running[future] = position
                future.add_done_callback(ended.put)
            if not running:
                return
            try:
                future = ended.get(timeout=POLL_S)
            except queue.Empty:
                if client.status not in ("running", "connecting"):
                    raise InputError.at("--scheduler", GONE) from None
                continue
            position = running.pop(future)
            if future.status in ("cancelled", "lost"):
                raise InputError.at("--scheduler", GONE)
            progress.add([position], future.result())
    finally:
        for future in running:
            future.cancel(force=True)


def _work(
    shared: tuple[TableSource, dict[str, HotIds]], task: Task, levels: dict[str, int], capacity: int
) -> dict[str, FeatureCounts]:
    source, hot = shared
    return count_task(source, task, hot, levels, capacity)
