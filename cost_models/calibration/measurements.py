"""Measured collectives from files of any kind that calibration reads."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from cost_models.calibration import kineto, nccl_tests, tables
from topologies.errors import Fault, InputError


def read(paths: Sequence[Path]) -> pd.DataFrame:
    """The collectives of all files, with the columns operation, ranks, buffer_bytes, seconds.

    A `.json` or `.json.gz` is a Kineto trace, a `.csv` a table, anything else a log of nccl-tests. Raises InputError
    with the faults of every file.
    """
    frames: list[pd.DataFrame] = []
    faults: list[Fault] = []
    for path in paths:
        try:
            frames.append(_read_one(path))
        except InputError as error:
            faults += error.faults
        except OSError as error:
            faults.append(Fault(str(path), 0, 0, "", f"cannot be read: {error.strerror}"))
    if faults:
        raise InputError(faults)
    return pd.concat(frames, ignore_index=True)


def _read_one(path: Path) -> pd.DataFrame:
    if path.name.endswith((".json", ".json.gz")):
        collectives = kineto.collectives(path)
        if collectives.empty:
            raise InputError.at(
                str(path), "records no collective with its size; record with PyTorch 2.2 or later and its NCCL backend"
            )
        return collectives
    return tables.read_csv(path) if path.suffix == ".csv" else nccl_tests.read_logs([path])
