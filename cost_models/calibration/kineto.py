"""Kernels of Kineto traces (torch.profiler): collectives with their bytes, embedding kernels with their shapes."""

import math
from collections.abc import Iterator, Sized
from pathlib import Path
from typing import Any

import pandas as pd

from cost_models.calibration.kernels import COLUMNS as KERNEL_COLUMNS
from cost_models.calibration.nccl_tests import COLUMNS
from cost_models.calibration.trace_events import Event, read_events
from cost_models.coefficients import CollectiveOperation
from topologies.errors import InputError
from topologies.sentences import counted

MOST_EVENTS = 1_000_000
"""Kept of one kind: beyond it a trace holds more than a fit can use."""

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
"""The operation, by the name that PyTorch's process group records ("Collective name"), from PyTorch 2.2 on."""
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


def collectives(path: Path) -> pd.DataFrame:
    """Each collective kernel that records its size: operation, ranks, buffer_bytes, seconds.

    A kernel that waits for a late rank lasts longer than its transfer; calibration keeps the fastest of each size.
    """
    fastest: dict[tuple[str, int, float], float] = {}
    for event, seconds in _kernels(path):
        key = _collective(event)
        if key is not None and seconds < fastest.get(key, math.inf):
            fastest[key] = seconds
            _expect_few(fastest, path)
    rows = [(*key, seconds) for key, seconds in sorted(fastest.items())]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _collective(event: Event) -> tuple[str, int, float] | None:
    """Operation, ranks and bytes of a collective that says them."""
    arguments = event.get("args", {})
    operation = COLLECTIVES.get(str(arguments.get("Collective name", "")))
    size = ELEMENT_BYTES.get(str(arguments.get("dtype", "")))
    ranks = _whole(arguments.get("Group size"))
    elements = max(_whole(arguments.get("In msg nelems")), _whole(arguments.get("Out msg nelems")))
    if operation is None or size is None or ranks < 2 or elements < 1:
        return None
    return operation, ranks, float(elements * size)


def embedding_kernels(path: Path) -> pd.DataFrame:
    """Each embedding kernel: kernel, is_backward, seconds, and the input shapes of the operator that launched it."""
    shapes: dict[object, object] = {}
    kernels: list[tuple[str, float, object]] = []
    for event in read_events(path):
        launch, name = _launch(event), str(event.get("name", ""))
        if event.get("cat") == "cpu_op" and "Input Dims" in event.get("args", {}):
            shapes[launch] = event["args"]["Input Dims"]
            _expect_few(shapes, path)
        elif (seconds := _kernel_s(event)) is not None and any(word in name.lower() for word in EMBEDDING):
            kernels.append((name, seconds, launch))
            _expect_few(kernels, path)
    rows = [(name, "backward" in name, seconds, shapes.get(launch)) for name, seconds, launch in kernels]
    return pd.DataFrame(rows, columns=["kernel", "is_backward", "seconds", "input_dims"])


def lookups(path: Path) -> pd.DataFrame:
    """Forward kernels of FBGEMM's TBE as rows of `kernels.COLUMNS`: ids, tables, samples and the mean width of a row.

    Shapes are those of the operator: a 1-D tensor of T table offsets and one of T + 1 column offsets, whose next
    argument is the sum of all widths (recorded as a concrete input, PyTorch 2.1 and later); then the ids and B T + 1
    bag offsets. Raises InputError where a trace has no such kernel, or none with the widths.
    """
    shapes: dict[object, dict[str, Any]] = {}
    kernels: list[tuple[object, float]] = []
    for event in read_events(path):
        arguments, name = event.get("args", {}), str(event.get("name", "")).lower()
        if event.get("cat") == "cpu_op" and "Input Dims" in arguments:
            if (shape := _lookup_shape(arguments)) is not None:
                shapes[_launch(event)] = shape
                _expect_few(shapes, path)
        elif "embedding" in name and "forward" in name and (seconds := _kernel_s(event)) is not None:
            kernels.append((_launch(event), seconds))
            _expect_few(kernels, path)
    rows = [
        {"operation": "lookup", **shapes[launch], "seconds": seconds}
        for launch, seconds in kernels
        if launch in shapes and shapes[launch]["lookups"]
    ]
    if not rows:
        reason = "records no forward kernel of an embedding"
        if without_widths := sum(launch not in shapes for launch, _ in kernels):
            reason = (
                f"has {counted(without_widths, 'lookup')}, but not the widths of their rows, without which no rate can"
                " be told; record with torch.profiler's record_shapes=True and PyTorch 2.1 or later, or pass a table"
                " with a column dim"
            )
        raise InputError.at(str(path), reason)
    return pd.DataFrame(rows, columns=list(KERNEL_COLUMNS))


def _lookup_shape(arguments: dict[str, Any]) -> dict[str, Any] | None:
    """What a TBE operator looked up, from its arguments; None where they do not tell."""
    dims, concrete = arguments.get("Input Dims", []), arguments.get("Concrete Inputs", [])
    if not isinstance(dims, list) or not isinstance(concrete, list):
        return None
    flat = [dim[0] if isinstance(dim, list) and len(dim) == 1 and _is_length(dim[0]) else 0 for dim in dims]
    for i in range(len(flat) - 4):
        tables = flat[i]
        if tables < 1 or flat[i + 1] != tables + 1 or i + 2 >= len(concrete):
            continue
        try:
            width = float(int(concrete[i + 2]))
        except (TypeError, ValueError, OverflowError):
            continue
        for j in range(i + 3, len(flat) - 1):
            ids, bags = flat[j], flat[j + 1]
            if bags > tables + 1 and (bags - 1) % tables == 0:
                pooling = max(ids / (bags - 1), 1e-9)
                return {"dtype": "fp32", "lookups": ids, "dim": width / tables, "pooling": pooling}
    return None


def _is_length(value: object) -> bool:
    """Whether a tensor can be so long: whole numbers of 64 bits."""
    return isinstance(value, int) and 0 <= value < 1 << 63


def _kernels(path: Path) -> Iterator[tuple[Event, float]]:
    """The kernels of a trace, and the seconds of each."""
    for event in read_events(path):
        if (seconds := _kernel_s(event)) is not None:
            yield event, seconds


def _kernel_s(event: Event) -> float | None:
    """Seconds of a kernel; None for what is none."""
    lasts = event.get("dur")
    is_kernel = str(event.get("cat", "")).lower() == "kernel"
    return lasts * 1e-6 if is_kernel and isinstance(lasts, int | float) else None


def _launch(event: Event) -> object:
    """What joins a kernel with its operator."""
    launch = event.get("args", {}).get("External id")
    return launch if isinstance(launch, int | str) else None


def _whole(value: object) -> int:
    """A whole number, also in quotes; 0 for anything else."""
    if isinstance(value, int | float):
        return int(value) if math.isfinite(value) else 0
    return int(value) if isinstance(value, str) and value.isdecimal() else 0


def _expect_few(found: Sized, path: Path) -> None:
    if len(found) > MOST_EVENTS:
        message = f"records more than {MOST_EVENTS:,} events of one kind; record fewer steps"
        raise InputError.at(str(path), message)
