"""Processes of this machine that work for one which the user talks to."""

import multiprocessing
import os
import signal
import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.process import BaseProcess


def usable_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def spawned(workers: int) -> ProcessPoolExecutor:
    """A pool of so many processes, which begin when there is work for them, hear no signals and end with this one."""
    return ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"), initializer=_work_for_parent)


def kill(pool: ProcessPoolExecutor) -> None:
    """End the processes of a pool, whatever they do."""
    processes = list((getattr(pool, "_processes", None) or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.kill()


def _work_for_parent() -> None:
    """In a worker: signals are for the process that the user talks to, and no worker outlives it."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: BaseProcess) -> None:
    """Ends this process when its parent does, however that ends: the parent's end of a pipe closes."""
    parent.join()
    os._exit(1)
