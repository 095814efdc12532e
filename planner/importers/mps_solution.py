"""A solution of the programme that `planner plan --write-model` wrote: lines of `name value`, as solvers write them.

Gurobi, HiGHS, SCIP and CBC-like files are read by their lines of two or more words: the name of a count and its value.
What is not listed is 0. A second list of columns, HiGHS's of dual values, is not read.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cost_models.shards import EXTENT_OF_SHARDING, SHARDING_ROWS, SHARDINGS, TIERS, Ints, block_rows
from planner.formulation.sites import sites_on
from planner.importers.adoption import AdoptedTable, AdoptionInputs
from planner.planning.programme_names import NamedCount, table_label
from planner.problem.sites import NOWHERE
from topologies.documents import did_you_mean
from topologies.errors import Fault, InputError
from topologies.sources import note

WHOLE = 1e-4
"""Distance from a whole number within which a count is that number: solvers keep integers to 1e-5 or so."""
DUAL_VALUES = "# Dual"
MOST_CELLS = 1 << 40
"""Rows, or columns, of a block; no table has as many."""
MOST_BLOCKS = 1 << 20
"""Blocks of a table; no table has as many columns."""
Counted = tuple[NamedCount, int]


def solution_tables(path: Path, inputs: AdoptionInputs) -> list[AdoptedTable]:
    """How the solution holds the tables, in the workload's order. Raises InputError with everything that is wrong."""
    tables = inputs.workload.tables
    number_of = {table_label(number, table.name): number for number, table in enumerate(tables)}
    counted: list[list[Counted]] = [[] for _ in tables]
    faults: list[Fault] = []
    seen: set[str] = set()
    for line, name, value in _lines(path):
        try:
            count = NamedCount.read(name)
        except (ValueError, KeyError):
            faults.append(Fault(str(path), line, 0, "", f"{name} is no count of a programme of planner plan"))
            continue
        if count is None:
            continue
        times = _whole(value)
        if times is None or name in seen:
            reason = "stands there twice" if name in seen else f"is {value}, not a whole number from 0 on"
            faults.append(Fault(str(path), line, 0, "", f"{name} {reason}"))
        elif count.table not in number_of:
            words = f"the workload has no table {count.table!r}{did_you_mean(count.table, number_of)}"
            faults.append(Fault(str(path), line, 0, "", words))
        elif times:
            counted[number_of[count.table]].append((count, times))
        seen.add(name)
    if not seen and not faults:
        raise InputError.at(str(path), "has no line with a count, as in `count:TABLE:…:0 1`; is it the solution file?")
    held = [_held(counts, profile.name, inputs, path, faults) for counts, profile in zip(counted, tables, strict=True)]
    if faults:
        raise InputError(faults)
    return [table for table in held if table is not None]


def _lines(path: Path) -> list[tuple[int, str, str]]:
    """(line, name, value) of the lines with two words or more, up to values of a dual solution."""
    try:
        text = note(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError.at(str(path), f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError.at(str(path), "is not UTF-8 text") from None
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith(DUAL_VALUES):
            break
        words = line.split()
        if len(words) > 1:
            found.append((number, words[0], words[1]))
    return found


def _whole(value: str) -> int | None:
    try:
        number = float(value)
    except ValueError:
        return None
    whole = round(number) if abs(number) < 1e9 else -1
    return whole if whole >= 0 and abs(number - whole) <= WHOLE else None


def _held(
    counts: Sequence[Counted], name: str, inputs: AdoptionInputs, path: Path, faults: list[Fault]
) -> AdoptedTable | None:
    """How one table is held; None, with a fault, where the counts do not say that of one option and real sites."""
    options = {count.option for count, _ in counts}
    sites = sites_on(inputs.model.node_of_rank)
    reason = ""
    if len(options) != 1:
        reason = f"is held in {len(options)} options ({', '.join(sorted(options)) or 'no count is above 0'}), not one"
    elif TIERS[counts[0][0].tier].how == "split":
        reason = f"is in {counts[0][0].tier}, whose numbering of rows a solution does not have"
    elif any(max(count.rows, count.columns) > MOST_CELLS for count, _ in counts):
        reason = f"has a block of more than {MOST_CELLS:,} rows or columns"
    elif sum(times for _, times in counts) > MOST_BLOCKS:
        reason = f"has more than {MOST_BLOCKS:,} blocks"
    elif outside := [count.site for count, _ in counts if count.site >= sites[_extent(count)].count]:
        reason = f"is at site {outside[0]}, which the cluster does not have"
    elif any((count.site == NOWHERE) != (sites[_extent(count)].reach == "world") for count, _ in counts):
        reason = "has a block on all ranks that is of one site, or the other way round"
    if reason:
        faults.append(Fault(str(path), 0, 0, "", f"table {name!r} {reason}"))
        return None
    parts: list[Ints] = []
    column = row = 0
    is_apart = SHARDING_ROWS[counts[0][0].sharding].cuts_into_sites
    for count in (count for count, times in counts for _ in range(times)):
        ranks = sites[_extent(count)].members(count.site)
        first, held = np.zeros_like(ranks), np.full_like(ranks, count.rows)
        if count.sharding != "data_parallel":
            held = block_rows(np.array(count.rows), len(ranks), np.arange(len(ranks)))
            first = np.cumsum(held) - held
        width = np.full_like(ranks, count.columns)
        parts.append(np.stack([ranks, row + first, held, np.full_like(ranks, column), width]))
        row, column = (row + count.rows, column) if is_apart else (row, column + count.columns)
    one, (rank, row_start, rows, column_start, columns) = counts[0][0], np.concatenate(parts, axis=1)
    held_as = one.sharding, one.tier, one.cache_fraction
    stored_as = one.dtype, one.optimizer_state
    return AdoptedTable(*held_as, rank, row_start, rows, column_start, columns, *stored_as)


def _sharding(count: NamedCount) -> int:
    return SHARDINGS.index(count.sharding)


def _extent(count: NamedCount) -> int:
    return int(EXTENT_OF_SHARDING[_sharding(count)])
