"""How the ranks of a group hold a tensor between two layers, and the collectives from one layout to another.

A tensor is cut along one of its dimensions, replicated, or there as partial sums (the S, B and P of OneFlow, Yuan et
al., arXiv:2110.15032, section 3). What its gradient needs on the way back follows: the gradient of what is replicated
are partial sums, and that of partial sums is replicated (operators f and g of Megatron-LM, arXiv:1909.08053; with
samples or tokens cut in between, arXiv:2205.05198).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from cost_models.coefficients import CollectiveOperation
from cost_models.collective_calls import CollectiveCall, Members, Phase

Layout = Literal["samples", "tokens", "columns", "replicated", "partial"]
"""Along which dimension the samples of the group are cut over its ranks, or that each has them all: as they are, or as
addends of them."""
_OF_GRADIENT: dict[Layout, Layout] = {"replicated": "partial", "partial": "replicated"}


@dataclass(frozen=True)
class Placed:
    """A layout over runs of so many consecutive ranks."""

    layout: Layout
    ranks: int = 1


OWN_SAMPLES = Placed("samples")
"""Every rank has its own samples, which is a cut along them over any group."""


def layout_calls(
    written: Placed, read: Placed, sample_bytes: float, samples_per_rank: float
) -> Iterator[CollectiveCall]:
    """What brings a tensor of so many bytes a sample from the layout in which a layer writes it to that in which the
    next one reads it, and its gradient back.

    Groups of different sizes meet at their own samples. Slices of what a rank has cost nothing.
    """
    if read.layout == "partial":
        raise ValueError("no layer reads partial sums; they are added up before")
    if written.ranks != read.ranks and "samples" not in (written.layout, read.layout):
        yield from layout_calls(written, OWN_SAMPLES, sample_bytes, samples_per_rank)
        yield from layout_calls(OWN_SAMPLES, read, sample_bytes, samples_per_rank)
        return
    members = Members(read.ranks if written.layout == "samples" else written.ranks)
    own_bytes = sample_bytes * samples_per_rank
    steps: tuple[tuple[Phase, Layout, Layout], ...] = (
        ("forward", written.layout, read.layout),
        ("backward", _of_gradient(read.layout), _of_gradient(written.layout)),
    )
    for phase, held, needed in steps:
        operation = _operation(held, needed)
        if operation is not None and members.size > 1:
            buffer_bytes = own_bytes if operation == "all_to_all" else own_bytes * members.size
            yield CollectiveCall(operation, phase, buffer_bytes, members)


def _of_gradient(layout: Layout) -> Layout:
    return _OF_GRADIENT.get(layout, layout)


def _operation(held: Layout, needed: Layout) -> CollectiveOperation | None:
    """What brings one layout into another; None where each rank has what it needs."""
    if held == needed or held == "replicated" or needed == "partial":
        return None
    if held == "partial":
        return "all_reduce" if needed == "replicated" else "reduce_scatter"
    return "all_gather" if needed == "replicated" else "all_to_all"
