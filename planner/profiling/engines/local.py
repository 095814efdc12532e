"""Counting in threads of this process: reading and numpy run outside the interpreter's lock."""

from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from planner.profiling.lists import Lists, joined
from planner.profiling.progress import Progress
from planner.profiling.reads import HotIds
from planner.profiling.sources.source import Source, Task
from planner.profiling.statistics import FeatureCounts, counts_of, no_counts

TOGETHER = 1 << 20
"""Ids and samples that are counted together."""


def count_locally(
    source: Source, hot: Mapping[str, HotIds], progress: Progress, capacity: int, workers: int, stop: Callable[[], bool]
) -> None:
    """Count what is left of `progress`, unless `stop` asks for the end between two tasks. Raises InputError."""

    def work(position: int) -> None:
        task = progress.tasks[position]
        counts = count_task(source, task, hot, {name: progress.level(name) for name in task.features}, capacity)
        progress.add([position], counts)

    waiting = iter(progress.left)
    running: set[Future[None]] = set()
    with ThreadPoolExecutor(workers) as pool:
        try:
            while not stop():
                running |= {
                    pool.submit(work, position)
                    for _, position in zip(range(workers - len(running)), waiting, strict=False)
                }
                if not running:
                    break
                ended, running = wait(running, timeout=1.0, return_when=FIRST_COMPLETED)
                for each in ended:
                    each.result()
        finally:
            pool.shutdown(cancel_futures=True)


def count_task(
    source: Source, task: Task, hot: Mapping[str, HotIds], levels: Mapping[str, int], capacity: int
) -> dict[str, FeatureCounts]:
    """The counts of a task, by feature. Raises InputError."""
    counts = {name: no_counts(hot[name], capacity) for name in task.features}
    waiting: dict[str, list[Lists]] = {name: [] for name in task.features}

    def count(name: str) -> None:
        level = max(levels[name], counts[name].reads.level)
        counts[name] = counts[name] + counts_of(joined(waiting[name]), hot[name], level, capacity)
        waiting[name].clear()

    for name, lists in source.read(task):
        waiting[name].append(lists)
        if sum(len(each.ids) + each.samples for each in waiting[name]) >= TOGETHER:
            count(name)
    for name in task.features:
        count(name)
    return counts
