"""How long a step takes where every rank has a core of its own, on a machine with fewer or with other work.

Each rank notes the time that its process has worked for (all of its threads) when it enters a collective and when it
leaves the wait for it. Played together, a rank leaves a wait when it has come to it and the last rank of the group has
entered the collective. What the scheduler and other processes take does not count; caches and memory that they share
do.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

COLLECTIVES = (
    "all_to_all_single",
    "all_to_all",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "reduce_scatter_single",
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_single",
    "all_reduce",
    "broadcast",
    "barrier",
)
"""Those that a torch has: `_single` came with 2.13, whose FSDP2 calls them."""
Event = tuple[bool, tuple[int, ...], int, float]
"""Whether a wait ends (else a collective is entered), ranks of the group, its number in the group, worked seconds."""


class Clock:
    """What one rank notes."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._count: dict[tuple[int, ...], int] = {}

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Collectives of torch.distributed are noted inside; those of DistributedDataParallel by `reduced`."""
        own = {name: getattr(dist, name) for name in COLLECTIVES if hasattr(dist, name)}
        for name, collective in own.items():
            setattr(dist, name, self._noted(collective))
        try:
            yield
        finally:
            for name, collective in own.items():
                setattr(dist, name, collective)

    def start(self) -> None:
        """Begin a step."""
        self.events, self._count = [], {}
        self._began = time.process_time()

    def stop(self) -> list[Event]:
        """The step's events, with its end."""
        return [*self.events, (True, (dist.get_rank(),), 0, time.process_time() - self._began)]

    def reduced(self, group: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """A communication hook of DistributedDataParallel: the mean of a bucket of gradients."""
        buffer = bucket.buffer().div_(dist.get_world_size(group))
        dist.all_reduce(buffer, group=group)
        done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        done.set_result(buffer)
        return done

    def _noted(self, collective: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            group = named.get("group")
            ranks = tuple(dist.get_process_group_ranks(group or dist.group.WORLD))
            number = self._count.get(ranks, 0)
            self._count[ranks] = number + 1
            self._note(False, ranks, number)
            work = collective(*arguments, **named)
            if work is None or not hasattr(work, "wait"):
                self._note(True, ranks, number)
                return work
            return _Waited(work, lambda: self._note(True, ranks, number))

        return run

    def _note(self, leaves: bool, ranks: tuple[int, ...], number: int) -> None:
        self.events.append((leaves, ranks, number, time.process_time() - self._began))


class _Waited(dist.Work):
    """A collective under way, whose end of waiting is noted. TorchRec waits for a `Work` only."""

    def __init__(self, work: Any, left: Callable[[], None]) -> None:
        super().__init__()
        self._work, self._left = work, left

    def wait(self, *arguments: Any) -> Any:
        found = self._work.wait(*arguments)
        self._left()
        return found

    def is_completed(self) -> bool:
        return bool(self._work.is_completed())


def step_seconds(events: Sequence[Sequence[Event]]) -> float:
    """The step of the events [ranks]: when the last rank ends."""
    now = [0.0] * len(events)
    worked = [0.0] * len(events)
    place = [0] * len(events)
    entered: dict[tuple[tuple[int, ...], int], dict[int, float]] = {}
    moved = True
    while moved:
        moved = False
        for rank, own in enumerate(events):
            while place[rank] < len(own):
                leaves, ranks, number, at = own[place[rank]]
                arrived = entered.setdefault((ranks, number), {})
                if leaves and len(ranks) > 1 and len(arrived) < len(ranks):
                    break
                now[rank] += at - worked[rank]
                worked[rank] = at
                if not leaves:
                    arrived[rank] = now[rank]
                elif len(ranks) > 1:
                    now[rank] = max(now[rank], *arrived.values())
                place[rank] += 1
                moved = True
    if any(place[rank] < len(own) for rank, own in enumerate(events)):
        raise RuntimeError("the ranks' collectives do not match")
    return max(now)
