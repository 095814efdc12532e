"""The order in which sizes are judged finds the smallest that suffices."""

import pytest

from planner.capacity.candidates import Candidate, descend


def judged(speeds: list[float], target: float) -> dict[int, Candidate]:
    """The sizes that `descend` judges, of clusters that reach these speeds."""
    seen: dict[int, Candidate] = {}

    def suffices(position: int) -> bool:
        speed = speeds[position]
        seen.setdefault(
            position, Candidate(position + 1, 1, speed >= target, "plan", step_s=1 / speed, target_s=1 / target)
        )
        return seen[position].suffices

    descend(suffices, seen, len(speeds) - 1)
    return seen


@pytest.mark.parametrize("least", [1, 2, 3, 7, 20, 31, 32])
def test_where_more_nodes_are_faster_the_smallest_is_found(least: int) -> None:
    """By doubling and bisection: about twice the binary logarithm of the sizes are judged."""
    seen = judged([float(n) for n in range(1, 33)], float(least))
    assert min(position for position, candidate in seen.items() if candidate.suffices) == least - 1
    assert len(seen) <= 13


def test_a_target_that_only_sizes_in_between_reach_is_found() -> None:
    """The largest cluster is slower than one of 11 nodes: sizes around the fastest are judged as well."""
    speeds = [100.0 - abs(n - 11) for n in range(1, 33)]
    seen = judged(speeds, 99.5)
    assert [position + 1 for position, candidate in seen.items() if candidate.suffices] == [11]


def test_where_none_does_none_is_said_to() -> None:
    """And the search for one ends."""
    assert not any(candidate.suffices for candidate in judged([1.0, 2.0, 3.0, 2.5], 10.0).values())
