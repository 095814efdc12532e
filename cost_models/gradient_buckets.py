"""When gradients of a replicated dense part may be summed: bucket by bucket, as the backward pass fills them.

The sums of buckets follow each other. So they end no earlier than any bucket is ready, and it and all later ones are
summed. Of buckets that come evenly the first or the last holds the sums up most: what a bucket waits for and what was
summed before it both grow by equal steps.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cost_models.dense_size import DenseSize
from cost_models.shards import Floats, Ints
from cost_models.workload.formats import wire_bytes
from cost_models.workload.models import Workload

BUCKET_BYTES = 25e6
"""Gradients that are summed at once (`bucket_cap_mb` of PyTorch's DistributedDataParallel)."""
MOST_BUCKETS = 16
"""Buckets of one part at most; assumed, as whoever trains more sets larger ones."""
Number = float | Floats
"""Of one model, or [n] of many."""


@dataclass(frozen=True)
class GradientBucket:
    """A bucket that may hold the sums up."""

    ready_s: Number
    """Seconds from the begin of what needs vectors until it is filled."""
    summed_share: Number
    """Share of all gradients that is in the buckets before it."""
    buckets_after: Number

    def sums_begin_s(self, sums_s: Number, latency_s: Number) -> Number:
        """When sums of all gradients, which keep the links busy for `sums_s`, would begin to end as they do where this
        bucket holds them up: it and each one after it also waits `latency_s` for its first byte."""
        begin_s: Number = self.ready_s - self.summed_share * sums_s + self.waits_s(latency_s)
        return begin_s

    def waits_s(self, latency_s: Number) -> Number:
        """What it and each one after it wait for first bytes."""
        waits_s: Number = (1 + self.buckets_after) * latency_s
        return waits_s

    @classmethod
    def of_models(cls, buckets: Sequence["GradientBucket"], which: Ints) -> "GradientBucket":
        """That of n models, each with one of these."""
        columns = zip(*((each.ready_s, each.summed_share, each.buckets_after) for each in buckets), strict=True)
        return cls(*(np.array(column)[which] for column in columns))


LOOKED_AT = 4
"""Buckets of a model that are looked at: the first and the last of two parts."""
NOTHING_SUMMED = GradientBucket(0.0, 0.0, -1)


@dataclass(frozen=True)
class Backward:
    """Layers and the seconds of their backward pass."""

    size: DenseSize
    seconds: float

    def bucket_count(self, gradient_bytes: float) -> int:
        """In how many buckets their gradients are summed; 0 where they have none."""
        return min(math.ceil(self.size.parameters * gradient_bytes / BUCKET_BYTES), MOST_BUCKETS)


def holding_up(
    workload: Workload, begun_s: float, last: Backward, met: Backward, others: int
) -> tuple[GradientBucket, ...]:
    """The buckets that may hold the sums up, where the backward pass begins at `begun_s`: the first and the last of the
    last layers, and of those that meet vectors, which follow. `others`, the parameters that need no vectors, are summed
    with the last of them. Four for every model: where there are fewer, the last one again.
    """
    gradient, whole = wire_bytes(workload.dense.gradient_format), last.size.parameters + met.size.parameters + others
    of_last, of_met = last.bucket_count(gradient), max(met.bucket_count(gradient), 1 if others else 0)
    if not whole:
        return (NOTHING_SUMMED,) * LOOKED_AT
    share, share_of_met, ended_s = last.size.parameters / whole, met.size.parameters / whole, begun_s + last.seconds
    found = []
    if of_last:
        found.append(GradientBucket(begun_s + last.seconds / of_last, 0.0, of_last + of_met - 1))
        found.append(GradientBucket(ended_s, share * (of_last - 1) / of_last, of_met))
    if of_met:
        found.append(GradientBucket(ended_s + met.seconds / of_met, share, of_met - 1))
        found.append(GradientBucket(ended_s + met.seconds, share + share_of_met * (of_met - 1) / of_met, 0))
    return tuple(found + found[-1:] * (LOOKED_AT - len(found)))
