"""Odd places for outputs: links, long names, read-only files, and two writers of one file."""

import os
import threading
from pathlib import Path

import pytest

from planner.document.files import write_file
from topologies.errors import InputError

COMMANDS = {
    "plan": ("plan", "-t", "cpu", "-w", "nv-tiny", "--effort", 0, "--gap", "50%", "-q", "-o"),
    "report": ("report", "plan.json", "-o"),
    "export": ("export", "plan.json", "--to", "torchrec", "-o"),
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("loop", "loop is a link that leads to itself; name a file"),
        ("dangling", "there is no directory {here}/none, to which the link dangling leads"),
        ("to-folder", "to-folder is a directory; name a file in it"),
        ("-", "- is no file; name one, or leave the flag out"),
        ("/dev/full", "/dev/full is not a regular file"),
        ("plan.json/x", "there is no directory plan.json"),
        ("n" * 256, "File name too long"),
        ("/proc/x.json", "files cannot be written in /proc"),
    ],
)
def test_places_that_are_none_are_said_before_any_work(run, plan_file, tmp_path, monkeypatch, command, place, said):
    """In words, and nothing appears or changes."""
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    Path("dangling").symlink_to("none/x.json")
    Path("to-folder").symlink_to(".")
    before = {path.name: path.lstat().st_mtime_ns for path in tmp_path.iterdir()}
    result = run(*COMMANDS[command], place)
    assert result.exit_code == 2
    assert said.format(here=tmp_path) in " ".join(result.stderr.split())
    assert {path.name: path.lstat().st_mtime_ns for path in tmp_path.iterdir()} == before


def test_a_link_that_leads_to_itself_is_no_folder_of_traces(run, plan_file, tmp_path, monkeypatch):
    """Nor is anything below it."""
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    assert "loop is not a folder" in run("simulate", "plan.json", "--trace", "loop").stderr
    assert "loop is not a folder" in run("simulate", "plan.json", "--trace", "loop/x").stderr


@pytest.mark.parametrize(
    "words",
    [
        ("init", "/proc/new"),
        ("study", "zionex-scaling", "--plans", "/proc/plans"),
        ("study", "zionex-scaling", "-o", "/proc/x.csv"),
        ("run", "growing-batch", "--plans", "/proc/plans"),
        ("run", "growing-batch", "-o", "/proc/x.json"),
        ("simulate", "plan.json", "--trace", "/proc/traces/new"),
        ("simulate", "plan.json", "--picture", "/proc/x.svg"),
        ("report", "plan.json", "-o", "/proc/x.html"),
        ("report", "plan.json", "-o", "x.html", "--pictures", "/proc/new"),
        ("export", "plan.json", "--to", "remap", "--counts", "counts", "-o", "/proc/new"),
        ("profile", "logs", "--dim", "8", "-o", "/proc/x.csv"),
        ("profile", "logs", "--dim", "8", "-o", "x.csv", "--report", "/proc/x.html"),
        ("calibrate", "--device", "cpu", "-o", "/proc/x.yaml"),
        ("calibrate", "--device", "cpu", "--measurements", "/proc/x.csv"),
        ("cost", "plan.json", "--changes", "plan.json", "-o", "/proc/x.csv"),
        ("import", "plan.json", "--from", "torchrec", "-o", "/proc/x.json"),
        ("plan", "-t", "cpu", "-w", "nv-tiny", "--write-model", "/proc/x.mps"),
        ("topology", "show", "dgx-h100", "-o", "/proc/x.svg"),
    ],
    ids=lambda words: " ".join(words).replace("/", "_"),
)
def test_a_folder_in_which_no_file_can_be_made_is_said_before_any_work(run, plan_file, tmp_path, monkeypatch, words):
    """Also to the system's own administrator, who has the right to write anywhere: only trying tells."""
    monkeypatch.chdir(tmp_path)
    result = run(*words)
    assert result.exit_code == 2
    assert "files cannot be written in /proc" in " ".join(result.stderr.split())
    assert result.stdout == ""
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


def test_a_read_only_file_is_not_replaced(run, plan_file, tmp_path, monkeypatch):
    """Whoever took the right to write meant the file to stay (the system's own administrator may still write)."""
    kept = tmp_path / "kept.json"
    kept.write_text("kept")
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK or Path(path) != kept)
    result = run("export", plan_file, "--to", "torchrec", "-o", kept)
    assert result.exit_code == 2
    assert "is read-only; name another file" in " ".join(result.stderr.split())
    assert kept.read_text() == "kept"


@pytest.mark.parametrize("name", ["n" * 255, "\N{EM DASH}" * 85, "line\nbreak", "\udcff", "\x1b[31m"])
def test_every_name_that_a_file_may_have_is_written(tmp_path, name):
    """The temporary file beside it has a shorter one; a link stays one, and what it leads to is written."""
    write_file(tmp_path / name, b"new")
    (tmp_path / "link").symlink_to(tmp_path / name)
    write_file(tmp_path / "link", b"newer")
    assert (tmp_path / name).read_bytes() == b"newer"
    assert {path.name for path in tmp_path.iterdir()} == {name, "link"}


def test_a_link_that_leads_to_itself_is_refused_where_a_file_is_written(tmp_path):
    """It is not replaced either."""
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(InputError, match="is not a regular file"):
        write_file(tmp_path / "loop", b"new")
    assert (tmp_path / "loop").is_symlink()


def test_two_writers_of_one_file_leave_the_whole_file_of_one(tmp_path):
    """Whoever reads meanwhile sees either, never parts of both."""
    path, texts = tmp_path / "out", [b"a" * 100_000, b"b" * 90_000]
    write_file(path, texts[0])
    writers = [threading.Thread(target=lambda text=text: [write_file(path, text) for _ in range(50)]) for text in texts]
    for writer in writers:
        writer.start()
    seen = set()
    while any(writer.is_alive() for writer in writers):
        seen.add(path.read_bytes())
    assert seen <= set(texts)
    assert [each.name for each in tmp_path.iterdir()] == ["out"]
