"""Bytes by the names of formats and optimizers: what drawn rows take of a workload, read anew.

Rows, elements on the wire and optimizer state have the sizes that their names say; none is looked up in the records
that the estimate uses (`cost_models.workload.formats`, `cost_models.workload.optimizers`).
"""

import re
from dataclasses import dataclass, fields
from typing import Self

import numpy as np

from cost_models.shards import Ints
from cost_models.tables import Tables
from cost_models.workload.models import Workload

FULL_BYTES = 4
"""An fp32: what devices compute with, weights of ids, optimizer state."""
MOMENTS = {"sgd": 0, "adagrad": 1, "lars_sgd": 1, "adam": 2, "lamb": 2}
"""Numbers that an optimizer keeps of every weight: sums of squares, momentum, or both."""
_WORD = re.compile(r"(?P<kind>mxfp|mxint|mx|bf|fp|int)(?P<bits>\d+)(?P<layout>_row|_nbit)?")
_BLOCKS = {"mx": (16, 0), "mxfp": (32, 8), "mxint": (32, 8)}


def _layout(dtype: str) -> tuple[str, int, int, int, str | None]:
    """Kind, bits of an element, elements of a block, bits that these share beyond, and how rows are laid out."""
    word = _WORD.fullmatch(dtype)
    if word is None:
        raise ValueError(f"the name of format {dtype} does not say how many bits an element has")
    return word["kind"], int(word["bits"]), *_BLOCKS.get(word["kind"], (1, 0)), word["layout"]


def bytes_of_row(dtype: str, columns: int) -> int:
    """Bytes of a row by what its format's name says: bits of an element; `mx…`: of one in a block of 16, shared ones
    dealt out; `mxfp…`, `mxint…`: in blocks of 32 with 8 more bits; `…_row`, `…_nbit`: scale and bias, in fp32 for
    training tables of 8 bits, else in fp16; `…_nbit`: in whole 16 bytes."""
    _, bits, block, more, layout = _layout(dtype)
    size = -(-(-(-columns // block) * (block * bits + more)) // 8)
    if layout:
        size += 8 if (bits, layout) == (8, "_row") else 4
    return -(-size // 16) * 16 if layout == "_nbit" else size


def bytes_on_wire(dtype: str) -> float:
    """Bytes of an element in a long vector."""
    _, bits, block, more, _ = _layout(dtype)
    return (bits + more / block) / 8


def is_computed_with(dtype: str) -> bool:
    """Whether devices add numbers of a format as they are: floats of 16 bits or more."""
    kind, bits, *_ = _layout(dtype)
    return kind in ("fp", "bf") and bits >= 16


def numbers_kept(optimizer: str) -> tuple[int, int]:
    """Numbers that an optimizer keeps of each weight, and of each row: `rowwise_` ones have one for a row where others
    have one for each of its weights; `partial_rowwise_` ones for the last of theirs."""
    is_partial, plain = optimizer.startswith("partial_"), optimizer.removeprefix("partial_")
    is_rowwise, plain = plain.startswith("rowwise_"), plain.removeprefix("rowwise_")
    of_weights = MOMENTS[plain]
    return (of_weights - 1, 1) if is_partial or is_rowwise else (of_weights, 0)


@dataclass(frozen=True)
class NamedTables(Tables):
    """The arrays of a workload, with bytes by names."""

    @classmethod
    def named(cls, workload: Workload, world: int) -> Self:
        """Those of a workload on so many ranks."""
        tables, training = workload.tables, workload.mode == "training"
        stated = Tables.of(workload, world)
        ways = workload.communication.forward, workload.communication.backward
        sums = [way if is_computed_with(way) else "fp16" for way in ways]
        gradient = workload.dense.gradient_format
        kept = [numbers_kept(workload.optimizer_of(table)) if training else (0, 0) for table in tables]
        encodings = 3 + 1 / world  # its own numbers, the shares of all to sum, sums, and the sums of all
        own = {
            "id_bytes": np.array([2 * FULL_BYTES + FULL_BYTES * table.weighted for table in tables]),
            "state_arrays": np.array([of_weights for of_weights, _ in kept]),
            "state_bytes_per_row": np.array([FULL_BYTES * of_row for _, of_row in kept]),
            "forward_wire_bytes": bytes_on_wire(ways[0]),
            "backward_wire_bytes": bytes_on_wire(ways[1]),
            "forward_sum_bytes": bytes_on_wire(sums[0]),
            "backward_sum_bytes": bytes_on_wire(sums[1]),
            "written_bytes": _computed_bytes(ways[0]),
            "codec_bytes": (_encoding_bytes(ways[0]), _encoding_bytes(ways[1])),
            "gradient_wire_bytes": bytes_on_wire(gradient),
            "gradient_held_bytes": _computed_bytes(gradient),
            "gradient_codec_bytes": encodings * _encoding_bytes(gradient),
        }
        shared = {each.name: getattr(stated, each.name) for each in fields(Tables)}
        return cls(**{**shared, **own})

    def row_state_bytes(self, table: Ints, columns: Ints) -> Ints:
        """Optimizer state that goes with `columns` columns of one row."""
        of_weights: Ints = columns * FULL_BYTES * self.state_arrays[table]
        return of_weights + self.state_bytes_per_row[table]


def _computed_bytes(dtype: str) -> float:
    """Bytes of an element where a device computes with it."""
    return bytes_on_wire(dtype) if is_computed_with(dtype) else float(FULL_BYTES)


def _encoding_bytes(dtype: str) -> float:
    """Bytes read and written where an element is encoded or decoded."""
    return 0.0 if is_computed_with(dtype) else FULL_BYTES + bytes_on_wire(dtype)
