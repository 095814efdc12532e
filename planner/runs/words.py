"""Figures of runs as people read them."""

from planner.runs.results import RunFigures
from planner.runs.run import FIGURES, Figure
from topologies.units import format_seconds

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0


def duration(seconds: float) -> str:
    """A time from microseconds to days: `3.412 ms`, `229.2 s`, `3.50 h`."""
    if seconds < 1:
        return format_seconds(seconds)
    if seconds < 10 * MINUTE:
        return f"{seconds:,.1f} s"
    if seconds < 2 * HOUR:
        return f"{seconds / MINUTE:,.1f} min"
    if seconds < 2 * DAY:
        return f"{seconds / HOUR:,.2f} h"
    return f"{seconds / DAY:,.2f} d"


def figure_text(name: Figure, value: float | None) -> str:
    """A figure with its unit; `unknown` where it is."""
    if value is None:
        return "unknown"
    if name == "seconds":
        return duration(value)
    unit = {"usd": "USD", "kwh": "kWh", "kg_co2e": "kg CO2e"}[name]
    return f"{amount(value)} {unit}"


def amount(value: float, digits: int = 3) -> str:
    """A number of dollars, kilowatt hours or kilograms: whole ones, hundredths, or of small ones so many digits."""
    if value >= 1e5:
        return f"{value:,.0f}"
    return f"{value:,.2f}" if value >= 10.0 ** (digits - 3) else f"{value:.{digits}g}"


def figures_text(figures: RunFigures) -> str:
    """All that are known."""
    return ", ".join(figure_text(name, figures.named(name)) for name in FIGURES if figures.named(name) is not None)
