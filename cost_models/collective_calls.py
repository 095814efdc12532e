"""Collectives that layers call: which, in which part of the step, among which ranks, of how many bytes."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from cost_models.coefficients import CollectiveOperation
from cost_models.groups import Crossing, RankGroup, all_reduce, all_to_all, reduce_scatter
from cost_models.shards import Ints

Phase = Literal["forward", "backward", "update"]
"""`update`: between the backward pass and the next forward pass, beside the optimizer."""


@dataclass(frozen=True)
class Members:
    """The ranks of a world in groups of so many: runs of consecutive ranks, the first ones inside a node, or *peers*,
    those at the same place of all such runs."""

    size: int
    are_peers: bool = False

    def group(self, world: RankGroup) -> RankGroup:
        """One of these groups. Raises ValueError where they would not be alike."""
        if self.size == world.size:
            return world
        if world.size % self.size:
            raise ValueError(f"{world.size} ranks do not make groups of {self.size}; take a number that divides them")
        runs = world.size // self.size if self.are_peers else self.size
        for ranks, whose in ((world.per_domain, "domain"), (world.per_node, "node")):
            if ranks % runs and runs % ranks:
                raise ValueError(
                    f"runs of {runs} ranks cut the {ranks} of a {whose} unevenly; take a divisor of {ranks}"
                )
        if self.are_peers:
            return RankGroup(max(world.per_node // runs, 1), max(world.per_domain // runs, 1), self.size)
        return RankGroup(min(world.per_node, runs), min(world.per_domain, runs), self.size)

    def group_of_rank(self, world_size: int) -> Ints:
        """[W] which group each rank of the world is in."""
        ranks = np.arange(world_size)
        return ranks % (world_size // self.size) if self.are_peers else ranks // self.size


@dataclass(frozen=True)
class CollectiveCall:
    """One collective of one layer in one step."""

    operation: CollectiveOperation
    phase: Phase
    buffer_bytes: float
    """What each rank has before it; of an all-gather, what each has after it."""
    members: Members

    def crossing(self, group: RankGroup, *, in_network: bool = False) -> Crossing:
        """Bytes that each rank moves among a group of the members' size; `in_network`: switches between domains sum."""
        if self.operation == "all_reduce":
            return all_reduce(group, self.buffer_bytes, in_network=in_network)
        if self.operation == "all_to_all":
            return all_to_all(group, self.buffer_bytes / group.size)
        return reduce_scatter(group, self.buffer_bytes)
