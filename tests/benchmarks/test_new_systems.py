"""Errors on systems that the fit has not seen, and the bands that they give."""

from functools import cache

import numpy as np
import pytest

from benchmarks.accuracy import mlperf, new_systems
from benchmarks.accuracy.__main__ import FACTS
from benchmarks.accuracy.new_systems import PartError, error_90
from cost_models.coefficients import software_coefficients


@cache
def found() -> dict[str, PartError]:
    return {each.part: each for each in new_systems.errors(FACTS)}


def test_a_combination_that_was_left_out() -> None:
    """Device, link and number of nodes: the median within 4 %, the worst within 12 %, 85 to 97 % inside the band that
    the other combinations give."""
    own = found()["combination"]
    assert own.median <= 0.04
    assert own.worst <= 0.12
    assert 0.85 <= own.inside <= 0.97
    assert own.is_guaranteed


def test_a_device_that_was_left_out_is_inside_what_is_printed() -> None:
    """Nine in ten rows of it; the band is wider than that of a system that was measured."""
    own, software = found()["device"], software_coefficients("hugectr").steps
    assert software is not None
    assert own.inside >= 0.9
    assert own.error_90 > software.residual_90


@pytest.mark.parametrize("part", ["link", "network", "ranks"])
def test_a_part_that_was_left_out_is_inside_what_others_and_its_own_coefficients_say(part: str) -> None:
    """85 % of rows or more, as of devices: without the rows of its link Blackwell has no share of its peak but a guess,
    by which its steps may be off by more than steps on other links were."""
    assert found()[part].inside >= 0.85


def test_coefficients_without_rows_of_their_own_are_as_unsure_as_their_priors() -> None:
    """Steps on the one link that all of Blackwell has: by more than a tenth at the median; on Hopper's, whose share of
    the peak others are fitted to, by less than half of that."""
    spread = mlperf.coefficient_spread(FACTS, lambda case: new_systems.system_of(case).link)
    link = mlperf.believed(FACTS).configuration.map(lambda case: new_systems.system_of(case).link)
    assert spread[link == "nvlink5"].median() > 0.1
    assert spread[link == "nvlink4"].median() < 0.05


def test_shipped_evidence_is_what_the_data_give() -> None:
    """Residual, systems, their rates, rows and errors of left-out parts, in the software's file."""
    shipped = software_coefficients("hugectr").steps
    assert shipped is not None
    assert shipped.residual_90 == pytest.approx(new_systems.residual_90(FACTS), rel=0.05)
    assert shipped.systems == new_systems.measured_systems(FACTS)
    assert shipped.rates == new_systems.measured_rates(FACTS)
    assert set(shipped.devices) == {system.device for system in shipped.systems}
    assert shipped.rows == int(mlperf.cases(FACTS).gated.sum())
    ours = {each.part: each for each in shipped.left_out}
    assert set(ours) == set(found())
    for part, each in found().items():
        assert ours[part].groups == each.groups
        assert ours[part].error_90 == pytest.approx(each.error_90, rel=0.05)


def test_a_conformal_band_holds_for_any_distribution() -> None:
    """Nine groups of heavy-tailed errors: a tenth is inside nine times in ten, rows of a group being alike."""
    random = np.random.default_rng(1)
    inside = []
    for _ in range(400):
        errors = random.standard_t(2, size=10) * 0.02
        band = np.log1p(error_90([np.full(5, each) for each in errors[:9]]))
        inside.append(abs(errors[9]) <= band)
    assert np.mean(inside) >= 0.87


def test_a_random_effect_holds_for_normal_errors() -> None:
    """Five groups that differ by more than their rows do: nine in ten rows of a sixth one are inside."""
    random = np.random.default_rng(2)
    inside = []
    for _ in range(400):
        groups = [random.normal(effect, 0.01, size=4) for effect in random.normal(0, 0.03, size=6)]
        band = np.log1p(error_90(groups[:5]))
        inside.append(np.mean(np.abs(groups[5]) <= band))
    assert 0.86 <= np.mean(inside) <= 0.97


def test_more_spread_between_groups_gives_a_wider_band() -> None:
    """And the number of rows of a group does not narrow it."""
    narrow = [np.array([0.01, -0.01])] * 3
    wide = [np.array([0.05, 0.03]), np.array([-0.04, -0.02]), np.array([0.0, 0.01])]
    assert error_90(wide) > error_90(narrow)
    assert error_90([np.tile(each, 50) for each in wide]) > 0.9 * error_90(wide)
