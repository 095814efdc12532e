"""What holds for every test; processes that they share: to start one takes seconds, in which it imports torchrec."""

from collections.abc import Iterator

import pytest

from benchmarks.gloo.processes import Processes
from tests.conftest import pytest_collection

__all__ = ["four_ranks", "four_unasserting_ranks", "pytest_collection", "two_ranks"]


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


@pytest.fixture(scope="session")
def four_unasserting_ranks() -> Iterator[Processes]:
    """Of one gloo group, on two hosts, for DMPCollection."""
    with Processes(4, 2, asserting=False) as processes:
        yield processes
