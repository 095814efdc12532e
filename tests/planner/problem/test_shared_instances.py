"""What ranks ask for is met by all who share their instances, however it is charged."""

import numpy as np
import pytest

from planner.problem import shared_instances
from planner.problem.numbers import Floats, Ints
from planner.problem.shared_instances import SharedInstances

WORLD, ROWS, KINDS = 12, 5, 3
SEEDS = range(20)


def _instances(random: np.random.Generator) -> Ints:
    """Consecutive ranks share one: in the first row nobody, in the second all, in the others by chance."""
    opens = random.random((ROWS, WORLD)) < 0.4
    opens[0], opens[1, 1:] = True, False
    return np.cumsum(opens, axis=1) - opens[:, :1]


def _met(instances: Ints, asked: Floats) -> Floats:
    """Rank by rank: the sum over all who use the same instance."""
    return np.array([
        [sum(asked[row, other] for other in range(WORLD) if instances[row, other] == instances[row, rank])
         for rank in range(WORLD)]
        for row in range(ROWS)
    ])  # fmt: skip


@pytest.mark.parametrize("on_rails", [False, True])
@pytest.mark.parametrize("most_kept", [shared_instances.MOST_KEPT, 10])
def test_every_sharer_meets_what_ranks_ask_for(
    monkeypatch: pytest.MonkeyPatch, most_kept: int, *, on_rails: bool
) -> None:
    """Of all ranks, of some that follow each other, of one; twice, and with little of it kept. Some rows may be of
    ranks that do not follow each other."""
    monkeypatch.setattr(shared_instances, "MOST_KEPT", most_kept)
    for seed in SEEDS:
        random = np.random.default_rng(seed)
        instances, kind = _instances(random), random.integers(0, KINDS, WORLD)
        if on_rails:
            instances[2], instances[3] = np.arange(WORLD) % 4, random.integers(0, 5, WORLD)
        shared = SharedInstances(instances, kind)
        asked = random.uniform(0.1, 1.0, (ROWS, WORLD))
        assert shared.met(asked) == pytest.approx(_met(instances, asked))
        per_kind = random.uniform(0.1, 1.0, (KINDS, ROWS))
        assert shared.met_everywhere(per_kind) == pytest.approx(_met(instances, per_kind[kind].T))
        for _ in range(2):
            begin, end = np.sort(random.choice(WORLD + 1, 2, replace=False)).tolist()
            of_some = np.zeros((ROWS, WORLD))
            of_some[:, begin:end] = asked[:, begin:end]
            for order in ("C", "F"):
                before = np.array(random.uniform(0.0, 1.0, (ROWS, WORLD)), order=order)
                target = before.copy(order="K")
                shared.charge(target, np.asfortranarray(asked[:, begin:end]), slice(begin, end))
                assert target == pytest.approx(before + _met(instances, of_some))
            rank = int(random.integers(WORLD))
            of_one, target = np.zeros((ROWS, WORLD)), np.zeros((ROWS, WORLD))
            of_one[:, rank] = asked[:, rank]
            shared.charge_rank(target, asked[:, rank], rank)
            assert target == pytest.approx(_met(instances, of_one))


def test_where_nobody_shares_values_are_met_as_they_are() -> None:
    shared = SharedInstances(np.arange(WORLD)[None], np.zeros(WORLD, dtype=np.int64))
    values = np.arange(float(WORLD))[None]
    assert shared.met(values) is values
    assert shared.met_everywhere(np.array([[2.0]])).tolist() == [[2.0] * WORLD]


def test_no_rows_are_no_loads() -> None:
    """A cluster whose memory is of one kind may have no rows of another."""
    shared = SharedInstances(np.zeros((0, WORLD), dtype=np.int64), np.zeros(WORLD, dtype=np.int64))
    target = np.zeros((0, WORLD))
    shared.charge(target, np.zeros((0, 3)), slice(2, 5))
    assert target.shape == (0, WORLD)
