"""Processes that the tests share: to start one takes seconds, in which it imports torchrec."""

import os
from collections.abc import Iterator

import pytest

from benchmarks.gloo.processes import Processes


@pytest.fixture(scope="session")
def two_ranks() -> Iterator[Processes]:
    """Of one gloo group, on one host."""
    with Processes(2, 2) as processes:
        yield processes


@pytest.fixture(scope="session")
def four_ranks() -> Iterator[Processes]:
    """Of one gloo group, on two hosts."""
    with Processes(4, 2) as processes:
        yield processes


@pytest.fixture(scope="module")
def four_unasserting_ranks() -> Iterator[Processes]:
    """Of two hosts; DMPCollection asserts that devices are GPUs, and runs on CPUs where asserts are off."""
    os.environ["PYTHONOPTIMIZE"] = "1"
    try:
        with Processes(4, 2) as processes:
            yield processes
    finally:
        del os.environ["PYTHONOPTIMIZE"]
