"""Quantities with units: what they mean, what is refused, and that a dumped model reads back."""

import math
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from topologies.documents import Record
from topologies.units import (
    _USUAL,
    ByteCount,
    BytesPerSecond,
    DollarsPerHour,
    Seconds,
    Share,
    _as_dumped,
    _converted,
    format_bytes,
    format_seconds,
    parse_fraction,
    parse_quantity,
    parse_tolerance,
)


class _Sample(Record):
    size: ByteCount
    rate: BytesPerSecond
    delay: Seconds
    share: Share
    price: DollarsPerHour | None = None


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("40GB", "byte", 40e9),
        ("40GiB", "byte", 40 * 2**30),
        ("40Gb", "byte", 5e9),
        ("200Gb/s", "byte / second", 25e9),
        ("200Gbps", "byte / second", 25e9),
        ("25 GB/s", "byte / second", 25e9),
        ("1.5TB", "byte", 1.5e12),
        ("2us", "second", 2e-6),
        ("2µs", "second", 2e-6),
        ("1e-3s", "second", 1e-3),
        ("312TFLOP/s", "flop / second", 312e12),
        ("312TFLOPS", "flop / second", 312e12),
        ("800kIOPS", "io / second", 800e3),
        ("6.5kW", "watt", 6500),
        ("32.77USD/h", "dollar / hour", 32.77),
        ("32.77$/h", "dollar / hour", 32.77),
        ("-1s", "second", -1),
    ],
)
def test_decimal_and_binary_bits_and_bytes_are_kept_apart(text: str, unit: str, value: float) -> None:
    """Every accepted form means its number exactly."""
    assert parse_quantity(text, unit, "x") == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("40", "has no unit"),
        ("40parsec", "unknown unit 'parsec'"),
        ("40GB/s", "is not in byte"),
        ("40s", "is not in byte"),
        ("forty GB", "is not a quantity"),
        ("1,000GB", "is not a quantity"),
        ("2**10GB", "is not a quantity"),
        ("GB", "is not a quantity"),
        ("", "is not a quantity"),
        ("nanGB", "is not a quantity"),
        ("1e999GB", "is not a finite number"),
        ("4 GB GB", "is not in byte"),
        ("4/GB", "is not a quantity"),
        ("9" * 95 + "GB/s/s", "is not a quantity"),
        ("1" + "x" * 10_000, "is not a quantity"),
    ],
)
def test_wrong_quantities_say_what_to_write(text: str, words: str) -> None:
    """Every refusal names the fault, and all but the infinite one give an example."""
    with pytest.raises(ValueError, match=words.replace("*", r"\*")) as caught:
        parse_quantity(text, "byte", "40GB")
    assert "40GB" in str(caught.value) or "finite" in words


def test_long_texts_cost_no_time() -> None:
    """Texts of 10,000 characters are refused before a pattern or the units library sees them."""
    begin = time.process_time()
    for _ in range(1000):
        with pytest.raises(ValueError, match="is not a quantity"):
            parse_quantity("1" + "x" * 10_000, "byte", "40GB")
    assert time.process_time() - begin < 1.5, "4 s where the units library sees them"


@pytest.mark.parametrize(("value", "share"), [("10%", 0.1), (0.1, 0.1), ("0.1", 0.1), (0, 0), (1, 1), ("100%", 1)])
def test_shares_are_percent_or_fraction(value: object, share: float) -> None:
    """A share may be written as a percentage or as a fraction."""
    assert parse_fraction(value) == pytest.approx(share)


@pytest.mark.parametrize("value", [True, None, [], "ten", "%", -0.1, "101%", 1.5, math.nan, math.inf])
def test_wrong_shares_are_refused(value: object) -> None:
    """Anything but a number between 0 and 1 is refused."""
    with pytest.raises(ValueError, match="is not"):
        parse_fraction(value)


@pytest.mark.parametrize("size", [40, 4.5, True, None, ["40GB"], "0GB", "-1GB", "1e30GB"])
def test_a_size_needs_a_unit_and_is_positive(size: object) -> None:
    """Bare numbers, zero and negative sizes are refused, and those that no memory has."""
    with pytest.raises(ValidationError):
        _Sample.model_validate({"size": size, "rate": "1GB/s", "delay": "0s", "share": 0})


@given(
    st.integers(1, 2**53),
    st.floats(1e-3, 1e18, allow_nan=False),
    st.floats(0, 1e6, allow_nan=False),
    st.floats(0, 1),
)
def test_a_dumped_model_reads_back_without_loss(size: int, rate: float, delay: float, share: float) -> None:
    """Model to JSON to model is the identity."""
    texts = {"size": f"{size}B", "rate": f"{rate!r}B/s", "delay": f"{delay!r}s", "share": share}
    sample = _Sample.model_validate(texts)
    assert (sample.size, sample.rate, sample.delay) == (size, rate, delay)
    assert _Sample.model_validate(sample.model_dump(mode="json")) == sample


def test_formats_for_people() -> None:
    """Sizes in binary prefixes, durations in the unit that fits."""
    assert [format_bytes(count) for count in (512, 97.36 * 2**30, 2**42)] == [
        "512 B",
        "97.36 GiB",
        "4.00 TiB",
    ]
    assert [format_seconds(s) for s in (1.5, 3.412e-3, 2e-7)] == ["1.500 s", "3.412 ms", "0.200 us"]


@given(st.floats(1e-12, 1e15) | st.integers(1, 10**15))
def test_what_is_in_the_unit_already_needs_no_library(number: float) -> None:
    """The shorter way of reading gives the number that the units library gives, to the last bit."""
    for name, suffix in (("byte / second", "B/s"), ("second", "s"), ("dollar / hour", "USD/h"), ("watt", "W")):
        text = f"{number!r}{suffix}"
        assert _as_dumped(text, suffix) == _converted(text, float(number), suffix, name, "1") == number
    assert _as_dumped("40GB", "B") is None
    assert _as_dumped("2us", "s") is None
    assert _as_dumped("1e999B", "B") is None


USUAL = [(unit, name) for unit, names in _USUAL.items() for name in names]


@given(st.floats(0, 1e6) | st.integers(0, 10**6), st.sampled_from(USUAL))
def test_usual_units_are_those_of_the_library(number: float, usual: tuple[str, str]) -> None:
    """To the last bit."""
    unit, name = usual
    assert parse_quantity(f"{number!r} {name}", unit, "1") == _converted("", float(number), name, unit, "1")


@pytest.mark.parametrize(("unit", "name"), USUAL)
def test_each_usual_unit_is_that_of_the_library(unit: str, name: str) -> None:
    assert _USUAL[unit][name] == _converted("", 1.0, name, unit, "1")


def test_a_topology_in_usual_units_loads_no_library() -> None:
    """Nor does one of the catalog."""
    code = "import sys, topologies.loading as of; of.load_topology('zionex-16'); sys.exit('pint' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(("value", "share"), [("1%", 0.01), ("100%", 1.0), (1.0, 1.0), ("0.5", 0.5), (0, 0.0)])
def test_tolerances_are_shares(value, share):
    """A float is what documents of ours write."""
    assert parse_tolerance(value) == pytest.approx(share)


@pytest.mark.parametrize("value", ["1", 1, "1.0"])
def test_a_bare_one_is_no_tolerance(value):
    with pytest.raises(ValueError, match="may mean 1% or 100%"):
        parse_tolerance(value)


def test_a_number_of_percent_is_told_to_say_so():
    with pytest.raises(ValueError, match="'90' is not between 0 and 100%; write 90%"):
        parse_fraction("90")
