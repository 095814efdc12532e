"""What runs beside the dense part of a step, and for how long others hide it: ids of the next batch, sums of gradients.

Windows depend on loads of tables that are not placed yet: they are those of tables that are spread evenly, in HBM, so
that what a placement takes stays a sum over its tables.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from cost_models.dense import DensePass
from cost_models.kinds import RankKind
from cost_models.loads import BlockLoad
from cost_models.memory import Batching
from cost_models.resources import Resource
from cost_models.schedule import Schedule
from cost_models.step_exchanges import EXCHANGE_OF, exchange_split
from cost_models.tables import Tables
from cost_models.workload.models import Workload


@dataclass(frozen=True)
class BesideDense:
    """The windows of one workload on one cluster."""

    workload: Workload
    tables: Tables
    kinds: tuple[RankKind, ...]
    batching: Batching
    schedule: Schedule
    dense: tuple[DensePass, ...]
    """[K] the dense part on each kind of rank."""
    lookups: tuple[tuple[float, float], ...]
    """[K] seconds on each device of the update of all tables, and of their lookup."""

    def hidden_s(self) -> float:
        """How long the update of the embeddings and the fixed overhead hide the next batch's ids beside the dense part,
        less its forward pass: ids travel from one forward pass to the lookup that needs them. They also do while ranks
        wait for the first byte of an all-reduce after the update; the same wait for gradients is as long as their own.

        Under the prefetch pipeline, a step earlier, the lookups and the forward pass hide them too, and cache misses
        beside them. It is the least of all kinds of rank; what caches take more is in `Lookup.fetches`.
        """
        is_earlier = self.workload.pipeline == "prefetch"
        hidden = []
        for (update_s, lookup_s), dense in zip(self.lookups, self.dense, strict=True):
            hidden.append(update_s + (lookup_s if is_earlier else -dense.rest_forward_s))
        reduced = self.schedule.lines.get("all_reduce")
        return min(hidden) + (reduced[0].latency_s if reduced else 0.0) + float(self.schedule.overheads.sum())

    def sums_begin_s(self, sums_s: Collection[float]) -> list[float]:
        """[K] seconds into the dense part before gradients are summed, which takes `sums_s` [K] of the links.

        Sums that are not done when the gradients of vectors leave share the links with these, which then come so much
        later; those that are not done by then go on beside the update of the embeddings.
        """
        begin = []
        of_kinds = zip(self.kinds, self.dense, self.lookups, sums_s, strict=True)
        for kind, dense, (update_s, _), taken_s in of_kinds:
            ready_s = dense.rest_forward_s + dense.first_gradients_s
            left_s = taken_s + ready_s - dense.rest_s
            beside_update_s = min(
                max(left_s - max(self._even_exchange_s("gradient_dist", kind).values()), 0.0), ready_s
            )
            begin.append(ready_s - min(beside_update_s, update_s))
        return begin

    def exchange_window_s(self, over: Collection[Resource], groups_per_card: Sequence[float]) -> float:
        """Seconds of the exchanges before and after the dense part in which some links are idle, where cards are loaded
        by all groups of ranks that share them, `groups_per_card` [K]: the least of all kinds of rank."""
        windows = []
        for kind, groups in zip(self.kinds, groups_per_card, strict=True):
            window = 0.0
            for stage in (each for each in EXCHANGE_OF if each in self.schedule.stages and each != "input_dist"):
                seconds = self._even_exchange_s(stage, kind, groups)
                busy = max(seconds.get(resource, 0.0) for resource in over)
                window += self.schedule.lines[stage][0].latency_s + max(seconds.values()) - busy
            windows.append(window)
        return min(windows)

    def _even_exchange_s(self, stage: str, kind: RankKind, groups_per_card: float = 1.0) -> dict[Resource, float]:
        """What each link is busy with in the exchange of a stage."""
        blocks, seconds = self.tables.whole, dict[Resource, float]()
        loads = EXCHANGE_OF[stage](self.tables, blocks, kind, self.batching, None)
        for of_term in exchange_split(self.schedule)(stage, loads, blocks, kind).values():
            for resource, load in of_term.items():
                groups = groups_per_card if resource.kind == "nic" else 1.0
                seconds[resource] = seconds.get(resource, 0.0) + self._even_seconds(resource, load, kind) * groups
        return seconds

    def _even_seconds(self, resource: Resource, load: BlockLoad, kind: RankKind) -> float:
        """What each instance of a link is busy with, of blocks that are spread evenly."""
        of_rank = float(np.sum(load.fixed + load.by_rows) / kind.world_size + np.sum(load.everywhere))
        instance = self.schedule.resource_of_rank(resource)
        return of_rank * float(np.bincount(instance).max())
