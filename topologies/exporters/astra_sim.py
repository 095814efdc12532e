"""A cluster as an analytical network of ASTRA-sim (`network.yml`).

The format has one kind of accelerator in equal dimensions. It cannot say devices, memories, PCIe, cards that serve
several accelerators, rails and the shares of a level that is not full.
"""

from topologies.cluster import NodeGroup, Topology

GB = 2**30
"""ASTRA-sim's GB in bytes."""


class UnsayableError(ValueError):
    """A cluster that the format cannot describe."""


def network_yaml(topology: Topology) -> str:
    """The dimensions: accelerators of a scale-up domain, domains below a leaf, what is above. Raises UnsayableError."""
    if len(topology.nodes) > 1:
        raise UnsayableError(
            f"has {len(topology.nodes)} node groups, and ASTRA-sim one kind of accelerator; export one group"
        )
    group = topology.nodes[0]
    sizes, rates, waits = _dimensions(topology, group)
    lines = [
        f"# {topology.name}: {topology.world_size} accelerators; GB are of 2^30 bytes, latencies in ns.",
        "# Not said: devices, memories, PCIe, how cards are shared, rails.",
        f"topology: [ {', '.join(['Switch'] * len(sizes))} ]",
        f"npus_count: [ {', '.join(map(str, sizes))} ]",
        f"bandwidth: [ {', '.join(repr(rate / GB) for rate in rates)} ]",
        f"latency: [ {', '.join(repr(wait * 1e9) for wait in waits)} ]",
    ]
    return "\n".join(lines) + "\n"


def _dimensions(topology: Topology, group: NodeGroup) -> tuple[list[int], list[float], list[float]]:
    """Accelerators, bytes/s of an accelerator and seconds of each dimension."""
    links, count = group.links, group.accelerators.count
    up = links.scale_up
    together = group.domain_ranks
    sizes = [together]
    rates = [up.bandwidth if up else links.pcie.bandwidth]
    waits = [up.latency if up else links.pcie.latency]
    world = topology.world_size
    if together == world or links.scale_out is None:
        return sizes, rates, waits
    rate = links.scale_out.bandwidth * links.scale_out.count / count
    wait = links.scale_out.latency
    for level in topology.network.levels:
        ranks = level.nodes * count
        if ranks >= world:
            break
        if ranks % together:
            raise UnsayableError(
                f"has {ranks} accelerators below a {level.name} and {together} in a scale-up domain: no whole ones"
            )
        if ranks > together:
            sizes.append(ranks // together)
            rates.append(rate)
            waits.append(wait)
        rate, wait, together = rate / level.oversubscription, level.latency, ranks
    if world % together:
        raise UnsayableError(
            f"has {world} accelerators, which do not fill parts of {together}; choose a number that does"
        )
    return [*sizes, world // together], [*rates, rate], [*waits, wait]
