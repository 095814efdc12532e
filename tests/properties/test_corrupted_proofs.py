"""Corrupted proofs of memory, and of what is beside largest blocks: with none of them passes a higher bound than the
right one, nor anything else."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from planner.document.plan import read_plan
from planner.verification.verify import verify
from tests.oracles.corruptions import Corrupted, corruptions_of_proof, slip
from tests.oracles.right_documents import Base, Json, beside_blocks, in_one_memory, in_whole_pools
from topologies.errors import InputError

FEW, MANY = 12, 250
"""Corruptions of each proof."""
SHARES = (0.02, 0.5, 1.0)
"""Of what the step is above the bound: by so much more is claimed than what is proven."""


@pytest.fixture(scope="module", params=[in_whole_pools, in_one_memory, beside_blocks])
def right(request: pytest.FixtureRequest) -> Base:
    made: Callable[[], Base] = request.param
    return made()


def claiming(text: str, share: float) -> str:
    """The document with a bound nearer to the step, and all that follows from it."""
    data = json.loads(text)
    objective = data["objective"]
    objective["lower_bound_s"] += share * (objective["step_s"] - objective["lower_bound_s"])
    objective["gap"] = objective["step_s"] / objective["lower_bound_s"] - 1
    if share == 1.0:
        data["status"], objective["gap"] = "optimal", 0.0
    return json.dumps(data)


def _table_weights(proof: Json) -> list[Json]:
    """Those of a proof and all cases within."""
    found = list(proof.get("table_weights", []))
    for each in (proof.get("stage_cases"), proof.get("reach_cases")):
        found += [one for part in (each or {}).values() if isinstance(part, dict) for one in _table_weights(part)]
    return found


def is_refused(text: str, folder: Path) -> bool:
    path = folder / "plan.json"
    path.write_text(text)
    try:
        return bool(verify(read_plan(path)))
    except InputError:
        return True


def test_the_documents_are_right_before(right: Base, tmp_path: Path) -> None:
    """Each has what its name says, a gap, and no proof of more."""
    proof, objective = right.data["proof"], right.data["objective"]
    has = {
        "in whole pools": bool(proof.get("packing", {}).get("memory_functions")),
        "in one memory": "memory_cases" in proof,
        "beside blocks": '"resource"' in json.dumps(_table_weights(proof)),
    }
    assert [name for name, is_there in has.items() if is_there] == [right.name]
    assert objective["gap"] > 1e-3
    assert not is_refused(right.text, tmp_path)
    assert all(is_refused(claiming(right.text, share), tmp_path) for share in SHARES)


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
def test_no_corrupted_proof_proves_more(right: Base, count: int, tmp_path: Path) -> None:
    """Each with its own claim says nothing else where it passes; with a higher one it is refused."""
    proven = list[Corrupted]()
    for number, corrupted in enumerate(corruptions_of_proof(right, count)):
        assert slip(corrupted, tmp_path) == [], corrupted.what
        proven += [corrupted] if not is_refused(corrupted.text, tmp_path) else []
        try:
            higher = claiming(corrupted.text, SHARES[number % len(SHARES)])
        except KeyError:
            continue
        assert is_refused(higher, tmp_path), corrupted.what
    assert len(proven) < count / 2
