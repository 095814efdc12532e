"""What is said while a plan is searched: on terminals with a curve of the gap, elsewhere with the seconds."""

import re

import pytest

from planner.cli import search_progress, streams
from planner.cli.search_progress import gap_curve, progress_line, progress_lines, size_lines


def test_a_line_names_what_is_known():
    assert progress_line("start", 2e-3, None) == "start, best 2.000 ms"
    assert progress_line("local search", 2e-3, 1.6e-3) == "local search, best 2.000 ms, bound 1.600 ms, gap 25.00%"
    assert progress_line("start", 2.0, 1.6, unit="") == "start, best 2.000, bound 1.600, gap 25.00%"


def test_the_curve_falls_as_the_gap_does_over_equal_parts_of_time():
    """A tenth of the gap each second: equal steps on a logarithmic scale; what follows the last fall is flat."""
    falling = [(float(second), 10.0**-second) for second in range(4)]
    curve = gap_curve(falling)
    assert len(curve) == search_progress.CURVE
    assert list(curve) == sorted(curve, reverse=True)
    assert (curve[0], curve[-1]) == ("█", "▁")
    assert gap_curve([*falling, (30.0, 1e-3)]).count("▁") >= 10
    assert set(gap_curve([(0.0, 0.1), (1.0, 0.0)])) == {"█", "▁"}


@pytest.mark.parametrize("gaps", [[], [(0.0, 0.1)], [(0.0, 0.1), (2.0, 0.1)], [(0.0, 0.0), (2.0, 1e-6)]])
def test_a_gap_that_does_not_change_has_no_curve(gaps):
    assert gap_curve(gaps) == ""


@pytest.mark.parametrize("watched", [True, False])
def test_terminals_show_the_curve_and_logs_the_seconds(monkeypatch, watched):
    said, shown = [], []
    monkeypatch.setattr(streams, "is_watched", lambda: watched)
    monkeypatch.setattr(streams, "doing", shown.append)
    tell = progress_lines(said.append, "s")
    tell("options", None, None)
    tell("bound", None, 1e-3)
    tell("start", 2e-3, 1e-3)
    tell("start", 1.5e-3, 1e-3)
    assert shown == ["options"]
    last = said[-1]
    assert "best 1.500 ms, bound 1.000 ms, gap 50.00%" in last
    assert bool(re.search(f" [{search_progress.BLOCKS}]+$", last)) == watched
    assert last.startswith("0 s: ") != watched


@pytest.mark.parametrize("watched", [True, False])
def test_each_size_has_its_own_curve(monkeypatch, watched):
    """A curve of the gap of the size that is searched, none of those before it; logs name the sizes alone."""
    said = []
    monkeypatch.setattr(streams, "is_watched", lambda: watched)
    tell = size_lines(said.append)
    for nodes in ("4 nodes", "2 nodes"):
        tell(nodes, None, None)
        tell("bound", None, 1e-3)
        tell("start", 2e-3, 1e-3)
        tell("better start", 1.5e-3, 1e-3)
    if not watched:
        assert said == ["4 nodes", "2 nodes"]
        return
    for nodes, lines in (("4 nodes", said[:4]), ("2 nodes", said[4:])):
        assert lines[:2] == [nodes, f"{nodes}: bound, bound 1.000 ms"]
        assert lines[2].endswith("gap 100.00%"), "a gap that is the only one so far has no curve"
        assert re.fullmatch(rf"{nodes}: better start, .* gap 50.00% [{search_progress.BLOCKS}]+", lines[3])
