"""Measured collectives from a CSV: operation, ranks, buffer_bytes, seconds."""

from pathlib import Path
from typing import get_args

import pandas as pd

from cost_models.calibration.nccl_tests import COLUMNS
from cost_models.coefficients import CollectiveOperation
from topologies.errors import Fault, InputError


def read_csv(path: Path) -> pd.DataFrame:
    """The rows. Raises InputError with every fault: missing columns, unknown operations, numbers not above 0."""
    try:
        rows = pd.read_csv(path)
    except (OSError, ValueError) as error:
        raise InputError.at(str(path), f"cannot be read as CSV: {error}") from error
    missing = [name for name in COLUMNS if name not in rows]
    if missing:
        raise InputError(
            [Fault(str(path), 1, 1, name, f"is missing; columns: {', '.join(COLUMNS)}") for name in missing]
        )
    rows = rows[list(COLUMNS)]
    numbers = rows[["ranks", "buffer_bytes", "seconds"]].apply(pd.to_numeric, errors="coerce")
    known = get_args(CollectiveOperation)
    faults = [
        Fault(str(path), line + 2, 1, "operation", f"is {name!r}; known: {', '.join(known)}")
        for line, name in enumerate(rows.operation)
        if name not in known
    ]
    for name, least in (("ranks", 2), ("buffer_bytes", 0), ("seconds", 0)):
        good = numbers[name] >= least if name == "ranks" else numbers[name] > least
        faults += [
            Fault(str(path), line + 2, 1, name, f"must be a number {'from 2 up' if name == 'ranks' else 'above 0'}")
            for line in range(len(rows))
            if not good.iloc[line]
        ]
    if faults:
        raise InputError(faults)
    return rows.assign(**{name: numbers[name] for name in numbers})
