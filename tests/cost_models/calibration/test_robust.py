"""Fits find what made the data, and refuse what the data cannot tell."""

import numpy as np
import pytest

from cost_models.calibration.collectives import CollectiveTimes, as_law, fit_protocols
from cost_models.calibration.robust import UndeterminedError, fit

BYTES = np.array([1e3, 1e4, 1e5, 1e6, 1e7, 1e8])


def line(values: dict[str, float]) -> np.ndarray:
    return values["latency"] + BYTES / values["rate"]


def test_a_fit_finds_the_coefficients_in_spite_of_an_outlier() -> None:
    """A row that took three times as long moves them by less than 5 %."""
    measured = line({"latency": 1e-5, "rate": 1e11})
    measured[3] *= 3
    found = fit(line, {"latency": 1e-4, "rate": 1e10}, measured, must_be_determined=False)
    assert found.values == pytest.approx({"latency": 1e-5, "rate": 1e11}, rel=0.05)


def test_a_coefficient_that_the_data_do_not_show_is_refused_by_name() -> None:
    """Two parts that grow alike cannot be told apart."""

    def predict(values: dict[str, float]) -> np.ndarray:
        return values["latency"] + BYTES * (values["one"] + values["other"])

    measured = 1e-5 + BYTES * 2e-11
    with pytest.raises(UndeterminedError, match="add rows") as raised:
        fit(predict, {"latency": 1e-5, "one": 5e-12, "other": 5e-12}, measured)
    assert set(raised.value.names) >= {"one", "other"}


def test_fewer_rows_than_coefficients_are_refused() -> None:
    """Whatever they say."""
    with pytest.raises(UndeterminedError, match="1 measurement does"):
        fit(lambda values: np.array([values["a"] + values["b"]]), {"a": 1.0, "b": 1.0}, np.array([2.0]))


def test_protocols_are_found() -> None:
    """Three of them, from times made by three."""
    size = np.array([2.0**i for i in range(9, 29)])
    latency, rate = np.array([1e-5, 2e-5, 1e-4]), np.array([1e10, 1e11, 3e11])
    wire = size * 7 / 8
    seconds = (latency[:, None] + wire / rate[:, None]).min(axis=0)
    law = fit_protocols(CollectiveTimes("all_to_all", 8, size, seconds))
    assert law.mean_error < 0.01
    assert as_law(law).seconds(wire) == pytest.approx(seconds, rel=0.03)


def test_too_few_sizes_are_refused() -> None:
    """Six numbers need six sizes."""
    size = np.array([1e4, 1e6, 1e8] * 5)
    with pytest.raises(UndeterminedError, match="all_reduce among 4 ranks"):
        fit_protocols(CollectiveTimes("all_reduce", 4, size, 1e-5 + size / 1e11))


def test_every_protocol_is_the_fastest_of_some_size() -> None:
    """Of noisy times of one line no protocol is left that was not measured."""
    size = np.array([4.0**i for i in range(5, 14)])
    for seed in range(5):
        noise = np.random.default_rng(seed).lognormal(0.0, 0.3, len(size))
        law = fit_protocols(CollectiveTimes("all_reduce", 4, size, (2e-3 + size / 1e9) * noise))
        wire = size * 2 * 3 / 4
        seconds = np.array([latency + wire / rate for latency, rate in law.protocols])
        assert set(seconds.argmin(axis=0)) == set(range(len(law.protocols)))
