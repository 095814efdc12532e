"""What runs beside the dense part of a step, and for how long others hide it: ids of the next batch, sums of gradients.

Windows depend on loads of tables that are not placed yet: they are those of tables that are spread evenly, in HBM, so
that what a placement takes stays a sum over its tables.
"""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from cost_models.dense import DensePass
from cost_models.dense_size import dense_parts
from cost_models.kinds import RankKind
from cost_models.loads import BlockLoad
from cost_models.memory import Batching
from cost_models.resources import Resource
from cost_models.schedule import Schedule
from cost_models.shards import Blocks
from cost_models.step_exchanges import EXCHANGE_OF, exchange_split
from cost_models.tables import Tables
from cost_models.workload.models import Workload


@dataclass(frozen=True)
class EvenTables:
    """Tables with equally many copies, spread evenly over the ranks of a group of their own; K kinds of rank."""

    tables: Tables
    blocks: Blocks
    """Each of them as one."""
    kinds: tuple[RankKind, ...]
    batching: Batching
    schedule: Schedule
    copied_over: tuple[Resource, ...]
    """The links between the ranks that hold the same shards."""

    def latency_s(self, stage: str) -> float:
        """The least that the exchange of a stage waits for; 0 where there is none."""
        lines = self.schedule.lines.get(stage)
        return lines[0].latency_s if lines else 0.0

    def exchange_s(self, stage: str, number: int) -> dict[Resource, float]:
        """What each link of a kind of rank is busy with in the exchange of a stage."""
        seconds, kind = dict[Resource, float](), self.kinds[number]
        if stage not in self.schedule.stages:
            return seconds
        loads = EXCHANGE_OF[stage](self.tables, self.blocks, kind, self.batching, None)
        for term, of_term in exchange_split(self.schedule)(stage, loads, self.blocks, kind).items():
            for resource, load in of_term.items():
                for column, factor in self.schedule.targets(term, resource, number):
                    reached = self.schedule.columns[column].resource
                    seconds[reached] = seconds.get(reached, 0.0) + self._even_s(reached, load, kind) * factor
        return seconds

    def carrier(self, stage: str, resource: Resource) -> Resource:
        """What carries the traffic of a link in the exchange of a stage."""
        return self.schedule.carrier(stage, resource)

    def _even_s(self, resource: Resource, load: BlockLoad, kind: RankKind) -> float:
        """What each instance of a link is busy with."""
        of_rank = float(np.sum(load.fixed + load.by_rows) / kind.world_size + np.sum(load.everywhere))
        instance = self.schedule.resource_of_rank(resource)
        return of_rank * float(np.bincount(instance).max())


@dataclass(frozen=True)
class BesideDense:
    """The windows of one workload on one cluster."""

    workload: Workload
    parts: tuple[EvenTables, ...]
    """Its tables; those with the fewest copies first."""
    dense: tuple[DensePass, ...]
    """[K] the dense part on each kind of rank."""
    lookups: tuple[tuple[float, float], ...]
    """[K] seconds on each device of the update of all tables, and of their lookup."""
    modules_s: tuple[float, ...]
    """[K] seconds on each device of the backward pass of its tower's module, after the gradients of vectors came."""
    module_gradients_s: tuple[float, ...] | None = None
    """[K] seconds of the exchange of gradients among peers, of what modules give; None where vectors are exchanged."""

    def hidden_s(self) -> float:
        """How long the update of the embeddings and the fixed overhead hide the next batch's ids beside the dense part,
        less its forward pass: ids travel from one forward pass to the lookup that needs them. They also do while ranks
        wait for the first byte of an all-reduce after the update; the same wait for gradients is as long as their own.

        Under the prefetch pipeline, a step earlier, the lookups and the forward pass hide them too, and cache misses
        beside them. It is the least of all kinds of rank; what caches take more is in `Lookup.fetches`.
        """
        is_earlier = self.workload.pipeline == "prefetch"
        hidden = []
        for (update_s, lookup_s), dense, module_s in zip(self.lookups, self.dense, self.modules_s, strict=True):
            hidden.append(update_s + module_s + (lookup_s if is_earlier else -dense.rest_forward_s))
        reduced_s = self.parts[0].latency_s("all_reduce")
        return min(hidden) + reduced_s + float(self.parts[0].schedule.overheads.sum())

    def sums_begin_s(self, sums_s: Collection[float]) -> list[float]:
        """[K] seconds into the dense part before gradients are summed, which takes `sums_s` [K] of the links.

        Sums that are not done when the gradients of vectors leave share the links with these, which then come so much
        later; those that are not done by then go on beside modules and the update of the embeddings.
        """
        begin, parts = [], dense_parts(self.workload)
        whole = sum(part.parameters for part in parts.values())
        last = parts["top_mlp"].parameters / whole if whole else 1.0
        for k, (dense, (update_s, _), taken_s) in enumerate(zip(self.dense, self.lookups, sums_s, strict=True)):
            # Those of the last layers are summed beside the backward pass, the others when it has ended.
            ready_s = max(dense.rest_forward_s + dense.first_gradients_s, dense.rest_s - last * taken_s)
            left_s = taken_s + ready_s - dense.rest_s
            met_s = self._gradients_s(k)
            beside_update_s = min(max(left_s - met_s, 0.0), ready_s)
            begin.append(ready_s - min(beside_update_s, update_s + self.modules_s[k]))
        return begin

    def _gradients_s(self, kind: int) -> float:
        """Seconds of the exchange of gradients after the dense part."""
        if self.module_gradients_s is not None:
            return self.module_gradients_s[kind]
        return max(self._exchange_s("gradient_dist", kind).values(), default=0.0)

    @property
    def copied_over(self) -> tuple[Resource, ...]:
        """The links between the ranks that hold the same shards of some tables."""
        return tuple(dict.fromkeys(resource for part in self.parts for resource in part.copied_over))

    def exchange_window_s(self) -> float:
        """Seconds of the exchanges before and after the dense part in which the links that copies are cut over are
        idle: the least of all kinds of rank."""
        windows, stages = [], self.parts[0].schedule.stages
        for k in range(len(self.dense)):
            window = 0.0
            for stage in (each for each in EXCHANGE_OF if each in stages and each != "input_dist"):
                seconds = self._exchange_s(stage, k)
                over = [self.parts[0].carrier(stage, resource) for resource in self.copied_over]
                busy = max(seconds.get(resource, 0.0) for resource in over)
                window += max(part.latency_s(stage) for part in self.parts) - busy
                window += max(seconds.values(), default=0.0)
            windows.append(window)
        return min(windows)

    def _exchange_s(self, stage: str, kind: int) -> dict[Resource, float]:
        """What each link of a kind of rank is busy with in the exchange of a stage."""
        seconds = dict[Resource, float]()
        for part in self.parts:
            for resource, busy_s in part.exchange_s(stage, kind).items():
                carrier = self.parts[0].carrier(stage, resource)
                seconds[carrier] = seconds.get(carrier, 0.0) + busy_s
        return seconds
