"""How copies of the tables are kept together in a simulated step: averaged after it, or cut and gathered within it."""

from collections.abc import Sequence

from cost_models.coefficients import SoftwareCoefficients
from cost_models.shards import Ints
from cost_models.simulator.collectives import Collectives
from cost_models.simulator.demand import Demand
from cost_models.simulator.exchanges import Exchanges
from cost_models.simulator.network import IN, SimulatedNetwork
from cost_models.simulator.program import COMPUTE, Label, Streams, Wait
from cost_models.simulator.replica_groups import SimulatedGroups

STREAM = "replica sync"


class ReplicaCopies:
    """Puts what copies exchange on the streams of W ranks."""

    def __init__(
        self, streams: Streams, network: SimulatedNetwork, groups: SimulatedGroups, software: SoftwareCoefficients
    ) -> None:
        own = network.seen_by(groups.averaging_kinds)
        self._streams, self._replicas, self._copies = streams, groups.replicas, groups.copies(network)
        self._exchanges = Exchanges(streams, own, Collectives(own), software)

    def cut(self, step: int, demand: Demand, looked_up: Ints) -> None:
        """After the lookup, weights are averaged as each copy keeps its part of them, beside the compute stream."""
        if self._replicas.is_fully_sharded:
            label = Label("replica cut", "reduce-scatter", STREAM, step)
            self._exchanges.cut(label, self._copies, demand.sharded_weight_bytes, looked_up)

    def gather(self, step: int, demand: Demand, computed: Ints) -> Sequence[Wait]:
        """When the backward pass begins, weights are gathered for the update, which waits for what is returned."""
        if not self._replicas.is_fully_sharded:
            return ()
        label = Label("replica gather", "all-gather", STREAM, step)
        return [self._exchanges.cut(label, self._copies, demand.sharded_weight_bytes, computed, IN)]

    def average(self, step: int, demand: Demand, end: Ints) -> Ints:
        """After the step weights and optimizer state are averaged, each step with its share of that; [W] the activities
        that end it."""
        replicas, exchanged = self._replicas, self._exchanges
        listed = [("optimizer state", demand.sharded_state_bytes, replicas.state_share)]
        if not replicas.is_fully_sharded:
            listed.insert(0, ("weights", demand.sharded_weight_bytes, 1 / replicas.sync_every))
        for what, size, share in listed:
            if share and size.any():
                label = Label(f"replica sync ({what})", "all-reduce", STREAM, step)
                end = exchanged.average(label, self._copies, size, end, share)
                end = self._streams.join(COMPUTE, [end])
        return end
