"""Units for people: one prefix for all values of an axis or a column, and numbers of a few digits."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_SI = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ"))
_BINARY = ((2.0**50, "Pi"), (2.0**40, "Ti"), (2.0**30, "Gi"), (2.0**20, "Mi"), (2.0**10, "Ki"), (1.0, ""))
_PREFIXED = {"B/s": "", "FLOP/s": "", "samples/s": " ", "IOPS": " ", "W": "", "J": ""}
"""Units that take SI prefixes, and what stands between prefix and unit: `M samples/s`."""
_NEVER_SMALL = ("samples/s", "IOPS")


@dataclass(frozen=True)
class Scale:
    """What values are divided by for people, and the unit they then have."""

    divisor: float
    unit: str

    def number(self, value: float, digits: int = 4) -> str:
        """A value without its unit."""
        return significant(value / self.divisor, digits)

    def text(self, value: float, digits: int = 4) -> str:
        """A value with its unit."""
        return self.with_unit(self.number(value, digits))

    def with_unit(self, number: str) -> str:
        """A number that is written already, and the unit."""
        return f"{number}{'' if self.unit == '%' else ' '}{self.unit}".strip()

    def titled(self, words: str) -> str:
        """`step (ms)`."""
        return f"{words} ({self.unit})" if self.unit else words


def scale_of(values: Iterable[float | None], unit: str) -> Scale:
    """One scale for values of a unit, by the largest; what is None or NaN does not count."""
    known = [abs(value) for value in values if value is not None and not math.isnan(value)]
    largest = max(known, default=0.0)
    if unit == "share":
        return Scale(0.01, "%")
    if unit == "kW":
        return Scale(1e3, "MW") if largest >= 1e3 else Scale(1.0, "kW")
    if unit == "B":
        divisor, prefix = _step(_BINARY, largest)
        return Scale(divisor, f"{prefix}B")
    if unit == "s":
        divisor, prefix = _step(_SI[4:], largest)
        return Scale(divisor, f"{prefix}s")
    if unit in _PREFIXED:
        steps = _SI[:5] if unit in _NEVER_SMALL else _SI
        divisor, prefix = _step(steps, largest)
        return Scale(divisor, f"{prefix}{_PREFIXED[unit] if prefix else ''}{unit}")
    return Scale(1.0, unit)


def value_text(value: object, unit: str) -> str:
    """A value of an axis with its unit; round decimal sizes stay decimal: `80 GB`."""
    if value is None or value != value:
        return "unset"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if unit in ("samples", "") and float(value).is_integer():
        return f"{int(value):,}"
    scale = scale_of([value], unit)
    if unit == "B" and value and not value % 1e9:
        divisor, prefix = _step(_SI[:5], abs(value))
        scale = Scale(divisor, f"{prefix}B")
    return scale.with_unit(trimmed(scale.number(value)))


def significant(value: float, digits: int = 4) -> str:
    """A number of so many significant digits, with thousands separated and no exponent where that is readable."""
    if math.isnan(value) or math.isinf(value):
        return "unknown"
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(value)))
    if magnitude < -4:
        return f"{value:.{digits - 1}e}"
    return f"{value:,.{max(0, digits - 1 - magnitude)}f}"


def trimmed(number: str) -> str:
    """A number without zeros at the end of its decimals."""
    return number.rstrip("0").rstrip(".") if "." in number else number


def aligned(values: Sequence[float], digits: int = 4) -> list[str]:
    """Numbers with the same decimals: so many digits of the middle one."""
    known = sorted(abs(value) for value in values if value and math.isfinite(value))
    middle = known[len(known) // 2] if known else 1.0
    decimals = min(max(0, digits - 1 - math.floor(math.log10(middle))), 6)
    return [f"{value:,.{decimals}f}" if math.isfinite(value) else "unknown" for value in values]


def _step(steps: tuple[tuple[float, str], ...], largest: float) -> tuple[float, str]:
    return next((step for step in steps if largest >= step[0]), steps[-1] if largest else (1.0, ""))
