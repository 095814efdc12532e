"""Figures as a table for people, or as JSON for programs."""

import json
from collections.abc import Sequence
from dataclasses import asdict

from benchmarks.contest import Attempt, Instance
from benchmarks.figures import Format
from benchmarks.running import Outcome
from cost_models.registry import COST_MODELS
from topologies.units import format_seconds

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


def contest(instance: Instance, attempts: Sequence[Attempt]) -> str:
    """The solvers on one instance, and what other planners are known to reach; ratios to the first line's objective."""
    first = next((each.objective for each in attempts if each.objective is not None), None)
    rows = [_CONTEST.format(instance.name, "objective", "ratio", "bound", "gap", "shards/rank", "first", "wall", "cpu")]
    for each in attempts:
        reached = each.status if each.objective is None else _amount(instance, each.objective)
        cells = (
            "" if each.bound is None else _amount(instance, each.bound),
            "" if each.gap is None else f"{each.gap:.2%}",
            f"{each.shards_per_rank:.1f}",
            "" if each.first_plan_s is None else f"{each.first_plan_s:.2f} s",
            f"{each.wall_s:.2f} s",
            f"{each.cpu_s:.2f} s",
        )
        rows.append(_CONTEST.format(f"  {each.solver}", reached, _ratio(each.objective, first), *cells))
    for name, objective in instance.peers:
        rows.append(_CONTEST.format(f"  {name}", _amount(instance, objective), _ratio(objective, first), *[""] * 6))
    return "\n".join(row.rstrip() for row in rows)


_CONTEST = "{:<32}{:>14}{:>8}{:>14}{:>9}{:>13}{:>10}{:>10}{:>10}"


def _amount(instance: Instance, value: float) -> str:
    return format_seconds(value) if COST_MODELS[instance.cost_model].unit == "s" else f"{value:.4g}"


def _ratio(value: float | None, first: float | None) -> str:
    return "" if value is None or first is None else f"{value / first:.3f}"


def _shown(value: float, unit: Format) -> str:
    if unit == "seconds":
        return f"{value:.2f} s"
    if unit == "bytes" and value < 2**40:
        return f"{value / 2**20:,.0f} MiB"
    return f"{value / 1e12:,.4f} TB" if unit == "bytes" else f"{value:,.10g}"
