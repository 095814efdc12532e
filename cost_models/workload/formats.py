"""Number formats of stored rows and of vectors on the wire: exact bits, with shared exponents, scales and padding.

Sources: MX9, MX6, MX4: Rouhani et al., "With Shared Microexponents, A Little Shifting Goes a Long Way" (ISCA 2023,
arXiv:2302.08007), table 2: blocks of 16 share 8 bits of exponent, pairs share one more; 7, 4 and 2 bits of mantissa and
a sign. MXFP8, MXFP6, MXFP4, MXINT8: OCP Microscaling Formats v1.0: blocks of 32 share an 8-bit scale (E8M0).
int8_row: FBGEMM's training tables, fp32 scale and bias per row (INT8_EMB_ROW_DIM_OFFSET, 8 bytes). int4_row: FBGEMM's
and int2_row: FBGEMM's fused n-bit rows, fp16 scale and bias (4 bytes). int8_nbit, int4_nbit, int2_nbit: its tables that
serve on GPUs (IntNBitTableBatchedEmbeddingBagsCodegen, rounded_row_size_in_bytes with row_alignment 16), of which rows
have the same scale and bias, and are padded to 16 bytes.
"""

from dataclasses import dataclass
from typing import get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cost_models.workload.words import Dtype


@dataclass(frozen=True)
class NumberFormat:
    """How a vector of numbers is laid out."""

    bits: int
    """Bits of one element by itself."""
    block: int = 1
    """Elements that share bits; a vector is padded to whole blocks."""
    shared_bits: int = 0
    """Bits shared by a block."""
    row_bytes: int = 0
    """Scale and bias of a row."""
    row_multiple: int = 1
    """Bytes to whole ones of which a row is padded."""
    updates_in_place: bool = True
    """Whether an optimizer can write rows in this format: what FBGEMM's training tables hold, with stochastic rounding.
    Blocks with shared exponents and 4-bit rows are re-encoded as a whole, which no training kernel does."""
    ids_per_row: int = 1
    """Ids that share a stored row: a hash puts each into one of so many times fewer rows. 1: every id has its own."""
    is_float: bool = False
    """Whether the device computes with it: sums of it travel in reductions, and nothing encodes or decodes it."""

    @property
    def bits_per_element(self) -> float:
        """In a long vector: a block's shared bits dealt out, a row's scale left out."""
        return self.bits + self.shared_bits / self.block

    def stored_rows(self, ids: int) -> int:
        """Rows that are stored of a table of so many ids."""
        return -(-ids // self.ids_per_row)

    def vector_bytes(self, columns: ArrayLike) -> NDArray[np.int64]:
        """Bytes of a row of so many columns, each shape: whole blocks, whole bytes, scale and bias, padding."""
        blocks = -(-np.asarray(columns, dtype=np.int64) // self.block)
        bits = blocks * (self.block * self.bits + self.shared_bits)
        unpadded = -(-bits // 8) + self.row_bytes
        return np.asarray(-(-unpadded // self.row_multiple) * self.row_multiple, dtype=np.int64)


FORMATS: dict[Dtype, NumberFormat] = {
    "fp32": NumberFormat(32, is_float=True),
    "fp16": NumberFormat(16, is_float=True),
    "bf16": NumberFormat(16, is_float=True),
    "fp8": NumberFormat(8),
    "int8": NumberFormat(8),
    "int4": NumberFormat(4, updates_in_place=False),
    "int8_row": NumberFormat(8, row_bytes=8),
    "int4_row": NumberFormat(4, row_bytes=4, updates_in_place=False),
    "mx9": NumberFormat(8, 16, 16, updates_in_place=False),
    "mx6": NumberFormat(5, 16, 16, updates_in_place=False),
    "mx4": NumberFormat(3, 16, 16, updates_in_place=False),
    "mxfp8": NumberFormat(8, 32, 8, updates_in_place=False),
    "mxint8": NumberFormat(8, 32, 8, updates_in_place=False),
    "mxfp6": NumberFormat(6, 32, 8, updates_in_place=False),
    "mxfp4": NumberFormat(4, 32, 8, updates_in_place=False),
    "int2_row": NumberFormat(2, row_bytes=4, updates_in_place=False),
    "int8_nbit": NumberFormat(8, row_bytes=4, row_multiple=16, updates_in_place=False),
    "int4_nbit": NumberFormat(4, row_bytes=4, row_multiple=16, updates_in_place=False),
    "int2_nbit": NumberFormat(2, row_bytes=4, row_multiple=16, updates_in_place=False),
}
assert set(FORMATS) == set(get_args(Dtype))
DTYPES: tuple[Dtype, ...] = tuple(FORMATS)
"""Numbered as arrays have them."""

COMPUTE_BYTES = 4
"""A number that the device computes with: fp32, which lookups write before anything encodes it."""
SUM_FORMAT: Dtype = "fp16"
"""What travels instead where vectors are summed on the way and the format has no sums. TorchRec's
fbgemm_qcomm_codec.py falls back to FP16 forward and BF16 backward for reduce-scatters of FP8 and MX4."""


def row_bytes(dtype: Dtype, columns: ArrayLike) -> NDArray[np.int64]:
    """Bytes of `columns` columns of a stored row; the shape of `columns`."""
    return FORMATS[dtype].vector_bytes(columns)


def wire_bytes(dtype: Dtype) -> float:
    """Bytes of an element in an exchange of long vectors; their blocks run on from vector to vector."""
    return FORMATS[dtype].bits_per_element / 8


def sum_bytes(dtype: Dtype) -> float:
    """The same where the network sums."""
    return wire_bytes(dtype if FORMATS[dtype].is_float else SUM_FORMAT)


def written_bytes(dtype: Dtype) -> float:
    """Bytes of an element that the lookup writes and the dense part reads, for vectors that travel in `dtype`."""
    return wire_bytes(dtype) if FORMATS[dtype].is_float else float(COMPUTE_BYTES)


def codec_bytes(dtype: Dtype) -> float:
    """Bytes of device memory that encoding or decoding an element moves: read in one form, written in the other."""
    return 0.0 if FORMATS[dtype].is_float else COMPUTE_BYTES + wire_bytes(dtype)


def reduction_codec_bytes(dtype: Dtype, world: int) -> float:
    """The same for each number that `world` ranks reduce, where the format cannot be added.

    Every rank encodes its numbers for the ranks that sum them, decodes the share of each, encodes its sums and decodes
    those of all: three times and one in `world` what encoding or decoding one takes.
    """
    return codec_bytes(dtype) * (3 + 1 / world)
