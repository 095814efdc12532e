"""Tables that nccl-tests prints (all_reduce_perf, alltoall_perf …) as measured collectives."""

import re
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from cost_models.coefficients import CollectiveOperation
from topologies.errors import Fault, InputError, shown

OPERATIONS: dict[str, CollectiveOperation] = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
}
"""The operation of each program, by the program's name without `_perf`."""
COLUMNS = ("operation", "ranks", "buffer_bytes", "seconds")
_PROGRAM = re.compile(r"\b(" + "|".join(OPERATIONS) + r")_perf\b")
_RANK = re.compile(r"^#\s+Rank\s+(\d{1,9})\b")
_ROW = re.compile(r"^\s*(\d+)\s+\d+\s+\w+\s+\S+\s+-?\d+\s+([\d.]+)\s+[\d.]+\s+[\d.]+\s+\S+\s+[\d.]+\s")


def read_logs(paths: Sequence[Path]) -> pd.DataFrame:
    """Out-of-place times of every table in these logs, with COLUMNS; bytes and seconds.

    Raises InputError for a log without a table, or from which the program or the ranks cannot be told.
    """
    frames: list[pd.DataFrame] = []
    faults: list[Fault] = []
    for path in paths:
        try:
            frames.append(parse(path.read_text(errors="replace"), str(path)))
        except InputError as error:
            faults += error.faults
    if faults:
        raise InputError(faults)
    return pd.concat(frames, ignore_index=True)


def parse(text: str, source: str) -> pd.DataFrame:
    """One log; see `read_logs`. A file name that holds the program's name may stand in for the command line."""
    operation, last_rank, rows = _operation(source), -1, []
    for number, line in enumerate(text.splitlines(), start=1):
        if found := _PROGRAM.search(line):
            operation = OPERATIONS[found[1]]
        if found := _RANK.match(line):
            last_rank = max(last_rank, int(found[1]))
        if found := _ROW.match(line):
            try:
                rows.append((operation, last_rank + 1, float(found[1]), float(found[2]) * 1e-6))
            except ValueError:
                message = f"the time {shown(found[2])} is no number; take the log as nccl-tests printed it"
                raise InputError.at(source, message, line=number, column=1) from None
    rows = [row for row in rows if row[2] > 0]
    problems = []
    if not rows:
        problems.append("has no table of nccl-tests (size, count, type, redop, root, time …)")
    elif operation is None:
        names = ", ".join(f"{name}_perf" for name in OPERATIONS)
        problems.append(f"does not say which collective it measured; put one of {names} into its name")
    if rows and last_rank < 1:
        problems.append("does not list two or more ranks ('#  Rank  0 …'); keep the head of the log")
    if problems:
        raise InputError([Fault(source, 0, 0, "", problem) for problem in problems])
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _operation(source: str) -> CollectiveOperation | None:
    program = _PROGRAM.search(Path(source).name)
    return OPERATIONS[program[1]] if program else None
