"""Groups of ranks that exchange among themselves, and the parts of them that scale-up domains hold."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cost_models.shards import Ints
from cost_models.simulator.graph import Flags


@dataclass(frozen=True, eq=False)
class ProcessGroups:
    """W ranks divided into process groups; the members of a group in one scale-up domain are a *part* of it."""

    group_of_rank: Ints
    """[W] numbered from 0, none left out."""
    domain_of_rank: Ints
    """[W]"""

    @cached_property
    def count(self) -> int:
        """How many groups there are."""
        return int(self.group_of_rank.max()) + 1

    @cached_property
    def part_count(self) -> int:
        """How many parts they have together."""
        return int(self.part_of_rank.max()) + 1

    @cached_property
    def leave_domains(self) -> bool:
        """Whether any group has more than one part."""
        return self.part_count > self.count

    @cached_property
    def size(self) -> Ints:
        """[W] members of each rank's group."""
        return members(self.group_of_rank)

    @cached_property
    def part_of_rank(self) -> Ints:
        """[W] the part that each rank is in, numbered from 0 over all groups."""
        return numbered(self.group_of_rank, self.domain_of_rank)

    @cached_property
    def part_size(self) -> Ints:
        """[W] members of each rank's part."""
        return members(self.part_of_rank)

    def sharing(self, place_of_rank: Ints) -> tuple[Ints, Ints]:
        """[W] members of each rank's group, and of its part, that are in the same place as the rank itself."""
        in_group, in_part = (numbered(place_of_rank, members) for members in (self.group_of_rank, self.part_of_rank))
        return members(in_group), members(in_part)


def numbered(*labels: Ints) -> Ints:
    """[W] the different combinations of some numbers [W] each, numbered from 0 in their order."""
    number = np.zeros(len(labels[0]), dtype=np.int64)
    for label in labels:
        of_label = np.unique(label, return_inverse=True)[1]
        number = np.unique(number * len(number) + of_label, return_inverse=True)[1]
    return number


def position(place: Ints) -> Ints:
    """[W] of each rank among those of its place, from 0."""
    order = np.argsort(place, kind="stable")
    first = np.searchsorted(place[order], place[order])
    found = np.empty_like(place)
    found[order] = np.arange(len(place)) - first
    return found


def members(place: Ints, counted: Flags | None = None) -> Ints:
    """[W] how many ranks, or how many of those that are `counted`, are in the same place as each rank."""
    weights = None if counted is None else counted.astype(np.float64)
    return np.bincount(place, weights=weights)[place].astype(np.int64)
