"""Steps over gloo: the clock that measures them, and collectives that are calibrated."""

import pytest

from benchmarks.gloo.clock import Event, step_seconds
from cost_models.calibration import gloo
from cost_models.calibration.collectives import calibrated

BOTH = (0, 1)


def test_a_rank_waits_for_the_last_one() -> None:
    """Rank 1 enters after 5 s and works 1 s more; rank 0 entered after 1 s and works 3 s: 8 s in all."""
    first: list[Event] = [(False, BOTH, 0, 1.0), (True, BOTH, 0, 1.0), (True, (0,), 0, 4.0)]
    second: list[Event] = [(False, BOTH, 0, 5.0), (True, BOTH, 0, 5.0), (True, (1,), 0, 6.0)]
    assert step_seconds([first, second]) == pytest.approx(8.0)


def test_work_beside_a_collective_hides_in_it() -> None:
    """What rank 0 does between entering and waiting takes no time of its own while it would wait anyway."""
    first: list[Event] = [(False, BOTH, 0, 1.0), (True, BOTH, 0, 4.0), (True, (0,), 0, 5.0)]
    second: list[Event] = [(False, BOTH, 0, 3.0), (True, BOTH, 0, 3.0), (True, (1,), 0, 3.0)]
    assert step_seconds([first, second]) == pytest.approx(5.0)


def test_collectives_that_do_not_match_are_an_error() -> None:
    """A rank that waits for one that nobody else enters."""
    alone: list[Event] = [(False, BOTH, 0, 1.0), (True, BOTH, 0, 1.0)]
    with pytest.raises(RuntimeError, match="do not match"):
        step_seconds([alone, []])


def test_collectives_are_measured_and_fitted() -> None:
    """All operations among 2 processes; large buffers take longer, and sums have laws of their own."""
    rows = gloo.measure([2], gloo.QUICK_BYTES)
    assert set(rows.operation) == set(gloo.OPERATIONS)
    assert (rows.seconds > 0).all()
    for _, own in rows.groupby("operation"):
        assert own.seconds.iloc[-1] > own.seconds.iloc[0]
    told = {"device": "cpu", "link": gloo.LINK, "source": "test"}
    found = calibrated(rows, name="g", bytes_per_s=1e10, sums_apart=True, **told)
    assert found.sums_apart
    assert len(found.laws) == len(gloo.OPERATIONS)
