"""2,000 corruptions of right plan documents: none that changes meaning verifies. By name: it takes minutes."""

from pathlib import Path

import pytest

from tests.oracles.corruptions import corruptions, slip
from tests.oracles.right_documents import Base, bases

COUNT = 2_000
SEEDS = (100, 101)


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
