"""Figures as a table for people, or as JSON for programs."""

import json
from collections.abc import Sequence
from dataclasses import asdict

from benchmarks.figures import Format
from benchmarks.running import Outcome

HEADER = ("figure", "target", "value", "ratio", "ok")


def as_json(outcomes: Sequence[Outcome]) -> str:
    """A list of records with plain numbers."""
    return json.dumps([asdict(outcome) for outcome in outcomes], indent=2)


def row(outcome: Outcome) -> tuple[str, str, str, str, str]:
    """The cells of one line of the table."""
    shown = (_shown(value, outcome.format) for value in (outcome.target, outcome.value))
    return (outcome.figure, *shown, f"{outcome.ratio:.4g}", "yes" if outcome.ok else "NO")


def line(cells: Sequence[str]) -> str:
    """Cells in columns that every figure fits."""
    name, target, value, ratio, ok = cells
    return f"{name:<50} {target:>16} {value:>16} {ratio:>8} {ok:>4}"


def _shown(value: float, unit: Format) -> str:
    if unit == "seconds":
        return f"{value:.2f} s"
    if unit == "bytes" and value < 2**40:
        return f"{value / 2**20:,.0f} MiB"
    return f"{value / 1e12:,.4f} TB" if unit == "bytes" else f"{value:,.10g}"
