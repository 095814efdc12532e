"""Elementary functions: right to the last digits, whatever stands beside a number; their sums are IEEE 754's."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from cost_models import elementary
from cost_models.elementary import BLOCK

Numbers = NDArray[np.float64]
RANDOM = np.random.default_rng(3)
NEAR_0 = np.concatenate([10 ** RANDOM.uniform(-300, -1, 20_000), -(10 ** RANDOM.uniform(-300, -1, 20_000))])
POSITIVE = np.concatenate([10 ** RANDOM.uniform(-300, 300, 50_000), 1 + NEAR_0, RANDOM.uniform(0.3, 3, 50_000)])
DOMAINS = {
    "exp": np.concatenate([RANDOM.uniform(-700, 700, 50_000), NEAR_0]),
    "expm1": np.concatenate([RANDOM.uniform(-700, 700, 50_000), RANDOM.uniform(-2, 2, 50_000), NEAR_0]),
    "log": POSITIVE,
    "log2": POSITIVE,
    "log1p": np.concatenate([10 ** RANDOM.uniform(0, 300, 20_000), RANDOM.uniform(-0.999999, 3, 50_000), NEAR_0]),
}
LIMITS = {
    "exp": ([0.0, -np.inf, np.inf, np.nan, 710.0, -750.0], [1.0, 0.0, np.inf, np.nan, np.inf, 0.0]),
    "expm1": ([0.0, -np.inf, np.inf, np.nan, 710.0, -750.0], [0.0, -1.0, np.inf, np.nan, np.inf, -1.0]),
    "log": ([1.0, 0.0, -1.0, np.inf, np.nan], [0.0, -np.inf, np.nan, np.inf, np.nan]),
    "log2": ([1.0, 8.0, 2.0**-1000, 0.0, np.inf, np.nan], [0.0, 3.0, -1000.0, -np.inf, np.inf, np.nan]),
    "log1p": ([0.0, -1.0, -2.0, np.inf, np.nan], [0.0, -np.inf, np.nan, np.inf, np.nan]),
}


def of(name: str) -> Callable[[object], Numbers]:
    function: Callable[[object], Numbers] = getattr(elementary, name)
    return function


@pytest.mark.skipif(np.finfo(np.longdouble).eps > 1e-18, reason="no extended precision to compare with")
@pytest.mark.parametrize("name", DOMAINS)
def test_within_three_units_of_the_last_digit(name: str) -> None:
    """Against extended precision."""
    x = DOMAINS[name]
    exact = getattr(np, name)(x.astype(np.longdouble))
    unit = np.spacing(np.abs(exact.astype(np.float64)))
    assert float((np.abs(of(name)(x) - exact) / unit).max()) < 3


@pytest.mark.parametrize("name", LIMITS)
def test_at_the_ends(name: str) -> None:
    """What is no number, infinite or out of range, beside others and alone."""
    x, expected = LIMITS[name]
    np.testing.assert_array_equal(of(name)(x), expected)
    np.testing.assert_array_equal([of(name)(each) for each in x], expected)


@pytest.mark.parametrize("name", DOMAINS)
def test_neighbours_and_shapes_change_nothing(name: str) -> None:
    """A number alone, in an array, or across blocks has one value; arrays keep their shapes."""
    x = np.resize(DOMAINS[name], (BLOCK + 3) * 2).reshape(2, -1)
    values = of(name)(x)
    assert values.shape == x.shape
    assert [of(name)(float(each)) for each in x[1, :50]] == values[1, :50].tolist()
    assert isinstance(of(name)(0.5), float)


def test_powers() -> None:
    """Of positive numbers, broadcast."""
    base, exponent = np.array([[2.0], [10.0]]), np.array([-2.0, 0.5, 3.0])
    np.testing.assert_allclose(elementary.power(base, exponent), base**exponent, rtol=1e-15)
