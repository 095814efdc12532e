"""Vectors through towers: inside each of them, then among the ranks at one place in all of them.

What is sent is counted from what every rank of a tower holds after the first exchange; gradients go back the same way.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cost_models.coefficients import SoftwareCoefficients
from cost_models.dense_size import tower_sizes
from cost_models.kinds import RankKind
from cost_models.resources import Way
from cost_models.shards import EXTENTS, WORLD, Floats, Ints
from cost_models.simulator.collectives import Collectives, Transfer
from cost_models.simulator.demand import Demand
from cost_models.simulator.dense_part import DenseKernels, Pass
from cost_models.simulator.exchanges import Exchanges
from cost_models.simulator.network import OUT, SimulatedNetwork
from cost_models.simulator.process_groups import ProcessGroups
from cost_models.simulator.program import COMPUTE, Label, Streams, TaskKind
from cost_models.workload.formats import wire_bytes
from cost_models.workload.models import Workload

READ_AND_WRITE = 2


class TowerVectors:
    """What each of W ranks holds of the vectors, and of partial sums of some ranks, that go through towers."""

    def __init__(self, network: SimulatedNetwork, demand: Demand, ratios: tuple[float, float]) -> None:
        """`ratios` are bytes over those of the outputs: of whole vectors, and of sums."""
        self._network, self._everyone = network, network.extents[WORLD]
        slower = ratios[1] * network.of_kind([kind.sums_slowdown for kind in network.kinds])
        self.for_each: Floats = demand.vectors_to_each_bytes * ratios[0]
        """[W] bytes of whole vectors for the samples of one rank."""
        self.sums: list[tuple[int, Floats]] = [
            (number, demand.sums_bytes[number] * slower)
            for number, extent in enumerate(EXTENTS)
            if extent.reach == "group"
        ]
        """Extents, and [W] bytes of partial sums of all samples."""

    @property
    def permuted_s(self) -> Floats:
        """[W] seconds in which a rank puts its own vectors in the order of the peers."""
        return self._rewritten_s(self.for_each * self._everyone.size)

    @property
    def transposed_s(self) -> Floats:
        """[W] seconds in which a rank puts the vectors of its tower, of its peers' samples, in the order of these."""
        return self._rewritten_s(self._of_tower(self.for_each) * self._network.peers.size)

    def inside(self, collectives: Collectives, way: Way) -> list[Transfer]:
        """Every rank sends (OUT) or gets (IN) vectors for the peers of each other rank of its tower, and its share of
        sums."""
        network = self._network
        towers, peers = network.towers, network.peers.size
        transfers = collectives.all_to_all(towers, self.for_each * peers, way, rate="nic_in_tower")
        for number, sums in self.sums:
            holders = network.extents[number]
            share = sums / holders.size / towers.size
            transfers += collectives.reduce_scatter(holders, sums, way)
            transfers += collectives.all_to_all(towers, share, way, beyond=holders, rate="nic_in_tower")
        return transfers

    def among_peers(self, collectives: Collectives, way: Way, given: Floats | None = None) -> list[Transfer]:
        """Every rank sends (OUT) or gets (IN) all columns of its tower to or from each of its peers, or what modules
        have `given`: [W] bytes for the samples of one rank."""
        network = self._network
        if given is not None:
            return collectives.all_to_all(network.peers, given, way, rate="nic_peers")
        to_each = self._of_tower(self.for_each)
        for number, sums in self.sums:
            to_each = to_each + self._of_tower(sums / network.extents[number].size) / self._everyone.size
        return collectives.all_to_all(network.peers, to_each, way, rate="nic_peers")

    def _of_tower(self, own: Floats) -> Floats:
        """[W] the sum over the ranks of each rank's tower."""
        tower = self._network.towers.group_of_rank
        return np.asarray(np.bincount(tower, weights=own)[tower], dtype=np.float64)

    def _rewritten_s(self, size: Floats) -> Floats:
        """[W] seconds in which device memory is read and written."""
        rates = self._network.of_kind([kind.hbm_bytes_per_s for kind in self._network.kinds])
        return np.asarray(READ_AND_WRITE * size / rates)


def _in_tower(kind: RankKind) -> RankKind:
    """A kind of rank in sums with the ranks of its tower."""
    own = kind.in_tower
    return replace(kind, nic_all_reduce=own.all_reduce_bytes_per_s, reduction_hops_s=own.reduction_s)


class TowerExchanges:
    """Puts the exchanges of vectors on the streams of W ranks."""

    def __init__(
        self,
        streams: Streams,
        network: SimulatedNetwork,
        collectives: Collectives,
        exchanges: Exchanges,
        workload: Workload,
        dense: DenseKernels,
        software: SoftwareCoefficients,
    ) -> None:
        """`exchanges` are the flat ones of the same tables."""
        self._whose = exchanges.whose
        self._streams, self._network, self._dense = streams, network, dense
        self._collectives, self._exchanges = collectives, exchanges
        tower, samples = network.tower_of_rank, workload.batch(network.world) / network.world
        self.has_modules = bool(workload.tower_modules)
        outputs = [part.outputs for part in workload.tower_modules] or [0] * network.towers.count
        self._given = samples * np.array(outputs)[tower] * wire_bytes(workload.communication.forward)
        gradients = [size.parameters for size in tower_sizes(workload)] or [0] * network.towers.count
        self._gradient_bytes = np.array(gradients)[tower] * wire_bytes(workload.dense.gradient_format)
        within = network.seen_by(tuple(_in_tower(kind) for kind in network.kinds))
        self._sums = Exchanges(streams, within, Collectives(within), software)
        self._gradients_ready: Ints = np.zeros(0, dtype=np.int64)

    def permute(
        self, step: int, demand: Demand, ratios: tuple[float, float], slow: Floats, after: Sequence[Ints]
    ) -> Ints:
        """Every rank puts its vectors in the order of the peers before they leave, or their gradients back."""
        vectors = TowerVectors(self._network, demand, ratios)
        return self._streams.run(
            Label(f"permute{self._whose}", "permute", COMPUTE, step), vectors.permuted_s * slow, after
        )

    def module(self, step: int, way: Way, slow: Floats, ready: Ints) -> Ints:
        """The module of each rank's tower, forward (OUT) or backward (IN); nothing without any."""
        if not self.has_modules:
            return ready
        word: Pass = "forward" if way == OUT else "backward"
        kind: TaskKind = "dense forward" if way == OUT else "dense backward"
        label = Label(f"tower module {word}", kind, COMPUTE, step)
        self._gradients_ready = self._streams.run(label, self._dense.module_s(word) * slow, [ready])
        return self._gradients_ready

    def reduced(self, step: int, ready: Ints | None) -> Ints:
        """The gradients of the modules summed by the ranks of each tower, when they are `ready`, or at the end of the
        modules' backward pass."""
        ready = self._gradients_ready if ready is None else ready
        return self._sums.all_reduce(step, self._network.towers, self._gradient_bytes, ready)

    def outputs(
        self,
        step: int,
        demand: Demand,
        ratios: tuple[float, float],
        name: str,
        way: Way,
        after: Ints,
        slow: Floats,
    ) -> list[Ints]:
        """Vectors to the samples (`way` OUT) or their gradients back (IN). Partial sums of all ranks are exchanged
        flat, beside the peers."""
        vectors, stream = TowerVectors(self._network, demand, ratios), f"{name}, towers{self._whose}"

        def meet(where: str, groups: ProcessGroups, transfers: list[Transfer], ready: Ints) -> Ints:
            label = Label(f"{name} ({where}{self._whose})", "all-to-all", stream, step)
            return self._exchanges.exchange(label, groups, transfers, [ready])

        def inside(ready: Ints) -> Ints:
            return meet("intra-host", self._network.towers, vectors.inside(self._collectives, way), ready)

        def peers(ready: Ints) -> Ints:
            given = self._given * ratios[0] if self.has_modules else None
            return meet("peers", self._network.peers, vectors.among_peers(self._collectives, way, given), ready)

        def transpose(ready: Ints) -> Ints:
            if not vectors.for_each.any():
                return ready
            label = Label(f"{name} (transpose{self._whose})", "permute", stream, step)
            return self._streams.run(label, vectors.transposed_s, [ready])

        def flat(ready: Ints) -> Ints:
            return self._exchanges.of_extent(WORLD, step, demand, ratios, name, way, ready)

        if way == OUT:
            met = inside(after)
            return [peers(self.module(step, way, slow, transpose(met))), flat(met)]
        return [flat(after), inside(transpose(self.module(step, way, slow, peers(after))))]
