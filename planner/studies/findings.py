"""What a study found, a sentence each: the best point, what each axis does, where the limit changes, what would help."""

import math
from collections.abc import Iterator

import pandas as pd

from planner.studies.results import FIGURES, SAVES_PREFIX, SAVES_SUFFIX, Axis, StudyResults
from planner.studies.study import LARGER_IS_BETTER, Study
from topologies.units import format_seconds

LIMITS = {
    "hbm": "HBM and lookup kernels",
    "network": "the links between accelerators",
    "dense": "the dense part",
    "host": "PCIe and host memory",
    "storage": "SSD",
    "overhead": "latency and fixed overhead",
    "memory": "memory",
}
"""What `limit` says, in words."""
FIGURE_WORDS = {
    "samples_per_s": "throughput",
    "step_s": "step",
    "nodes": "nodes",
    "ranks": "ranks",
    "usd_per_hour": "price",
    "usd_per_billion_samples": "cost per billion samples",
    "kilowatts": "power",
    "joules_per_sample": "energy per sample",
}
_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
LEAST_SAVED = 0.001
"""Share of the step below which a gain is not worth a word."""
HALF = 0.5
"""Share of linear scaling at which it is said to end."""


def best_point(results: StudyResults) -> int | None:
    """The row that is best by the objective among those that keep the constraints.

    Ties go to fewer ranks, then to the higher throughput, then to the first.
    """
    frame = results.frame[results.frame["meets"].astype(bool) & results.frame[results.objective].notna()]
    if frame.empty:
        return None
    sign = -1 if results.objective in LARGER_IS_BETTER else 1
    order = frame.assign(_value=sign * frame[results.objective], _speed=-frame["samples_per_s"])
    return int(order.sort_values(["_value", "ranks", "_speed", "point"]).index[0])


def shown(value: object, unit: str) -> str:
    """A number with its unit and a decimal prefix, as in `25 GB/s`; anything else as it is."""
    if not isinstance(value, int | float):
        return str(value)
    if not unit:
        return f"{value:,.6g}"
    if unit == "s":
        return format_seconds(value)
    if unit == "share":
        return f"{value:.1%}"
    for factor, prefix in _PREFIXES:
        if abs(value) >= factor and unit not in ("USD", "USD/h", "J", "kW"):
            return f"{value / factor:,.4g} {prefix}{unit}"
    return f"{value:,.4g} {unit}"


def place(results: StudyResults, row: int) -> str:
    """Which point a row is, in a few words."""
    frame = results.frame
    words = [str(frame.at[row, "scenario"])] if "scenario" in frame else []
    words += [f"{axis.label} {shown(frame.at[row, axis.column], axis.unit)}" for axis in results.axes]
    return ", ".join(words) or f"{frame.at[row, 'ranks']:,.0f} ranks"


def findings(results: StudyResults, study: Study) -> Iterator[str]:
    """The sentences, the most wanted first."""
    frame = results.frame
    yield _counts(frame, study)
    best = best_point(results)
    if best is None:
        yield from _why_none(frame)
        return
    yield _best(results, best)
    yield from _scenarios(results)
    yield from _frontier(results)
    for axis in results.axes:
        yield from _along(results, axis, best)
    yield from _scaling(results, best)
    yield from _gains(results, best)
    yield from _beside_measured(results)


def _counts(frame: pd.DataFrame, study: Study) -> str:
    status = frame["status"]
    planned = int(status.isin(["optimal", "feasible"]).sum())
    words = [f"{planned:,} planned"]
    for name, what in (("infeasible", "do not fit"), ("timeout", "without a plan"), ("error", "failed")):
        if count := int((status == name).sum()):
            words.append(f"{count:,} {what}")
    if study.constraints:
        words.append(f"{int(frame['meets'].sum()):,} keep the constraints ({', '.join(study.constraints)})")
    gaps = frame["gap"].dropna()
    proven = f"; gaps to the proven bound up to {gaps.max():.1%}" if len(gaps) else ""
    return f"{len(frame):,} points: {', '.join(words)}{proven}."


def _why_none(frame: pd.DataFrame) -> Iterator[str]:
    reasons = frame["reason"].value_counts()
    for reason, count in list(reasons.items())[:3]:
        yield f"No point keeps the constraints: {reason} ({count:,} points)."


def _best(results: StudyResults, best: int) -> str:
    frame, objective = results.frame, results.objective
    what = "highest" if objective in LARGER_IS_BETTER else "lowest"
    value = shown(float(frame.at[best, objective]), FIGURES[objective])
    more = "" if objective == "samples_per_s" else f", {frame.at[best, 'samples_per_s']:,.0f} samples/s"
    step = format_seconds(frame.at[best, "step_s"])
    gap = f"at most {frame.at[best, 'gap']:.1%} above the bound"
    words = FIGURE_WORDS[objective]
    return f"The {what} {words} is {value} at {place(results, best)}{more}; its step of {step} is {gap}."


def _scenarios(results: StudyResults) -> Iterator[str]:
    """The best of each scenario, beside that of the first one."""
    frame, objective = results.frame, results.objective
    if "scenario" not in frame or results.axes == () or frame["scenario"].nunique() < 2:
        return
    words = []
    for name, part in frame[frame["meets"].astype(bool)].groupby("scenario", sort=False):
        values = part[objective].dropna()
        if len(values):
            value = values.max() if objective in LARGER_IS_BETTER else values.min()
            words.append(f"{name} {shown(float(value), FIGURES[objective])}")
    if len(words) > 1:
        yield f"The best {FIGURE_WORDS[objective]} of each scenario: {'; '.join(words)}."


def _frontier(results: StudyResults) -> Iterator[str]:
    cost, worth = results.pareto
    front = results.frame[results.frame["on_pareto"].astype(bool)].sort_values(cost)
    if len(front) > 1:
        ends = [
            f"{shown(float(row[worth]), FIGURES[worth])} for {shown(float(row[cost]), FIGURES[cost] or cost)}"
            for _, row in front.iloc[[0, -1]].iterrows()
        ]
        unit = "ranks" if cost == "ranks" else FIGURE_WORDS[cost]
        yield f"{len(front)} points are on the frontier of {unit} and {FIGURE_WORDS[worth]}, from {ends[0]} to {ends[1]}."


def _slice(results: StudyResults, axis: Axis, best: int) -> pd.DataFrame:
    """The points that differ from the best one in one axis only, along it."""
    frame = results.frame
    same = pd.Series(True, index=frame.index)
    others = [other.column for other in results.axes if other != axis] + (["scenario"] if "scenario" in frame else [])
    for column in others:
        same &= (frame[column] == frame.at[best, column]) | (frame[column].isna() & pd.isna(frame.at[best, column]))
    part = frame[same]
    return part.sort_values(axis.column, kind="stable") if axis.is_number else part


def _along(results: StudyResults, axis: Axis, best: int) -> Iterator[str]:
    """What one axis does at the best point: its effect, where it begins to fit, where the limit changes."""
    part = _slice(results, axis, best)
    planned = part[part["samples_per_s"].notna()]
    if len(part) < 2 or planned.empty:
        return
    speeds = planned["samples_per_s"]
    slow, fast = speeds.idxmin(), speeds.idxmax()
    ratio = float(speeds[fast] / speeds[slow])
    at = [shown(planned.at[row, axis.column], axis.unit) for row in (slow, fast)]
    if len(planned) > 1 and ratio >= 1.005:
        yield f"With all else as at the best point, {axis.label} {at[1]} is {ratio:,.3g} times as fast as {at[0]}."
    elif len(planned) > 1:
        yield f"With all else as at the best point, {axis.label} changes the throughput by less than 0.5 %."
    if axis.is_number and (unfit := part[part["status"] == "infeasible"]).shape[0]:
        values = [shown(value, axis.unit) for value in unfit[axis.column]]
        listed = values[0] if len(values) == 1 else f"{values[0]} to {values[-1]} ({len(values)} points)"
        yield f"Along {axis.label}, the tables do not fit at {listed}."
    if axis.is_number and planned["limit"].nunique() > 1:
        yield f"Along {axis.label}, the step is limited by {_limits(planned, axis)}."


def _limits(planned: pd.DataFrame, axis: Axis) -> str:
    runs: list[tuple[str, object]] = []
    for _, row in planned.iterrows():
        if not runs or runs[-1][0] != row["limit"]:
            runs.append((row["limit"], row[axis.column]))
    first, *rest = runs
    words = [LIMITS.get(first[0], first[0])]
    words += [f"from {shown(value, axis.unit)} by {LIMITS.get(what, what)}" for what, value in rest[:4]]
    return ", ".join(words)


def _scaling(results: StudyResults, best: int) -> Iterator[str]:
    """How throughput follows the ranks, along the axis that changes their number."""
    for axis in results.axes:
        part = _slice(results, axis, best)
        part = part[part["samples_per_s"].notna()].sort_values("ranks")
        if part["ranks"].nunique() < 2:
            continue
        first, last = part.iloc[0], part.iloc[-1]
        per_rank = part["samples_per_s"] / part["ranks"]
        efficiency = per_rank / per_rank.iloc[0]
        grown = last["samples_per_s"] / first["samples_per_s"]
        text = f"From {first['ranks']:,.0f} to {last['ranks']:,.0f} ranks throughput grows {grown:,.3g} times,"
        text += f" {efficiency.iloc[-1]:.0%} of linear"
        below = part[efficiency < HALF]
        if len(below) and len(below) < len(part) - 1:
            text += f"; below half of linear from {below.iloc[0]['ranks']:,.0f} ranks"
        yield f"{text}."


def _gains(results: StudyResults, best: int) -> Iterator[str]:
    found = []
    for column in results.gains:
        share = float(results.frame.at[best, column])
        if not math.isnan(share) and share >= LEAST_SAVED:
            name = column.removeprefix(SAVES_PREFIX).removesuffix(SAVES_SUFFIX).replace("_", " ")
            most = "at most " if name.endswith("capacity") else ""
            found.append((share, f"{name} {most}{share:.1%}"))
    if found:
        listed = ", ".join(words for _, words in sorted(found, key=lambda item: -item[0])[:4])
        yield f"At the best point, 10 % more of one resource would shorten the step by: {listed}."
    elif results.gains:
        yield "At the best point, 10 % more of any one resource would not shorten the step."


def _beside_measured(results: StudyResults) -> Iterator[str]:
    frame = results.frame
    both = frame[frame["measured_samples_per_s"].notna() & frame["samples_per_s"].notna()]
    if both.empty:
        return
    error = both["samples_per_s"] / both["measured_samples_per_s"] - 1
    worst = error.abs().idxmax()
    count = f"{len(both)} measured point{'s' * (len(both) > 1)}"
    yield f"Beside {count}, the estimate is {error[worst]:+.1%} off at worst ({place(results, int(worst))})."
    if len(both) > 1:
        first = both.index[0]
        ratios = (both["samples_per_s"] / both.at[first, "samples_per_s"]) / (
            both["measured_samples_per_s"] / both.at[first, "measured_samples_per_s"]
        )
        off = ratios.sub(1).abs().idxmax()
        yield f"Predicted speed-ups over the first measured point are off by {ratios[off] - 1:+.1%} at worst."
