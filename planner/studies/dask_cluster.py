"""A connection to a Dask cluster whose workers run this planner. Needs the extra `dask`."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from planner.studies.point import code_digest
from topologies.errors import InputError

CONNECT_S = 5.0
"""How long a scheduler, and then its first worker, is waited for."""
START_S = 60.0
"""The same of processes that are started on this machine, which may be busy."""
RETRIES = 3
"""Deaths of workers over one job, before it is given up."""


@contextmanager
def connected(address: str | None, workers: int) -> Iterator[Any]:
    """A client of the cluster at `address`, or of one of `workers` processes on this machine, which ends with it.

    Raises InputError where no scheduler or worker answers in time, or they run another planner.
    """
    import dask
    import distributed

    library: Any = distributed
    dask.config.set({"distributed.scheduler.allowed-failures": RETRIES})
    with ExitStack() as stack:
        cluster = None
        if address is None:
            cluster = library.LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address="127.0.0.1:0")
            stack.callback(cluster.close)
        else:
            _expect_scheduler(address)
        wait_s = CONNECT_S if cluster is None else START_S
        try:
            client = library.Client(cluster or address, timeout=wait_s, set_as_default=False)
            stack.callback(client.close)
            client.wait_for_workers(1, timeout=wait_s)
            digests = client.run(code_digest)
        except TimeoutError:
            message = f"the scheduler has no workers after {wait_s:.0f} s; start some with `dask worker`"
            raise InputError.at(str(address), message) from None
        except Exception as error:  # noqa: BLE001 - whatever a worker without the planner raises
            raise InputError.at(str(address), f"its workers cannot run the planner: {error}") from None
        if others := [worker for worker, digest in digests.items() if digest != code_digest()]:
            message = f"the worker {others[0]} runs another version of the planner, or of numpy or ortools"
            raise InputError.at(str(address), f"{message}; install the same everywhere")
        yield client


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
