"""Studies on Dask: a scheduler and two worker processes on loopback, one of which dies."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from planner.studies.dask_cluster import CONNECT_S
from planner.studies.dask_runner import Cluster
from planner.studies.execution import Done, Execution
from planner.studies.grid import Grid
from planner.studies.results import as_document
from planner.studies.runners import Serial
from planner.studies.table import results
from topologies.errors import InputError

AXES = {"topology.nodes.0.count": [1, 2, 3], "workload.global_batch": [4096, 8192, 12288]}
START_S = 60


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """The address of a scheduler, and its two workers, without nannies that would start them again."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"tcp://127.0.0.1:{port}"
    shared = ("--local-directory", str(tmp_path))
    words = [
        ("scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard"),
        *[("worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard", *shared) for _ in range(2)],
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    running = []
    for each in words:
        command = [sys.executable, "-m", "dask", *each]
        running.append(subprocess.Popen(command, stderr=subprocess.DEVNULL, env=environment))
    _wait_for_workers(address)
    yield address, running[1:]
    for process in running:
        process.kill()
        process.wait()


def _wait_for_workers(address: str) -> None:
    from distributed import Client

    end = time.monotonic() + START_S
    while True:
        try:
            with Client(address, timeout=START_S, set_as_default=False) as client:
                client.wait_for_workers(2, timeout=START_S)
            return
        except OSError:
            assert time.monotonic() < end


@pytest.mark.slow
def test_a_worker_that_dies_halfway_loses_nothing(
    cluster: tuple[str, list[subprocess.Popen[bytes]]], grid: Callable[..., Grid]
) -> None:
    """Every point has its answer, the same as in one process."""
    address, workers = cluster
    points = grid(axes=AXES)
    done: list[Done] = []
    with Cluster(address) as runner:
        for one in Execution(points, points).run(runner, None):
            done.append(one)
            if len(done) == 2:
                workers[0].send_signal(signal.SIGKILL)
    assert workers[0].wait() == -signal.SIGKILL
    assert len(done) == len(points)
    alone = list(Execution(points, points).run(Serial(), None))
    assert as_document(results(points, done)) == as_document(results(points, alone))


def test_a_cluster_of_our_own_needs_no_address(grid: Callable[..., Grid]) -> None:
    """Processes of this machine, ended afterwards."""
    points = grid(axes={"topology.nodes.0.count": [1, 2]})
    with Cluster(workers=2) as runner:
        done = list(Execution(points, points).run(runner, None))
    assert [one.answer.record["status"] for one in done] == ["feasible", "feasible"]


def test_a_scheduler_that_does_not_answer_is_an_error_in_time() -> None:
    """Within ten seconds, with what to do."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    began = time.monotonic()
    with pytest.raises(InputError, match="no Dask scheduler answers") as caught, Cluster(address):
        pass
    assert "dask scheduler" in str(caught.value)
    assert time.monotonic() - began < CONNECT_S + 2


@pytest.mark.parametrize("address", ["nonsense", "ftp://127.0.0.1:1", "tcp://127.0.0.1:notaport"])
def test_an_address_that_is_none_is_an_error(address: str) -> None:
    """In words."""
    with pytest.raises(InputError), Cluster(address):
        pass
