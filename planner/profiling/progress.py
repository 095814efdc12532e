"""How far a count has come, and where it can go on after an interruption."""

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from planner.document.files import replacing
from planner.profiling.sources.source import Task
from planner.profiling.statistics import FeatureCounts

SAVE_EVERY_S = 30.0
FORMAT = 1


@dataclass
class Progress:
    """The counts so far, and the tasks whose data is in them. Tasks may be added from several threads."""

    counts: dict[str, FeatureCounts]
    tasks: list[Task]
    done: set[int] = field(default_factory=set)
    """Positions in `tasks`."""
    shown: Callable[[float, int], None] = lambda _share, _ids: None
    """Called with the share of the work that is done and the ids that were read by this process."""
    file: Path | None = None
    key: str = ""
    """What a file of progress must have been made with."""

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._saved_s = time.monotonic()
        self._ids = 0
        self._weight = sum(task.weight for task in self.tasks) or 1.0

    @property
    def left(self) -> list[int]:
        """Positions of the tasks that are still to be done, those of a chunk beside each other."""
        return [position for position in range(len(self.tasks)) if position not in self.done]

    def level(self, feature: str) -> int:
        """How thin a feature's sample is so far."""
        return self.counts[feature].reads.level

    def add(self, positions: Iterable[int], counts: Mapping[str, FeatureCounts]) -> None:
        """Add what tasks counted."""
        with self._lock:
            for name, of_task in counts.items():
                self.counts[name] = self.counts[name] + of_task
            self.done.update(positions)
            self._ids += sum(of_task.ids for of_task in counts.values())
            share = sum(self.tasks[at].weight for at in self.done) / self._weight
            self.shown(share, self._ids)
            if self.file is not None and time.monotonic() - self._saved_s > SAVE_EVERY_S:
                self.save()

    def save(self) -> None:
        """Write the file of progress, if there is to be one."""
        if self.file is None:
            return
        arrays: dict[str, Any] = {}
        for index, counts in enumerate(self.counts.values()):
            arrays |= {f"{index}.{name}": array for name, array in counts.arrays().items()}
        head = {"format": FORMAT, "key": self.key, "done": sorted(self.done)}
        arrays["head"] = np.frombuffer(json.dumps(head).encode(), np.uint8)
        with replacing(self.file) as stream:
            np.savez(stream, **arrays)
        self._saved_s = time.monotonic()

    def load(self) -> bool:
        """Go on from the file of progress; whether there is one that was made with the same data and flags.

        One that is damaged counts as absent.
        """
        if self.file is None or not self.file.exists():
            return False
        try:
            with self.file.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
                head = json.loads(arrays["head"].tobytes())
                if head["format"] != FORMAT or head["key"] != self.key:
                    return False
                counts = {}
                for index, name in enumerate(self.counts):
                    prefix = f"{index}."
                    own = {key.removeprefix(prefix): arrays[key] for key in arrays.files if key.startswith(prefix)}
                    counts[name] = FeatureCounts.of_arrays(own)
                done = {int(position) for position in head["done"]}
        except Exception:  # noqa: BLE001 - a damaged archive may raise anything
            return False
        if not done <= set(range(len(self.tasks))):
            return False
        self.counts, self.done = counts, done
        return True
