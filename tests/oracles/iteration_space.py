"""The iteration space of a layer: the points that it computes, its tensors, and the ways to cut both over ranks.

A layer multiplies and adds once at each point of a space of named dimensions; each of its tensors has some of them. A
*cut* says into how many equal parts each dimension is divided, one rank for each part of the space. What one rank
computes, holds and has to add up with others then follows from the dimensions alone (PaSE: Elango, "PaSE:
Parallelization Strategies for Efficient DNN Training", IPDPS 2021). A matrix product of samples x inputs and
inputs x outputs, for example, is cut along its samples (data parallel), its outputs (columns of the weights) or its
inputs (rows of them).
"""

import itertools
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np

from cost_models.shards import Floats, Ints

Role = Literal["input", "weight", "output"]


@dataclass(frozen=True)
class Tensor:
    """A tensor of a layer."""

    role: Role
    dimensions: tuple[str, ...]


@dataclass(frozen=True)
class IterationSpace:
    """A layer as the points that it computes; S cuts of its D dimensions are an array [S, D] of numbers of parts."""

    sizes: Mapping[str, int]
    """Points along each dimension, in the order of the columns of cuts."""
    tensors: Mapping[str, Tensor]
    """One of them, the output, is a sum along the dimensions that it lacks."""
    flops_per_point: float = 2.0
    """Of the forward pass: a multiplication and an addition."""
    flops_per_output: float = 0.0
    """The same for each number of the output: of an activation function, say."""

    def __post_init__(self) -> None:
        outputs = [name for name, tensor in self.tensors.items() if tensor.role == "output"]
        if len(outputs) != 1:
            raise ValueError(f"a layer has one output; this one has {len(outputs)}: {', '.join(outputs)}")
        for name, size in self.sizes.items():
            if size < 1:
                raise ValueError(f"dimension {name} has {size} points; it needs one at least")
        for name, tensor in self.tensors.items():
            unknown = [each for each in tensor.dimensions if each not in self.sizes]
            if unknown or len(set(tensor.dimensions)) < len(tensor.dimensions):
                known = ", ".join(self.sizes)
                raise ValueError(f"tensor {name} has dimensions {tensor.dimensions}; take each once, of {known}")
        object.__setattr__(self, "sizes", MappingProxyType(dict(self.sizes)))
        object.__setattr__(self, "tensors", MappingProxyType(dict(self.tensors)))

    @property
    def output(self) -> str:
        """Name of the output."""
        return next(name for name, tensor in self.tensors.items() if tensor.role == "output")

    @property
    def contracted(self) -> tuple[str, ...]:
        """The dimensions along which the output is a sum."""
        return self.lacked(self.output)

    def lacked(self, tensor: str) -> tuple[str, ...]:
        """The dimensions that a tensor lacks. Where one is cut, ranks have addends of the same numbers: of the output
        itself in the forward pass, of its gradient in the backward pass for any other tensor."""
        return tuple(name for name in self.sizes if name not in self.tensors[tensor].dimensions)

    def cuts(self, ranks: int, *, smallest_part: int = 1, whole: Collection[str] = ()) -> Ints:
        """[S, D] all cuts into at most so many parts, in lexicographic order.

        Parts of a dimension have equal sizes, of `smallest_part` points at least where it is cut; those in `whole` are
        not cut.
        """
        unknown = set(whole) - set(self.sizes)
        if unknown:
            raise ValueError(f"there is no dimension {', '.join(sorted(unknown))}; those are {', '.join(self.sizes)}")
        return cuts_of(tuple(1 if name in whole else size for name, size in self.sizes.items()), ranks, smallest_part)

    def of(self, names: Collection[str], cuts: Ints) -> Ints:
        """[S, names] the columns of cuts that belong to some dimensions, in the order of the names."""
        order = list(self.sizes)
        return cuts[:, [order.index(name) for name in names]]

    def local_points(self, cuts: Ints) -> Floats:
        """[S] points that one rank computes."""
        return self._local(tuple(self.sizes), cuts)

    def local_elements(self, tensor: str, cuts: Ints) -> Floats:
        """[S] numbers of a tensor that one rank reads or makes."""
        return self._local(self.tensors[tensor].dimensions, cuts)

    def addend_ranks(self, tensor: str, cuts: Ints) -> Ints:
        """[S] how many ranks have addends of the same numbers of a tensor, or of its gradient; see `lacked`."""
        return np.asarray(self.of(self.lacked(tensor), cuts).prod(axis=1))

    def local_flops(self, cuts: Ints) -> Floats:
        """[S] FLOPs of one rank's forward pass."""
        pointwise = self.flops_per_output * self.local_elements(self.output, cuts)
        return self.flops_per_point * self.local_points(cuts) + pointwise

    def _local(self, names: tuple[str, ...], cuts: Ints) -> Floats:
        sizes = np.array([self.sizes[name] for name in names], dtype=float)
        return np.asarray((sizes / self.of(names, cuts)).prod(axis=1))


def cuts_of(sizes: tuple[int, ...], ranks: int, smallest_part: int = 1) -> Ints:
    """[S, D] all cuts of dimensions of these sizes into at most so many parts: see `IterationSpace.cuts`."""
    if ranks < 1:
        raise ValueError(f"a layer is cut over one rank at least, not over {ranks}")
    choices = [_divisors(size, min(ranks, max(size // smallest_part, 1))) for size in sizes]
    return np.array([cut for cut in itertools.product(*choices) if math.prod(cut) <= ranks], dtype=np.int64)


def missing_elements(sizes: tuple[int, ...], held: Ints, needed: Ints) -> Floats:
    """[S_u, S_v] numbers of a tensor that the rank which is worst off needs under each cut [S_v, D] and does not hold
    under each [S_u, D].

    Parts of both are aligned, so that a rank holds as much of what it needs as the smaller of both parts has along each
    dimension. Where more ranks need it than hold it, some hold nothing.
    """
    shape = np.array(sizes, dtype=float)
    of_holder, of_reader = shape / held, shape / needed
    common = np.ones((len(held), len(needed)))
    for dimension in range(len(sizes)):
        common *= np.minimum.outer(of_holder[:, dimension], of_reader[:, dimension])
    more_readers = needed.prod(axis=1)[None, :] > held.prod(axis=1)[:, None]
    wanted = of_reader.prod(axis=1)[None, :]
    return np.asarray(np.maximum(wanted - np.where(more_readers, 0.0, common), 0.0))


def _divisors(size: int, most: int) -> list[int]:
    return [parts for parts in range(1, most + 1) if size % parts == 0]
