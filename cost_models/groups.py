"""Groups of ranks that exchange among themselves, and what each rank moves in a collective among them.

A rank, a node, several nodes, a scale-up domain and the world are groups. Every law takes the group and the bytes, and
tells what crosses the port of each rank, into its domain, and its card, out of it. Sums are reduced inside a domain
first, so that only the share of each rank leaves it.
"""

from dataclasses import dataclass

from cost_models.shards import Floats

Amount = Floats | float


@dataclass(frozen=True)
class RankGroup:
    """Ranks that exchange among themselves; alike on every node and in every scale-up domain that they are on."""

    per_node: int
    """Members on a node."""
    per_domain: int
    """Members in a scale-up domain."""
    size: int
    """Members in all."""

    @property
    def domains(self) -> float:
        """Scale-up domains that they are in; broken where the nodes of a cluster have different ones."""
        return self.size / self.per_domain


@dataclass(frozen=True)
class Crossing:
    """Bytes that each rank moves in a collective, one way."""

    port: Amount
    """Over its port into its domain."""
    card: Amount
    """Over its card out of it."""


def all_to_all(group: RankGroup, to_each: Amount, beyond: RankGroup | None = None) -> Crossing:
    """Every rank sends `to_each` bytes to every other rank of its group, or to each that is not in its own smaller
    group of `beyond`; such groups divide the whole one."""
    near, near_inside = (1, 1) if beyond is None else (beyond.size, beyond.per_domain)
    inside = group.per_domain - near_inside
    return Crossing(to_each * inside, to_each * (group.size - near - inside))


def reduce_scatter(group: RankGroup, whole: Amount) -> Crossing:
    """Every rank has `whole` bytes of sums and is to get its share of the totals; read backwards, an all-gather."""
    part = group.per_domain
    return Crossing(whole * (part - 1) / part, whole / part * (1 - part / group.size))


def all_reduce(group: RankGroup, whole: Amount, *, in_network: bool = False) -> Crossing:
    """Every rank has `whole` bytes of sums and is to get all of the totals: a ring inside the domains, then one among
    them with the shares, or (`in_network`) switches that take each share once and give its total back."""
    once = reduce_scatter(group, whole)
    leaves = in_network and group.size > group.per_domain
    return Crossing(2 * once.port, whole / group.per_domain if leaves else 2 * once.card)
