"""The arrays in which a cost model states what blocks cost: seconds in columns of resources, bytes in memories."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cost_models.resources import Resource
from cost_models.shards import Floats


@dataclass(frozen=True)
class Column:
    """One kind of resource in one stage."""

    stage: int
    resource: Resource


@dataclass(frozen=True)
class BlockCosts:
    """Costs of n blocks on one kind of rank; C columns of seconds, M memories of bytes.

    See BlockLoad for the meaning of the three parts. `supported` is False where the kind lacks the tier.
    """

    fixed: Floats
    """[n, C]"""
    by_rows: Floats
    """[n, C]"""
    everywhere: Floats
    """[n, C]"""
    bytes_fixed: Floats
    """[n, M]"""
    bytes_by_rows: Floats
    """[n, M]"""
    supported: NDArray[np.bool_]
    """[n] bool"""


@dataclass(frozen=True)
class BlockMemory:
    """Bytes of n blocks in M memories: `fixed` on each rank that takes part, `by_rows` times its share of the
    rows."""

    fixed: Floats
    """[n, M]"""
    by_rows: Floats
    """[n, M]"""
    supported: NDArray[np.bool_]
    """[n] whether the kind of rank has the tier."""
