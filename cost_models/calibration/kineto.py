"""Kernels of Kineto traces (torch.profiler): collectives with their bytes, embedding kernels with their shapes."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from cost_models.calibration.kernels import COLUMNS as KERNEL_COLUMNS
from cost_models.calibration.nccl_tests import COLUMNS
from cost_models.coefficients import CollectiveOperation
from topologies.errors import InputError

COLLECTIVES: dict[str, CollectiveOperation] = {
    "all_to_all": "all_to_all",
    "all_to_allv": "all_to_all",
    "allreduce": "all_reduce",
    "all_reduce": "all_reduce",
    "reduce_scatter": "reduce_scatter",
    "_reduce_scatter_base": "reduce_scatter",
    "all_gather": "all_gather",
    "_allgather_base": "all_gather",
}
"""By the name that PyTorch's process group records ("Collective name"), from PyTorch 2.2 on."""
ELEMENT_BYTES = {
    "Float": 4,
    "Half": 2,
    "BFloat16": 2,
    "Double": 8,
    "Int": 4,
    "Long": 8,
    "Byte": 1,
    "Char": 1,
}
EMBEDDING = ("split_embedding", "embedding_codegen", "embeddingbag")
"""Parts of the names of embedding kernels (FBGEMM, ATen)."""


def read_events(path: Path) -> list[dict[str, Any]]:
    """The events of a trace, plain or gzipped. Raises InputError for anything else."""
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        events = json.loads(raw)["traceEvents"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError.at(str(path), f"is not a Kineto trace: {error}; export one with torch.profiler") from error
    return [event for event in events if isinstance(event, dict)]


def collectives(path: Path) -> pd.DataFrame:
    """Each collective kernel that records its size: operation, ranks, buffer_bytes, seconds.

    A kernel that waits for a late rank lasts longer than its transfer; calibration keeps the fastest of each size.
    """
    rows = [row for event in _kernels(path) if (row := _collective(event)) is not None]
    found = pd.DataFrame(rows, columns=list(COLUMNS))
    keys = ["operation", "ranks", "buffer_bytes"]
    return found.sort_values([*keys, "seconds"]).drop_duplicates(keys).reset_index(drop=True)


def _collective(event: dict[str, Any]) -> tuple[str, int, float, float] | None:
    arguments = event.get("args", {})
    operation = COLLECTIVES.get(str(arguments.get("Collective name", "")))
    size = ELEMENT_BYTES.get(str(arguments.get("dtype", "")))
    ranks = int(arguments.get("Group size", 0))
    elements = max(int(arguments.get("In msg nelems", 0)), int(arguments.get("Out msg nelems", 0)))
    if operation is None or size is None or ranks < 2 or not elements:
        return None
    return operation, ranks, float(elements * size), float(event["dur"]) * 1e-6


def embedding_kernels(path: Path) -> pd.DataFrame:
    """Each embedding kernel: kernel, is_backward, seconds, and the input shapes of the operator that launched it."""
    events = read_events(path)
    shapes: dict[Any, Any] = {}
    for event in events:
        arguments = event.get("args", {})
        if event.get("cat") == "cpu_op" and "Input Dims" in arguments:
            shapes[arguments.get("External id")] = arguments["Input Dims"]
    rows = [
        (
            event["name"],
            "backward" in event["name"],
            float(event["dur"]) * 1e-6,
            shapes.get(event.get("args", {}).get("External id")),
        )
        for event in events
        if event.get("cat", "").lower() == "kernel" and any(word in event.get("name", "").lower() for word in EMBEDDING)
    ]
    return pd.DataFrame(rows, columns=["kernel", "is_backward", "seconds", "input_dims"])


def lookups(path: Path) -> pd.DataFrame:
    """Forward kernels of FBGEMM's TBE as rows of `kernels.COLUMNS`: ids, tables, samples and the mean width of a row.

    Shapes are those of the operator: a 1-D tensor of T table offsets and one of T + 1 column offsets, whose next
    argument is the sum of all widths (recorded as a concrete input, PyTorch 2.1 and later); then the ids and B T + 1
    bag offsets. Raises InputError where a trace has no such kernel, or none with the widths.
    """
    events = read_events(path)
    operators = {
        arguments.get("External id"): arguments
        for event in events
        if event.get("cat") == "cpu_op" and "Input Dims" in (arguments := event.get("args", {}))
    }
    rows, without_widths = [], 0
    for event in events:
        name = str(event.get("name", "")).lower()
        if event.get("cat", "").lower() != "kernel" or "embedding" not in name or "forward" not in name:
            continue
        shape = _lookup_shape(operators.get(event.get("args", {}).get("External id"), {}))
        if shape is None:
            without_widths += 1
        elif shape["lookups"]:
            rows.append({"operation": "lookup", **shape, "seconds": float(event["dur"]) * 1e-6})
    if not rows:
        reason = "records no forward kernel of an embedding"
        if without_widths:
            reason = (
                f"has {without_widths} lookups, but not the widths of their rows, without which no rate can be told;"
                " record with torch.profiler's record_shapes=True and PyTorch 2.1 or later, or pass a table with a"
                " column dim"
            )
        raise InputError.at(str(path), reason)
    return pd.DataFrame(rows, columns=list(KERNEL_COLUMNS))


def _lookup_shape(arguments: dict[str, Any]) -> dict[str, Any] | None:
    """What a TBE operator looked up, from its arguments; None where they do not tell."""
    dims, concrete = arguments.get("Input Dims", []), arguments.get("Concrete Inputs", [])
    flat = [dim[0] if isinstance(dim, list) and len(dim) == 1 and isinstance(dim[0], int) else 0 for dim in dims]
    for i in range(len(flat) - 4):
        tables = flat[i]
        if tables < 1 or flat[i + 1] != tables + 1 or i + 2 >= len(concrete):
            continue
        try:
            width = int(concrete[i + 2])
        except (TypeError, ValueError):
            continue
        for j in range(i + 3, len(flat) - 1):
            ids, bags = flat[j], flat[j + 1]
            if bags > tables + 1 and (bags - 1) % tables == 0:
                pooling = max(ids / (bags - 1), 1e-9)
                return {"dtype": "fp32", "lookups": ids, "dim": width / tables, "pooling": pooling}
    return None


def _kernels(path: Path) -> Iterator[dict[str, Any]]:
    return (event for event in read_events(path) if event.get("cat", "").lower() == "kernel" and "dur" in event)
