"""Processes of one gloo group that do one job after the other."""

import logging
import os
import pickle
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import torch
import torch.distributed as dist
from torch import multiprocessing

Job = Callable[..., Any]
HASH_SEED = "PYTHONHASHSEED"


class Processes:
    """`world` processes on this machine, in nodes of `local`, that TorchRec takes for ranks."""

    def __init__(self, world: int, local: int, *, one_hash_seed: bool = True, asserting: bool = True) -> None:
        """Words are hashed alike by all, or by each in its way: `reshard` tags what it sends over gloo by such hashes.
        DMPCollection asserts that devices are GPUs, and runs on CPUs where asserts are off."""
        self.world, self.local = world, local
        self._environment = {HASH_SEED: "0" if one_hash_seed else "random"}
        if not asserting:
            self._environment["PYTHONOPTIMIZE"] = "1"
        self._context = multiprocessing.get_context("spawn")
        self._processes: list[Any] = []

    def __enter__(self) -> "Processes":
        self._start()
        return self

    def _start(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._jobs = [self._context.SimpleQueue() for _ in range(self.world)]
        self._results = self._context.SimpleQueue()
        for rank in range(self.world):
            arguments = (rank, self.world, self.local, self._folder.name, self._jobs[rank], self._results)
            process = self._context.Process(target=_serve, args=arguments, daemon=True)
            with _started_in(self._environment):
                process.start()
            self._processes.append(process)

    def _kill(self) -> None:
        """Without a farewell: ranks may wait for one that has failed."""
        for process in self._processes:
            process.kill()
            process.join()
        self._processes = []
        self._folder.cleanup()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for jobs in self._jobs if self._processes else ():
            jobs.put(None)
        for process in self._processes:
            process.join(timeout=20)
        self._kill()

    def run(self, job: Job, *arguments: Any) -> list[Any]:
        """What the job returns on each rank, in their order. Raises RuntimeError with the traceback of the first that
        fails; the next job has processes of its own."""
        if not self._processes:
            self._start()
        for jobs in self._jobs:
            jobs.put((job, arguments))
        found = {}
        for _ in range(self.world):
            rank, result, failure = self._results.get()
            if failure:
                self._kill()
                raise RuntimeError(f"rank {rank} failed:\n{failure}")
            found[rank] = pickle.loads(result)
        return [found[rank] for rank in range(self.world)]


@contextmanager
def _started_in(environment: Mapping[str, str]) -> Iterator[None]:
    """Processes that start inside have these variables beside those of this one."""
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        yield
    finally:
        for name, value in before.items():
            del os.environ[name]
            if value is not None:
                os.environ[name] = value


def _serve(rank: int, world: int, local: int, folder: str, jobs: Any, results: Any) -> None:
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank % local), LOCAL_WORLD_SIZE=str(local))
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=world)
    while (task := jobs.get()) is not None:
        job, arguments = task
        try:
            results.put((rank, pickle.dumps(job(*arguments)), None))  # bytes: tensors would travel as open files
        except Exception:  # noqa: BLE001 - the parent raises it
            results.put((rank, None, traceback.format_exc()))
    dist.destroy_process_group()
