"""What the tab key offers after a flag."""

import json

import pytest

from cost_models.shards import PLACEMENT_TIERS, SHARDINGS
from planner.exporters.formats import FORMATS


@pytest.fixture
def offered(run, monkeypatch):
    """`offered("explain plan.json --table ca")`: the values with which the last word may go on."""

    def of(words):
        monkeypatch.setenv("_PLANNER_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", f"planner {words}")
        monkeypatch.setenv("COMP_CWORD", str(len(words.split(" "))))
        return run().stdout.split()

    return of


def test_words_of_the_planner(offered):
    """Lists go on after their last comma, with what they do not have yet."""
    assert offered("plan --tiers ") == list(PLACEMENT_TIERS)
    assert offered("plan --shardings table_") == [name for name in SHARDINGS if name.startswith("table_")]
    assert offered("plan --shardings row_wise,r") == []
    assert offered("size --shardings row_wise,table_w") == ["row_wise,table_wise"]
    assert offered("export plan.json --to ") == list(FORMATS)
    assert offered("plan --runtime tor") == ["torchrec"]
    assert offered("plan --format m") == ["markdown"]
    assert offered("plan --solver ") == ["auto", "search", "ilp"]
    assert offered("plan --dense zero1") == ["zero1", "zero1=node"]
    assert offered("verify --goals step=1%,b") == ["step=1%,blocks"]
    assert offered("plan --goals step=1%,st") == []
    assert offered("topology export dgx-h100 --to ") == ["astra-sim", "infragraph"]


def test_tables_of_a_plan(offered, plan_file, monkeypatch):
    """Those of the plan that is named; nothing where it is none."""
    monkeypatch.chdir(plan_file.parent)
    names = [table["name"] for table in json.loads(plan_file.read_text())["tables"]]
    assert offered("explain plan.json --table ") == names
    assert offered(f"explain plan.json --table {names[0][:3]}") == [
        name for name in names if name.startswith(names[0][:3])
    ]
    assert offered("explain missing.json --table ") == []
    (plan_file.parent / "broken.json").write_text("{")
    assert offered("explain broken.json --table ") == []
