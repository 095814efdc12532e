"""What a study found of groups of ranks: from which size of the cluster on they are faster than one world, and why."""

from collections.abc import Iterable, Iterator, Sequence

from planner.studies.results import SECONDS_SUFFIX, STAGE_PREFIX, Axis, Row, StudyResults
from planner.studies.scales import value_text
from topologies.units import format_bytes, format_seconds

SETTINGS = "policy.replicas."
FACTOR = "policy.replicas.factor"
LEAST_CHANGE = 0.01
"""Share of the step by which a stage has to change for a word."""


def group_findings(results: StudyResults, best: Row) -> Iterator[str]:
    """How groups compare with one world at each size of the cluster, with all else as at the best point."""
    factor = next((axis for axis in results.axes if axis.column == FACTOR and axis.is_number), None)
    if factor is None:
        return
    settings = [axis for axis in results.varied if axis.column.startswith(SETTINGS)]
    sizes = dict(_compared(results, settings, best))
    if not sizes:
        return
    yield f"One world against groups of ranks: {'; '.join(_at(*sizes[ranks], settings) for ranks in sorted(sizes))}."
    world, groups = sizes[max(sizes)]
    for count in sorted({row[FACTOR] for row in groups}):
        fastest = _fastest(row for row in groups if row[FACTOR] == count)
        yield f"At {world['ranks']:,.0f} ranks, {_named(fastest, settings)}: {_why(world, fastest)}."


def _compared(
    results: StudyResults, settings: Sequence[Axis], best: Row
) -> Iterator[tuple[float, tuple[Row, list[Row]]]]:
    """By ranks, one world and the groups beside it: where both have a plan, with all but the size as at the best."""
    others = [axis.column for axis in results.varied if axis not in settings]
    others += ["scenario"] if "scenario" in results.frame else []
    fixed = [column for column in others if not _is_size(results, column)]
    planned = [
        row
        for row in results.rows
        if row["step_s"] is not None and all(row[column] == best[column] for column in fixed)
    ]
    for world in planned:
        beside = [row for row in planned if row[FACTOR] > 1 and row["ranks"] == world["ranks"]]
        if world[FACTOR] == 1 and beside:
            yield world["ranks"], (world, beside)


def _is_size(results: StudyResults, column: str) -> bool:
    """Whether each value of a column means another number of ranks."""
    pairs = results.frame[[column, "ranks"]].dropna().drop_duplicates()
    return pairs[column].is_unique and pairs["ranks"].is_unique


def _fastest(rows: Iterable[Row]) -> Row:
    return min(rows, key=lambda row: (row["step_s"], row["point"]))


def _named(row: Row, settings: Sequence[Axis]) -> str:
    """`2 groups (sync every 20)`."""
    words = [
        f"{axis.column.removeprefix(SETTINGS).replace('_', ' ')} {value_text(row[axis.column], axis.unit)}"
        for axis in settings
        if axis.column != FACTOR
    ]
    return f"{row[FACTOR]:,.0f} groups" + (f" ({', '.join(words)})" if words else "")


def _at(world: Row, groups: Sequence[Row], settings: Sequence[Axis]) -> str:
    """Which is faster at a size, by how much, and how much of that the bound of the slower one proves."""
    fastest = _fastest(groups)
    ratio = world["step_s"] / fastest["step_s"]
    name = _named(fastest, settings)
    if ratio > 1:
        words = f"{name} are {ratio - 1:.1%} faster"
        proven = world["lower_bound_s"] / fastest["step_s"] - 1
    else:
        words = f"one world is {1 / ratio - 1:.1%} faster than {name}"
        proven = min(row["lower_bound_s"] for row in groups) / world["step_s"] - 1
    proof = f"by the bound at least {proven:.1%}" if proven > 0 else "within the gaps"
    return f"at {world['ranks']:,.0f} ranks {words} ({proof})"


def _why(world: Row, groups: Row) -> str:
    """The stages that change most, and the memory."""
    changes = {
        column.removeprefix(STAGE_PREFIX).removesuffix(SECONDS_SUFFIX): (groups[column] or 0.0) - (world[column] or 0.0)
        for column in world
        if column.startswith(STAGE_PREFIX)
    }
    told = sorted((d, name) for name, d in changes.items() if abs(d) >= LEAST_CHANGE * world["step_s"])
    words = [f"{name} {'-' if change < 0 else '+'}{format_seconds(abs(change))}" for change, name in told]
    held, before = (row["hbm_used_bytes"] / row["ranks"] for row in (groups, world))
    steps = f"{format_seconds(groups['step_s'])} against {format_seconds(world['step_s'])}"
    return f"{', '.join([steps, *words])}, {format_bytes(held)} of HBM a rank against {format_bytes(before)}"
