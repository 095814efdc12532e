"""What goes on beside a step, which is no shorter: the copy of a batch, or what the host of one rank does.

Of several such things the longest alone is seen. It has a stage of its own, the last one, that shows what the others
do not hide of it: the step stays the sum of its stages.
"""

from dataclasses import dataclass

import numpy as np

from cost_models.resources import PCIE, Resource
from cost_models.shards import Floats

BATCH_COPY = "batch_copy"
"""The stage of a batch that takes longer to come to the devices than everything else in a step."""
HOST = "host"
"""The stage of a host that works longer on a step than its device does at the same time."""


@dataclass(frozen=True)
class Floor:
    """The longest of what goes on beside a step."""

    stage: str
    """Where what others do not hide of it shows."""
    seconds: Floats
    """[W] that it takes on each rank."""

    @classmethod
    def of(cls, copy_seconds: Floats, host_s: float | None, *, copies_beside: bool) -> "Floor | None":
        """The longer of the copy of a batch, [W] seconds, where that goes on beside a step, and of the host's work,
        where that does; None where neither does."""
        beside = [cls(BATCH_COPY, copy_seconds)] if copies_beside else []
        if host_s is not None:
            beside.append(cls(HOST, np.full_like(copy_seconds, host_s)))
        return max(beside, key=lambda each: each.longest_s, default=None)

    @property
    def longest_s(self) -> float:
        """No step is shorter."""
        return float(self.seconds.max())

    @property
    def resource(self) -> Resource | None:
        """What it waits for; None for the host itself."""
        return PCIE if self.stage == BATCH_COPY else None

    @property
    def words(self) -> str:
        """What it is."""
        return "the copy of a batch to the devices" if self.stage == BATCH_COPY else "what the host does"

    def left_s(self, others_s: float) -> Floats:
        """[W] seconds of it that stages do not hide which take so long together."""
        return np.maximum(self.seconds - others_s, 0.0)
