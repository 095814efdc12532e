"""What HugeCTR's planner makes for one node and several: inside our bound, and no better than our plans."""

import pytest

from benchmarks.hugectr_nodes import NODES, SETTINGS, Pair, pairs


@pytest.mark.slow(seconds=10)
@pytest.mark.parametrize(("nodes", "batch", "effort"), [(1, None, 0), (6, None, 0), (8, 135_168, 1), (16, None, 0)])
def test_its_plans_are_options_of_ours(nodes: int, batch: int | None, effort: int) -> None:
    """With rows over some nodes or GPUs, and the starts of our search are as good but once; `python -m
    benchmarks.hugectr_nodes --check` tries 1 to 16."""
    assert nodes in NODES
    found = list(pairs("dgx-h100", nodes, effort=effort, batch=batch))
    assert [pair.settings for pair in found] == list(SETTINGS)
    in_parts = "multi_rank_row_wise" if nodes == 1 else "multi_node_row_wise"
    assert any(in_parts in pair.ways for pair in found)
    assert all(pair.holds for pair in found), found


@pytest.mark.parametrize(
    ("outside", "theirs_s", "ours_s", "bound_s", "expected"),
    [
        ({}, 3.0, 2.0, 1.0, True),
        ({"t": "why"}, 3.0, 2.0, 1.0, False),
        ({}, 1.0, 1.0, 2.0, False),
        ({}, 1.5, 2.0, 1.0, False),
    ],
)
def test_what_is_checked(
    outside: dict[str, str], theirs_s: float, ours_s: float, bound_s: float, *, expected: bool
) -> None:
    """A table outside, a plan below the bound, a plan faster than ours."""
    assert Pair("t", 3, 65_536, "4.0", {}, outside, theirs_s, ours_s, bound_s).holds == expected
