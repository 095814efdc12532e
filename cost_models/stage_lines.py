"""The lines of the collective that ends a stage: what it waits for its first bytes, and the rates of ports after it."""

import operator
from dataclasses import dataclass

from cost_models.coefficients import SoftwareCoefficients
from cost_models.exchange_lines import ExchangeLine, exchange_lines
from cost_models.kinds import RankKind
from cost_models.path_latency import Hops, inside_latency_s, inside_phases, leave_domains, path_latency_s
from cost_models.term_rates import INSIDE, REDUCED
from topologies.cluster import Topology

EXCHANGED = frozenset({"output_dist", "gradient_dist"})
"""Terms whose hierarchical exchange may come in phases."""
_HOPS: tuple[Hops, Hops] = ("exchange_hops_s", "reduction_hops_s")
"""Fields of a kind of rank: the latency that the library adds in an exchange, and in a reduction."""


@dataclass(frozen=True)
class StageLines:
    """Those of all stages of one workload on one topology."""

    topology: Topology
    kinds: tuple[RankKind, ...]
    """What ranks achieve among those of their group."""
    software: SoftwareCoefficients
    has_towers: bool

    @property
    def in_phases(self) -> bool:
        """Whether an exchange inside a domain ends before the one between domains begins."""
        return self.software.exchange_in_phases and not self.has_towers

    @property
    def tower_links(self) -> tuple[str, ...]:
        """What an exchange inside a tower crosses."""
        return ("link", "nic") if any(kind.tower_domains > 1 for kind in self.kinds) else ("link",)

    def of(self, stage: str, kinds: tuple[RankKind, ...]) -> tuple[ExchangeLine, ...]:
        """Those of a stage, in which ranks achieve what `kinds` say."""
        reduces, leaves = stage in REDUCED, leave_domains(kinds)
        library_s = self.software.collective_latency_s.value
        protocols = [kind.reduction_protocols if reduces else kind.exchange_protocols for kind in kinds]
        if stage in INSIDE:
            if "nic" in self.tower_links:
                path_s = library_s + path_latency_s(self.topology, kinds, "tower_hops_s")
                return exchange_lines(protocols, path_s, max)
            path_s = library_s + inside_latency_s(self.topology)
            return exchange_lines(protocols, path_s, lambda inside_s, _: inside_s)
        among_peers = self.has_towers and stage in EXCHANGED
        hops: Hops = "peers_hops_s" if among_peers else _HOPS[reduces]
        path_s = library_s + path_latency_s(self.topology, kinds, hops)
        if not leaves:
            return exchange_lines(protocols, path_s, lambda inside_s, _: inside_s)
        if among_peers:  # ports carry partial sums of all ranks only
            return (ExchangeLine(path_s, tuple(kind.link_all_to_all for kind in self.kinds)),)
        if self.in_phases and stage in EXCHANGED:
            inside = inside_phases(self.topology, kinds, protocols, library_s)
            return exchange_lines(inside, path_s, operator.add)
        return exchange_lines(protocols, path_s, max)
