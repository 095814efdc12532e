"""What is written today opens in the next version: how documents are upgraded, and files that releases have written."""

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from planner import read_plan, verify
from planner.document import versions
from planner.document.plan import Plan
from planner.document.versions import upgraded
from planner.runs import results as run_results
from planner.runs.results import read_result
from planner.studies import results as study_results
from planner.studies.results import as_document, read_results
from planner.verification.simulation import simulate_plan
from topologies.errors import InputError

ROOT = Path(__file__).resolve().parents[3]
RELEASED = sorted((ROOT / "tests/golden/released").glob("*/*.json"))
READERS = {"plan": read_plan, "study_results": read_results, "run_result": read_result, "run_grid": read_result}
TABLES = {"plan": versions, "study_results": study_results, "run_result": run_results, "run_grid": run_results}


def goal_for_objective(data: dict[str, Any], _source: str) -> dict[str, Any]:
    """A change that a next version might make: a field under another name."""
    return {"goal" if key == "objective" else key: value for key, value in data.items()}


@pytest.mark.parametrize("file", RELEASED, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_what_releases_wrote_is_read(file: Path) -> None:
    """These files are never written anew: they stand for those that users have. Plans are still proven, and simulated
    as they were but for what coefficients have changed since."""
    kind = json.loads(file.read_text())["kind"]
    found = READERS[kind](file)
    if isinstance(found, Plan):
        faults = [str(fault) for fault in verify(found) if "step_s" in str(fault)]
        assert all(fault.startswith("simulated: ") for fault in faults)
        assert found.simulated is not None
        assert simulate_plan(found).step_s == pytest.approx(found.simulated.step_s, rel=1e-3)


def test_every_kind_of_a_release_is_there() -> None:
    """A plan, a study and both documents of runs."""
    kinds = {(file.parent.name, json.loads(file.read_text())["kind"]) for file in RELEASED}
    assert kinds == {(file.parent.name, kind) for file in RELEASED for kind in READERS}


@pytest.mark.parametrize("file", RELEASED, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_what_is_written_today_opens_in_a_next_version(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One more upgrade in the table, and today's files have the next version's fields; nothing else changes."""
    old = json.loads(file.read_text())
    table = TABLES[old["kind"]].UPGRADES
    new = upgraded(old, (*table, goal_for_objective), "a.json")
    assert new["schema_version"] == len(table) + 2
    present = upgraded(old, table, "a.json")
    assert new == goal_for_objective(present, "") | {"schema_version": len(table) + 2}
    assert "goal" in new


def test_a_next_version_of_results_is_read_by_its_reader(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A study's file of version 1, where version 2 has another name for its title: the reader upgrades it."""
    (file,) = [each for each in RELEASED if json.loads(each.read_text())["kind"] == "study_results"]
    today = json.loads(file.read_text())
    was = {"title" if key == "name" else key: value for key, value in today.items()}
    (tmp_path / "r.json").write_text(json.dumps(was))
    upgrade = lambda data, _: {"name" if key == "title" else key: value for key, value in data.items()}  # noqa: E731
    monkeypatch.setattr(study_results, "UPGRADES", (upgrade,))
    found = read_results(tmp_path / "r.json")
    assert found.name == today["name"]
    assert as_document(found)["schema_version"] == 2


def test_upgrades_follow_one_another() -> None:
    """A document of version 1 goes through all of them in order, one of version 3 through the third alone."""
    steps = [lambda data, _, n=n: {**data, "trail": [*data["trail"], n]} for n in (1, 2, 3)]
    for version in (1, 2, 3, 4):
        new = upgraded({"schema_version": version, "trail": []}, steps, "a.json")
        assert new == {"schema_version": 4, "trail": list(range(version, 4))}


def test_the_version_of_plans_is_the_last_that_upgrades_reach() -> None:
    """Nobody adds an upgrade without its version, or the other way round."""
    assert len(versions.UPGRADES) + 1 == versions.SCHEMA_VERSION
    for model in (run_results.RunResult, run_results.RunGrid):
        assert get_args(model.model_fields["schema_version"].annotation) == (len(run_results.UPGRADES) + 1,)


@pytest.mark.parametrize("file", RELEASED, ids=lambda file: f"{file.parent.name}-{file.stem}")
@pytest.mark.parametrize(("version", "words"), [(99, "update this one"), (0, "reads 1"), ("1", "reads 1"), (None, "")])
def test_other_versions_are_refused(file: Path, version: object, words: str, tmp_path: Path) -> None:
    """A file of a newer planner says so; what is no version, too."""
    data = json.loads(file.read_text()) | {"schema_version": version}
    (tmp_path / "a.json").write_text(json.dumps(data))
    with pytest.raises(InputError, match=f"schema_version.*has version {version!r}.*{words}"):
        READERS[data["kind"]](tmp_path / "a.json")


@pytest.mark.parametrize(
    ("version", "words"),
    [
        (3, "has version 3; this planner reads 1 to 2; a newer one wrote it: update this one"),
        (0, "has version 0; this planner reads 1 to 2"),
        (True, "has version True; this planner reads 1 to 2"),
        ("3", "has version '3'; this planner reads 1 to 2"),
        (None, "has version None; this planner reads 1 to 2"),
    ],
)
def test_only_a_newer_version_asks_for_an_update(version: object, words: str) -> None:
    """What is no version, or an older one than there was, is not mended by an update."""
    with pytest.raises(InputError) as caught:
        upgraded({"schema_version": version}, [lambda data, _: data], "a.json")
    assert [(fault.path, fault.message) for fault in caught.value.faults] == [("schema_version", words)]
