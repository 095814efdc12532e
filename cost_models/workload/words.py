"""The words for number formats."""

from typing import Literal

Dtype = Literal[
    "fp32",
    "fp16",
    "bf16",
    "fp8",
    "int8",
    "int4",
    "int8_row",
    "int4_row",
    "mx9",
    "mx6",
    "mx4",
    "mxfp8",
    "mxint8",
    "mxfp6",
    "mxfp4",
    "int2_row",
    "int8_nbit",
    "int4_nbit",
    "int2_nbit",
]
