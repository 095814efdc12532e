"""Activation checkpointing: which layers of a dense part a workload, or a policy, names."""

import fnmatch
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

CheckpointingWord = Literal["none", "full"]
LayerPattern = Annotated[str, Field(min_length=1, max_length=200)]


def _as_written(value: object) -> object:
    """A single pattern is a list of one."""
    return [value] if isinstance(value, str) and value not in ("none", "full") else value


Checkpointing = Annotated[
    CheckpointingWord | Annotated[tuple[LayerPattern, ...], Field(min_length=1)], BeforeValidator(_as_written)
]
"""none: all that layers read and write is kept for the backward pass; full: of every layer its inputs alone, as
torch.utils.checkpoint has it around each (Chen et al., arXiv:1604.06174); patterns: of those whose names match."""


def is_checkpointed(checkpointing: Checkpointing | None, *names: str) -> bool:
    """Whether a block of layers is computed again that has these names: its own, and that of the layer of the file."""
    if checkpointing is None or isinstance(checkpointing, str):
        return checkpointing == "full"
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in checkpointing for name in names)


def in_words(checkpointing: Checkpointing | None) -> str:
    """`full`; `tower.*, top_mlp`."""
    if checkpointing is None or isinstance(checkpointing, str):
        return checkpointing or "none"
    return ", ".join(checkpointing)
