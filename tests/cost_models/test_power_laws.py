"""Rows that a batch reads by a power law: against sums over every row, and against one another."""

import numpy as np
import pytest

from cost_models.power_laws import STEEPEST, fitted_alpha, hit_rate, rows_beyond, unique_rows, unique_rows_and_slope

LAWS = [(rows, alpha) for rows in (1, 5, 8, 9, 300, 20_000) for alpha in (0.0, 0.7, 1.0, 1.6)]
"""On both sides of the head of eight rows that are summed one by one."""


def probabilities(rows: int, alpha: float) -> np.ndarray:
    """The chance that an id is each of the rows, hottest first."""
    weights = np.arange(1, rows + 1, dtype=float) ** -alpha
    return weights / weights.sum()


def chances(rows: int, alpha: float, ids: float) -> np.ndarray:
    """The chance that each row is read by so many ids."""
    return 1 - (1 - probabilities(rows, alpha)) ** ids


@pytest.mark.parametrize(("rows", "alpha"), LAWS)
def test_distinct_rows_are_the_sum_of_every_rows_chance(rows: int, alpha: float) -> None:
    """Within 0.1 %; below one id, a fraction of an id is that fraction of a row."""
    for ids in (1.0, 2.0, 50.0, 3_000.0, 400_000.0):
        assert unique_rows(rows, alpha, ids) == pytest.approx(chances(rows, alpha, ids).sum(), rel=1e-3)
    assert unique_rows(rows, alpha, [0.0, 0.25, 1.0]).tolist() == pytest.approx([0.0, 0.25, 1.0])


@pytest.mark.parametrize(("rows", "alpha"), LAWS)
def test_a_hit_rate_is_the_sum_of_the_hottest_rows_probabilities(rows: int, alpha: float) -> None:
    """Within 0.1 %; nothing of no rows, everything of all, of more than all, too."""
    hottest = np.unique(np.linspace(0, rows, 7).astype(int))
    exact = [probabilities(rows, alpha)[:count].sum() for count in hottest]
    assert hit_rate(rows, alpha, hottest) == pytest.approx(exact, rel=1e-3)
    assert hit_rate(rows, alpha, [0, rows, 2 * rows]).tolist() == pytest.approx([0.0, 1.0, 1.0])


@pytest.mark.parametrize(("rows", "alpha"), LAWS)
def test_rows_beyond_the_hottest_are_the_sum_of_the_others_chances(rows: int, alpha: float) -> None:
    """Within 0.3 % of all distinct rows, for one row, half of them, and all."""
    hottest = np.array([0.0, 1.0, min(4.0, rows), rows // 2, rows])
    for ids in (0.5, 3.0, 50.0, 30_000.0):
        exact = chances(rows, alpha, max(ids, 1.0)) * min(ids, 1.0)
        n, a, read = (np.full(len(hottest), value) for value in (float(rows), alpha, ids))
        found = rows_beyond(n, a, read, hottest)
        assert found == pytest.approx([exact[int(k) :].sum() for k in hottest], abs=3e-3 * exact.sum())


def test_laws_are_answered_side_by_side() -> None:
    """Of a list of tables, each has its own answer: not its neighbour's."""
    rows, alpha = (np.array(each) for each in zip(*LAWS, strict=True))
    ids, hottest = np.linspace(2, 9_000, len(LAWS)), rows / 3
    every = unique_rows(rows, alpha, ids), hit_rate(rows, alpha, hottest), rows_beyond(rows * 1.0, alpha, ids, hottest)
    for i in range(len(LAWS)):
        one = slice(i, i + 1)
        beyond = rows_beyond(rows[one] * 1.0, alpha[one], ids[one], hottest[one])
        apart = float(unique_rows(rows[i], alpha[i], ids[i])), float(hit_rate(rows[i], alpha[i], hottest[i])), beyond[0]
        assert [each[i] for each in every] == pytest.approx(apart, rel=1e-12)


@pytest.mark.parametrize(("rows", "alpha"), [law for law in LAWS if law[0] > 1])
def test_the_slope_is_how_distinct_rows_grow_with_ids(rows: int, alpha: float) -> None:
    """As a central difference of 0.2 % of the ids has it, within 0.001 and 1 %."""
    for ids in (5.0, 80.0, 20_000.0):
        _, slope = unique_rows_and_slope(*(np.array([value]) for value in (float(rows), alpha, ids)))
        more, fewer = (chances(rows, alpha, ids * factor).sum() for factor in (1.001, 0.999))
        assert slope[0] == pytest.approx(np.log(more / fewer) / np.log(1.001 / 0.999), rel=1e-2, abs=1e-3)


def test_a_measured_share_of_distinct_ids_gives_the_exponent_that_has_it() -> None:
    """Exponents come back from the shares that they have; a share that none reaches gives the flattest or steepest."""
    alpha = np.array([0.0, 0.3, 0.8, 1.05, 1.5, 3.0])
    rows, ids = np.full(len(alpha), 50_000.0), np.full(len(alpha), 8_000.0)
    found = fitted_alpha(rows, unique_rows(rows, alpha, ids) / ids, ids)
    assert found == pytest.approx(alpha, abs=1e-5)
    flattest, steepest = fitted_alpha(np.full(2, 100.0), np.array([1.0, 1e-9]), np.full(2, 50.0))
    assert flattest == 0.0
    assert steepest == pytest.approx(STEEPEST)
    assert fitted_alpha(np.zeros(0), np.zeros(0), np.zeros(0)).size == 0
