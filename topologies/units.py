"""Quantities with units: `"40GiB"`, `"200Gb/s"`, `"2us"`, `"10%"`.

Decimal and binary prefixes are kept apart (`GB` = 10^9 bytes, `GiB` = 2^30), and so are bits (`b`) and bytes
(`B`). A bare number is refused where a unit is needed. The field types at the end are for pydantic models:
they hold a plain number in the unit that the name of the type says and write themselves back with their unit,
so a dumped model can be read again without loss.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from topologies.errors import shown

if TYPE_CHECKING:
    import pint

_DEFINITIONS = """
milli- = 1e-3 = m-
micro- = 1e-6 = u- = µ- = μ-
nano- = 1e-9 = n-
kilo- = 1e3 = k-
mega- = 1e6 = M-
giga- = 1e9 = G-
tera- = 1e12 = T-
peta- = 1e15 = P-
kibi- = 2**10 = Ki-
mebi- = 2**20 = Mi-
gibi- = 2**30 = Gi-
tebi- = 2**40 = Ti-
pebi- = 2**50 = Pi-
byte = [information] = B
bit = byte / 8 = b
second = [time] = s
minute = 60 * second = min
hour = 3600 * second = h
bps = bit / second
Bps = byte / second
flop = [arithmetic] = FLOP = flops = FLOPs
FLOPS = flop / second
io = [access] = IO
IOPS = io / second
watt = [power] = W
watt_hour = watt * hour = Wh
joule = watt * second = J
dollar = [money] = USD
gram = [mass] = g
"""


@lru_cache(maxsize=1)
def _registry() -> "pint.UnitRegistry[float]":
    import pint

    registry: pint.UnitRegistry[float] = pint.UnitRegistry(None)
    registry.load_definitions(_DEFINITIONS.strip().splitlines())
    return registry


_PREFIXES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}
_USUAL: dict[str, dict[str, float]] = {
    "second": {"s": 1.0, "ms": 1e-3, "us": 1e-6},
    "byte": {p + n: f * of for p, f in (_PREFIXES | _BINARY).items() for n, of in (("B", 1.0), ("b", 0.125))},
    "byte / second": {
        p + n: f * of for p, f in (_PREFIXES | _BINARY).items() for n, of in (("B/s", 1.0), ("b/s", 0.125))
    },
    "flop / second": {prefix + name: factor for prefix, factor in _PREFIXES.items() for name in ("FLOP/s", "FLOPS")},
    "io / second": {f"{prefix}IOPS": factor for prefix, factor in _PREFIXES.items()},
    "watt": {f"{prefix}W": factor for prefix, factor in _PREFIXES.items()},
    "dollar / hour": {"dollar/h": 1.0, "USD/h": 1.0},
}
"""What the units that clusters and flags are mostly described in are of the unit of their field, so that these need no
units library, which takes a quarter of a second to load; the library's numbers to the last bit."""
_MOST_CHARACTERS = 100
"""The most characters of a quantity: patterns and the units library take milliseconds, or more, for thousands."""
# A number, then a unit that may itself hold digits only as an exponent: no arithmetic is evaluated.
_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([A-Za-zµμ$/*^ ]*)")


@lru_cache(maxsize=4096)
def parse_quantity(text: str, unit: str, example: str) -> float:
    """The number of `unit` in `text`.

    Raises ValueError, with the remedy, for a missing, unknown or wrong unit and for what is no finite number.
    """
    quantity = _QUANTITY.fullmatch(text.strip()) if len(text) <= _MOST_CHARACTERS else None
    if quantity is None:
        raise ValueError(f"{shown(text)} is not a quantity; write a number and a unit, for example {example}")
    number, name = float(quantity[1]), quantity[2].replace("$", "dollar").strip()
    factor = _USUAL.get(unit, {}).get(name)
    value = _converted(text, number, name, unit, example) if factor is None else number * factor
    if not math.isfinite(value):
        raise ValueError(f"{shown(text)} is not a finite number")
    return value


def _converted(text: str, number: float, name: str, unit: str, example: str) -> float:
    """The number of `unit` in this number of `name`, which stand in `text`. Raises as `parse_quantity` does."""
    import pint

    try:
        return float(_registry().Quantity(number, name).to(unit).magnitude)
    except pint.UndefinedUnitError:
        raise ValueError(f"unknown unit {name!r} in {shown(text)}; write for example {example}") from None
    except pint.DimensionalityError:
        what = f"is not in {unit}" if name else "has no unit"
        raise ValueError(f"{shown(text)} {what}; write for example {example}") from None
    except (pint.PintError, SyntaxError, TypeError, ValueError, AttributeError):
        raise ValueError(f"{shown(text)} is not a quantity; write for example {example}") from None


def parse_fraction(value: object) -> float:
    """A share between 0 and 1 from `"10%"`, `0.1` or `"0.1"`."""
    refusal = ValueError(f"{shown(value)} is not a share; write 10% or 0.1")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise refusal
    text = str(value).strip()
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise refusal from None
    if not 0 <= share <= 1:
        remedy = f"; write {text}%" if 1 < share <= 100 and not text.endswith("%") else ""
        raise ValueError(f"{shown(value)} is not between 0 and 100%{remedy}")
    return share


def parse_tolerance(value: object) -> float:
    """A share that may be given up: `parse_fraction`, but refuses a bare 1, which may mean 1% or all of it."""
    share = parse_fraction(value)
    if share == 1 and not isinstance(value, float) and not str(value).strip().endswith("%"):
        raise ValueError(f"{shown(value)} may mean 1% or 100%; write one of these")
    return share


MOST_BYTES = 1 << 60
"""Sums over a cluster stay within 64 bits; no memory is near it."""


@dataclass(frozen=True)
class Unit:
    """The unit of a field, put into its annotation."""

    name: str
    """As the units library knows it; empty for a share."""
    suffix: str
    """What a dumped value ends in."""
    column: str
    """What the name of a column of such values ends in: `_bytes_per_s`."""
    example: str

    def parse(self, value: object) -> float:
        """The number of this unit in `value`. Raises ValueError for anything that is no such quantity."""
        if not self.name:
            return parse_fraction(value)
        if not isinstance(value, str):
            raise ValueError(f"{shown(value)} has no unit; write for example {self.example}")
        return parse_quantity(value, self.name, self.example)

    def text(self, number: float) -> str | float:
        """What `parse` reads as `number`."""
        return f"{number!r}{self.suffix}" if self.name else number


SHARE = Unit("", "", "", "10%")


_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")


def _as_dumped(text: str, suffix: str) -> float | None:
    """The number in what a dumped document holds, which is in the unit already; None for any other text.

    Plans hold their inputs so: to read them needs no units library, which takes a tenth of a second to load.
    """
    if len(text) > _MOST_CHARACTERS:
        return None
    number = text.removesuffix(suffix)
    return float(number) if number != text and _NUMBER.fullmatch(number) and math.isfinite(float(number)) else None


def _validator(unit: str, suffix: str, example: str, *, whole: bool, positive: bool) -> Callable[[object], float]:
    def validate(value: object) -> float:
        if isinstance(value, bool | dict | list | tuple | None):
            raise ValueError(f"must be a quantity, for example {example}, not {shown(value)}")
        if not isinstance(value, str):
            raise ValueError(f"{shown(value)} has no unit; write for example {example}")
        dumped = _as_dumped(value, suffix)
        number = parse_quantity(value, unit, example) if dumped is None else dumped
        if number < 0 or (positive and number == 0):
            raise ValueError(f"{shown(value)} must be {'above' if positive else 'at least'} 0")
        if whole and number > MOST_BYTES:
            raise ValueError(f"{shown(value)} is more than 1 EiB, the most that is counted here")
        return round(number) if whole else number

    return validate


def _field_type(
    unit: str, suffix: str, column: str, example: str, *, whole: bool = False, positive: bool = True
) -> Any:
    """A pydantic field type: text with a unit in, a number of `unit` inside, text with `suffix` out."""
    number: type = int if whole else float
    return Annotated[
        number,
        BeforeValidator(_validator(unit, suffix, example, whole=whole, positive=positive)),
        PlainSerializer(lambda value: f"{value!r}{suffix}", return_type=str),
        WithJsonSchema({"type": "string", "examples": [example], "description": f"a quantity in {unit}"}),
        Unit(unit, suffix, column, example),
    ]


if TYPE_CHECKING:
    ByteCount = int
    BytesPerSecond = float
    Seconds = float
    FlopPerSecond = float
    AccessesPerSecond = float
    Watts = float
    DollarsPerHour = float
    DollarsPerJoule = float
    GramsPerJoule = float
    Share = float
else:
    ByteCount = _field_type("byte", "B", "_bytes", "40GB or 40GiB", whole=True)
    BytesPerSecond = _field_type("byte / second", "B/s", "_bytes_per_s", "25GB/s or 200Gb/s")
    Seconds = _field_type("second", "s", "_s", "2us", positive=False)
    FlopPerSecond = _field_type("flop / second", "FLOP/s", "_flop_per_s", "312TFLOP/s")
    AccessesPerSecond = _field_type("io / second", "IOPS", "_iops", "800kIOPS")
    Watts = _field_type("watt", "W", "_watts", "6.5kW")
    DollarsPerHour = _field_type("dollar / hour", "USD/h", "_usd_per_hour", "32.77USD/h", positive=False)
    DollarsPerJoule = _field_type("dollar / joule", "USD/J", "_usd_per_joule", "0.12USD/kWh", positive=False)
    GramsPerJoule = _field_type("gram / joule", "g/J", "_g_per_joule", "350g/kWh", positive=False)
    Share = Annotated[
        float,
        BeforeValidator(parse_fraction),
        WithJsonSchema({"type": ["string", "number"], "examples": ["10%", 0.1]}),
        SHARE,
    ]


def format_bytes(count: float) -> str:
    """A byte count for people, binary prefixes: `97.36 GiB`."""
    for prefix in ("", "Ki", "Mi", "Gi"):
        if abs(count) < 1024:
            return f"{count:.0f} B" if not prefix else f"{count:.2f} {prefix}B"
        count /= 1024
    return f"{count:.2f} TiB"


def format_seconds(seconds: float) -> str:
    """A duration for people: `3.412 ms`."""
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "us")):
        if seconds * factor >= 1 or unit == "us":
            return f"{seconds * factor:.3f} {unit}"
    raise AssertionError("unreachable")
