"""Costs that are straight lines in the place of bent laws: the lines of a model, and those of a placement.

Costs that add up over tables need straight lines, and the law of an exchange is the least of several. So costs are
those at one line for each stage that exchanges (`protocols`), and what a placement takes is evaluated at the lines with
which its own stages end first: that is the law itself. See docs/decisions/0021-lines-of-laws.md.
"""

import copy
import itertools
from abc import abstractmethod
from collections.abc import Sequence
from typing import Self

import numpy as np

from cost_models.averaging import AveragingLine
from cost_models.batch_copy import COPY_CONTENTION, CopyLine
from cost_models.evaluation import Evaluation
from cost_models.exchange_lines import ExchangeLine
from cost_models.joint_lines import JointLine
from cost_models.model import CostModel
from cost_models.shards import Floats, PlacedShards

Line = ExchangeLine | AveragingLine | CopyLine | JointLine


class CostsAtLines(CostModel):
    """A cost model some of whose stages have bent laws."""

    _beside: Floats
    """[S] seconds that a stage takes whatever its loads, without the latencies of lines."""

    @abstractmethod
    def lines_of(self, stage: str) -> Sequence[Line]:
        """The lines of the law of a stage; none is shorter than the first for no bytes."""

    def _take_lines(self, protocols: tuple[int, ...]) -> None:
        self.protocols, self.constants = protocols, self._beside.copy()
        for stage, number in zip(self.protocol_stages, protocols, strict=True):
            self.constants[self.stages.index(stage)] += self.lines_of(stage)[number].latency_s

    @property
    def latencies(self) -> Floats:
        """[S] seconds of the collectives at these lines; copies of batches that are waited for aside."""
        latencies_s = self.constants[: len(self._beside)] - self._beside
        if COPY_CONTENTION in self.stages:
            latencies_s[self.stages.index(COPY_CONTENTION)] = 0.0
        return latencies_s

    def _own_line(self, stage: str) -> int:
        """The number of the line that these take."""
        return self.protocols[self.protocol_stages.index(stage)]

    @property
    def all_protocols(self) -> tuple[tuple[int, ...], ...]:
        """Every choice of a line for each stage that exchanges; the last stage's changes first."""
        return tuple(itertools.product(*(range(len(self.lines_of(stage))) for stage in self.protocol_stages)))

    def at_protocols(self, protocols: tuple[int, ...]) -> Self:
        """The same costs with other lines for the stages that exchange."""
        other = copy.copy(self)
        other._take_lines(protocols)
        return other

    def linearised_at(self, placed: PlacedShards) -> Self:
        """The model at the lines with which each stage of a placement ends first; the first of equals."""
        if len(self.all_protocols) == 1:
            return self
        counts = [len(self.lines_of(stage)) for stage in self.protocol_stages]
        where, seconds = [self.stages.index(stage) for stage in self.protocol_stages], []
        for number in range(max(counts)):
            model = self.at_protocols(tuple(min(number, count - 1) for count in counts))
            load, none = model._placed(placed, model.exchange_costs)
            seconds.append(model._evaluation(load, none).stage_seconds[where])
        return self.at_protocols(tuple(np.argmin(seconds, axis=0).tolist()))

    def evaluate(self, placed: PlacedShards, slowness: Floats | None = None) -> Evaluation:
        """Stage times and bytes of a placement, summed shard by shard, by the laws of its exchanges."""
        return super(CostsAtLines, self.linearised_at(placed)).evaluate(placed, slowness)

    def evaluate_nothing(self) -> Evaluation:
        """The stages if no table were placed, and nothing exchanged."""
        return super(CostsAtLines, self.at_protocols((0,) * len(self.protocol_stages))).evaluate_nothing()
