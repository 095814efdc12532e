"""Collectives among processes of this machine over gloo, as TorchRec on CPUs uses them.

A collective takes as long as the rank whose process (all of its threads) works longest for it: what the scheduler and
other processes take does not count. That is its time where every rank has a core of its own. How much a rank works
depends on how its threads and the other ranks meet, and the runs in which they meet best are no step of a trainer: the
median of the runs is taken.
"""

import itertools
import platform
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd

from cost_models.coefficients import CollectiveOperation
from topologies.errors import MissingPackageError

LINK = "gloo"
"""What a topology calls such a link."""
BANDWIDTH = "10GB/s"
"""What a topology says of its port where nothing is told: there is no data sheet, and laws are scaled by it."""
MOST_PROCESSES = 64
OPERATIONS: tuple[CollectiveOperation, ...] = ("all_to_all", "all_reduce", "reduce_scatter", "all_gather")
BUFFER_BYTES = tuple(4**power * 1024 for power in range(9))
"""1 KiB to 64 MiB, of each rank's input."""
QUICK_BYTES = tuple(8**power * 1024 for power in range(6))
PASSES, RUNS = 5, 5
"""Through all cases, so that no burst of other work hits all runs of one; and of a case in each pass."""
LEAST_BYTES = 2**20
"""Smaller collectives are repeated, since the clock tells no shorter time."""


def measure(
    processes: Sequence[int], sizes: Sequence[int] = BUFFER_BYTES, progress: Callable[[str], None] | None = None
) -> pd.DataFrame:
    """Times of all operations by number of processes: operation, ranks, buffer_bytes, seconds.

    Raises MissingPackageError without PyTorch.
    """
    try:
        from torch import multiprocessing
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingPackageError("collectives need PyTorch", "calibrate-device") from None
    frames: list[pd.DataFrame] = []
    for world in processes:
        if progress:
            progress(f"collectives among {world}")
        with tempfile.TemporaryDirectory() as folder:
            multiprocessing.spawn(_measure, args=(world, tuple(sizes), folder), nprocs=world, join=True)
            parts = [pd.read_csv(Path(folder) / f"{rank}.csv") for rank in range(world)]
        longest = pd.concat([part.seconds for part in parts], axis=1).max(axis=1)
        frames.append(parts[0].assign(seconds=longest))
    return pd.concat(frames, ignore_index=True)


def software() -> str:
    """What was measured with, for the source of the coefficients."""
    import torch

    return f"gloo of PyTorch {torch.__version__}, 1 thread a process, on {platform.platform()}"


def _measure(rank: int, world: int, sizes: Sequence[int], folder: str) -> None:
    """One process's part; its times go to a file of the folder."""
    import torch
    from torch import distributed

    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=world)
    seconds: dict[tuple[CollectiveOperation, int], list[float]]
    seconds = {case: [] for case in itertools.product(OPERATIONS, sizes)}
    for _, (operation, size) in itertools.product(range(PASSES), seconds):
        run = _collective(operation, size // 4 // world * world, world)
        seconds[operation, size] += _seconds(run, distributed.barrier, max(1, min(20, LEAST_BYTES // size)))
    rows = [
        {"operation": operation, "ranks": world, "buffer_bytes": size, "seconds": median(runs)}
        for (operation, size), runs in seconds.items()
    ]
    pd.DataFrame(rows).to_csv(Path(folder) / f"{rank}.csv", index=False)
    distributed.destroy_process_group()


def _collective(operation: CollectiveOperation, elements: int, world: int) -> Callable[[], Any]:
    import torch
    from torch import distributed

    sent = torch.rand(elements)
    if operation == "all_to_all":
        received = torch.empty_like(sent)
        return lambda: distributed.all_to_all_single(received, sent)
    if operation == "all_reduce":
        return lambda: distributed.all_reduce(sent.mul_(0.5))
    part = torch.empty(elements // world)
    # Both on whole buffers, as TorchRec calls them; PyTorch 2.13 has other names for them.
    if operation == "all_gather":
        gather = getattr(distributed, "all_gather_single", None) or distributed.all_gather_into_tensor
        return lambda: gather(sent, part)
    reduce = getattr(distributed, "reduce_scatter_single", None) or distributed.reduce_scatter_tensor
    return lambda: reduce(part, sent)


def _seconds(collective: Callable[[], Any], barrier: Callable[[], Any], repetitions: int) -> list[float]:
    """The work of RUNS, after one that is not counted."""
    collective()
    seconds = []
    for _ in range(RUNS):
        barrier()
        began = time.process_time()
        for _ in range(repetitions):
            collective()
        seconds.append((time.process_time() - began) / repetitions)
    return seconds
