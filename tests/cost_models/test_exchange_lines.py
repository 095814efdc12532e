"""Lines of collectives: a minimum over them is the law, with the path's latency, on one kind of rank and on two."""

import operator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost_models.collective_laws import CollectiveLaw, Protocol
from cost_models.exchange_lines import exchange_lines, fastest_line

protocols = st.lists(
    st.builds(Protocol, st.floats(1e-6, 1e-4), st.floats(1e9, 1e12)),
    min_size=1,
    max_size=4,
    unique_by=lambda p: p.latency_s,
)
PATH_S = 2e-5


@settings(max_examples=200, deadline=None, derandomize=True)
@given(kinds=st.lists(protocols, min_size=1, max_size=3), data=st.data())
def test_the_fastest_line_is_the_least_that_any_choice_of_protocols_takes(
    kinds: list[list[Protocol]], data: st.DataObject
) -> None:
    """All kinds wait for the longest latency, and then for the busiest port: no choice for each kind ends earlier."""
    moved = np.array([data.draw(st.floats(0, 1e9)) for _ in kinds])
    in_phases = data.draw(st.booleans())
    join = operator.add if in_phases else max
    lines = exchange_lines([tuple(each) for each in kinds], PATH_S, join)
    number = fastest_line(lines, moved)
    found = lines[number].latency_s + (moved / np.array(lines[number].port_bytes_per_s)).max()
    choices = np.meshgrid(*(np.arange(len(each)) for each in kinds))
    least = min(
        max(join(kinds[k][i].latency_s or 0.0, PATH_S) for k, i in enumerate(choice))
        + max(moved[k] / kinds[k][i].bytes_per_s for k, i in enumerate(choice))
        for choice in zip(*(grid.ravel().tolist() for grid in choices), strict=True)
    )
    assert found == pytest.approx(least, rel=1e-12)
    latencies = [line.latency_s for line in lines]
    assert latencies == sorted(set(latencies))


def test_a_kind_without_measurements_waits_for_the_path() -> None:
    """One rate by the data sheet is one line."""
    (line,) = exchange_lines([(Protocol(None, 5e10),)], PATH_S, lambda inside_s, _: inside_s)
    assert (line.latency_s, line.port_bytes_per_s) == (PATH_S, (5e10,))


def test_protocols_that_are_never_the_fastest_are_left_out() -> None:
    """One that waits longer for a lower rate; the others by their latency."""
    law = CollectiveLaw((9e-5, 1e-5, 3e-5), (2e9, 1e9, 3e9), "own", "some")
    assert law.protocols == (Protocol(1e-5, 1e9), Protocol(3e-5, 3e9))
