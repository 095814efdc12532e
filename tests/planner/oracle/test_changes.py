"""Candidates from columns and files: what they make of a model, and what is refused, at its place."""

from pathlib import Path

import pytest

from planner.oracle.candidates import KnownProfiles, candidates_of
from planner.oracle.changes import read_changes
from tests.oracles.instances import workload
from topologies.errors import InputError

MODEL = workload(
    [{"rows": 100, "dim": 16}, {"rows": 200, "dim": 16}, {"name": "user_a", "rows": 300, "dim": 16}],
    dense={"numerical_features": 4, "bottom_mlp": [32, 16], "interaction": "dot", "top_mlp": [8, 1]},
)


def test_a_candidate_is_the_base_with_its_changes():
    """Patterns change every table that they name; None, and an empty cell, change nothing."""
    columns = {
        "name": ["wide", "lean"],
        "*.dim": [32, None],
        "t0.rows": [None, 50],
        "user_*.present": [True, "no"],
        "dense.bottom_mlp": ["64|32", None],
    }
    found = candidates_of(MODEL, columns)
    wide, lean = found.workload(0), found.workload(1)
    assert [table.dim for table in wide.tables] == [32, 32, 32]
    assert wide.dense.bottom_mlp == (64, 32)
    assert [(table.name, table.rows, table.dim) for table in lean.tables] == [("t0", 50, 16), ("t1", 200, 16)]
    assert lean.dense == MODEL.dense
    assert found.names == ("wide", "lean")


def test_a_stated_overhead_stays():
    """A base that states the seconds of a step's overhead has candidates with the same."""
    stated = workload([{"rows": 100, "dim": 16}], overhead="123.4us")
    assert candidates_of(stated, {"t0.dim": [32]}).workload(0).overhead == stated.overhead


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("t0.rows,t9.rows\n1,2\n", "c.csv:1:9: t9.rows: unknown column; did you mean"),
        ("name,global_batch\na,5\n", "c.csv:1:6: global_batch: unknown column; write TABLE.rows (a name or a pattern)"),
        ("t0.color\nred\n", "c.csv:1:1: t0.color: unknown column; of a table there are rows, dim"),
        ("dense.middle\n3\n", "c.csv:1:1: dense.middle: unknown column; of the dense part there are"),
        ("t0.rows,*.rows\n1,2\n", "c.csv:1:9: *.rows: changes rows of t0, as does t0.rows; keep one of them"),
        ("t0.rows\n5\nmany\n", "c.csv:3:1: t0.rows:"),
        ("name,t0.rows\na,5\nb,0\n", "c.csv:3:3: t0.rows:"),
        ("*.dim\n18\n", "c.csv:2:1: *.dim:"),
        ("t0.compressor\nsvd:4\n", "c.csv:2:1: t0.compressor: 'svd:4' is no compressor"),
        ("t0.compressor\ndim:16\n", "c.csv:2:1: t0.compressor: 't0': dim:16 is no fewer than the 16 columns"),
        ("t0.rows,t0.compressor\n5,qr:9\n", "c.csv:2:3: t0.compressor: 't0': qr:9:multiply joins more ids than the 5"),
        ("t0.present\nperhaps\n", "c.csv:2:1: t0.present: 'perhaps' is neither true nor false; write one of"),
        ("t0.present,t0.rows\nno,7\n", "c.csv:2:4: t0.rows: is of t0, which this candidate leaves out"),
        ("*.present\nno\n", "candidate 1: leaves out all tables"),
        (
            "name,t0.dim\nodd,32\n",
            "c.csv:2:1: candidate odd: interaction 'dot' needs vectors of one width, not of 16 and 32",
        ),
        ("dense.top_mlp\n8,1\n", "c.csv:2:1: 2 fields where the header has 1"),
        (
            'dense.top_mlp\n"8,1"\n',
            "c.csv:2:1: dense.top_mlp: must be a whole number, not '8,1'; widths are written as",
        ),
        ("name,t0.rows\na,5\nb,6\na,7\n", "c.csv:4:1: name: candidate 1 is called 'a', too; give each a name of its"),
        ("name,t0.rows\n2,5\n,6\n", "c.csv:3:1: name: candidate 1 is called '2', too"),
        ("t0.rows\n1,2\n", "c.csv:2:1: 2 fields where the header has 1"),
        ("t0.rows,t0.rows\n1,2\n", "the column is given twice; keep one"),
        ("t0.rows;t1.rows\n1;2\n", "the fields are separated by ';'"),
        ("t0.rows\n", "has no candidates below its header"),
        ("", "is empty; its first line names the columns"),
    ],
)
def test_what_is_wrong_is_said_at_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, words: str):
    """Every fault names the file, the line, the column and what to write instead."""
    monkeypatch.chdir(tmp_path)
    Path("c.csv").write_text(text)
    with pytest.raises(InputError) as caught:
        _read(Path("c.csv"))
    assert words in str(caught.value)


def test_a_mistake_in_a_pattern_is_said_once(tmp_path: Path):
    """Not once for each table that the pattern names."""
    (tmp_path / "c.csv").write_text("*.dim\n18\n")
    with pytest.raises(InputError) as caught:
        _read(tmp_path / "c.csv")
    assert len(caught.value.faults) == 1


def _read(path: Path) -> None:
    columns, place = read_changes(path)
    candidates_of(MODEL, columns, str(path), place)


def test_totals_have_no_widths():
    """Widths of a dense part that is given by its totals are refused, not ignored."""
    model = workload([{"rows": 100, "dim": 16}], dense={"macs_per_sample": 1000, "parameters": 100})
    with pytest.raises(InputError, match="give layers"):
        candidates_of(model, {"dense.top_mlp": ["8|1"]})


def test_a_runtime_without_tables_of_two_parts_has_no_such_candidates():
    """Before anything is costed, with what it has instead."""
    with pytest.raises(InputError, match=r"hugectr has no tables of two parts, .* give it hash:C or dim:D"):
        candidates_of(MODEL, {"t0.compressor": ["hash:4", "qr:4"]}, runtime="hugectr")


def test_profiles_that_are_known_are_those_that_are_made():
    """A second reading gives the same candidates, and True is not taken for 1."""
    known: KnownProfiles = {}
    columns = {
        "t0.rows": [1, 50, None],
        "*.dim": [32, None, 16],
        "*.pooling_factor": [2.0, 2.0, None],
        "dense.bottom_mlp": ["32|32", None, None],
    }
    first, second = (candidates_of(MODEL, columns, known=known) for _ in range(2))
    assert known
    assert [first.workload(n) for n in range(3)] == [second.workload(n) for n in range(3)]
    with pytest.raises(InputError, match=r"t0\.rows"):
        candidates_of(MODEL, {"t0.rows": [True]}, known=known)
