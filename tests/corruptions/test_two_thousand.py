"""2,000 corruptions of right plan documents: none that changes meaning verifies. By name: it takes minutes."""

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from planner.document import planned
from planner.verification import simulation
from tests.oracles.corruptions import corruptions, slip
from tests.oracles.right_documents import Base, bases

COUNT = 2_000
SEEDS = (100, 101)


def remembered(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, which computes once what it is asked for again."""
    known: dict[bytes, Any] = {}

    def call(*given: object, **named: object) -> Any:
        asked = pickle.dumps((given, sorted(named.items())))
        if asked not in known:
            known[asked] = function(*given, **named)
        return known[asked]

    return call


@pytest.fixture(scope="module", autouse=True)
def what_corruptions_share() -> Iterator[None]:
    """Most leave the question as it is, or every shard in its place: costs of the one, the simulation of the other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planned, "model_of_replicas", remembered(planned.model_of_replicas))
        patch.setattr(simulation, "simulate", remembered(simulation.simulate))
        yield


@pytest.fixture(scope="module")
def right() -> list[Base]:
    return bases()


@pytest.mark.parametrize("seed", SEEDS)
def test_no_corruption_that_changes_meaning_verifies(right: list[Base], seed: int, tmp_path: Path) -> None:
    """All that slip through are shown."""
    made = list(corruptions(right, COUNT // len(SEEDS), seed))
    assert len({corrupted.text for corrupted in made}) > 0.9 * len(made)
    slips = [(each.base.name, each.what, found) for each in made if (found := slip(each, tmp_path))]
    assert slips == []
