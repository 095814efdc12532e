"""From the answers of a study's points to its tidy table: units, prices, constraints, the frontier, measured steps."""

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd

from planner.capacity.prices import bill
from planner.formulation.software import software_warnings
from planner.formulation.unlike_parts import unlike_parts
from planner.studies.execution import Done
from planner.studies.fields import StudyField
from planner.studies.findings import findings
from planner.studies.grid import Grid, Point
from planner.studies.results import FIGURES, SAVES_PREFIX, SAVES_SUFFIX, SECONDS_SUFFIX, STAGE_PREFIX, StudyResults
from planner.studies.study import Figure, Limit, Measured, Study
from topologies.documents import did_you_mean
from topologies.errors import Fault, InputError

MATCHING = 1e-9
"""Relative difference up to which a measured row's value of an axis is that of a point."""
BYTES = ("used", "capacity")
LOSS = "loss"
"""What the variants of a point's plan lose, where its policy names any."""
OPEN = ("exchange", "checkpointing")
"""What a plan has chosen, where a policy leaves it open."""
LOSS_FRONTIER = (LOSS, "hbm_used_bytes", "step_s")
"""What such points are compared by; less of each is better."""
Row = dict[str, object]


def results(grid: Grid, done: Iterable[Done]) -> StudyResults:
    """The table of all points that are done, by their number."""
    study = grid.study
    measured = measured_steps(grid)
    ordered = sorted(done, key=lambda completed: completed.point.number)
    frame = pd.DataFrame([_row(completed, study, measured) for completed in ordered], columns=_columns(grid, ordered))
    for name in FIGURES:
        frame[name] = pd.to_numeric(frame[name])
    for axis in grid.axes:
        if not axis.is_number:
            frame[axis.column] = [None if cell is None else str(cell) for cell in frame[axis.column]]
    pareto = ("usd_per_hour" if frame["usd_per_hour"].notna().any() else "ranks", "samples_per_s")
    frame["on_pareto"] = on_frontier(frame, *pareto)
    if LOSS in frame:
        pareto = (LOSS, "samples_per_s")
        frame["on_pareto"] = unbeaten(frame, LOSS_FRONTIER)
    table = StudyResults(study.name, study.description, grid.axes, study.objective, (), pareto, frame)
    inputs = [completed.inputs for completed in ordered if completed.inputs is not None]
    warned = dict.fromkeys(
        words for each in inputs for words in software_warnings(each.workload, each.policy, each.topology)
    )
    for each in inputs:
        warned |= dict.fromkeys(unlike_parts(each.topology, in_groups=each.policy.replicas is not None))
    has_rules = any(each.policy.replicas is not None and each.policy.replicas.rules for each in inputs)
    told = findings(table, study, has_rules=has_rules)
    sentences = (*(f"Warning: {words}." for words in warned), *told)
    return StudyResults(study.name, study.description, grid.axes, study.objective, sentences, pareto, frame)


def _columns(grid: Grid, done: Sequence[Done]) -> list[str]:
    """In the order of the table; stages, memories and resources in the order in which points first have them."""
    head = ["point", *(["scenario"] if grid.study.scenarios else []), *(axis.column for axis in grid.axes)]
    records = [completed.answer.record for completed in done]

    def names(key: str) -> list[str]:
        return list(dict.fromkeys(name for record in records for name in record.get(key, {})))

    memories = [tier for tier in names("capacity") if any(record.get("capacity", {}).get(tier) for record in records)]
    return [
        *head,
        *("status", "reason", "meets"),
        *FIGURES,
        *([LOSS] if any(LOSS in record for record in records) else []),
        *(key for key in OPEN if _is_open(done, key)),
        "limit",
        *(f"{STAGE_PREFIX}{name}{SECONDS_SUFFIX}" for name in names("stages")),
        *(f"{tier}_{what}_bytes" for tier in memories for what in BYTES),
        *(f"{SAVES_PREFIX}{name}{SAVES_SUFFIX}" for name in names("saves")),
    ]


def _is_open(done: Sequence[Done], key: str) -> bool:
    """Whether the policy of some point leaves this open."""
    return any(each.inputs is not None and getattr(each.inputs.policy, key) == "auto" for each in done)


def _row(completed: Done, study: Study, measured: Mapping[int, float]) -> Row:
    record, point = completed.answer.record, completed.point
    row: Row = {"point": point.number, "reason": "", **point.cells}
    if point.scenario is not None:
        row["scenario"] = point.scenario.name
    row |= {name: record[name] for name in ("status", "reason", LOSS, *OPEN, "limit", *FIGURES) if name in record}
    for name, seconds in record.get("stages", {}).items():
        row[f"{STAGE_PREFIX}{name}{SECONDS_SUFFIX}"] = seconds
    for what in BYTES:
        for tier, size in record.get(what, {}).items():
            row[f"{tier}_{what}_bytes"] = size
    for name, share in record.get("saves", {}).items():
        row[f"{SAVES_PREFIX}{name}{SAVES_SUFFIX}"] = share
    if completed.inputs is not None:
        speed = record.get("samples_per_s")
        row |= bill(completed.inputs.topology, completed.inputs.prices).figures(speed)
    if point.number in measured and "samples_per_step" in record:
        row["measured_samples_per_s"] = record["samples_per_step"] / measured[point.number]
    broken = "" if "step_s" not in record else broken_constraints(row, study.constraints)
    row["meets"] = "step_s" in record and not broken
    row["reason"] = row["reason"] or broken
    return row


def broken_constraints(row: Mapping[str, object], constraints: Mapping[Figure, Limit]) -> str:
    """Which limits a point does not keep, in words; empty where it keeps all."""
    words = []
    for figure, limit in constraints.items():
        value = row.get(figure)
        if not isinstance(value, int | float) or math.isnan(value):
            words.append(f"{figure} is unknown")
        elif limit.min is not None and value < limit.min:
            words.append(f"{figure} {value:,.6g} is below {limit.min:,.6g}")
        elif limit.max is not None and value > limit.max:
            words.append(f"{figure} {value:,.6g} is above {limit.max:,.6g}")
    return "; ".join(words)


def on_frontier(frame: pd.DataFrame, cost: str, worth: str) -> np.ndarray:
    """[n] points that keep the constraints and that no other such point beats: as cheap, and better, or the reverse."""
    counts = frame["meets"].to_numpy(dtype=bool) & frame[cost].notna().to_numpy() & frame[worth].notna().to_numpy()
    is_on_frontier = np.zeros(len(frame), dtype=bool)
    at = np.flatnonzero(counts)
    costs, worths = frame[cost].to_numpy(dtype=float), frame[worth].to_numpy(dtype=float)
    best = -math.inf
    for i in at[np.lexsort((at, -worths[at], costs[at]))].tolist():
        if worths[i] > best:
            is_on_frontier[i], best = True, worths[i]
    return is_on_frontier


def unbeaten(frame: pd.DataFrame, columns: Sequence[str]) -> np.ndarray:
    """[n] points that keep the constraints and than which no other such point has less of one column and no more of
    any other; of equals, the first."""
    counts = frame["meets"].to_numpy(dtype=bool) & frame[list(columns)].notna().all(axis=1).to_numpy()
    values = frame[list(columns)].to_numpy(dtype=float)
    kept = np.zeros(len(frame), dtype=bool)
    for i in np.flatnonzero(counts).tolist():
        as_good = counts & (values <= values[i]).all(axis=1)
        better = as_good & (values < values[i]).any(axis=1)
        kept[i] = not better.any() and not as_good[:i].any()
    return kept


def measured_steps(grid: Grid) -> dict[int, float]:
    """Seconds of the measured steps, by the number of their point. Raises InputError for one that is no point."""
    study, steps = grid.study, {}
    faults: list[Fault] = []
    if study.measured and len(grid) > 100_000:
        raise InputError([grid.document.fault(("measured",), "measured rows need a grid of at most 100,000 points")])
    for number, row in enumerate(study.measured):
        unknown = [key for key in row.at if key != "scenario" and key not in set(_paths(grid))]
        where = ("measured", number, "at")
        if unknown:
            known = ["scenario", *_paths(grid)]
            message = f"{unknown[0]!r} is no axis of this study{did_you_mean(unknown[0], known)}"
            faults.append(grid.document.fault((*where, unknown[0]), message))
            continue
        points = [point.number for point in grid if _is_at(point, row)]
        if len(points) != 1:
            faults.append(grid.document.fault(where, f"means {len(points)} points; say which one by all that varies"))
            continue
        steps[points[0]] = row.step_s
    if faults:
        raise InputError(faults)
    return steps


def _paths(grid: Grid) -> list[str]:
    return [change.field.path for change in grid.point(0).changes if change.where[0] != "scenarios"]


def _is_at(point: Point, row: Measured) -> bool:
    of = {change.field.path: change for change in point.changes if change.where[0] != "scenarios"}
    for key, wanted in row.at.items():
        if key == "scenario":
            if point.scenario is None or point.scenario.name != wanted:
                return False
        elif not _equal(of[key].field, of[key].value, wanted):
            return False
    return True


def _equal(field: StudyField, value: object, other: object) -> bool:
    first, second = field.cell(value), field.cell(other)
    if isinstance(first, int | float) and isinstance(second, int | float):
        return math.isclose(first, second, rel_tol=MATCHING)
    return first == second
