"""Two checkouts are compared by their documents: names and numbers, whatever the words of a sentence."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.same_plans import Answer, commands, difference, violation
from cost_models.workload.loading import WORKLOADS
from planner.studies.study import STUDIES

PLAN = {"kind": "plan", "schema_version": 3, "tables": [{"name": "a", "step_s": 0.5}], "proof": {"tree": None}}


def _difference(ours: Any, theirs: Any, **renamed: str | None) -> str:
    return difference(Answer(0, ours), Answer(0, theirs), renamed)


def test_whole_catalog() -> None:
    """Every shipped workload on two clusters, every study, sizes and re-plans are compared."""
    names = [command.name for command in commands("1")]
    for workload in WORKLOADS.names():
        assert sum(name.startswith("plan ") and name.endswith(f" {workload}") for name in names) == 2
    for study in STUDIES.names():
        assert f"study {study}" in names
    assert sum(name.startswith("size") for name in names) == 2
    assert sum(name.startswith("plan --from") for name in names) == 3
    assert len(names) == len(set(names))


def test_effort() -> None:
    """Every search has a stated effort, so that no clock makes two checkouts differ."""
    lines = [words for each in commands("2") for words in (each.before, each.words)]
    searches = [words for words in lines if words[:1] in (("plan",), ("size",))]
    assert searches
    for words in searches:
        assert words[words.index("--effort") + 1] == "2"


def test_reworded_sentences() -> None:
    """A sentence may be reworded; its numbers must stay."""
    ours = {"why": "Of 16 ranks, 3 are full at 1,024 bytes."}
    assert _difference(ours, {"why": "3 of 16 ranks have 1,024 bytes and no room."}) == ""
    assert _difference(ours, {"why": "Of 16 ranks, 3 are full at 1,025 bytes."}).startswith("why is ")


@pytest.mark.parametrize(
    ("theirs", "told"),
    [
        ({"name": "a", "step_s": 0.5}, ""),
        ({"name": "b", "step_s": 0.5}, "tables.0.name is 'a' here, 'b' there"),
        ({"name": "a", "step_s": 0.25}, "tables.0.step_s is '0.5' here, '0.25' there"),
        ({"name": "a"}, "tables.0.step_s is only here"),
        ({"name": "a", "step_s": 0.5, "rank": 1}, "tables.0.rank is only there"),
    ],
)
def test_first_difference(theirs: dict[str, Any], told: str) -> None:
    """The first field that differs is named by its path."""
    assert _difference(PLAN, {**PLAN, "tables": [theirs]}) == told


def test_types_and_lengths() -> None:
    """A list of another length differs, and so does a value of another type that counts as equal."""
    assert _difference([1, 2], [1]) == " has 2 elements here, 1 there"
    assert _difference({"met": True}, {"met": 1}) == "met is 'True' here, '1' there"


def test_renamed_fields() -> None:
    """Fields that a version of plans renamed are taken for equal, and those that the caller names."""
    older = {"kind": "plan", "schema_version": 1, "proof": {"tried_s": 0.5}}
    assert _difference({"kind": "plan", "schema_version": 3, "proof": {"exhaustive_search_s": 0.5}}, older) == ""
    assert _difference({"nodes": 1}, {"cases": 1, "gone": 2}, cases="nodes", gone=None) == ""
    assert _difference({"nodes": 1}, {"cases": 1}) == "cases is only there"


def test_their_plans_verify_here() -> None:
    """A plan of version 1 that holds is accepted; one that was changed is refused with what is wrong."""
    older = json.loads((Path(__file__).parents[1] / "golden" / "plans" / "version-1" / "whole.json").read_text())
    assert violation(older) == ""
    assert violation({"kind": "sizing"}) == ""
    changed = {**older, "objective": {**older["objective"], "step_s": 1.0}}
    assert violation(changed).startswith("their plan does not verify here: ")


def test_nothing_to_compare() -> None:
    """Two failures without documents are no agreement, and neither are two exit codes."""
    assert "compares nothing" in difference(Answer(2, None), Answer(2, None), {})
    assert difference(Answer(0, PLAN), Answer(3, PLAN), {}) == "exit code 0 here, 3 there"
