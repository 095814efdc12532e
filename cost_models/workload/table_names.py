"""Tables by name: patterns as people write them, and what they match."""

import fnmatch
import re
from collections.abc import Sequence
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, WithJsonSchema


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


Globs = Annotated[
    tuple[Annotated[str, Field(min_length=1)], ...],
    BeforeValidator(_as_list),
    Field(min_length=1),
    WithJsonSchema({"type": ["string", "array"], "items": {"type": "string"}, "examples": ["user_*"]}),
]
"""Names of tables, or patterns with `*`, `?` and `[abc]`."""


def are_named(pattern: str, names: Sequence[str]) -> NDArray[np.bool_]:
    """[T] which of the names a pattern means: the name itself, or all that it matches."""
    matches = re.compile(fnmatch.translate(pattern)).match
    return np.array([name == pattern or matches(name) is not None for name in names], dtype=bool)
