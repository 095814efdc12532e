"""Which terms of a step are collectives of a kind, and what a card achieves in each."""

import math

from cost_models.kinds import RankKind
from cost_models.resources import Resource
from cost_models.stages import CUT_TERMS

REDUCED = frozenset(
    {"all_reduce", "tower_all_reduce", "replica_all_reduce", "replica_sync", "dense_units", *CUT_TERMS.values()}
)
GRADIENTS = frozenset({"all_reduce", "tower_all_reduce"})
NODE_SUMS = frozenset({"node_sums", "node_sums_backward"})
PEERS = frozenset({"peers", "peers_backward"})
INSIDE = frozenset({"output_intra_host", "gradient_intra_host"})
"""Stages whose exchange does not leave towers."""
IN_TOWER = INSIDE | {"tower_all_reduce"}
"""Terms of what does not leave them, nor the switches above them that are oversubscribed."""


def card_bytes_per_s(term: str, kind: RankKind) -> float:
    """What a card achieves in the collective of a term."""
    if term == "tower_all_reduce":
        return kind.in_tower.all_reduce_bytes_per_s
    if term in REDUCED:
        return kind.nic_all_reduce
    if term in PEERS:
        return kind.nic_peers
    if term in INSIDE:
        return kind.nic_in_tower
    return kind.nic_node_sums if term in NODE_SUMS else kind.nic_all_to_all


def own_link_share(term: str, resource: Resource, kind: RankKind) -> float:
    """Time of a rank's own link to the host over that of its port, or of its card, for the same bytes of a term; 0
    where they do not cross it."""
    if resource.kind == "link" and kind.exchanges_over_pcie:
        rate = kind.link_all_reduce if term in REDUCED else kind.link_all_to_all
    elif resource.kind == "nic" and kind.cards_over_pcie:
        rate = card_bytes_per_s(term, kind)
    else:
        return 0.0
    return rate / kind.host_link_bytes_per_s(rate) if math.isfinite(rate) else 0.0


def climbs(term: str, kind: RankKind) -> float:
    """What a second of a term's traffic on a card puts on oversubscribed switches above it, over what a second of an
    all-to-all does."""
    rates = card_bytes_per_s(term, kind) / kind.nic_all_to_all if math.isfinite(kind.nic_all_to_all) else 1.0
    return rates / kind.beyond_tower if term in PEERS else rates
