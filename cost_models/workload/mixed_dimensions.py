"""Mixed dimensions: shorter vectors for tables that are read less (Ginart et al., arXiv:1909.11810)."""

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from pydantic import Field

from topologies.documents import Record


class MixedDimensions(Record):
    """Vectors as long as tables are popular: d_i = λ (n_i / k_i)^-alpha numbers for a table of n_i rows that k_i ids of
    a sample read, at least 1 (Ginart et al., arXiv:1909.11810, algorithm 2)."""

    alpha: Annotated[float, Field(ge=0, le=10)]
    """The temperature: 0 leaves all tables alike."""
    parameters: Annotated[float | None, Field(gt=0)] = None
    """λ gives the tables so many numbers, before d_i are rounded. Unset: the table of the fewest rows keeps its
    width."""
    power_of_two: bool = True
    """Whether the whole numbers are then rounded to powers of two."""
    by_pooling: bool = False
    """Whether k_i is the pooling factor; else it is 1."""


def mixed_dimensions(rows: Sequence[float], width: int, rule: MixedDimensions, reads: Sequence[float]) -> list[int]:
    """[T] the numbers of a vector of tables with so many `rows`, of which a sample reads `reads`, beside the full
    `width`; as facebookresearch/dlrm's md_solver (tricks/md_embedding_bag.py) has them, which may be above it."""
    order = np.argsort(np.array(rows, dtype=np.float64), kind="stable")
    size = np.array(rows, dtype=np.float64)[order]
    if rule.by_pooling:
        size = size / np.array(reads, dtype=np.float64)[order]
    is_budget = rule.parameters is not None
    scale = rule.parameters / (size ** (1 - rule.alpha)).sum() if is_budget else width * size[0] ** rule.alpha
    dims = np.maximum(scale * size**-rule.alpha, 1.0)
    if not is_budget:
        dims[0] = width
    dims = np.round(dims)
    if rule.power_of_two:
        dims = 2 ** np.round(np.log2(dims))
    found = np.empty(len(dims), dtype=np.int64)
    found[order] = dims
    return [int(dim) for dim in found]
