"""From a source to measured tables: preview, count, profile."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from planner.profiling.engines.local import count_locally
from planner.profiling.measured import MeasuredTable, measured
from planner.profiling.preview import preview
from planner.profiling.progress import Progress
from planner.profiling.reads import HotIds, capacity_for
from planner.profiling.sources.source import Task
from planner.profiling.sources.tables import TableSource
from planner.profiling.statistics import TableStatistics, no_counts

USUAL_BATCH = 65_536


class Engine(Protocol):
    """Counts what is left of `progress`, unless `stop` asks for the end."""

    def __call__(
        self,
        source: TableSource,
        hot: Mapping[str, HotIds],
        progress: Progress,
        capacity: int,
        workers: int,
        stop: Callable[[], bool],
    ) -> None:
        """Raises InputError for data that cannot be read."""


@dataclass(frozen=True)
class Settings:
    """How data is counted."""

    batch: int = USUAL_BATCH
    """Samples of a batch, of which distinct ids are counted."""
    session: str | None = None
    share: float = 1.0
    """Share of the chunks that is read, evenly spread."""
    memory_bytes: float = float(1 << 30)
    workers: int = 2
    progress_file: Path | None = None


def profile(
    source: TableSource,
    stated: Mapping[str, Mapping[str, Any]],
    settings: Settings,
    *,
    engine: Engine = count_locally,
    stop: Callable[[], bool] = lambda: False,
    shown: Callable[[float, int], None] = lambda _share, _ids: None,
    resumed: Callable[[float], None] = lambda _share: None,
) -> list[MeasuredTable] | None:
    """The measured tables of a source; None where `stop` asked for the end before all was counted.

    `resumed` is called with the share of the work that an earlier run has done. Raises InputError.
    """
    tasks = _sampled(source.tasks(), settings.share)
    chunks = sorted({task.chunk for task in tasks})
    capacity = capacity_for(len(source.features), settings.memory_bytes)
    with ThreadPoolExecutor(settings.workers) as pool:
        found = preview(source, chunks, settings.batch, settings.session, capacity, pool)
    hot = {name: found[name].hot for name in source.features}
    progress = Progress(
        {name: no_counts(hot[name], capacity) for name in source.features},
        tasks,
        shown=shown,
        file=settings.progress_file,
        key=f"{source.fingerprint} {settings.batch} {settings.share} {capacity}",
    )
    if progress.load():
        resumed(len(progress.done) / len(tasks))
    engine(source, hot, progress, capacity, settings.workers, stop)
    if progress.left:
        progress.save()
        return None
    tables = []
    for name in source.features:
        statistics = TableStatistics.of(progress.counts[name], hot[name], found[name].batches)
        table = measured(name, source.columns[name], statistics, stated.get(name, {}), settings.batch)
        if table is not None:
            tables.append(table)
    if settings.progress_file is not None:
        settings.progress_file.unlink(missing_ok=True)
    return tables


def _sampled(tasks: Sequence[Task], share: float) -> list[Task]:
    """The tasks of evenly spread chunks."""
    chunks = sorted({task.chunk for task in tasks})
    kept = max(round(share * len(chunks)), 1)
    chosen = {chunks[int((k + 0.5) * len(chunks) / kept)] for k in range(kept)}
    return [task for task in tasks if task.chunk in chosen]
