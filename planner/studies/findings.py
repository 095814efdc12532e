"""What a study found, a sentence each: the best point, what each axis does, where the limit changes, what helps."""

from collections import Counter
from collections.abc import Iterator, Sequence

from planner.studies.group_findings import group_findings
from planner.studies.results import FIGURES, SAVES_PREFIX, SAVES_SUFFIX, Axis, Row, StudyResults
from planner.studies.scales import value_text
from planner.studies.study import LARGER_IS_BETTER, Study
from topologies.units import format_bytes, format_seconds

LIMITS = {
    "hbm": "HBM and lookup kernels",
    "network": "the links between accelerators",
    "dense": "the dense part",
    "host": "PCIe and host memory",
    "storage": "SSD and remote hosts",
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
    "kg_co2e_per_hour": "greenhouse gases per hour",
    "kg_co2e_per_billion_samples": "greenhouse gases per billion samples",
}
LEAST_SAVED = 0.001
"""Share of the step below which a gain is not worth a word."""
LEAST_EFFECT = 0.005
"""Relative difference of throughputs below which an axis is said to do nothing."""
MOST_CHANGES = 4
"""Changes of the limit that are listed."""
MOST_REASONS, MOST_LINES = 3, 4
HALF = 0.5
"""Share of the highest throughput of a rank at which scaling is said to end."""


def best_point(results: StudyResults) -> Row | None:
    """The row that is best by the objective among those that keep the constraints.

    Ties go to fewer ranks, then to the higher throughput, then to the first.
    """
    objective = results.objective
    sign = -1 if objective in LARGER_IS_BETTER else 1
    rows = [row for row in results.rows if row["meets"] and row[objective] is not None]
    return min(
        rows,
        key=lambda row: (sign * row[objective], row["ranks"], -row["samples_per_s"], row["point"]),
        default=None,
    )


def place(results: StudyResults, row: Row, axes: Sequence[Axis] | None = None) -> str:
    """Which point a row is, in a few words: its scenario, and its values of some axes, or of all that vary."""
    words = [str(row["scenario"])] if "scenario" in row else []
    words += [
        f"{axis.label} {value_text(row[axis.column], axis.unit)}" for axis in (results.varied if axes is None else axes)
    ]
    return ", ".join(words)


def findings(results: StudyResults, study: Study, *, has_rules: bool = False) -> Iterator[str]:
    """The sentences, the most wanted first. With `has_rules`, by which some tables have copies of their own, one group
    is no one world to compare groups with."""
    yield _counts(results.rows, study)
    best = best_point(results)
    if best is None:
        yield from _why_none(results.rows, study)
        return
    yield _best(results, best)
    yield from _scenarios(results)
    yield from _frontier(results)
    for axis in results.axes:
        yield from _along(results, axis, best)
        yield from _room(results, axis)
    if not has_rules:
        yield from group_findings(results, best)
    yield from _scaling(results, best)
    yield from _gains(results, best)
    yield from _beside_measured(results)


def _counts(rows: list[Row], study: Study) -> str:
    count = Counter(row["status"] for row in rows)
    words = [f"{count['optimal'] + count['feasible']:,} planned"]
    for name, what in (("infeasible", "do not fit"), ("timeout", "without a plan"), ("error", "failed")):
        if count[name]:
            words.append(f"{count[name]:,} {what}")
    if study.constraints:
        words.append(f"{sum(row['meets'] for row in rows):,} keep the constraints ({', '.join(study.constraints)})")
    gaps = [row["gap"] for row in rows if row["gap"] is not None]
    proven = f"; gaps to the proven bound up to {max(gaps):.1%}" if gaps else ""
    return f"{_points(len(rows))}: {', '.join(words)}{proven}."


def _points(count: int) -> str:
    return f"{count:,} point{'s' * (count != 1)}"


def _why_none(rows: list[Row], study: Study) -> Iterator[str]:
    """What the points lack; of a constraint, how near one comes."""
    planned = [row for row in rows if row["samples_per_s"] is not None]
    if not planned:
        for reason, count in Counter(row["reason"] for row in rows).most_common(MOST_REASONS):
            yield f"No point has a plan: {reason} ({_points(count)})."
        return
    yield "No point keeps the constraints."
    for figure, limit in study.constraints.items():
        unit = FIGURES[figure]
        values = [row[figure] for row in planned if row[figure] is not None]
        if not values:
            yield f"The {FIGURE_WORDS[figure]} of the points is unknown; give prices."
        elif limit.min is not None and max(values) < limit.min:
            most = value_text(max(values), unit)
            yield f"The highest {FIGURE_WORDS[figure]} is {most}, below the {value_text(limit.min, unit)} asked for."
        elif limit.max is not None and min(values) > limit.max:
            least = value_text(min(values), unit)
            yield f"The lowest {FIGURE_WORDS[figure]} is {least}, above the {value_text(limit.max, unit)} allowed."


def _best(results: StudyResults, best: Row) -> str:
    objective = results.objective
    what = "highest" if objective in LARGER_IS_BETTER else "lowest"
    value = value_text(best[objective], FIGURES[objective])
    more = "" if objective == "samples_per_s" else f", {best['samples_per_s']:,.0f} samples/s"
    gap = f"at most {best['gap']:.1%} above the bound"
    return (
        f"The {what} {FIGURE_WORDS[objective]} is {value}{_at(results, best)}{more}; its step of"
        f" {format_seconds(best['step_s'])} is {gap}."
    )


def _at(results: StudyResults, row: Row) -> str:
    where = place(results, row)
    return f" at {where}" if where else ""


def _scenarios(results: StudyResults) -> Iterator[str]:
    """The best of each scenario, where it has several points."""
    objective = results.objective
    choose = max if objective in LARGER_IS_BETTER else min
    values: dict[str, list[float]] = {}
    for row in results.rows if results.axes else ():
        if "scenario" in row and row["meets"] and row[objective] is not None:
            values.setdefault(row["scenario"], []).append(row[objective])
    if len(values) > 1:
        words = [
            f"{name} {value_text(choose(of_scenario), FIGURES[objective])}" for name, of_scenario in values.items()
        ]
        yield f"The best {FIGURE_WORDS[objective]} of each scenario: {'; '.join(words)}."


def _frontier(results: StudyResults) -> Iterator[str]:
    cost, worth = results.pareto
    front = sorted((row for row in results.rows if row["on_pareto"]), key=lambda row: row[cost])
    if len(front) > 1 and cost == "loss":
        took = [(format_seconds(row["step_s"]), format_bytes(row["hbm_used_bytes"]), row) for row in front]
        ends = [f"{step} and {size} of HBM at a loss of {row[cost]:.6g}" for step, size, row in (took[0], took[-1])]
        yield f"{len(front)} points are on the frontier of loss, memory and step, from {ends[0]} to {ends[1]}."
    elif len(front) > 1:
        ends = [
            f"{value_text(row[worth], FIGURES[worth])} for {_paid(row[cost], cost)}" for row in (front[0], front[-1])
        ]
        yield (
            f"{len(front)} points are on the frontier of {FIGURE_WORDS[cost]} and {FIGURE_WORDS[worth]}, from"
            f" {ends[0]} to {ends[1]}."
        )


def _paid(value: float, column: str) -> str:
    return value_text(value, FIGURES[column]) if FIGURES[column] else f"{value:,.0f} {column}"


def _slice(results: StudyResults, axis: Axis, best: Row) -> list[Row]:
    """The points that differ from the best one in one axis only, along it."""
    others = [other.column for other in results.axes if other != axis] + ["scenario"]
    rows = [row for row in results.rows if all(row.get(column) == best.get(column) for column in others)]
    return sorted(rows, key=lambda row: row[axis.column]) if axis.is_number else rows


def _along(results: StudyResults, axis: Axis, best: Row) -> Iterator[str]:
    """What one axis does at the best point: its effect, where it does not fit, where the limit changes."""
    rows = _slice(results, axis, best)
    planned = [row for row in rows if row["samples_per_s"] is not None]
    if len(planned) > 1:
        slow, fast = (choose(planned, key=lambda row: row["samples_per_s"]) for choose in (min, max))
        ratio = fast["samples_per_s"] / slow["samples_per_s"]
        of_fast, of_slow = (value_text(row[axis.column], axis.unit) for row in (fast, slow))
        what = f"{axis.label} {of_fast} is {ratio:,.3g} times as fast as {of_slow}"
        if ratio < 1 + LEAST_EFFECT:
            what = f"{axis.label} changes the throughput by less than {LEAST_EFFECT:.1%}"
        yield f"With all else as at the best point, {what}."
    if not axis.is_number:
        return
    if len({row["limit"] for row in planned}) > 1:
        yield f"Along {axis.label}, the step is limited by {_limits(planned, axis)}."


def _room(results: StudyResults, axis: Axis) -> Iterator[str]:
    """Up to where along an axis, or from where, the tables fit: for each combination of the others."""
    if not axis.is_number:
        return
    others = [other for other in results.varied if other != axis]
    lines: dict[str, list[Row]] = {}
    for row in results.rows:
        lines.setdefault(place(results, row, others), []).append(row)
    sentences = []
    for where, rows in lines.items():
        fits = [row[axis.column] for row in rows if row["samples_per_s"] is not None]
        not_ = [row[axis.column] for row in rows if row["status"] == "infeasible"]
        if not fits or not not_ or (min(not_) < max(fits) and max(not_) > min(fits)):
            continue
        is_above = min(not_) > max(fits)
        ends = f"{'up to' if is_above else 'from'} {value_text(max(fits) if is_above else min(fits), axis.unit)}"
        sentences.append(f"{ends} ({where})" if where else ends)
    if sentences:
        more = f"; and {len(sentences) - MOST_LINES:,} more" if len(sentences) > MOST_LINES else ""
        yield f"Along {axis.label}, the tables fit {'; '.join(sentences[:MOST_LINES])}{more}."


def _limits(planned: list[Row], axis: Axis) -> str:
    runs: list[tuple[str, object]] = []
    for row in planned:
        if not runs or runs[-1][0] != row["limit"]:
            runs.append((row["limit"], row[axis.column]))
    first, *rest = runs
    words = [LIMITS[first[0]]]
    words += [f"from {value_text(value, axis.unit)} by {LIMITS[what]}" for what, value in rest[:MOST_CHANGES]]
    return ", ".join(words)


def _scaling(results: StudyResults, best: Row) -> Iterator[str]:
    """How throughput follows the ranks, along the axis that changes their number."""
    for axis in results.axes:
        rows = [row for row in _slice(results, axis, best) if row["samples_per_s"] is not None]
        rows.sort(key=lambda row: row["ranks"])
        if len({row["ranks"] for row in rows}) < 2:
            continue
        first, last = rows[0], rows[-1]
        of_rank = [row["samples_per_s"] / row["ranks"] for row in rows]
        at = of_rank.index(max(of_rank))
        text = f"From {first['ranks']:,.0f} to {last['ranks']:,.0f} ranks throughput grows"
        text += f" {last['samples_per_s'] / first['samples_per_s']:,.3g} times"
        if at < len(rows) - 1:
            text += f"; per rank it is highest at {rows[at]['ranks']:,.0f}, and {of_rank[-1] / of_rank[at]:.0%} of that"
            text += f" at {last['ranks']:,.0f}"
        below = [row for row, speed in zip(rows[at:], of_rank[at:], strict=True) if speed < HALF * of_rank[at]]
        if below:
            text += f", below half of it from {below[0]['ranks']:,.0f}"
        yield f"{text}."


def _gains(results: StudyResults, best: Row) -> Iterator[str]:
    sentences = []
    for column in results.gains:
        share = best[column]
        if share is not None and share >= LEAST_SAVED:
            name = column.removeprefix(SAVES_PREFIX).removesuffix(SAVES_SUFFIX).replace("_", " ")
            most = "at most " if name.endswith("capacity") else ""
            sentences.append((share, f"{name} {most}{share:.1%}"))
    if sentences:
        listed = ", ".join(words for _, words in sorted(sentences, key=lambda item: -item[0])[:4])
        yield f"At the best point, 10 % more of one resource would shorten the step by: {listed}."
    elif results.gains:
        yield "At the best point, 10 % more of any one resource would not shorten the step."


def _beside_measured(results: StudyResults) -> Iterator[str]:
    both = [row for row in results.rows if row["measured_samples_per_s"] and row["samples_per_s"]]
    ratios = [row["samples_per_s"] / row["measured_samples_per_s"] for row in both]
    if not both:
        return
    worst = max(range(len(both)), key=lambda i: abs(ratios[i] - 1))
    yield (
        f"Beside {len(both)} measured point{'s' * (len(both) > 1)}, the estimate is {ratios[worst] - 1:+.1%} off at"
        f" worst ({place(results, both[worst])})."
    )
    if len(both) > 1:
        off = max((ratio / ratios[0] - 1 for ratio in ratios[1:]), key=abs)
        yield f"Predicted speed-ups over {place(results, both[0])} are {off:+.1%} off the measured ones at worst."
