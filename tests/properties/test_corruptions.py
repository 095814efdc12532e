"""Whatever is corrupted in a right plan document is refused, or published as taken as stated: a sample.

`pytest tests/corruptions` tries 2,000.
"""

from pathlib import Path

import pytest

from planner.verification.verify import verify
from tests.oracles.corruptions import corruptions, slip
from tests.oracles.right_documents import Base, bases

EACH = 40


@pytest.fixture(scope="module")
def right() -> list[Base]:
    return bases()


def test_the_documents_are_right_before(right: list[Base]) -> None:
    """Of every status and cost model, with and without a plan that they follow."""
    assert {base.data["status"] for base in right} == {"optimal", "feasible", "infeasible", "timeout"}
    assert {base.data["provenance"]["cost_model"] for base in right} == {"physical", "torchrec", "hugectr"}
    assert any(
        base.data["status"] == "optimal" and base.data["provenance"]["cost_model"] == "physical" for base in right
    )
    reasons = [base.data["infeasibility"] for base in right if "infeasibility" in base.data]
    proven = {(bool(one.get("exhaustive_search")), bool(one["memory_multipliers"])) for one in reasons}
    assert proven == {(0, 0), (0, 1), (1, 0)}
    assert sum("moves" in base.data for base in right) == 3
    tiers = {table["tier"] for base in right for table in base.data["tables"]}
    assert tiers >= {"hbm", "ddr_cached", "ddr_split", "remote_cached"}
    for base in right:
        assert verify(base.plan, base.former) == [], base.name


@pytest.mark.parametrize("seed", range(3))
def test_no_corruption_that_changes_meaning_verifies(right: list[Base], seed: int, tmp_path: Path) -> None:
    """Leaves, lists, mappings, blocks of other documents, several places that fit each other, repeated keys."""
    for corrupted in corruptions(right, EACH, seed):
        assert slip(corrupted, tmp_path) == [], f"{corrupted.base.name}: {corrupted.what}"
