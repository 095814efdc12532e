"""Names with characters that steer a terminal, hide or turn text: text in every output, as it is in files."""

import base64
import csv
import gzip
import io
import json
import re
import unicodedata
from pathlib import Path
from xml.etree import ElementTree

import pytest

from topologies.errors import HIDDEN
from topologies.yaml_trees import compose, on_one_line, written

NAMES = [
    "esc\x1b[31mred",
    "title\x1b]0;gone\x07",
    "two\nlines",
    "back\rover",
    "tab\tin",
    "nul\x00byte",
    "next\x85line",
    "\u2028sep\u2029",
    "\ufeffmark",
    "zero\u200bwidth",
    "\u202ethgir\u202c",
    "\u05e9\u05dc\u05d5\u05dd",
    "[/red]",
    "[link=http://f]g[/link]",
    "+cmd|' /C calc'!A0",
    "-2+3",
    "]]></text>",
    " lead",
    "n" * 200,
]
WORDS = {
    "plan": ("plan", "-t", "t.json", "-w", "w.json", "--effort", 0, "--gap", "50%", "-q"),
    "explain": ("explain", "plan.json"),
    "diff": ("diff", "plan.json", "plan.json"),
    "memory": ("memory", "plan.json"),
    "simulate": ("simulate", "plan.json"),
    "verify": ("verify", "plan.json"),
}


def hidden(text: str) -> set[str]:
    return {each for each in text if each != "\n" and unicodedata.category(each) in HIDDEN}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A plan of tables with such names, of a workload and on nodes with such names."""
    here = tmp_path_factory.mktemp("hidden")
    root = Path(__file__).parents[2]
    _, cluster = compose((root / "topologies/catalog/dgx-a100-80.yaml").read_text(), "t")
    cluster["name"], cluster["nodes"][0]["name"] = NAMES[0], NAMES[10]
    tables = [{"name": name, "rows": 1000 * (n + 1), "dim": 16, "pooling_factor": 2} for n, name in enumerate(NAMES)]
    model = {"name": NAMES[1], "global_batch": 1024, "tables": tables}
    for name, document in (("t.json", cluster), ("w.json", model)):
        (here / name).write_text(json.dumps(document))
    return here


@pytest.fixture
def planned(run, folder, monkeypatch) -> Path:
    monkeypatch.chdir(folder)
    if not Path("plan.json").exists():
        assert run(*WORDS["plan"], "-o", "plan.json").exit_code == 0
    return folder


@pytest.mark.parametrize("form", ["table", "csv", "markdown", "json"])
@pytest.mark.parametrize("words", WORDS.values(), ids=WORDS)
def test_nothing_that_is_printed_holds_one(run, planned, words, form):
    """Escapes of such characters in every format; no cell of CSV is a formula, and rows have as many cells as heads."""
    result = run(*words, "--format", form)
    assert result.exit_code == 0, result.output
    assert not hidden(result.output)
    if form == "csv":
        rows = list(csv.reader(io.StringIO(result.stdout)))
        assert len({len(row) for row in rows}) <= 1
        formulas = [cell for row in rows for cell in row if cell.startswith(("=", "+", "-", "@"))]
        assert not [cell for cell in formulas if not re.fullmatch(r"[-+]?[\d.]+(e[-+]?\d+)?", cell)]


@pytest.mark.parametrize("name", NAMES)
def test_a_table_is_found_by_its_name(run, planned, name):
    """Under the name that the file has, shown with escapes."""
    result = run("explain", "plan.json", "--table", name)
    assert result.exit_code == 0, result.output
    assert not hidden(result.output)


def test_a_page_holds_none(run, planned):
    """Neither its text nor what its charts show: no name turns the direction of what stands beside it."""
    assert run("report", "plan.json", "-o", "page.html").exit_code == 0
    page = Path("page.html").read_text()
    assert not hidden(page)
    (packed,) = re.findall(r'id="views">([^<]*)<', page)
    views = gzip.decompress(base64.b64decode(packed)).decode()
    assert not hidden("".join(map(str, _texts(json.loads(views)))))
    assert "n" * 100 in page


def _texts(data: object) -> list[str]:
    if isinstance(data, dict):
        return [text for part in data.values() for text in _texts(part)]
    if isinstance(data, list):
        return [text for part in data for text in _texts(part)]
    return [data] if isinstance(data, str) else []


def test_drawings_and_traces_can_be_read(run, planned):
    """An SVG is XML, and traces are JSON."""
    assert run("simulate", "plan.json", "--trace", "traces", "--picture", "step.svg").exit_code == 0
    ElementTree.parse("step.svg")
    assert [json.loads(gzip.decompress(path.read_bytes())) for path in Path("traces").iterdir()]


@pytest.mark.parametrize("form", ["torchrec", "torchrec-constraints", "hugectr"])
def test_exports_have_the_names_as_they_are(run, planned, form):
    """A runtime finds its tables by them."""
    result = run("export", "plan.json", "--to", form)
    assert result.exit_code == 0, result.output
    words = set(_texts(json.loads(result.stdout))) | set(_keys(json.loads(result.stdout)))
    assert set(NAMES) <= words


def _keys(data: object) -> list[str]:
    if isinstance(data, dict):
        return [*data, *(key for part in data.values() for key in _keys(part))]
    return [key for part in data for key in _keys(part)] if isinstance(data, list) else []


def test_inputs_of_a_plan_read_back_with_their_names(run, planned):
    """The files that `planner export --to inputs` writes are for the same tables, whatever YAML takes for line ends."""
    assert run("export", "plan.json", "--to", "inputs", "-o", "inputs").exit_code == 0
    _, model = compose(Path("inputs/workload.yaml").read_bytes().decode(), "w")
    assert [table["name"] for table in model["tables"]] == NAMES
    assert model["name"] == NAMES[1]


@pytest.mark.parametrize("name", [*NAMES, "\x85", "a: b", "#", "- x", "true", "1e3"])
def test_text_is_written_so_that_it_reads_back(name):
    """As YAML of any layout."""
    assert compose(written({"a": [name]}), "t")[1] == {"a": [name]}
    line = on_one_line(name)
    assert "\n" not in line
    assert compose(f"a: {line}", "t")[1] == {"a": name}
