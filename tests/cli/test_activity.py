"""Whoever waits sees on a terminal what is being done, for how long, and until when at most."""

import json
import os
import pty
import re
import subprocess
import sys

import pytest

from planner.cli import streams

PROGRAM = "from planner.cli import activity, app; activity.AFTER_S = 0.0; app.main()"


def on_terminal(*words: object) -> tuple[str, str, int]:
    """What a command prints to a stdout that is a pipe, and to a stderr that is a terminal of 80 columns."""
    master, terminal = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80"}
    command = [sys.executable, "-c", PROGRAM, *map(str, words)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=terminal, env=environment, text=True)
    os.close(terminal)
    said = b""
    try:
        while part := os.read(master, 65536):
            said += part
    except OSError:  # Linux: the other end is closed
        pass
    assert process.stdout is not None
    shown = process.stdout.read()
    process.stdout.close()
    os.close(master)
    return shown, said.decode(), process.wait(timeout=60)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["simulate", "{plan}", "--steps", "10"], r"\d+ s: simulating 15 steps of 16 ranks"),
        (["verify", "{plan}"], r"\d+ s: recomputing .*plan.json"),
        (["explain", "{plan}"], r"\d+ s: explaining .*plan.json"),
        (["report", "{plan}", "-o", "{plan}.html"], r"\d+ s: drawing .*plan.json"),
        (
            ["plan", "-t", "{directory}/starter/topology.yaml", "--time-limit", "5s"],
            r"\d+ s, at most 5 s: simulating the step",
        ),
        (
            ["size", "-t", "{directory}/starter/topology.yaml", "--fits", "--no-each-tier", "--max-nodes", "3"],
            r"\d+ s, at most 3 nodes: ",
        ),
        (["check", "zionex-scaling"], r"\d+ s: check"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)
def test_a_terminal_shows_what_is_done(starter, plan_file, words, said):
    """In one line that is gone at the end; stdout has the data alone."""
    given = [word.format(plan=plan_file, directory=plan_file.parent) for word in words]
    shown, talk, code = on_terminal(*given)
    assert code == 0, talk
    assert re.search(said, talk), talk
    assert "\x1b" not in shown
    assert not re.search(r"\d+ s[,:]", shown)
    assert max(len(line) for line in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "\n", talk).splitlines()) <= 200


def test_json_on_stdout_is_whole(plan_file):
    """The line never comes between the data."""
    shown, _, code = on_terminal("simulate", plan_file, "--format", "json")
    assert code == 0
    assert json.loads(shown)["steps"] == 1


@pytest.mark.parametrize(
    "words", [("plan", "--effort", "0", "--gap", "50%", "-q"), ("size", "--fits", "--no-each-tier", "--quiet")]
)
def test_quiet_commands_show_nothing(starter, words):
    """Neither line nor escape sequence."""
    _, talk, code = on_terminal(*words, "-t", starter / "topology.yaml")
    assert code == 0
    assert talk == ""


def test_no_terminal_no_line(run, plan_file, capsys):
    """In a pipe commands stay as quiet as they were."""
    assert run("simulate", plan_file, "--steps", 5).stderr == ""
    streams.doing("work")
    assert capsys.readouterr().err == ""


def test_more_steps_than_memory_holds_are_refused(run, plan_file):
    """By name, with the memory that they would take and how many can be simulated."""
    result = run("simulate", plan_file, "--steps", 10**8)
    assert result.exit_code == 2
    assert "100,000,000 steps of 16 ranks take about 29.10 TiB of memory" in " ".join(result.stderr.split())
    assert "simulate at most" in result.stderr
