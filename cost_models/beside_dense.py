"""What runs beside the dense part of a step, and for how long others hide it: ids of the next batch, sums of gradients.

What shows of ids under the sparse-dist pipeline, and of sums of gradients, is beside the update of the placement itself
(`StepSetting.update_hides_ids`, `update_hides_sums`). Other windows, as of sums where copies of tables are cut over
their replicas, depend on loads of tables that are not placed yet: they are those of tables that are spread evenly, in
HBM, so that what a placement takes stays a sum over its tables. Seconds of tables may be those of many models, [n]
each.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cost_models.cut_copies import CutShares, Span, cut_shares
from cost_models.dense import DensePass, SumsEnd
from cost_models.gradient_buckets import GradientBucket
from cost_models.kinds import RankKind
from cost_models.loads import BlockLoad
from cost_models.memory import Batching
from cost_models.replication import Replication
from cost_models.resources import Resource
from cost_models.schedule import Schedule
from cost_models.shards import Blocks, Floats, Ints
from cost_models.stages import CUT_TERMS
from cost_models.step_exchanges import EXCHANGE_OF, exchange_split
from cost_models.tables import Tables
from cost_models.workload.models import Workload

Seconds = float | Floats
"""Of one model, or [n] of many."""
SHORTEST_S = 1e-30
"""Instead of no time at all, to divide by."""


@dataclass(frozen=True)
class DensePasses:
    """What windows depend on of the `DensePass` of n models, [n] each."""

    rest_s: Floats
    rest_forward_s: Floats
    buckets: tuple[GradientBucket, ...]
    sums: ClassVar[None] = None
    """They are of models with a replicated dense part."""

    @classmethod
    def of(cls, passes: Sequence[DensePass], which: Ints) -> "DensePasses":
        """Of models that each have one of these passes."""
        rest_s, forward_s = (
            np.array(seconds)[which] for seconds in ([p.rest_s for p in passes], [p.rest_forward_s for p in passes])
        )
        buckets = zip(*(each.buckets for each in passes), strict=True)
        return cls(rest_s, forward_s, tuple(GradientBucket.of_models(own, which) for own in buckets))


@dataclass(frozen=True)
class EvenTables:
    """Tables with equally many copies, spread evenly over the ranks of a group of their own; K kinds of rank."""

    tables: Tables
    blocks: Blocks
    """Each of them as one."""
    kinds: tuple[RankKind, ...]
    batching: Batching
    schedule: Schedule
    replication: Replication | None
    """None where the ranks of this group alone hold them."""

    @property
    def copied_over(self) -> tuple[Resource, ...]:
        """The links between the ranks that hold the same shards."""
        return () if self.replication is None else self.replication.copied_over

    @property
    def cut_wait_s(self) -> float:
        """How long the first bytes of cutting copies over their replicas, or of gathering them, are waited for."""
        if self.replication is None:
            return 0.0
        ranks = self.kinds[0].world_size
        return self.replication.cut_wait_s(self.schedule.cut_lines, self.tables, self.blocks, self.batching, ranks)

    def cut_s(self, number: int) -> dict[Resource, float]:
        """What cutting copies over their replicas, and gathering them, loads on each link of a kind of rank."""
        seconds = dict[Resource, float]()
        if self.replication is not None:
            kind, term = self.kinds[number], CUT_TERMS["dense"]
            for link, load in self.replication.cut_shards(self.tables, self.blocks, number, self.batching).items():
                for column, factor in self.schedule.targets(term, link, number):
                    resource = self.schedule.columns[column].resource
                    of_rank = float(np.sum(load.by_rows)) / kind.world_size * factor
                    seconds[resource] = seconds.get(resource, 0.0) + of_rank * self._ranks_sharing(resource)
        return seconds

    def latency_s(self, stage: str) -> float:
        """The least that the exchange of a stage waits for; 0 where there is none."""
        lines = self.schedule.lines.get(stage)
        return lines[0].latency_s if lines else 0.0

    def exchange_s(self, stage: str, number: int) -> Mapping[Resource, Seconds]:
        """What each link of a kind of rank is busy with in the exchange of a stage."""
        kind, seconds = self.kinds[number], dict[Resource, float]()
        for resource, load, factor in self._loads(stage, number):
            of_rank = float(np.sum(load.fixed + load.by_rows) / kind.world_size + np.sum(load.everywhere))
            seconds[resource] = seconds.get(resource, 0.0) + of_rank * self._ranks_sharing(resource) * factor
        return seconds

    def exchange_of_each_s(self, stage: str, number: int) -> dict[Resource, Floats]:
        """[n] the part of each of the tables."""
        kind, seconds = self.kinds[number], dict[Resource, Floats]()
        for resource, load, factor in self._loads(stage, number):
            of_rank = (load.fixed + load.by_rows) / kind.world_size + load.everywhere + np.zeros(len(self.blocks))
            before = seconds.get(resource, np.zeros(len(self.blocks)))
            seconds[resource] = before + of_rank * self._ranks_sharing(resource) * factor
        return seconds

    def _loads(self, stage: str, number: int) -> Iterator[tuple[Resource, BlockLoad, float]]:
        """What blocks ask of a kind of rank in the exchange of a stage: of which resource, and how many seconds of it
        each of theirs is."""
        if stage not in self.schedule.stages:
            return
        kind = self.kinds[number]
        loads = EXCHANGE_OF[stage](self.tables, self.blocks, kind, self.batching, None)
        for term, of_term in exchange_split(self.schedule)(stage, loads, self.blocks, kind).items():
            for resource, load in of_term.items():
                for column, factor in self.schedule.targets(term, resource, number):
                    yield self.schedule.columns[column].resource, load, factor

    def carrier(self, stage: str, resource: Resource) -> Resource:
        """What carries the traffic of a link in the exchange of a stage."""
        return self.schedule.carrier(stage, resource)

    def _ranks_sharing(self, resource: Resource) -> float:
        """Ranks that use one instance of a link."""
        return float(np.bincount(self.schedule.resource_of_rank(resource)).max())


@dataclass(frozen=True)
class BesideDense:
    """The windows of one workload on one cluster."""

    workload: Workload
    parts: tuple[EvenTables, ...]
    """Its tables; those with the fewest copies first."""
    dense: tuple[DensePass | DensePasses, ...]
    """[K] the dense part on each kind of rank."""
    sums_latency_s: Seconds
    """The wait of a sum of gradients for its first byte."""
    overhead_s: Seconds
    """The fixed overhead."""
    updates_s: tuple[Seconds, ...]
    """[K] seconds on each device of the update of all tables."""
    modules_s: tuple[float, ...]
    """[K] seconds on each device of the backward pass of its tower's module, after the gradients of vectors came."""
    module_gradients_s: tuple[float, ...] | None = None
    """[K] seconds of the exchange of gradients among peers, of what modules give; None where vectors are exchanged."""

    def hidden_s(self) -> Seconds:
        """How long the fixed overhead hides the next batch's ids, beside the update in whose stage they show and the
        dense part, less its forward pass: ids travel from one forward pass to the lookup that needs them. They also do
        while ranks wait for the first byte of an all-reduce after the update; the same wait for gradients is as long as
        their own.

        Under the prefetch pipeline, a step earlier, the lookup, in whose stage they show as well, the wait for the
        first byte of vectors and the forward pass hide them too, and cache misses beside them. It is the least of all
        kinds of rank.
        """
        is_earlier = self.workload.pipeline == "prefetch"
        hidden = list[Seconds]()
        for dense, module_s in zip(self.dense, self.modules_s, strict=True):
            hidden.append(module_s - (0.0 if is_earlier else dense.rest_forward_s))
        return least(hidden) + self._first_bytes_s + self.overhead_s

    def waits_s(self) -> Seconds:
        """The part of it that no sums of gradients outlast: the overhead, and waits for first bytes."""
        return self._first_bytes_s + self.overhead_s

    @property
    def _first_bytes_s(self) -> float:
        waits_s = self.parts[0].latency_s("all_reduce")
        return waits_s + (self.parts[0].latency_s("output_dist") if self.workload.pipeline == "prefetch" else 0.0)

    def sums_begin_s(self, sums_s: Iterable[Seconds]) -> list[Seconds]:
        """[K] seconds into the dense part before gradients are summed, which takes `sums_s` [K] of the links; below
        zero where more of the sums goes on after the dense part than it takes until they begin.

        Sums that are not done when the gradients of vectors leave share the links with these, which then come so much
        later; those that are not done by then go on beside modules and the update of the embeddings.
        """
        begin = list[Seconds]()
        for k, (dense, taken_s) in enumerate(zip(self.dense, sums_s, strict=True)):
            sums = dense.sums or self._sums_of_buckets(dense, taken_s)
            begin.append(dense.rest_s + self._shown_s(k, dense.rest_s, sums) - taken_s)
        return begin

    def left_s(self, sums_s: Iterable[Seconds], dense_s: Seconds) -> list[Seconds]:
        """[K] seconds from the begin of the update until gradients are summed, after a dense part that takes
        `dense_s`; below zero where they are before. What sums wait for beside the exchange of gradients, instead of
        keeping links busy, is not hidden by that: a placement may exchange less."""
        wait_s = self.parts[0].latency_s("gradient_dist")
        return [
            (dense.sums or self._sums_of_buckets(dense, taken_s)).end_s - dense_s - wait_s - module_s
            for dense, taken_s, module_s in zip(self.dense, sums_s, self.modules_s, strict=True)
        ]

    @property
    def _schedule(self) -> Schedule:
        """The same of all parts."""
        return self.parts[0].schedule

    def _sums_of_buckets(self, dense: DensePass | DensePasses, sums_s: Seconds) -> SumsEnd:
        """When gradients of a replicated dense part are summed. Each sum waits for its first byte, while links are
        idle: of the waits from the bucket on that holds the sums up, as much as comes after `rest_s`."""
        end_s: Seconds = -np.inf
        busy_s: Seconds = 0.0
        for bucket in dense.buckets:
            own_end_s = sums_s + bucket.sums_begin_s(sums_s, self.sums_latency_s)
            left_s = np.maximum(own_end_s - dense.rest_s, 0.0)
            share = np.minimum(left_s / np.maximum(own_end_s - bucket.ready_s, SHORTEST_S), 1.0)
            own_busy_s = left_s - share * bucket.waits_s(self.sums_latency_s)
            busy_s = np.where(own_end_s > end_s, own_busy_s, busy_s)
            end_s = np.maximum(end_s, own_end_s)
        return SumsEnd(end_s, busy_s)

    def _gradients_s(self, kind: int) -> Seconds:
        """Seconds of the exchange of gradients after the dense part."""
        if self.module_gradients_s is not None:
            return self.module_gradients_s[kind]
        return _largest(self._exchange_s("gradient_dist", kind).values())

    def _shown_s(self, kind: int, rest_s: Seconds, sums: SumsEnd) -> Seconds:
        """For how long sums of gradients keep a step waiting after `rest_s`: the exchange of gradients comes later by
        what keeps the links of both busy; the rest goes on beside it, modules and the update with its launch, in whose
        stage it may show (`left_s`)."""
        shared_s = np.minimum(sums.busy_after_s, self._gradients_s(kind))
        if self._schedule.update_hides_sums:
            return shared_s
        return np.maximum(shared_s, sums.end_s - rest_s + shared_s - self.after_s(kind))

    def after_s(self, kind: int) -> Seconds:
        """Seconds from the end of `rest_s` to that of the update of embeddings, beside which sums go on."""
        exchange_s = self.parts[0].latency_s("gradient_dist") + self._gradients_s(kind)
        return exchange_s + self._update_s(kind) + self.modules_s[kind]

    def _update_s(self, kind: int) -> Seconds:
        """Seconds of the update of the embeddings on a device, with its launch."""
        return self.parts[0].kinds[kind].update_launch_s + self.updates_s[kind]

    @property
    def copied_over(self) -> tuple[Resource, ...]:
        """The links between the ranks that hold the same shards of some tables."""
        return tuple(dict.fromkeys(resource for part in self.parts for resource in part.copied_over))

    def cut_shares(self, sums_s: Sequence[float]) -> CutShares:
        """What each stage takes of cutting and gathering copies, where sums of gradients keep links busy for `sums_s`
        [K] beside the dense part: those of the kind of rank whose links are idle for the least time."""
        spans = [self._cut_spans(k, taken_s) for k, taken_s in enumerate(sums_s)]
        least = int(np.argmin([sum(span.idle_s for span in (*before, *after)) for before, after in spans]))
        cut_s = dict[Resource, float]()
        for part in self.parts:
            for resource, seconds in part.cut_s(least).items():
                cut_s[resource] = cut_s.get(resource, 0.0) + seconds
        wait_s = sum(part.cut_wait_s for part in self.parts)
        return cut_shares(*spans[least], wait_s, max(cut_s.values(), default=0.0) / 2)

    def _cut_spans(self, kind: int, sums_s: float) -> tuple[list[Span], list[Span]]:
        """The exchanges and passes of a kind of rank from the lookup to the backward pass, and from there to the
        update, with the time in which the links that copies are cut over are idle."""
        dense, stages = self.dense[kind], self.parts[0].schedule.stages
        forward_s = float(dense.rest_forward_s)
        backward_s = float(dense.rest_s) - forward_s
        before, after = list[Span](), [Span("dense", backward_s, max(backward_s - sums_s, 0.0))]
        for stage in (each for each in EXCHANGE_OF if each in stages and each != "input_dist"):
            seconds = self._exchange_s(stage, kind)
            over = [self.parts[0].carrier(stage, resource) for resource in self.copied_over]
            busy = {resource: float(seconds.get(resource, 0.0)) for resource in over}
            busy_s = max(busy.values())
            latency_s = max(part.latency_s(stage) for part in self.parts)
            whole_s = max((float(each) for each in seconds.values()), default=0.0)
            spans = before if stage.startswith("output") else after
            spans.append(Span(stage, latency_s, latency_s, is_constant=True))
            if over != list(self.copied_over):  # all cards of a tower are one, of which few may have copies
                spans.append(Span(stage, whole_s, whole_s - busy_s, is_constant=True))
            else:
                beside_s = busy_s * self._slower_in_cut(kind, max(busy, key=busy.__getitem__))
                spans.append(Span(stage, whole_s, whole_s - busy_s, beside_s))
        return [*before, Span("dense", forward_s, forward_s)], after

    def _slower_in_cut(self, kind: int, link: Resource) -> float:
        """How much longer a byte keeps a link busy in a cut of copies than in an exchange: the most of all tables."""
        rates = [(part.kinds[kind], part.replication.copies.kinds[kind]) for part in self.parts if part.replication]
        if link.kind == "link":
            return max(own.link_all_to_all / cut.link_all_reduce for own, cut in rates)
        return max(own.nic_all_to_all / cut.nic_all_reduce for own, cut in rates)

    def _exchange_s(self, stage: str, kind: int) -> dict[Resource, Seconds]:
        """What each link of a kind of rank is busy with in the exchange of a stage."""
        seconds = dict[Resource, Seconds]()
        for part in self.parts:
            for resource, busy_s in part.exchange_s(stage, kind).items():
                carrier = self.parts[0].carrier(stage, resource)
                seconds[carrier] = seconds.get(carrier, 0.0) + busy_s
        return seconds


def _largest(seconds: Iterable[Seconds]) -> Seconds:
    """The most of some seconds, model by model; 0 of none."""
    largest: Seconds = 0.0
    for each in seconds:
        largest = np.maximum(largest, each)
    return largest


def least(seconds: Iterable[Seconds]) -> Seconds:
    """The least of some seconds, model by model."""
    least: Seconds = np.inf
    for each in seconds:
        least = np.minimum(least, each)
    return least
