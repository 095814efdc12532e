"""Measured collectives from a CSV: operation, ranks, buffer_bytes, seconds."""

import math
from pathlib import Path
from typing import get_args

import numpy as np
import pandas as pd

from cost_models.calibration.nccl_tests import COLUMNS
from cost_models.coefficients import CollectiveOperation
from topologies.errors import Fault, InputError


def read_csv(path: Path) -> pd.DataFrame:
    """The rows. Raises InputError with every fault: missing columns or rows, other operations, numbers not above 0."""
    try:
        rows = pd.read_csv(path)
    except (OSError, ValueError, OverflowError) as error:
        raise InputError.at(str(path), f"cannot be read as CSV: {error}") from error
    missing = [name for name in COLUMNS if name not in rows]
    if missing:
        raise InputError(
            [Fault(str(path), 1, 1, name, f"is missing; columns: {', '.join(COLUMNS)}") for name in missing]
        )
    if rows.empty:
        raise InputError.at(str(path), "has no collective below its header")
    rows = rows[list(COLUMNS)]
    numbers = rows[["ranks", "buffer_bytes", "seconds"]].apply(as_numbers)
    known = get_args(CollectiveOperation)
    faults = [
        Fault(str(path), line + 2, 1, "operation", f"is {name!r}; known: {', '.join(known)}")
        for line, name in enumerate(rows.operation)
        if name not in known
    ]
    for name, least in (("ranks", 2), ("buffer_bytes", 0), ("seconds", 0)):
        good = (numbers[name] >= least if name == "ranks" else numbers[name] > least) & np.isfinite(numbers[name])
        faults += [
            Fault(str(path), line + 2, 1, name, f"must be a number {'from 2 up' if name == 'ranks' else 'above 0'}")
            for line in range(len(rows))
            if not good.iloc[line]
        ]
    if faults:
        raise InputError(faults)
    return rows.assign(**{str(name): column for name, column in numbers.items()})


def as_numbers(values: pd.Series) -> pd.Series:
    """The values as numbers, NaN for what is none."""
    try:
        return pd.to_numeric(values, errors="coerce")
    except OverflowError:  # raised for text of hundreds of digits, also where it is to be coerced
        return values.map(_number).astype(float)


def _number(value: object) -> float:
    try:
        return float(str(value))
    except ValueError:
        return math.nan
