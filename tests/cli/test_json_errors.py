"""With `--format json` a program can read what went wrong, too."""

import json
import sys

import pytest


@pytest.mark.parametrize("form", [("--format", "json"), ("--format=json",)])
@pytest.mark.parametrize(
    ("words", "code", "path"),
    [
        (["plan"], 2, "--topology"),
        (["plan", "-t", "cpu", "-w", "nv-tiny", "--tiers", "hbmm"], 2, "--tiers"),
        (["plan", "-t", "cpu", "--nope"], 2, ""),
        (["plam"], 2, ""),
        (["plan", "-t", "{starter}/topology.yaml", "--set", "topology.nodes.0.cuont=4"], 3, ""),
        (["verify", "no.json"], 3, ""),
        (["size", "-t", "cpu", "-w", "nv-tiny"], 2, "--target-qps"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_errors_are_json(run, starter, words, form, code, path):
    """One line on stderr: kind, exit, message, faults with file, line, column, path and message."""
    result = run(*(word.format(starter=starter) for word in words), *form)
    assert result.exit_code == code
    assert result.stdout == ""
    error = json.loads(result.stderr)
    assert set(error) == {"kind", "exit", "message", "faults"}
    assert (error["kind"], error["exit"]) == ("error", code)
    assert error["faults"]
    for fault in error["faults"]:
        assert set(fault) == {"file", "line", "column", "path", "message"}
    assert path in [fault["path"] for fault in error["faults"]]


def test_every_fault_has_its_place(run, starter):
    """The same lines and columns as in words."""
    (starter / "workload.yaml").write_text((starter / "workload.yaml").read_text().replace("mode: tr", "mod: tr"))
    words = ("plan", "-t", starter / "topology.yaml")
    text = run(*words).stderr.strip()
    error = json.loads(run(*words, "--format", "json").stderr)
    assert error["message"] == text
    assert [f"{f['file']}:{f['line']}:{f['column']}: {f['path']}: {f['message']}" for f in error["faults"]] == [text]


def test_a_missing_package_is_json_and_ends_with_2(run, starter, tmp_path, monkeypatch):
    """As where it is said in words: one exit code for every extra."""
    plan = tmp_path / "plan.json"
    assert run("plan", "-t", starter / "topology.yaml", "--effort", 0, "--gap", "50%", "-q", "-o", plan).exit_code == 0
    for module in ("plotly.offline", "matplotlib", "matplotlib.figure", "torch", "scipy", "scipy.optimize"):
        monkeypatch.setitem(sys.modules, module, None)
    table = tmp_path / "rows.csv"
    table.write_text("operation,lookups,dim,seconds\nlookup,1000,64,1e-4\nlookup,2000,64,2e-4\n")
    for words in (
        ("report", plan, "-o", tmp_path / "x.html"),
        ("simulate", plan, "--picture", tmp_path / "x.png"),
        ("calibrate", "--device", "cpu"),
        ("calibrate", "--device", "cpu", "--processes", "2"),
        ("calibrate", table, "--device", "x"),
    ):
        result = run(*words)
        assert result.exit_code == 2, words
        assert "pip install 'shardplan[" in result.stderr, words
        assert "Traceback" not in result.stderr
    error = json.loads(
        run("simulate", plan, "--picture", tmp_path / "x.png", "--format", "json").stderr.splitlines()[-1]
    )
    assert error["exit"] == 2
    assert "shardplan[plot]" in error["message"]


def test_hidden_characters_of_a_command_line_are_escapes(run):
    """In what is said of a wrong flag."""
    result = run("plan", "-t", "cpu", "-w", "nv-tiny", "--pin", "\x1b[31mred")
    assert result.exit_code == 2
    assert "\x1b" not in result.stderr
