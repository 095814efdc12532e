"""The program of consecutive steps, composed of lookups and updates, the dense part, exchanges and host transfers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cost_models.coefficients import SoftwareCoefficients
from cost_models.resources import Way
from cost_models.shards import PLACEMENT_TIERS, Floats, Ints
from cost_models.simulator.collectives import Collectives
from cost_models.simulator.conditions import Lengths
from cost_models.simulator.demand import Demand
from cost_models.simulator.dense_part import DenseKernels
from cost_models.simulator.dense_shards import ShardedKernels
from cost_models.simulator.exchanges import Exchanges
from cost_models.simulator.host_transfers import HostTransfers
from cost_models.simulator.network import IN, OUT, SimulatedNetwork
from cost_models.simulator.pipelines import ahead_of
from cost_models.simulator.program import COMPUTE, HOST, IDS, PREFETCH, Label, Program, Streams, Wait
from cost_models.simulator.replica_copies import ReplicaCopies
from cost_models.simulator.replica_groups import SimulatedGroups
from cost_models.simulator.tower_exchanges import TowerExchanges
from cost_models.workload.formats import sum_bytes, wire_bytes, written_bytes
from cost_models.workload.models import Workload


@dataclass(frozen=True)
class _PartExchanges:
    """How tables with equally many copies exchange."""

    flat: Exchanges
    towers: TowerExchanges | None
    """None where vectors travel flat."""

    def outputs(
        self, step: int, demand: Demand, ratios: tuple[float, float], name: str, way: Way, after: Ints, slow: Floats
    ) -> list[Ints]:
        """Their vectors to the samples, or gradients back; see `Exchanges.outputs`."""
        if self.towers is None:
            return self.flat.outputs(step, demand, ratios, name, way, after)
        return self.towers.outputs(step, demand, ratios, name, way, after, slow)


def _whose(groups: Sequence[SimulatedGroups | None]) -> list[str]:
    """What tells the exchanges of tables with more copies than the first from theirs."""
    return ["", *(f", {each.replicas.factor} copies" for each in groups[1:] if each is not None)]


class Builder:
    """Builds the program of some consecutive steps, over links some of which have a `capacity` [R] below 1."""

    def __init__(
        self,
        network: SimulatedNetwork,
        workload: Workload,
        software: SoftwareCoefficients,
        *,
        waits_for_data: bool,
        capacity: Floats | None = None,
        groups: Sequence[SimulatedGroups | None] = (None,),
        through_towers: bool = False,
        with_roots: bool = False,
        host_beside: bool = False,
    ) -> None:
        """`groups` are those of each part of a step's demand, None for one world; `through_towers`: vectors are
        exchanged in each tower, then among peers, where a tower has more than one rank; `with_roots`: every step takes
        the inverse roots of Shampoo, instead of the mean step's share of them; `host_beside`: the host works on a step
        while its device does, instead of before it."""
        self._network, self._workload, self._software = network, workload, software
        self._streams = Streams(network.world)
        is_sharded = workload.dense.sharding is not None and workload.dense.sharding.is_sharded
        self._shards = ShardedKernels(self._streams, network, workload, software) if is_sharded else None
        self._dense = self._shards or DenseKernels(self._streams, network, workload, software)
        self._with_roots, self._host_beside = with_roots, host_beside
        self._through_towers, self._capacity = through_towers, capacity
        self._parts = [self._exchanges_in(each, whose) for each, whose in zip(groups, _whose(groups), strict=True)]
        self._towers = [part.towers for part in self._parts if part.towers is not None]
        one_world = groups[0] is None
        self._sums = (
            self._parts[0].flat if one_world else Exchanges(self._streams, network, Collectives(network), software)
        )
        self._copies = [
            None if each is None else ReplicaCopies(self._streams, network, each, software) for each in groups
        ]
        self._host = HostTransfers(self._streams, network, workload, software, waits_for_data=waits_for_data)
        self._lookup_launch_s = network.of_kind([kind.lookup_launch_s for kind in network.kinds])
        self._update_launch_s = network.of_kind([kind.update_launch_s for kind in network.kinds])
        self._ahead = ahead_of(workload)
        self._demands: Sequence[Demand] = ()
        self._copied: list[Wait] = []
        self._received: list[Wait] = []
        self._fetched: list[Wait] = []

    def _exchanges_in(self, groups: SimulatedGroups | None, whose: str) -> "_PartExchanges":
        """Those of tables with equally many copies."""
        streams, software = self._streams, self._software
        network = self._network if groups is None else groups.exchanging(self._network)
        collectives = Collectives(network, self._capacity, streams.hubs)
        in_phases = False if self._through_towers else None
        flat = Exchanges(streams, network, collectives, software, in_phases=in_phases, whose=whose)
        if not (self._through_towers and network.has_towers):
            return _PartExchanges(flat, None)
        towers = TowerExchanges(streams, network, collectives, flat, self._workload, self._dense, software)
        return _PartExchanges(flat, towers)

    def build(
        self,
        demands: Sequence[Demand],
        slowness: Sequence[Floats],
        tell: Callable[[str], None] = lambda _words: None,
        lengths: Sequence[Lengths] = (),
    ) -> Program:
        """One step per demand; `slowness` [W] stretches each rank's device time; `tell` hears of each step; `lengths`
        are those of the histories of each."""
        self._demands, self._dense.lengths = demands, lengths
        program, start = self._streams.program, None
        for step in range(len(demands)):
            tell(f"laying out step {step + 1:,} of {len(demands):,}")
            self._bring(step + self._ahead.copy, self._copied, self._copy, start)
            if not step or not self._ahead.ids:
                self._bring(step + self._ahead.ids, self._received, self._exchange_ids, start)
            if self._ahead.fetch:
                self._bring(step + self._ahead.fetch, self._fetched, self._prefetch, start)
            if self._host_beside:
                self._streams.let_host_work(step, self._dense.host_s, start)
            start = self._step(step, slowness[step])
            if self._host_beside:  # the step ends when both are done
                start = self._streams.join(COMPUTE, [self._streams.last(HOST)])
            program.done.append(start)
        program.hubs = self._streams.hubs.all()
        return program

    # --- before the step -------------------------------------------------------------------------------------------

    def _bring(self, batch: int, brought: list[Wait], bring: Callable[[int, Wait], Wait], after: Wait) -> None:
        """Bring whatever has not been `brought` up to this batch."""
        while len(brought) <= min(batch, len(self._demands) - 1):
            brought.append(bring(len(brought), after))

    def _copy(self, batch: int, after: Wait) -> Ints:
        return self._host.copy(batch, self._demands[batch], after)

    def _exchange_ids(self, batch: int, after: Wait) -> Ints:
        waits, yields = [self._copied[batch], after], self._ahead.ids > 0
        received, *beside = [
            exchanges.flat.ids(batch, part, waits, yields=yields)
            for exchanges, part in zip(self._parts, self._demands[batch].parts, strict=True)
        ]
        return self._streams.join(IDS, beside) if beside else received

    def _exchange(
        self, step: int, demand: Demand, ratios: tuple[float, float], name: str, way: Way, after: Ints, slow: Floats
    ) -> list[Ints]:
        """Vectors of all tables to the samples, or their gradients back; see `Exchanges.outputs`."""
        return [
            end
            for each, part in zip(self._parts, demand.parts, strict=True)
            for end in each.outputs(step, part, ratios, name, way, after, slow)
        ]

    def _permute(
        self, step: int, demand: Demand, ratios: tuple[float, float], slow: Floats, after: Sequence[Ints]
    ) -> Sequence[Ints]:
        """Vectors that go through towers in the order of the peers before they leave, or their gradients back."""
        for each, part in zip(self._parts, demand.parts, strict=True):
            if each.towers is not None:
                after = [each.towers.permute(step, part, ratios, slow, after)]
        return after

    def _prefetch(self, batch: int, after: Wait) -> Wait:
        return self._host.fetch(PREFETCH, batch, self._demands[batch], [self._received[batch], after])

    # --- the step --------------------------------------------------------------------------------------------------

    def _step(self, step: int, slow: Floats) -> Ints:
        """[W] the activities that end the step."""
        streams, demand, dense = self._streams, self._demands[step], self._dense
        if not self._host_beside:
            # Without a pipeline the host waits for the ids too, and only then goes on launching kernels.
            host_waits = [] if self._ahead.ids else [self._received[step]]
            streams.wait_for_host(step, dense.overhead_s(slow), host_waits)
        streams.join(COMPUTE, [self._received[step]])
        if self._ahead.fetch:
            streams.join(COMPUTE, [self._fetched[step]])
        else:
            self._host.fetch(COMPUTE, step, demand, ())
        lookup = Label("lookup", "lookup", COMPUTE, step)
        self._kernels(lookup, self._lookup_launch_s, demand.forward_s, slow)
        looked_up = self._host.in_place(lookup, demand.forward_host_bytes, demand.forward_host_s)
        left = self._host.stash(step, demand, looked_up)
        for copies, part in zip(self._copies, demand.parts, strict=True):
            if copies is not None:
                copies.cut(step, part, looked_up)
        (permuted,) = self._permute(step, demand, (1.0, 1.0), slow, [looked_up])
        outputs = self._exchange(step, demand, (1.0, 1.0), "output dist", OUT, permuted, slow)
        dense.forward(dense.first, step, slow)
        if dense.rest:
            dense.forward(dense.rest, step, slow, outputs)
        else:
            streams.join(COMPUTE, outputs)
        if self._workload.mode != "training":
            return streams.last(COMPUTE)
        # TorchRec's pipeline sends the sizes of the next batch before the forward pass, and its ids after it.
        if self._ahead.ids:
            self._bring(step + self._ahead.ids, self._received, self._exchange_ids, streams.last(COMPUTE))
        if left is not None:  # activations are all there now, in the place of what has left
            streams.join(COMPUTE, [left])
        return self._backward(step, demand, slow)

    def _backward(self, step: int, demand: Demand, slow: Floats) -> Ints:
        """[W] the activities that end the step: gradients computed, exchanged, reduced and applied."""
        streams, dense, overlaps = self._streams, self._dense, self._software.all_reduce_overlaps_dense
        ready = streams.last(COMPUTE)
        gathered = [
            gather
            for copies, part in zip(self._copies, demand.parts, strict=True)
            if copies is not None
            for gather in copies.gather(step, part, ready)
        ]
        checkpointed = self._workload.dense.checkpointing not in (None, "none")
        back = None if checkpointed else self._host.stash(step, demand, ready, returns=True)
        buckets = dense.backward(dense.rest, step, slow)
        forward, backward = self._workload.communication.forward, self._workload.communication.backward
        ratios = wire_bytes(backward) / wire_bytes(forward), sum_bytes(backward) / sum_bytes(forward)
        ready = streams.last(COMPUTE)
        if not self._towers:
            gradients = self._exchange(step, demand, ratios, "gradient dist", IN, ready, slow)
        buckets += dense.backward(dense.first, step, slow)
        computed = streams.last(COMPUTE)
        if checkpointed:  # activations come once more
            back = self._host.stash(step, demand, computed, returns=True)
        if self._towers:  # whose modules wait for the exchange, as the bottom MLP does not
            gradients = self._exchange(step, demand, ratios, "gradient dist", IN, ready, slow)
        reduced: Wait = None
        everyone = self._network.everyone
        replicas = float(demand.replica_gradient_bytes.max())
        if overlaps:
            for ready, size in [*buckets, (computed, replicas)]:
                reduced = self._sums.all_reduce(step, everyone, size, ready)
            reduced = self._reduced_in_towers(step, reduced)
        gradients = list(self._permute(step, demand, ratios, slow, gradients))
        update = Label("embedding update", "update", COMPUTE, step)
        self._kernels(update, self._update_launch_s, demand.backward_s, slow, [*gradients, *gathered, back])
        self._host.in_place(update, demand.backward_host_bytes, demand.backward_host_s, written=0.5)
        if not overlaps:
            total = sum(size for _, size in buckets) + replicas
            reduced = self._sums.all_reduce(step, everyone, total, streams.last(COMPUTE))
            reduced = self._reduced_in_towers(step, reduced)
        replicas_s = self._network.of_kind([kind.dense_update_s for kind in self._network.kinds])
        elements = demand.replica_gradient_bytes / wire_bytes(self._workload.dense.gradient_format)
        updated = elements * written_bytes(self._workload.dense.gradient_format)
        coded = dense.codec_s(dense.parameters + elements, slow)
        if dense.preconditioners is not None:
            reduced = dense.preconditioners.run(step, slow, reduced, with_roots=self._with_roots)
        seconds = dense.optimizer_s(slow) + replicas_s * updated * slow + coded
        end = streams.run(Label("dense optimizer", "dense optimizer", COMPUTE, step), seconds, [reduced])
        if self._shards is not None:
            end = self._shards.gathered(step, end)
        for copies, part in zip(self._copies, demand.parts, strict=True):
            end = end if copies is None else copies.average(step, part, end)
        return end

    def _reduced_in_towers(self, step: int, reduced: Wait) -> Wait:
        """The gradients of the modules of towers, summed by the ranks of each after the others are `reduced`."""
        overlaps = self._software.all_reduce_overlaps_dense
        for towers in self._towers:
            if towers.has_modules:
                reduced = towers.reduced(step, None if overlaps else self._streams.last(COMPUTE))
        return reduced

    def _kernels(
        self, kernel: Label, launch_s: Floats, by_tier: Floats, slow: Floats, after: Sequence[Wait] = ()
    ) -> None:
        """Run a kernel for the tables of each tier, [tiers, W] seconds; the first one has the launch and waits."""
        for tier in np.flatnonzero(by_tier.any(axis=1)).tolist() or [0]:
            seconds = (launch_s + by_tier[tier]) * slow
            label = replace(kernel, name=f"{kernel.name} ({PLACEMENT_TIERS[tier]})")
            self._streams.run(label, seconds, after)
            launch_s, after = np.zeros(self._network.world), ()
