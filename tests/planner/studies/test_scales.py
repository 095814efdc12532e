"""Numbers for people: the right prefix, few digits, unknown where nothing is known."""

import math

import pytest

from planner.studies.scales import Scale, aligned, scale_of, significant, value_text


@pytest.mark.parametrize(
    ("values", "unit", "scale"),
    [
        ([0.0031, 0.5], "s", Scale(1e-3, "ms")),
        ([2.5], "s", Scale(1.0, "s")),
        ([40e-6], "s", Scale(1e-6, "µs")),
        ([12e6, 900.0], "samples/s", Scale(1e6, "M samples/s")),
        ([12.0], "samples/s", Scale(1.0, "samples/s")),
        ([25e9], "B/s", Scale(1e9, "GB/s")),
        ([3 * 2**40], "B", Scale(2.0**40, "TiB")),
        ([0.02], "share", Scale(0.01, "%")),
        ([65536.0], "samples", Scale(1.0, "samples")),
        ([0.005], "J", Scale(1e-3, "mJ")),
        ([1500.0], "kW", Scale(1e3, "MW")),
        ([None, math.nan], "s", Scale(1.0, "s")),
        ([0.0], "B", Scale(1.0, "B")),
    ],
)
def test_one_prefix_for_all_values(values: list[float | None], unit: str, scale: Scale) -> None:
    assert scale_of(values, unit) == scale


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (80e9, "B", "80 GB"),
        (80 * 2**30, "B", "80 GiB"),
        (12.5e9, "B/s", "12.5 GB/s"),
        (65536, "samples", "65,536"),
        (8, "", "8"),
        (0.25, "", "0.25"),
        ("fp16", "", "fp16"),
        (True, "", "True"),
        (math.nan, "", "unset"),
        (None, "B", "unset"),
        (2e-6, "s", "2 µs"),
        (0.1, "share", "10%"),
    ],
)
def test_values_of_axes_are_short(value: object, unit: str, text: str) -> None:
    assert value_text(value, unit) == text


def test_digits() -> None:
    assert [significant(value) for value in (0.0, 12345.6, 3.14159, 0.01234, 1e-7)] == [
        "0",
        "12,346",
        "3.142",
        "0.01234",
        "1.000e-07",
    ]
    assert aligned([1.0, 22.456, 333.3]) == ["1.00", "22.46", "333.30"]
