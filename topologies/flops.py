"""The arithmetic of an accelerator, by data type."""

from typing import Annotated

from pydantic import Field

from topologies.documents import Record
from topologies.units import FlopPerSecond

LATER = Field(exclude_if=lambda value: value is None)
"""What files need not know of: left out of the content hash where it is unset."""


class Flops(Record):
    """Peak dense arithmetic of one accelerator for each data type (no sparsity); unset: not supported."""

    fp32: FlopPerSecond
    tf32: FlopPerSecond | None = None
    """TF32: products of fp32 numbers whose mantissas are rounded to 10 bits."""
    fp16: FlopPerSecond | None = None
    """IEEE half precision."""
    bf16: FlopPerSecond | None = None
    """bfloat16: 8 bits of exponent, 7 of mantissa."""
    fp8: FlopPerSecond | None = None
    """8-bit floats (E4M3 and E5M2)."""
    mxfp8: Annotated[FlopPerSecond | None, LATER] = None
    """8-bit floats with a scale for each block of 32 (OCP Microscaling)."""
    mxint8: Annotated[FlopPerSecond | None, LATER] = None
    """8-bit integers with a scale for each block of 32 (OCP Microscaling)."""
    mxfp6: Annotated[FlopPerSecond | None, LATER] = None
    """6-bit floats with a scale for each block of 32 (OCP Microscaling)."""
    mxfp4: Annotated[FlopPerSecond | None, LATER] = None
    """4-bit floats with a scale for each block of 32 (OCP Microscaling)."""
    mx9: Annotated[FlopPerSecond | None, LATER] = None
    """Shared microexponents of 9 bits a number (arXiv:2302.08007)."""
    mx6: Annotated[FlopPerSecond | None, LATER] = None
    """Shared microexponents of 6 bits a number (arXiv:2302.08007)."""
    mx4: Annotated[FlopPerSecond | None, LATER] = None
    """Shared microexponents of 4 bits a number (arXiv:2302.08007)."""
