"""One collective by itself, as the simulator plays it inside a step: for whoever wants to compare it with another
simulator, or with a measurement."""

from dataclasses import replace
from typing import get_args

import numpy as np
from numpy.typing import ArrayLike

from cost_models.coefficients import CollectiveOperation, software_coefficients
from cost_models.collective_laws import collective_law
from cost_models.kinds import RankKind, rank_kinds
from cost_models.shards import WORLD, Floats
from cost_models.simulator.collectives import Collectives
from cost_models.simulator.engine import Engine
from cost_models.simulator.exchanges import Exchanges
from cost_models.simulator.messages import messages
from cost_models.simulator.network import OUT, SimulatedNetwork
from cost_models.simulator.program import COMPUTE, REDUCE, Label, Streams
from cost_models.workload.models import Workload
from topologies.cluster import Topology


def collective_s(
    topology: Topology,
    operation: CollectiveOperation,
    size: ArrayLike,
    *,
    starts_s: ArrayLike = 0.0,
    software: str = "torchrec",
) -> Floats:
    """[W] seconds at which each rank of a cluster has finished a collective among all W of them, on idle links.

    Args:
        topology: the cluster.
        operation: all_to_all, all_reduce, reduce_scatter or all_gather.
        size: bytes; a number for all ranks, [W] or, of an all_to_all, [W, W]. In an all_to_all what each rank has for
            every rank, itself included (which stays with it), or row s of the matrix for each. In an all_reduce or a
            reduce_scatter the buffer of each rank, in an all_gather the one that it ends up with.
        starts_s: when each rank is ready, a number or [W].
        software: the profile whose latency of a collective is taken.

    Raises ValueError for another operation, sizes of another shape, and negative ones. Every pair of a matrix is a
    flow of its own, so that a matrix is for some hundred ranks; other sizes are for thousands.
    """
    if operation not in get_args(CollectiveOperation):
        raise ValueError(f"operation is one of {', '.join(get_args(CollectiveOperation))}, not {operation}")
    network = SimulatedNetwork(topology, _kinds(topology, operation, software))
    world = network.world
    sizes, starts = np.asarray(size, dtype=np.float64), np.asarray(starts_s, dtype=np.float64)
    shapes = [(), (world,), (world, world)][: 3 if operation == "all_to_all" else 2]
    if sizes.shape not in shapes or starts.shape not in shapes[:2]:
        expected = " or ".join(map(str, shapes))
        raise ValueError(f"sizes of {operation} among {world} ranks have shape {expected}, not {sizes.shape}")
    if not (np.isfinite(sizes).all() and np.isfinite(starts).all() and min(sizes.min(), starts.min()) >= 0):
        raise ValueError("sizes and starts are numbers that are not negative")
    collectives, everyone = Collectives(network), network.extents[WORLD]
    each = np.broadcast_to(sizes, (world,)) if sizes.ndim < 2 else sizes
    if sizes.ndim == 2:
        transfers = messages(network, sizes)
    elif operation == "all_to_all":
        transfers = collectives.all_to_all(everyone, each, OUT)
    elif operation == "all_reduce":
        transfers = collectives.all_reduce(everyone, each)
    else:
        transfers = collectives.reduce_scatter(everyone, each)
    streams = Streams(world)
    exchanges = Exchanges(streams, network, collectives, software_coefficients(software))
    ready = streams.run(Label("ready", "overhead", COMPUTE, 0), np.broadcast_to(starts, (world,)))
    end = exchanges.exchange(Label(operation, "all-to-all", REDUCE, 0), everyone, transfers, [ready])
    return Engine(streams.graph, np.ones(network.count), collectives.hubs()).run().end[end]


def _kinds(topology: Topology, operation: CollectiveOperation, software: str) -> tuple[RankKind, ...]:
    """Those of the cluster; partial sums by laws of their own where these were measured."""
    tables = [{"name": "none", "rows": 1, "dim": 4, "pooling_factor": 1}]
    nothing = {"name": "collective", "global_batch": topology.world_size, "tables": tables, "software": software}
    kinds = rank_kinds(topology, Workload.model_validate(nothing))
    if operation not in ("reduce_scatter", "all_gather"):
        return kinds
    own = []
    for kind, group in zip(kinds, topology.nodes, strict=True):
        link = group.links.scale_up or group.links.pcie
        name = group.links.scale_up.kind if group.links.scale_up else "pcie"
        law = collective_law(operation, group.accelerators.device, name, link.bandwidth, kind.domain_ranks)
        own.append(replace(kind, exchange_protocols=law.protocols) if law else kind)
    return tuple(own)
