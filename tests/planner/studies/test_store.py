"""The cache hands back what was put there, or nothing: damage is noticed, said, and computed again."""

import json
import random
from pathlib import Path

import pytest

from planner.studies.point import Answer, Start
from planner.studies.store import Store

KEY, OTHER = "ab" * 32, "ab" + "cd" * 31
ANSWER = Answer(
    {"step_s": 0.1 + 0.2, "status": "feasible", "name": "é"}, Start("o", (1, 2), (3,), 0.01), '{"plan": 1}\n'
)


@pytest.fixture
def said() -> list[str]:
    """What the store warns of."""
    return []


@pytest.fixture
def store(tmp_path: Path, said: list[str]) -> Store:
    """With an answer and its plan."""
    made = Store(tmp_path, said.append)
    made.put(KEY, ANSWER)
    return made


def test_an_answer_comes_back_as_it_was(store, said):
    """With its plan, or without; one that is not there is no damage."""
    assert store.get(KEY, with_plan=True, with_start=True) == ANSWER
    assert store.get(OTHER, with_plan=False, with_start=False) is None
    assert said == []


@pytest.mark.parametrize("suffix", [".json", ".plan"])
def test_every_changed_byte_is_noticed(store, said, suffix):
    """No value of a damaged record reaches a study, wherever the damage is."""
    (path,) = store.directory.glob(f"*/*{suffix}")
    whole, draw = path.read_bytes(), random.Random(7)
    for _ in range(300):
        at = draw.randrange(len(whole))
        path.write_bytes(bytes([*whole[:at], (whole[at] + draw.randrange(1, 256)) % 256, *whole[at + 1 :]]))
        found = store.get(KEY, with_plan=True, with_start=True)
        assert found in (None, ANSWER)
        assert (found is None) == bool(said)
        assert all(str(path.with_suffix(".json")) in words and "computed again" in words for words in said)
        said.clear()


@pytest.mark.parametrize("content", ["", "[]", "{}", "null", '{"checksum": "", "answer": {}}', "[" * 10**5])
def test_what_is_no_record_is_noticed(store, said, content):
    """Empty, cut off, of another kind."""
    (path,) = store.directory.glob("*/*.json")
    path.write_text(content)
    assert store.get(KEY, with_plan=False, with_start=False) is None
    assert len(said) == 1


def test_the_record_of_another_job_is_noticed(store, said):
    """Under a wrong name, though whole."""
    (path,) = store.directory.glob("*/*.json")
    path.rename(path.with_name(f"{OTHER}.json"))
    assert store.get(OTHER, with_plan=False, with_start=False) is None
    assert len(said) == 1


def test_a_changed_figure_is_noticed(store, said):
    """A tenfold step in valid JSON."""
    (path,) = store.directory.glob("*/*.json")
    data = json.loads(path.read_text())
    data["answer"]["record"]["step_s"] *= 10
    path.write_text(json.dumps(data))
    assert store.get(KEY, with_plan=False, with_start=False) is None
    assert len(said) == 1
