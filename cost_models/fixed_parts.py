"""What the steps of many models take before any table is placed.

The models differ in their tables, and in the sizes of their dense part. Most of it follows from the dense part alone,
of which few differ: it is computed once for each. The rest follows from sums over tables: the windows beside the dense
part, the bytes of a batch. These are given for n models at once, and the same formulas are those of one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cost_models.activations import kept_elements
from cost_models.batch_copy import launch_s
from cost_models.beside_dense import EvenTables
from cost_models.dense import parameter_bytes
from cost_models.dense_update import DenseUpdate
from cost_models.lookup import Lookup
from cost_models.peak import GRADIENT_COPIES, Peak
from cost_models.resources import DEVICE, Resource
from cost_models.schedule import Schedule
from cost_models.shards import Floats, Ints
from cost_models.step_base import StepBase
from cost_models.step_costs import StepCosts
from cost_models.tables import NUMBER_BYTES, Tables
from cost_models.workload.formats import written_bytes
from cost_models.workload.models import Workload


@dataclass(frozen=True)
class FixedParts:
    """Of n models; K kinds of rank, C columns and S stages of the cost model."""

    loads: Floats
    """[n, K, C] `CostModel.base_loads`; of what is prefetched, all that there are shares of."""
    unshared: Floats
    """[n, K, C] of that the rest."""
    constants: Floats
    """[n, S] `CostModel.constants` without the latencies of exchanges, and without the stage of the floor."""
    base_bytes: Floats
    """[n] bytes of HBM on each rank."""
    output_copies: Floats
    """[n] `Batching.output_copies`."""
    floor_s: Floats
    """[n] the longest of what goes on beside a step, whatever hides it; 0 where nothing does."""
    copy_left_s: Floats
    """[n] what is left of the copy of a batch when devices begin a step: no rows below HBM wait longer for it."""


@dataclass(frozen=True)
class TableAmounts:
    """What each of some tables adds to the sums that the fixed part of a model follows from."""

    model: StepCosts
    """Of any tables on the same cluster, without replicas or towers."""

    @cached_property
    def _links(self) -> tuple[tuple[int, Resource], ...]:
        """(kind of rank, link) of the exchange of gradients."""
        even = self.model.even_tables
        return tuple((k, link) for k in range(len(even.kinds)) for link in even.exchange_s("gradient_dist", k))

    def of_each(self, model: StepCosts) -> Floats:
        """[T, amounts] of the tables of a model."""
        tables, even = model.tables, model.even_tables
        kinds = range(len(model.kinds))
        exchanged = [even.exchange_of_each_s("gradient_dist", k) for k in kinds]
        received = [
            (each.feature_count * each.poolings if each.pooled else each.pooling_factor) * each.dim
            for each in model.workload.tables
        ]
        columns = [_even_updates_s(model, k) for k in kinds]
        columns += [exchanged[k][link] for k, link in self._links]
        columns += [tables.loaded_bytes_per_sample, np.array(received), tables.outputs_per_sample * tables.dim]
        return np.stack(columns, axis=1)

    def dense_base(self, workload: Workload) -> StepBase:
        """What follows from the dense part of a workload alone."""
        model, software = self.model, self.model.coefficients.software
        update = DenseUpdate.of(model.by_kinds, workload, model.kinds)
        schedule = Schedule(
            model.topology,
            workload,
            model.kinds,
            software,
            None,
            has_towers=False,
            copies=None,
            update=update,
            copy_meets_rows=model.copy_meets_rows,
            long_tables=model.schedule.long_tables,
        )
        return StepBase(
            model.topology,
            workload,
            model.tables,
            model.kinds,
            model.batching,
            schedule,
            software,
            None,
            model.base.answers_apart,
        )

    def fixed_parts(self, bases: Sequence[StepBase], which: Ints, sums: Floats) -> FixedParts:
        """Those of n models, each with the dense part of one of `bases`, whose tables add up to `sums` [n, amounts]."""
        model, kinds, base = self.model, len(self.model.kinds), StepBase.of_models(bases, which)
        updates_s = tuple(sums[:, k] for k in range(kinds))
        links = {each: sums[:, kinds + n] for n, each in enumerate(self._links)}
        even = model.even_tables
        parts = EvenModels(even.tables, even.blocks, even.kinds, even.batching, base.schedule, None, links)
        base.let_others_run_beside_the_dense_part(updates_s, (parts,))
        copy_s: Floats = np.zeros(len(sums))
        if not model.coefficients.software.ids_arrive_sharded:
            copy_s = model.batch_copy.seconds(sums[:, -3]).max(axis=0)
            if model.workload.mode == "training" and model.workload.pipeline == "none":
                base.constants[base.schedule.stages.index("input_dist")] += copy_s
                copy_s = np.zeros(len(sums))
        peak = PeakOfModels.of(model.peak, [each.workload for each in bases], which, sums[:, -3:], model.tables)
        launches_s = np.array([launch_s(each.workload, each.software, each.schedule.update) for each in bases])[which]
        left_s = np.maximum(copy_s - launches_s, 0.0)
        host = model.coefficients.host_beside
        floor_s = np.maximum(copy_s, 0.0 if host is None else host.value)
        loads, unshared = (each.transpose(2, 0, 1) for each in (base.loads, base.unshared))
        return FixedParts(loads, unshared, base.constants.T, peak.rank_bytes, peak.output_copies, floor_s, left_s)


def _even_updates_s(model: StepCosts, kind: int) -> Floats:
    """[T] seconds of the update of each table: the parts of `StepCosts.even_update_s`."""
    blocks, world = model.own_blocks, model.topology.world_size
    lookup = Lookup(model.tables, blocks, model.kinds[kind], model.batching, model.coefficients.software)
    load = lookup.backward()[DEVICE]
    return np.asarray((load.fixed + load.by_rows + np.zeros(len(blocks))) / world)


@dataclass(frozen=True)
class EvenModels(EvenTables):
    """The tables of n models, spread evenly, by what they exchange of gradients."""

    gradient_s: Mapping[tuple[int, Resource], Floats]
    """(kind of rank, link) -> [n]"""

    def exchange_s(self, stage: str, number: int) -> Mapping[Resource, Floats]:
        """[n] what each link of a kind of rank is busy with in the exchange of gradients."""
        assert stage == "gradient_dist"
        return {link: seconds for (kind, link), seconds in self.gradient_s.items() if kind == number}


@dataclass(frozen=True)
class PeakOfModels:
    """`Peak` of n models."""

    one: Peak
    """Of another one with the same batch and pipeline."""
    parameters: Floats
    """[n] bytes of the dense part's parameters, with gradients and optimizer state."""
    activations: Floats
    """[n] bytes of activations when the forward pass ends."""
    loaded: Floats
    """[n] bytes of the ids of a sample with their lengths."""
    embeddings: Floats
    """[n] bytes of the vectors that a rank receives."""
    written: Floats
    """[n] bytes of the vectors of a sample that leave shards."""

    @classmethod
    def of(cls, one: Peak, workloads: Sequence[Workload], which: Ints, sums: Floats, tables: Tables) -> "PeakOfModels":
        """Of models with the dense parts of some workloads, and the last three amounts of tables [n, 3]."""
        samples, dense = one.samples_per_rank, one.workload.dense
        parameters = np.array([parameter_bytes(each) for each in workloads])
        kept = np.array([kept_elements(each) for each in workloads])
        loaded, received, written = sums.T
        size = written_bytes(one.workload.communication.forward)
        activations = kept * dense.activation_bytes * samples
        return cls(
            one,
            parameters[which],
            activations[which],
            loaded,
            received * size * samples,
            written * tables.written_bytes,
        )

    @property
    def rank_bytes(self) -> Floats:
        """[n] the sum of `Peak.rank_bytes`."""
        workload, samples = self.one.workload, self.one.samples_per_rank
        loaded = samples * (self.loaded + NUMBER_BYTES * workload.dense.numerical_features)
        always = self.parameters + self.one.residency.loaded * loaded
        if workload.mode == "inference":
            return always + self.activations + self.embeddings
        if self.one.static_buffers:
            return always + self.activations + GRADIENT_COPIES * self.embeddings
        return always + np.maximum(self.activations + self.embeddings, GRADIENT_COPIES * self.embeddings)

    @property
    def output_copies(self) -> Floats:
        """[n] those of `Peak.batching`."""
        is_training = self.one.workload.mode == "training"
        copies = np.full(len(self.embeddings), float(GRADIENT_COPIES) if is_training else 1.0)
        if not is_training or self.one.static_buffers:
            return copies
        hidden = self.activations + self.embeddings - GRADIENT_COPIES * self.embeddings
        vectors = GRADIENT_COPIES * self.written * self.one.samples_per_rank * self.one.world_size
        most = np.minimum(vectors, self.one.hbm_bytes)
        return np.where(hidden > 0, copies * np.maximum(1.0 - hidden / most, 0.0), copies)
