"""The forms in which a value of a workload may be written, each turned into the one that the models hold.

Every function takes what a file held and gives the plain form. What it does not know it gives back as it was,
for the model to refuse; where only the form is wrong it raises ValueError with the remedy.
"""

from collections.abc import Mapping
from typing import Any

_DTYPES = {
    "float": "fp32",
    "float32": "fp32",
    "half": "fp16",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float8": "fp8",
    "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8",
}


def dtype(value: object) -> object:
    """`fp16` from `FP16`, `float16`, `torch.half`, `DataType.FP16`, …"""
    if not isinstance(value, str):
        return value
    word = value.strip().lower().removeprefix("torch.").removeprefix("datatype.").replace("-", "_")
    return _DTYPES.get(word, word)


def whole_number(value: object) -> object:
    """An int from an int, a whole float or their text (`4e7`, which YAML reads as text)."""
    if isinstance(value, bool):
        raise ValueError(f"{value!r} is not a number")
    if isinstance(value, str):
        try:
            number = float(value)
        except ValueError:
            return value
        return int(number) if number.is_integer() and abs(number) < 2**53 else value
    return value


def pooling(value: object) -> object:
    """The sum of a list of pooling factors, one per feature; anything else as it is."""
    if isinstance(value, bool):
        raise ValueError(f"{value!r} is not a number")
    if isinstance(value, list | tuple) and value:
        if not all(isinstance(part, int | float) and part > 0 for part in value):
            raise ValueError(f"a list must hold one number above 0 per feature (got {value!r})")
        return float(sum(value))
    return value


def features(value: object) -> object:
    """A count of 1 or more, or a tuple of names; from either, `a|b`, or mappings (then their number)."""
    if isinstance(value, str):
        value = value.strip()
        if not value.lstrip("+-").isdigit():
            value = [name.strip() for name in value.split("|")]
        elif len(value) < 19:
            value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    if isinstance(value, list | tuple) and value:
        if all(isinstance(item, Mapping) for item in value):
            return len(value)
        if all(isinstance(item, str) and item for item in value):
            return tuple(value)
    raise ValueError(f"must be a count of at least 1 or a list of names (got {value!r})")


def curve(value: object) -> object:
    """Pairs of numbers from pairs or from the text `0.01:0.5|0.1:0.9|1:1`."""
    if not isinstance(value, str):
        return value
    points: list[list[Any]] = [point.split(":") for point in value.split("|")]
    if any(len(point) != 2 for point in points):
        raise ValueError(f"must look like 0.01:0.5|0.1:0.9|1:1 (got {value!r})")
    return points
