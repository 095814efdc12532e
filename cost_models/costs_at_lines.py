"""Costs that are straight lines in the place of piecewise-linear laws: the lines of a model, and those of a placement.

Costs that add up over tables need straight lines, and the law of an exchange is the least of several. So costs are
those at one line for each stage that exchanges (`protocols`), and what a placement takes is evaluated at the lines with
which its own stages end first: that is the law itself. One line of each stage is of placements that exchange nothing
(see `exchanged`). See docs/decisions/0021-lines-of-laws.md.
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
from cost_models.exchange_lines import Case, ExchangeLine
from cost_models.exchanged import OUTPUTS, Exchanged
from cost_models.first_answers import BEYOND, CACHE_FETCH, AnswerLine, asking, first_answer_s
from cost_models.joint_lines import JointLine
from cost_models.kinds import RankKind
from cost_models.model import CostModel
from cost_models.prefetch_lines import PREFETCH, PrefetchLine
from cost_models.shards import Blocks, Floats, PlacedShards
from cost_models.stages import LOOKUP, UPDATE

OwnLine = ExchangeLine | AveragingLine | CopyLine | AnswerLine | PrefetchLine
Line = OwnLine | JointLine


class CostsAtLines(CostModel):
    """A cost model some of whose stages have piecewise-linear laws."""

    _beside: Floats
    """[S] seconds that a stage takes whatever its loads, without the latencies of lines."""
    _base_loads: Floats
    """[K, C] loads before any table is placed, without what sums around all ranks wait for; of what is prefetched all
    that there are shares of, in each stage in which one shows."""
    _unshared_loads: Floats
    """[K, C] of what is prefetched the rest."""
    _answer_loads: Floats
    """[K, C] of what is prefetched what placements wait for first answers, before shares (see `first_answers`)."""
    kinds: tuple[RankKind, ...]
    exchanged: Exchanged | None = None
    """The lines of stages that exchange, by whether anything is exchanged; None where all are of whatever is."""

    def lines_of(self, stage: str) -> Sequence[Line]:
        """The lines of the law of a stage; none is shorter than the first for no bytes, but one of no exchange."""
        return self.own_lines_of(stage)

    @abstractmethod
    def own_lines_of(self, stage: str) -> Sequence[OwnLine]:
        """Those of the tables with the fewest copies, where some have more."""

    def _take_lines(self, protocols: tuple[int, ...]) -> None:
        self.protocols, self.constants = protocols, self._beside.copy()
        for stage, number in zip(self.protocol_stages, protocols, strict=True):
            if stage in self.stages:
                self.constants[self.stages.index(stage)] += self.lines_of(stage)[number].latency_s
        own = self.exchanged
        self.base_loads = self._base_loads if own is None else own.base_loads(self._base_loads, self.case)
        if PREFETCH in self.protocol_stages:
            loads = self.base_loads + self.answer_loads(protocols)
            self.base_loads = loads * self.shares_at(protocols) + self._unshared_loads

    @abstractmethod
    def prefetch_shares(self, line: PrefetchLine) -> Floats:
        """[C] what shows in each column of what it carries at a line."""

    def shares_at(self, protocols: tuple[int, ...]) -> Floats:
        """[C] what shows in each column of what it carries at some lines: less than 1 of what is prefetched."""
        if PREFETCH not in self.protocol_stages:
            return super().shares_at(protocols)
        line = self.own_lines_of(PREFETCH)[protocols[self.protocol_stages.index(PREFETCH)]]
        assert isinstance(line, PrefetchLine)
        return self.prefetch_shares(line)

    def answer_loads(self, protocols: tuple[int, ...]) -> Floats:
        """[K, C] what ranks wait for first answers beside the step before, at some lines, before shares of it."""
        asks = CACHE_FETCH in self.protocol_stages and protocols[self.protocol_stages.index(CACHE_FETCH)]
        return self._answer_loads if asks else np.zeros_like(self._answer_loads)

    @property
    def answer_columns(self) -> list[int]:
        """The columns in which these waits show; other lines change what every rank has of blocks in them."""
        return np.flatnonzero(self._answer_loads.any(axis=0)).tolist()

    @property
    def latencies(self) -> Floats:
        """[S] seconds of collectives and first answers at these lines; copies of batches that are waited for aside."""
        latencies_s = self.constants[: len(self._beside)] - self._beside
        if COPY_CONTENTION in self.stages:
            latencies_s[self.stages.index(COPY_CONTENTION)] = 0.0
        return latencies_s

    def _own_line(self, stage: str) -> int:
        """The number of the line that these take."""
        return self.protocols[self.protocol_stages.index(stage)]

    def _add_waits(self, blocks: Blocks, kind: int, parts: Sequence[Floats]) -> None:
        """Add to what blocks cost on a kind of rank, [n, C] each of the three parts, what they wait for."""
        self._add_waits_of_exchanges(blocks, kind, parts)
        if CACHE_FETCH in self.protocol_stages and not self._own_line(CACHE_FETCH):
            which, beyond = np.flatnonzero(asking(blocks, self.kinds)), BEYOND * self._answer_loads[kind]
            if CACHE_FETCH in self.stages:
                stage = self.stages.index(CACHE_FETCH)
                of_stage = np.array([column.stage == stage for column in self.columns])
                beyond = np.where(of_stage, BEYOND * first_answer_s(self.kinds), 0.0)
            parts[2][which] += beyond

    def _add_waits_of_exchanges(self, blocks: Blocks, kind: int, parts: Sequence[Floats]) -> None:
        if self.exchanged is not None:
            stages = [self.stages[column.stage] for column in self.columns]
            self.exchanged.add_waits(parts, blocks, kind, self.case, stages)

    @property
    def case(self) -> Case:
        """What placements these lines are of, by what they exchange."""
        return "apart" if self.exchanged is None else self.exchanged.case_at(self._own_line(OUTPUTS))

    @property
    def around(self) -> tuple[int, ...] | None:
        """The same lines of placements with sums around all ranks, where these are of those without any."""
        own, stages = self.exchanged, zip(self.protocol_stages, self.protocols, strict=True)
        if own is None or not own.rings or self.case != "apart":
            return None
        return tuple(number - len(own.usual[stage]) if stage in own.usual else number for stage, number in stages)

    def beyond(self, blocks: Blocks) -> Floats:
        """[n, C] what blocks cost every rank at these lines as they are of placements of another case."""
        parts = [np.zeros((len(blocks), len(self.columns))) for _ in range(3)]
        self._add_waits_of_exchanges(blocks, 0, parts)
        return parts[2]

    @property
    def all_protocols(self) -> tuple[tuple[int, ...], ...]:
        """Every choice of a line for each stage that exchanges; the last stage's changes first."""
        counts = {stage: len(self.lines_of(stage)) for stage in self.protocol_stages}
        if self.exchanged is None:
            return tuple(itertools.product(*map(range, counts.values())))
        others = {stage: count for stage, count in counts.items() if stage not in self.exchanged.usual}
        return self.exchanged.protocols(others, self.protocol_stages)

    @property
    def has_bent_laws(self) -> bool:
        """Whether a stage has several lines for whoever exchanges anything."""
        lines = {} if self.exchanged is None else self.exchanged.usual
        return any(len(lines.get(stage, self.lines_of(stage))) > 1 for stage in self.protocol_stages)

    def _numbers_of(self, placed: PlacedShards) -> list[Sequence[int]]:
        """The lines of each stage that exchanges, by number, that a placement may take."""
        own = self.exchanged
        every: list[Sequence[int]] = [range(len(self.lines_of(stage))) for stage in self.protocol_stages]
        if CACHE_FETCH in self.protocol_stages:
            every[self.protocol_stages.index(CACHE_FETCH)] = [int(asking(placed.blocks, self.kinds).any())]
        if own is None:
            return every
        case, stages = own.case_of(placed.blocks), zip(self.protocol_stages, every, strict=True)
        return [own.numbers(stage, case) if stage in own.usual else numbers for stage, numbers in stages]

    def at_protocols(self, protocols: tuple[int, ...]) -> Self:
        """The same costs with other lines for the stages that exchange."""
        other = copy.copy(self)
        other._take_lines(protocols)
        return other

    def linearised_at(self, placed: PlacedShards) -> Self:
        """The model at the lines with which each stage of a placement ends first; the first of equals."""
        if len(self.all_protocols) == 1:
            return self
        numbers = self._numbers_of(placed)
        where, seconds = [self.stages.index(stage) for stage in self.protocol_stages if stage in self.stages], []
        for n in range(max(map(len, numbers[: len(where)]), default=0)):
            model = self.at_protocols(tuple(of_stage[min(n, len(of_stage) - 1)] for of_stage in numbers))
            load, none = model._placed(placed, model.exchange_costs)
            seconds.append(model.evaluate_loads(load, none).stage_seconds[where])
        first = np.argmin(seconds, axis=0).tolist() if seconds else []
        first += [0] * (len(numbers) - len(first))
        found = self.at_protocols(tuple(of_stage[n] for of_stage, n in zip(numbers, first, strict=True)))
        if PREFETCH not in self.protocol_stages:
            return found
        return found._with_best_share(found._placed(placed, found.block_costs)[0])

    def other_shares(self, protocols: tuple[int, ...]) -> list[tuple[int, ...]]:
        """The lines that differ in nothing but in what is prefetched: what shows in which stage, and first answers."""
        if PREFETCH not in self.protocol_stages:
            return []
        stages = zip(self.protocol_stages, protocols, strict=True)
        numbers = [(n,) if stage in self.stages else range(len(self.lines_of(stage))) for stage, n in stages]
        return [other for other in itertools.product(*numbers) if other != protocols]

    def _with_best_share(self, load: Floats) -> Self:
        """The same at the share of what is prefetched with which lookup and update take least, where ranks bring these
        loads [W, C] at this one; the first of equals."""
        if PREFETCH not in self.protocol_stages:
            return self
        stages, seconds = [self.stages.index(LOOKUP), self.stages.index(UPDATE)], list[float]()
        choices = [(*self.protocols[:-1], n) for n in range(len(self.lines_of(PREFETCH)))]  # the last is the share's
        unshared, none = self._unshared_loads[self.kind_of_rank], np.zeros((len(load), 0))
        whole = (load - unshared) / self.shares_at(self.protocols)
        for choice in choices:
            of_stages = self.evaluate_loads(whole * self.shares_at(choice) + unshared, none).stage_seconds
            seconds.append(float(of_stages[stages].sum()))
        return self.at_protocols(choices[int(np.argmin(seconds))])

    def evaluate(self, placed: PlacedShards, slowness: Floats | None = None) -> Evaluation:
        """Stage times and bytes of a placement, summed shard by shard, by the laws of its exchanges."""
        return super(CostsAtLines, self.linearised_at(placed)).evaluate(placed, slowness)

    def evaluate_nothing(self) -> Evaluation:
        """The stages if no table were placed, and nothing exchanged."""
        others = [each for each in self.all_protocols if self.at_protocols(each).case != "around"]
        return self.at_protocols(min(others, key=self._latency_s))._of_nothing()

    def _of_nothing(self) -> Evaluation:
        """The stages if no table were placed, at these lines of exchanges."""
        own = self._with_best_share(self.base_loads[self.kind_of_rank])
        return super(CostsAtLines, own).evaluate_nothing()

    def without_tables(self, placed: PlacedShards) -> Evaluation:
        """The stages of a placement if its tables took nothing, but were waited for where they exchange."""
        first = tuple(numbers[0] for numbers in self._numbers_of(placed))
        return self.at_protocols(first)._of_nothing()

    def _latency_s(self, protocols: tuple[int, ...]) -> float:
        """What the lines of all stages wait for."""
        stages = zip(self.protocol_stages, protocols, strict=True)
        return sum(self.lines_of(stage)[number].latency_s for stage, number in stages)
