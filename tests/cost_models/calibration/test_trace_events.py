"""Traces are read event by event: whole, refused with a reason, and in the memory of a few events."""

import gzip
import json
import tracemalloc
from pathlib import Path

import pytest

from cost_models.calibration import kineto, trace_events
from topologies.errors import InputError

TRACE = {
    "schemaVersion": 1,
    "deviceProperties": [{"id": 0, "name": 'a "quoted" \\ name, é\U0001f600'}],
    "empty": {},
    "traceEvents": [
        {"name": "a", "dur": 1234567.125, "args": {"list": [1, [2, {"x": None}]], "text": "]}"}},
        7,
        {"name": "b", "dur": -1e-3, "args": "no mapping"},
        {},
    ],
    "traceName": "after",
}
EVENTS = [TRACE["traceEvents"][0], {"name": "b", "dur": -1e-3, "args": {}}, {}]


@pytest.mark.parametrize("piece", [1, 2, 3, 5, 17, 1000])
@pytest.mark.parametrize("indent", [None, 2])
def test_events_are_those_of_the_whole_text(tmp_path, monkeypatch, piece, indent):
    """Wherever a piece of the file ends: within a name, a number, an escape, or between events."""
    monkeypatch.setattr(trace_events, "PIECE", piece)
    for ascii_only in (True, False):
        text = json.dumps(TRACE, indent=indent, ensure_ascii=ascii_only)
        (tmp_path / "t.json").write_text(text, encoding="utf-8")
        (tmp_path / "t.json.gz").write_bytes(gzip.compress(text.encode()))
        for name in ("t.json", "t.json.gz"):
            assert list(trace_events.read_events(tmp_path / name)) == EVENTS


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it ends early"),
        ("[]", "stands where {"),
        ("{}", "property name|Expecting"),
        ('{"a": 1}', "it has no 'traceEvents'"),
        ('{"traceEvents": {}}', "stands where \\["),
        ('{"traceEvents": [{}', "it ends early"),
        ('{"traceEvents": [{} {}]}', "stands where , or ]"),
        ('{"traceEvents": [{"a": tru}]}', "Expecting value"),
        ('{"traceEvents": [' + "[" * 100_000, "recursion|Expecting"),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path, text, reason):
    """With why, and what to do."""
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(InputError, match=f"is not a Kineto trace: .*({reason}).*torch.profiler"):
        list(trace_events.read_events(tmp_path / "t.json"))


def test_damaged_files_are_refused(tmp_path):
    """Cut off, changed, no gzip at all, no text, not there."""
    whole = gzip.compress(json.dumps(TRACE).encode())
    damaged = bytes([*whole[:20], whole[20] ^ 0xFF, *whole[21:]])
    for content in (whole[:-20], damaged, b"no gzip", gzip.compress(b'{"traceEvents": ["\xff"]}')):
        (tmp_path / "t.json.gz").write_bytes(content)
        with pytest.raises(InputError, match="is not a Kineto trace"):
            list(trace_events.read_events(tmp_path / "t.json.gz"))
    with pytest.raises(InputError, match="No such file"):
        list(trace_events.read_events(tmp_path / "none.json"))


def bomb(path: Path, events: int) -> Path:
    """A small file that unpacks to hundreds of bytes per event."""
    event = {"cat": "cpu_op", "name": "x" * 200, "args": {"External id": 1, "Input Dims": [[1]] * 20}}
    record = {"Collective name": "allreduce", "In msg nelems": 512, "Group size": 8, "dtype": "Float"}
    kernel = {"cat": "kernel", "name": "nccl", "dur": 10.0, "args": record}
    with gzip.open(path, "wt") as file:
        file.write('{"traceEvents": [')
        for _ in range(events):
            file.write(f"{json.dumps(event)},{json.dumps(kernel)},")
        file.write("{}]}")
    return path


def test_memory_does_not_grow_with_the_trace(tmp_path):
    """A file of some hundred kB that unpacks to 15 MB takes a few MB."""
    path = bomb(tmp_path / "t.json.gz", 25_000)
    assert path.stat().st_size < 500_000
    tracemalloc.start()
    try:
        (row,) = kineto.collectives(path).to_dict("records")
        with pytest.raises(InputError, match="no forward kernel"):
            kineto.lookups(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert row["buffer_bytes"] == 2048
    assert peak < 12e6


def test_one_endless_value_is_refused(tmp_path, monkeypatch):
    """No event is longer than memory has room for."""
    monkeypatch.setattr(trace_events, "MOST_CHARACTERS", 1 << 21)
    with gzip.open(tmp_path / "t.json.gz", "wt") as file:
        file.write('{"traceEvents": ["')
        for _ in range(64):
            file.write("x" * (1 << 20))
    with pytest.raises(InputError, match="more than 2,097,152 characters"):
        list(trace_events.read_events(tmp_path / "t.json.gz"))


def test_more_kernels_than_a_fit_can_use_are_refused(tmp_path, monkeypatch):
    """Rather than kept."""
    monkeypatch.setattr(kineto, "MOST_EVENTS", 10)
    launch = {"cat": "kernel", "name": "embedding_forward", "dur": 1.0}
    (tmp_path / "t.json").write_text(json.dumps({"traceEvents": [launch] * 11}))
    with pytest.raises(InputError, match="more than 10 events of one kind; record fewer steps"):
        kineto.lookups(tmp_path / "t.json")


@pytest.mark.parametrize("odd", [None, "x", [], {}, True, -1, 1e400, "12"])
def test_events_of_odd_types_are_passed_over(tmp_path, odd):
    """Or read, where they are numbers in quotes; never a traceback."""
    record = {"Collective name": "allreduce", "In msg nelems": odd, "Group size": odd, "dtype": odd, "External id": odd}
    record |= {"Input Dims": odd, "Concrete Inputs": odd}
    kinds = [{"cat": cat, "name": odd, "dur": odd, "args": record} for cat in ("kernel", "cpu_op", odd)]
    (tmp_path / "t.json").write_text(json.dumps({"traceEvents": kinds}))
    assert kineto.collectives(tmp_path / "t.json").empty
    kineto.embedding_kernels(tmp_path / "t.json")
    with pytest.raises(InputError, match="no forward kernel"):
        kineto.lookups(tmp_path / "t.json")
