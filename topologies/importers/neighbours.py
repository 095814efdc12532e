"""Which accelerators of a node share a fabric, a switch or a card, from who is next to whom."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class ScaleUpLinks:
    """The links between the accelerators of a node."""

    domain: int
    """How many consecutive accelerators they join; 1: none."""
    of_pair: int
    """Links of one pair, where a switch joins them; of the accelerator that has the fewest."""
    of_all: int
    """Links to all others together, where none does; of the accelerator that has the fewest."""
    remark: str = ""


def scale_up_links(counts: Sequence[Sequence[int]]) -> ScaleUpLinks:
    """The domain that a matrix of links describes: counts[i][j] links between i and j, 0 where there are none.

    Where all pairs together would need more links than an accelerator has, a switch joins them, and the count of a pair
    is all links of an accelerator. A domain is the longest run of consecutive accelerators, of one component, that
    divides their number.
    """
    component = _components(counts)
    size = len(counts)
    domain = next(
        length
        for length in range(size, 0, -1)
        if size % length == 0
        and all(len(set(component[first : first + length])) == 1 for first in range(0, size, length))
    )
    if domain == 1:
        remark = "their links join no consecutive accelerators, and are left out" if any(map(any, counts)) else ""
        return ScaleUpLinks(1, 0, 0, remark)
    within = [
        [counts[rank][other] for other in range(size) if other // domain == rank // domain and other != rank]
        for rank in range(size)
    ]
    largest = max(component.count(each) for each in component)
    remark = "" if largest == domain else f"links join up to {largest} of {size}, of which runs of {domain} are taken"
    return ScaleUpLinks(domain, min(map(max, within)), min(map(sum, within)), remark)


def _components(counts: Sequence[Sequence[int]]) -> list[int]:
    """[size] the smallest accelerator that each one reaches over links."""
    component = list(range(len(counts)))
    for rank, row in enumerate(counts):
        for other, count in enumerate(row):
            if count and component[rank] != component[other]:
                old, new = sorted((component[rank], component[other]), reverse=True)
                component = [new if each == old else each for each in component]
    return component


def run_length(owners: Sequence[Hashable]) -> int | None:
    """How many consecutive accelerators have one owner, if that is the same number everywhere; else None."""
    sizes: list[int] = []
    seen: set[Hashable] = set()
    for index, owner in enumerate(owners):
        if index and owner == owners[index - 1]:
            sizes[-1] += 1
        elif owner in seen:
            return None
        else:
            seen.add(owner)
            sizes.append(1)
    return sizes[0] if sizes and len(set(sizes)) == 1 else None
