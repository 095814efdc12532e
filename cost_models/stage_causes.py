"""What the time of a stage comes from: the coefficients and laws that govern its parts, and how well they are known.

A stage lasts as long as the resource that binds it; that time is split into the constant, the work before any table,
and the tables by tier, and each part errs as the coefficients behind it do.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from cost_models.arithmetic import are_timed_alone
from cost_models.batch_copy import COPY_CONTENTION
from cost_models.beside_products import BesideRates
from cost_models.coefficients import (
    CoefficientCurve,
    CollectiveOperation,
    DeviceCoefficients,
    DtypeCoefficient,
    Evidence,
    Quantity,
    device_coefficients,
    link_coefficients,
)
from cost_models.collective_laws import collective_law
from cost_models.dense import dense_seconds
from cost_models.elementary import exp, log, log2
from cost_models.error_bars import UNKNOWN_90, Cause, doublings_outside, error_90, is_of, width
from cost_models.evaluation import Evaluation
from cost_models.first_answers import CACHE_FETCH
from cost_models.floor import BATCH_COPY, HOST
from cost_models.measured_rates import link_inside
from cost_models.resources import (
    BAGS,
    DEVICE,
    FETCHES,
    HOST_LINK,
    HOST_LINK_IN,
    HOST_LINK_OUT,
    PCIE,
    STASHES,
    SUMS,
    Resource,
)
from cost_models.shards import (
    BYTE_ADDRESSABLE,
    HOME,
    KEEPS_STATE_BELOW,
    MEMORIES,
    PLACEMENT_TIERS,
    TIERS,
    Floats,
    Ints,
    PlacedShards,
    state_memory,
)
from cost_models.small_products import NO_TIME
from cost_models.software import kernels_of
from cost_models.stages import LOOKUP, UPDATE
from cost_models.step_costs import StepCosts
from cost_models.unsure_caches import unsure_cache_s

UNSURE = 0.02
"""Share of a lookup below which it does not matter what a cache serves."""
DATA_SHEET_90 = 0.25
"""Error of a rate by the data sheet of a disk or a switch, of which nothing was measured (assumed)."""
_Place = tuple[str, str]
"""device or software, and the name of one of its coefficients."""
_CACHED: tuple[_Place, ...] = (("device", "pcie_efficiency"), ("software", "cache_fetch_passes"))
_READ_BELOW: tuple[_Place, ...] = (("device", "pcie_efficiency"), ("software", "uvm_forward_passes_per_lookup"))
_UPDATED_BELOW: tuple[_Place, ...] = (("device", "pcie_efficiency"), ("software", "uvm_backward_passes_per_row"))
_BY_TIER: dict[str, list[tuple[_Place, ...]]] = {
    "lookup_forward": [
        (("device", "lookup_efficiency"),) if row.home == "hbm" else _CACHED if row.how == "cached" else _READ_BELOW
        for row in TIERS.values()
    ],
    "lookup_backward": [
        _UPDATED_BELOW
        if row.home in BYTE_ADDRESSABLE
        else (("device", "lookup_efficiency"), ("software", "backward_passes"))
        for row in TIERS.values()
    ],
    "cache_fetch": [_CACHED for _ in TIERS],
}
"""Stage and tier of a table: the coefficients that its time on the device, or over the host's links, goes with."""
_AHEAD: list[tuple[_Place, ...]] = [
    (*_CACHED, _UPDATED_BELOW[1]) if meets_rows else _CACHED for meets_rows in KEEPS_STATE_BELOW
]
"""The same of prefetched misses, with the rows of their tables that are updated in place."""
_MEASURED_INSTEAD: dict[_Place, tuple[str, ...]] = {
    ("device", "lookup_efficiency"): ("lookup_bytes_per_s",),
    ("device", "pcie_efficiency"): ("copy_bytes_per_s",),
    ("device", "activation_efficiency"): ("stream_bytes_per_s",),
    ("device", "flop_utilization"): ("matmul_flops_per_s",),
    ("device", "kernel_utilization"): ("matmul_flops_per_s",),
    ("device", "batched_flops_per_byte"): ("matmul_flops_per_s",),
    ("device", "fp32_utilization"): ("matmul_flops_per_s",),
    ("software", "backward_passes"): ("update_passes_per_lookup", "update_distinct_row_s"),
    ("software", "forward_launch_s"): ("lookup_launch_s",),
    ("software", "backward_launch_s"): ("update_launch_s",),
}
"""Coefficients in whose place a device's file may have what was measured on it, the first that it has. What a distinct
row takes beyond its bytes was fitted beside the software's passes: its residual is that of the whole update."""
_LAUNCH = {"lookup_forward": "forward_launch_s", "lookup_backward": "backward_launch_s"}
_BAG = {"lookup_forward": "lookup_bag_row_s", "lookup_backward": "update_bag_id_s"}
_DATA_SHEET_WORDS: dict[str, str] = {name: row.label for name, row in MEMORIES.items()}
_DATA_SHEET_WORDS["front_end"] = "front-end cards"
_EFFICIENCY: dict[Resource, str] = dict.fromkeys((PCIE, HOST_LINK, HOST_LINK_OUT, HOST_LINK_IN), "pcie_efficiency")
_EFFICIENCY |= {Resource(name): row.efficiency for name, row in MEMORIES.items() if row.efficiency is not None}
"""The device coefficient of the share of a rate that is achieved; of the others the data sheet is all that is known."""


def is_measured(name: str, device: str, software: str | None = None) -> bool:
    """Whether a coefficient of a device rests on data of that device, not on what others achieve; `software` is the
    one whose kernels look tables up."""
    evidence: Evidence = getattr(device_coefficients(device, software), name)
    if evidence != getattr(device_coefficients("default"), name):  # a value of its own
        return is_of(evidence, device)
    return bool(evidence.fitted_on) and is_of(evidence, device)


def _curve(curve: CoefficientCurve) -> tuple[Floats, Floats]:
    """log2(count) and value of each point."""
    counts, values = np.array(curve.points).T
    return log2(counts), values


def stage_causes(model: StepCosts, placed: PlacedShards, evaluation: Evaluation, stage: int) -> tuple[Cause, ...]:
    """The coefficients and laws that the seconds of a stage come from, of what binds it."""
    return tuple(_StageErrors(model, placed, evaluation, stage).causes())


@dataclass(frozen=True)
class _ErrorParts:
    """Seconds of the binding resource."""

    base: float
    """Before any table."""
    by_tier: Floats
    """[tiers] of the tables' shards, by placement tier."""
    state_apart: Floats
    """[tiers] of that, what tables take whose optimizer state is in another memory than their rows."""
    rest: float
    """What all ranks pay for a table that another holds."""
    row_bytes: float
    """Typical width of a row, weighted by seconds; 0 without tables."""
    unsure: float = 0.0
    """By how much laws of the device's cache differ, in a lookup."""


class _StageErrors:
    """What governs one stage of an evaluated placement."""

    def __init__(self, model: StepCosts, placed: PlacedShards, evaluation: Evaluation, stage: int) -> None:
        self._model, self._placed, self._stage = model, placed, stage
        self._name = model.stages[stage]
        self._seconds = float(evaluation.stage_seconds[stage])
        self._constant = max(float(model.constants[stage]), 0.0)
        self._hidden = max(-float(model.constants[stage]), 0.0)
        self._resource, self._rank = evaluation.binding[stage], evaluation.critical_rank[stage]
        self._software = model.coefficients.software
        self._kind = int(model.kind_of_rank[self._rank or 0])
        self._group = model.topology.nodes[self._kind]
        self._device = self._group.accelerators.device

    def causes(self) -> Iterator[Cause]:
        """Every source of error, with the share of the stage that it governs."""
        if self._seconds <= 0:
            return
        yield from self._on_constant() if self._constant else ()
        busy = self._seconds - self._constant
        if self._name == HOST and (host := self._model.coefficients.host_beside) is not None:
            name, error = self._software.name, error_90(host, self._device, {})
            yield Cause(f"step_overhead_s of {name}", name, 1.0, error, host.kind, host)
            return
        if self._resource is None or self._rank is None or busy <= 0:
            return
        if self._name == BATCH_COPY:
            yield self._of("device", "pcie_efficiency", busy, {})
        elif self._resource in STASHES:
            yield from self._on_stash(self._parts(self._resource, busy), busy)
        elif self._resource.kind in (DEVICE.kind, BAGS.kind):
            yield from self._on_device(self._parts(self._resource, busy))
        elif self._resource.kind == FETCHES.kind:
            yield from self._on_fetches(self._parts(self._resource, busy))
        elif efficiency := _EFFICIENCY.get(replace(self._resource, ahead=False, with_ids=False, with_rows=False)):
            yield from self._on_host(efficiency, self._parts(self._resource, busy), busy)
        elif self._resource.kind in ("link", "nic", "rails", "ring", "sums"):
            yield self._exchange(self._resource, busy)
        else:
            yield self._by_data_sheet(self._resource, busy)

    def _on_constant(self) -> Iterator[Cause]:
        """What the stage waits for whatever loads it."""
        if self._name in (COPY_CONTENTION, CACHE_FETCH):
            of_copy = self._of("device", "pcie_efficiency", self._constant, {})
            yield of_copy if self._name == COPY_CONTENTION else self._by_data_sheet(Resource("remote"), self._constant)
            return
        overhead = "step_overhead_s" if self._name == "overhead" else "collective_latency_s"
        computed_s = self._model.update.beyond_overhead_s if self._name == "overhead" else 0.0
        if self._model.coefficients.host_beside is None or self._name != "overhead":
            yield self._of("software", overhead, self._constant - computed_s, {})
        else:  # the dense optimizer, which moves bytes
            yield self._of("device", "activation_efficiency", self._constant - computed_s, {})
        for optimizer in self._model.coefficients.optimizers if computed_s else ():
            share, evidence = computed_s / self._seconds, optimizer.root_column_s
            error, words = error_90(evidence, self._device, {}), f"root_column_s of {optimizer.name}"
            yield Cause(words, optimizer.name, share, error, evidence.kind, evidence)

    def _on_stash(self, parts: _ErrorParts, busy: float) -> Iterator[Cause]:
        """A pass of the dense part, and tables on their way."""
        if parts.base > 0:
            yield from self._dense(parts.base)
        yield self._of("device", "pcie_efficiency", busy - parts.base, {})

    def _by_data_sheet(self, resource: Resource, seconds: float) -> Cause:
        is_uplink = resource.level is not None
        name = "network switches" if is_uplink else f"{_DATA_SHEET_WORDS[resource.kind]} of {self._group.name}"
        return Cause(name, self._group.name, seconds / self._seconds, DATA_SHEET_90, "spec")

    def _of(self, where: str, name: str, seconds: float, case: dict[Quantity, float]) -> Cause:
        device = device_coefficients(self._device, kernels_of(self._model.workload))
        for instead in _MEASURED_INSTEAD.get((where, name), ()):
            measured = getattr(device, instead)
            covers = not isinstance(measured, DtypeCoefficient) or self._model.workload.dense.dtype in measured.by_dtype
            if measured is not None and covers:
                where, name = "device", instead
                break
        record = self._software if where == "software" else device
        evidence: Evidence = getattr(record, name)
        share, error = seconds / self._seconds, error_90(evidence, self._device, case)
        is_known = device_coefficients(self._device).name != "default"
        if (elsewhere := self._elsewhere_90(device, name, case)) > error:
            label = f"kernels of {self._software.name} on {self._device}" if is_known else f"device {self._device}"
            return Cause(label, self._device, share, elsewhere, "spec", evidence)
        if where == "software":
            return Cause(f"{name} of {record.name}", record.name, share, error, evidence.kind, evidence)
        label = f"{name} of {self._device}"
        if is_measured(name, self._device, device.kernels_of):
            is_own = evidence == getattr(device_coefficients(self._device), name)
            source = self._device if is_own else device.label
            return Cause(f"{name} of {source}", source, share, error, evidence.kind, evidence)
        if not is_known:
            label = f"device {self._device}"
        return Cause(label, self._device, share, error, "spec", evidence)

    def _elsewhere_90(self, device: DeviceCoefficients, name: str, case: dict[Quantity, float]) -> float:
        """The least error of a coefficient of lookups in HBM, where those of the software's kernels on some device are
        known, and not on this one."""
        forward, backward = self._software.lookup_elsewhere_90, self._software.update_elsewhere_90
        if kernels_of(self._model.workload) is None or device.lookup_row_s is not None:
            return 0.0
        if forward is not None and name in ("lookup_efficiency", "forward_launch_s"):
            return float(np.interp(log2(case.get("row_bytes") or forward.points[-1][0]), *_curve(forward)))
        if backward is not None and name in ("backward_passes", "backward_launch_s"):
            return backward.value
        return 0.0

    def _on_device(self, parts: _ErrorParts) -> Iterator[Cause]:
        if self._name not in _BY_TIER:
            yield from self._dense(parts.base)
            return
        if parts.base:
            yield self._of("software", _LAUNCH[self._name], parts.base, {"row_bytes": parts.row_bytes})
        if is_bag := self._resource is not None and self._resource.kind == BAGS.kind:
            yield self._of("device", _BAG[self._name], self._seconds - self._constant - parts.base, {})
        for (where, name), seconds in () if is_bag else self._by_tier(parts):
            if name != "lookup_efficiency" or self._name != UPDATE or not self._knows_updates():
                yield self._of(where, name, seconds, {"row_bytes": parts.row_bytes})
        if (share := parts.unsure / self._seconds) > UNSURE and not is_bag:
            yield Cause(f"L2 cache of {self._device}", self._device, share, 1.0, "spec")

    def _knows_updates(self) -> bool:
        """Whether the error of updates is that of the kernel as a whole, to which reading rows adds nothing."""
        of_kernels = kernels_of(self._model.workload)
        device = device_coefficients(self._device, of_kernels)
        is_own = any(getattr(device, name) is not None for name in _MEASURED_INSTEAD["software", "backward_passes"])
        return is_own or (of_kernels is not None and self._software.update_elsewhere_90 is not None)

    def _by_tier(self, parts: _ErrorParts) -> Iterator[tuple[_Place, float]]:
        """Coefficients with the time of the tables that goes with them; state apart is updated where it is."""
        ahead = self._resource is not None and self._resource.ahead
        of_stage = _AHEAD if ahead else _BY_TIER.get(self._name, _BY_TIER["cache_fetch"])
        for tier, seconds in enumerate((parts.by_tier - parts.state_apart).tolist()):
            yield from ((place, seconds) for place in of_stage[tier] if seconds)
        for seconds in parts.state_apart.tolist():
            yield from ((place, seconds) for place in _UPDATED_BELOW if seconds)

    def _on_fetches(self, parts: _ErrorParts) -> Iterator[Cause]:
        """What one rank waits for: by the memory that misses come from."""
        for tier, seconds in zip(TIERS.values(), parts.by_tier.tolist(), strict=True):
            if seconds and MEMORIES[tier.home].efficiency is None and tier.home != "hbm":
                yield self._by_data_sheet(Resource(tier.home), seconds)
            elif seconds:
                yield from (self._of(where, name, seconds, {}) for where, name in _CACHED)

    def _on_host(self, efficiency: str, parts: _ErrorParts, busy: float) -> Iterator[Cause]:
        """The link or memory as a whole, and by tier the bytes that lookups ask of it."""
        yield self._of("device", efficiency, busy, {})
        for (where, name), seconds in self._by_tier(parts):
            if where == "software":
                yield self._of(where, name, seconds, {})

    def _dense(self, seconds: float) -> Iterator[Cause]:
        """Matrix products, and activations through device memory."""
        model, kind = self._model, self._model.kinds[self._kind]
        samples = model.batching.samples_per_rank
        alone = kind if kind.beside.counted is None else replace(kind, beside=BesideRates())
        flops = dense_seconds(model.workload, samples, alone, 0.0).total_s
        of_layers = replace(kind, small_products=NO_TIME, beside=BesideRates())
        layers_s = dense_seconds(model.workload, samples, of_layers, 0.0).total_s
        plain = replace(of_layers, products=tuple(replace(each, edge=0.0, inner_edge=0.0) for each in kind.products))
        edges_s = layers_s - dense_seconds(model.workload, samples, plain, 0.0).total_s
        dtype, is_alone = model.workload.dense.dtype, not self._software.fits_products
        share, edge = "flop_utilization", "product_edge"
        if are_timed_alone(device_coefficients(self._device), dtype, alone=is_alone):
            share, edge = "kernel_utilization", "kernel_edge"
        if flops > layers_s and not is_alone:  # small products at the rate of large ones
            layers_s = flops
        yield self._of("device", "fp32_utilization" if dtype == "fp32" else share, min(layers_s, seconds), {})
        if flops > layers_s:
            yield self._of("device", "batched_flops_per_byte", min(flops, seconds) - min(layers_s, seconds), {})
        if edges_s:
            yield self._of("device", edge, min(edges_s, seconds), {})
        if seconds > flops:
            yield self._of("device", "activation_efficiency", seconds - flops, {})
            yield self._of("software", "activation_passes", seconds - flops, {})

    def _exchange(self, resource: Resource, seconds: float) -> Cause:
        reduces = self._name == "all_reduce" or (self._name == "dense" and self._software.all_reduce_overlaps_dense)
        if resource == SUMS:
            leaves = self._model.kinds[self._kind].world.domains > 1
            return self._card("all_reduce", seconds) if leaves else self._port("all_reduce", seconds)
        operation: CollectiveOperation = "all_reduce" if reduces else "all_to_all"
        return self._port(operation, seconds) if resource.kind == "link" else self._card(operation, seconds)

    def _card(self, operation: CollectiveOperation, seconds: float) -> Cause:
        nics = self._group.links.scale_out
        assert nics is not None
        link = link_coefficients(nics.kind, "default-scale-out")
        evidence: Evidence = link.all_to_all_efficiency
        if operation == "all_reduce":
            evidence = link.all_reduce_growth or link.all_reduce_efficiency
        kind = self._model.kinds[self._kind]
        error = error_90(evidence, self._device, {"scale_up_domains": kind.world.domains})
        if operation == "all_reduce" and kind.reduces_in_network:  # of which nothing is measured
            error = max(error, UNKNOWN_90["assumed"])
            return Cause(f"SHARP of {nics.kind}", link.name, seconds / self._seconds, error, "spec", evidence)
        if link.name.startswith("default") or evidence.kind == "assumed":
            return Cause(f"network {nics.kind}", link.name, seconds / self._seconds, error, "spec", evidence)
        share = seconds / self._seconds
        return Cause(f"{operation} of {link.name}", link.name, share, error, evidence.kind, evidence)

    def _port(self, operation: CollectiveOperation, seconds: float) -> Cause:
        kind, (name, port) = self._model.kinds[self._kind], link_inside(self._group)
        share, domain = seconds / self._seconds, kind.domain_ranks
        law = collective_law(operation, self._device, name, port, domain)
        if law is None:
            link = link_coefficients(name, "default-scale-up")
            evidence = link.all_reduce_efficiency if operation == "all_reduce" else link.all_to_all_efficiency
            error = error_90(evidence, self._device, {})
            is_known = link.name == name and is_of(evidence, self._device) and evidence.kind != "assumed"
            label = f"{operation} of {name}" if is_known else f"link {name} of {self._device}"
            return Cause(label, link.name, share, error, evidence.kind if is_known else "spec", evidence)
        rate = (
            kind.link_all_reduce if operation == "all_reduce" else self._model.port_bytes_per_s(self._name, self._kind)
        )
        passes = 2 if operation == "all_reduce" else 1
        buffer = seconds * rate * domain / max(domain - 1, 1) / passes
        beyond = float(doublings_outside(buffer, law.buffer_bytes)) + abs(math.log2(domain / law.ranks))
        error = float(width(law.error_90(), beyond))
        if law.origin == "own":
            return Cause(f"{operation} of {law.system}", law.system, share, error, "fitted")
        label = f"link {name} of {self._device} (laws of {law.system})"
        return Cause(label, law.system, share, error, "spec")

    def _parts(self, resource: Resource, busy: float) -> _ErrorParts:
        model, placed = self._model, self._placed
        c = next(
            i for i, column in enumerate(model.columns) if (column.stage, column.resource) == (self._stage, resource)
        )
        instance: Ints = model.resource_of_rank(resource)
        members = instance == instance[self._rank or 0]
        here = np.flatnonzero(members[placed.rank])
        blocks = placed.blocks.take(here)
        distinct, which = blocks.distinct
        costs = model.block_costs(distinct, self._kind)
        share = placed.rows[here] / model.tables.rows[blocks.table]
        seconds = costs.fixed[which, c] + costs.by_rows[which, c] * share
        apart = state_memory(blocks) != HOME[blocks.tier]
        by_tier, state_apart = np.zeros(len(PLACEMENT_TIERS)), np.zeros(len(PLACEMENT_TIERS))
        np.add.at(by_tier, blocks.tier, seconds)
        apart &= self._name == UPDATE and not resource.ahead
        np.add.at(state_apart, blocks.tier, np.where(apart, seconds, 0.0))
        base = float(model.base_loads[model.kind_of_rank[members], c].sum()) - self._hidden
        row_bytes = model.tables.row_bytes(blocks.table, blocks.columns, blocks.dtype)
        typical = float(exp(np.average(log(row_bytes), weights=seconds))) if seconds.sum() > 0 else 0.0
        unsure, device = 0.0, device_coefficients(self._device, kernels_of(model.workload))
        is_told = self._elsewhere_90(device, "lookup_efficiency", {"row_bytes": typical}) > 0  # of all lookups there
        if self._name == LOOKUP and resource.kind == DEVICE.kind and device.l2_reach_bytes is None and not is_told:
            unsure = float((unsure_cache_s(model, distinct, self._kind)[which] * share).sum())
        return _ErrorParts(base, by_tier, state_apart, busy - base - float(by_tier.sum()), typical, unsure)
