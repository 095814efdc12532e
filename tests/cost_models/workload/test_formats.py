"""Number formats: exact bits, padding, what training may write and what the wire carries."""

import numpy as np
import pytest
from pydantic import ValidationError

from cost_models.workload.formats import FORMATS, codec_bytes, row_bytes, sum_bytes, wire_bytes, written_bytes
from cost_models.workload.table_profile import TableProfile
from cost_models.workload.words import Dtype
from tests.oracles.instances import workload

BITS = {
    "mx9": 9,
    "mx6": 6,
    "mx4": 4,
    "mxfp8": 8.25,
    "mxint8": 8.25,
    "mxfp6": 6.25,
    "mxfp4": 4.25,
    "fp16": 16,
    "int4": 4,
}


@pytest.mark.parametrize(("dtype", "bits"), BITS.items())
def test_bits_per_element_are_the_published_ones(dtype: Dtype, bits: float) -> None:
    """MX9 is nine bits with its shared exponents (arXiv:2302.08007); OCP blocks of 32 add a quarter of one."""
    assert FORMATS[dtype].bits_per_element == bits
    assert row_bytes(dtype, 1024) == 1024 * bits / 8
    assert wire_bytes(dtype) == bits / 8


@pytest.mark.parametrize(
    ("dtype", "columns", "size"),
    [
        ("mx9", 16, 18),
        ("mx6", 16, 12),
        ("mx4", 16, 8),
        ("mx9", 20, 36),
        ("mxfp8", 32, 33),
        ("mxfp6", 32, 25),
        ("mxfp4", 32, 17),
        ("mxfp4", 4, 17),
        ("mxint8", 36, 66),
        ("int8", 20, 20),
        ("int8_row", 20, 28),
        ("int4", 20, 10),
        ("int4_row", 20, 14),
        ("fp32", 20, 80),
    ],
)
def test_rows_are_padded_to_blocks(dtype: Dtype, columns: int, size: int) -> None:
    """Whole blocks of 16 or 32 with their exponents; FBGEMM's scale and bias once per row."""
    assert row_bytes(dtype, columns) == size
    assert row_bytes(dtype, np.array([[columns], [columns]])).tolist() == [[size], [size]]


def test_parts_of_a_row_hold_at_least_the_whole() -> None:
    """A column split repeats scales and pads every part."""
    for dtype in FORMATS:
        whole, part = int(row_bytes(dtype, 64)), int(row_bytes(dtype, 8))
        assert 8 * part >= whole
        assert (8 * part == whole) == (FORMATS[dtype].block == 1 and FORMATS[dtype].row_bytes == 0)


def test_only_floats_are_summed_on_the_wire() -> None:
    """TorchRec sends 16 bits where FP8 or MX4 would have to be added; lookups write fp32 for what is encoded."""
    assert (sum_bytes("fp32"), sum_bytes("bf16"), sum_bytes("fp8"), sum_bytes("mx4")) == (4, 2, 2, 2)
    assert (written_bytes("fp16"), written_bytes("fp8")) == (2, 4)
    assert (codec_bytes("bf16"), codec_bytes("fp8"), codec_bytes("mx4")) == (0, 5, 4.5)


@pytest.mark.parametrize("word", ["MXFP4", "mxfp4", "int8-row", "torch.half"])
def test_names_are_spelled_as_people_do(word: str) -> None:
    """In any case, with hyphens."""
    assert TableProfile(name="t", rows=10, dim=4, pooling_factor=1, dtype=word).dtype in FORMATS  # type: ignore[arg-type]


def test_training_needs_rows_that_can_be_written() -> None:
    """The error names the tables and every way out; each of them works."""
    tables = [{"rows": 1000, "dim": 32, "dtype": "mx6"}, {"rows": 1000, "dim": 32, "dtype": "int8_row"}]
    with pytest.raises(ValidationError, match=r"t0 \(mx6\) in their format; give the tables precision_cache") as raised:
        workload(tables)
    assert "t1" not in str(raised.value).partition("in their format")[0].rpartition("rows of")[2]
    assert workload(tables, mode="inference").tables[0].dtype == "mx6"
    assert workload([{**tables[0], "precision_cache": "5%"}, tables[1]]).tables[0].precision_cache == 0.05
