"""Units of a sharded dense part wait for their weights, and for nothing else."""

from dataclasses import replace

import pytest

from cost_models.dense_timeline import TimedUnit, Transfer, ends_of, forward_end_s

NOTHING = Transfer()


def _units(count: int, gather: Transfer, scatter: Transfer) -> list[TimedUnit]:
    return [TimedUnit(1.0, 2.0, gather, scatter, NOTHING)] * count


def test_short_gathers_hide_behind_the_unit_before() -> None:
    """All but the first: four units of 1 s whose gathers take 0.5 s end after 4.5 s."""
    assert forward_end_s(_units(4, Transfer(0.1, 0.4), NOTHING)) == pytest.approx(4.5)


def test_long_gathers_are_what_a_pass_takes() -> None:
    """One after the other, then the last unit: links are busy for 3 s four times."""
    assert forward_end_s(_units(4, Transfer(0.0, 3.0), NOTHING)) == pytest.approx(4 * 3.0 + 1.0)


def test_sums_follow_the_last_unit() -> None:
    """Whole weights: forward 3 s, backward 6 s, and the sums of the last unit, 0.5 s."""
    ends = ends_of([], _units(3, NOTHING, Transfer(0.2, 0.3)))
    assert (ends.forward_s, ends.rest_s, ends.sums_s) == pytest.approx((3.0, 9.0, 9.5))
    assert ends.busy_after_s == pytest.approx(0.3)


def test_gathers_and_sums_share_the_links() -> None:
    """Backward, two units are gathered (the last is whole) and three summed, 5 s each: links are never idle."""
    ends = ends_of([], _units(3, Transfer(0.0, 5.0), Transfer(0.0, 5.0)))
    assert ends.sums_s == pytest.approx(ends.forward_s + 5 * 5.0)


def test_first_units_work_after_gradients_of_vectors_left() -> None:
    """What needs no vectors is no part of the wait for their gradients, and its sums come last."""
    ends = ends_of(_units(1, NOTHING, Transfer(0.0, 1.0)), _units(2, NOTHING, NOTHING))
    assert (ends.rest_s, ends.sums_s) == pytest.approx((2 + 4, 2 + 4 + 2 + 1))


def test_sums_among_nodes_leave_the_links_to_gathers() -> None:
    """Over cards that gathers do not use: 4 s for each of two units, one after the other."""
    units = [TimedUnit(1.0, 1.0, NOTHING, Transfer(0.0, 0.5), Transfer(0.0, 4.0))] * 2
    assert ends_of([], units).sums_s == pytest.approx(2 + 1 + (0.5 + 4.0) * 2)


def test_what_a_pass_waits_for_is_not_behind_gathers() -> None:
    """Beside a gather of 5 s, 1 s between layers takes 2 s, and the gather 6 s."""
    first = TimedUnit(1.0, 1.0, NOTHING, NOTHING, NOTHING, enter=(Transfer(0.0, 1.0),))
    second = TimedUnit(1.0, 1.0, Transfer(0.0, 5.0), NOTHING, NOTHING)
    assert forward_end_s([first, second]) == pytest.approx(6.0 + 1.0)
    assert forward_end_s([first, replace(second, gather=NOTHING)]) == pytest.approx(1.0 + 1.0 + 1.0)


def test_what_a_pass_waits_for_has_ports_that_cards_leave_idle() -> None:
    """A gather that keeps cards busy for 5 s and ports for 0.5 s delays it by half a second, and is not delayed."""
    first = TimedUnit(1.0, 1.0, NOTHING, NOTHING, NOTHING, enter=(Transfer(0.0, 1.0),))
    assert forward_end_s([first]) == pytest.approx(2.0)
    second = TimedUnit(1.0, 1.0, Transfer(0.0, 5.0, 0.5), NOTHING, NOTHING)
    assert forward_end_s([first, second]) == pytest.approx(5.0 + 1.0)
    short = TimedUnit(1.0, 1.0, Transfer(0.0, 2.0, 0.5), NOTHING, NOTHING)
    assert forward_end_s([first, short]) == pytest.approx(1.5 + 1.0 + 1.0)


def test_gradients_between_layers_delay_the_units_before() -> None:
    """Backward: 0.5 s for the answer, 1 s of work, 0.5 s for what goes back, twice; then sums of 1 s."""
    unit = TimedUnit(1.0, 1.0, NOTHING, Transfer(0.0, 1.0), NOTHING, (), (Transfer(0.5),), (Transfer(0.0, 0.5),))
    ends = ends_of([], [unit] * 2)
    assert (ends.forward_s, ends.rest_s) == pytest.approx((2.0, 2.0 + 2.0 + 2.5))
    assert ends.sums_s == pytest.approx(ends.rest_s + 1.0)
