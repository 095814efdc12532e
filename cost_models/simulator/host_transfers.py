"""What ranks move to and from their hosts: batches, cache misses, rows that kernels read and write in place."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cost_models.coefficients import SoftwareCoefficients
from cost_models.shards import MEMORY_TIERS, Floats, Ints
from cost_models.simulator.demand import Demand
from cost_models.simulator.network import SimulatedNetwork
from cost_models.simulator.program import COMPUTE, COPY, DATA, STASH, Label, Streams, Wait
from cost_models.tables import NUMBER_BYTES
from cost_models.workload.models import Workload


class HostTransfers:
    """Puts transfers between hosts and devices on the streams of W ranks."""

    def __init__(
        self,
        streams: Streams,
        network: SimulatedNetwork,
        workload: Workload,
        software: SoftwareCoefficients,
        *,
        waits_for_data: bool,
    ) -> None:
        self._streams, self._network, self._workload, self._software = streams, network, workload, software
        self._waits_for_data = waits_for_data

    def copy(self, batch: int, demand: Demand, after: Wait) -> Ints:
        """A batch comes over the front-end network and then to the device."""
        streams, network, world = self._streams, self._network, self._network.world
        if self._software.ids_arrive_sharded:  # the ranks that hold the tables read their ids themselves
            return streams.join(COPY, [after])
        numbers = (self._workload.dense.numerical_features + 1) * NUMBER_BYTES
        per_sample = demand.raw_ids_per_sample_bytes + numbers
        amount = np.full(world, self._workload.batch(world) / world * per_sample)
        arrived = None
        if (front_end := network.front_end()) is not None:
            loaded = streams.move(
                Label("data loading", "transfer", DATA, batch), amount, front_end, [after], yields=True
            )
            arrived = loaded if self._waits_for_data else None
        copied = Label("copy to device", "transfer", COPY, batch)
        return streams.move(copied, amount, network.host(), [arrived, after])

    def fetch(self, stream: str, batch: int, demand: Demand, after: Sequence[Wait]) -> Wait:
        """Cache misses, brought from one memory after the other while evicted rows go back; None without any."""
        passes = self._software.cache_fetch_passes.value
        network, end = self._network, None
        for memory in np.flatnonzero(demand.fetched_bytes.any(axis=1)).tolist():
            tier, amount = MEMORY_TIERS[memory], demand.fetched_bytes[memory]
            fetched = Label(f"cache fetch ({tier.upper()})", "transfer", stream, batch)
            if (first_s := network.first_answer_s(tier)).any():
                after = [self._streams.run(fetched, np.where(amount > 0, first_s, 0.0), after)]
            uses = network.fetch(tier, _per_byte(demand.fetched_s[memory], amount), passes)
            end = self._streams.move(fetched, amount, uses, after)
        return end

    def stash(self, step: int, demand: Demand, after: Wait, *, returns: bool = False) -> Wait:
        """What tables stash leaves the devices, or `returns` to them; None without any."""
        amount = demand.stashed_bytes.sum(axis=0)
        if not amount.any():
            return None
        label = Label("unstash" if returns else "stash", "transfer", STASH, step)
        uses = self._network.host(received=float(returns), sent=float(not returns))
        return self._streams.move(label, amount, uses, [after])

    def in_place(self, kernel: Label, amount: Floats, busy_s: Floats, *, written: float = 0.0) -> Ints:
        """A kernel reads memories of the node and, for a share of the bytes, writes them: [memories, W] bytes, all of
        them at once."""
        streams = self._streams
        before = streams.last(COMPUTE)
        ends = [before]
        for memory in np.flatnonzero(amount.any(axis=1)).tolist():
            streams.turn_back(COMPUTE, before)
            tier = MEMORY_TIERS[memory]
            uses = self._network.in_place(tier, _per_byte(busy_s[memory], amount[memory]), written)
            name = f"{kernel.name} (PCIe)" if tier == "ddr" else f"{kernel.name}, {tier.upper()} (PCIe)"
            ends.append(streams.move(replace(kernel, name=name), amount[memory], uses))
        return ends[-1] if len(ends) <= 2 else streams.join(COMPUTE, ends)


def _per_byte(seconds: Floats, amount: Floats) -> Floats:
    """[W] seconds per byte; 0 where nothing moves."""
    return np.asarray(seconds / np.where(amount > 0, amount, 1.0))
