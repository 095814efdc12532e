"""From the stages of a run to the ways through it: under which plans each can run, and which of them is taken."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Literal

from planner.capacity.prices import bill
from planner.document.plan import Plan
from planner.runs.paths import Candidate, Graph, Leg, Rates, Way
from planner.runs.plans import Move, RunPlans, Setting, Timed
from planner.runs.run import Evaluation
from planner.runs.schedule import Schedule, ScheduledStage

Manner = Literal["best", "one", "each"]
MOST_OTHERS = 8
"""Plans of other batches that a stage may run under, where there are more batches: spread evenly over them."""
JOULES_PER_KWH = 3.6e6


@dataclass
class RunChoices:
    """The ways through a run."""

    plans: RunPlans
    schedule: Schedule
    _rates: dict[int, Rates] = field(default_factory=dict)

    def rates(self, nodes: int) -> Rates:
        """What a second on so many nodes takes of each figure."""
        if nodes not in self._rates:
            cost = bill(self.plans.inputs.topology(nodes), self.plans.inputs.prices)
            watts = None if cost.kilowatts is None else cost.kilowatts * 1e3
            self._rates[nodes] = {
                "seconds": 1.0,
                "usd": None if cost.usd_per_hour is None else cost.usd_per_hour / 3600,
                "kwh": None if watts is None else watts / JOULES_PER_KWH,
                "kg_co2e": None if cost.kg_co2e_per_hour is None else cost.kg_co2e_per_hour / 3600,
            }
        return self._rates[nodes]

    def best(self, manner: Manner, nodes: Sequence[int] | None = None, *, limited: bool = True) -> Way | None:
        """The best way with one plan for each number of nodes, with each stage's own, or with any; None where none
        keeps the limits, where `limited`. `nodes` of all stages, where these are not to be chosen."""
        run = self.plans.inputs.run
        graph = Graph(
            stages=self.schedule.stages,
            candidates=tuple(
                tuple(self._candidates(stage, manner, (nodes[i],) if nodes else stage.node_choices))
                for i, stage in enumerate(self.schedule.stages)
            ),
            move=self._move,
            evaluation_s=self.evaluation_s,
            rates=self.rates,
            objective=run.objective,
            limits=run.limits.stated if limited else {},
        )
        way = graph.best()
        return way if way is None else self._followed(graph, way)

    def _candidates(self, stage: ScheduledStage, manner: Manner, nodes: Sequence[int]) -> list[Candidate]:
        found: list[Candidate] = []
        for count in nodes:
            setting = self.plans.setting(stage, count)
            made_for = [setting]
            if manner == "one":
                made_for = self._one(count)
            elif manner == "best":
                made_for += [other for other in self._others(count) if other != setting]
            seen: set[str] = set()
            for other in made_for:
                candidate = self.candidate(stage, setting, other)
                if isinstance(candidate, Candidate) and (key := self.plans.fingerprint(candidate.plan)) not in seen:
                    seen.add(key)
                    found.append(candidate)
        return found

    def candidate(self, stage: ScheduledStage, setting: Setting, made_for: Setting) -> Candidate | str:
        """A stage under the plan that was made for a setting; in words, why it cannot run so."""
        plan = self.plans.own(made_for, self._where(made_for))
        if plan.objective is None:
            why = plan.infeasibility.summary if plan.infeasibility else "no placement was found, nor a proof of none"
            return f"there is no plan: {why}"
        timed = self.plans.timed(plan, setting, stage.passes, stage.where)
        return timed if isinstance(timed, str) else Candidate(plan, setting, made_for, timed)

    def _settings(self, nodes: int) -> list[Setting]:
        """What the stages that may run on so many nodes ask of a plan, in their order."""
        stages = (stage for stage in self.schedule.stages if nodes in stage.node_choices)
        return list(dict.fromkeys(self.plans.setting(stage, nodes) for stage in stages))

    def _others(self, nodes: int) -> list[Setting]:
        settings = self._settings(nodes)
        return settings[:: math.ceil(len(settings) / MOST_OTHERS)]

    def _one(self, nodes: int) -> list[Setting]:
        """The setting whose plan the stages on so many nodes would be through with first, of those that all can run
        under; none where there is no such plan."""
        stages = [stage for stage in self.schedule.stages if nodes in stage.node_choices]
        totals: dict[Setting, float] = {}
        for made_for in self._others(nodes):
            found = [self.candidate(stage, self.plans.setting(stage, nodes), made_for) for stage in stages]
            if all(isinstance(each, Candidate) for each in found):
                pairs = zip(stages, found, strict=True)
                totals[made_for] = math.fsum(
                    stage.steps * each.timed.whole_s for stage, each in pairs if isinstance(each, Candidate)
                )
        return [min(totals, key=lambda each: totals[each])] if totals else []

    def _where(self, setting: Setting) -> tuple[str | int, ...]:
        return next(
            stage.where
            for stage in self.schedule.stages
            if setting.nodes in stage.node_choices and stage.global_batch == setting.global_batch
        )

    def _move(self, before: Candidate, after: Candidate, stage: ScheduledStage) -> Move:
        return self.plans.move(before.plan, before.setting.nodes, after.plan, after.setting, stage.where)

    def leg(self, stage: ScheduledStage, candidate: Candidate) -> Leg:
        """A stage under a plan, with nothing that changes before it."""
        return Leg(stage, candidate, Move(), self.evaluation_s(stage, candidate))

    def evaluation_s(self, stage: ScheduledStage, candidate: Candidate) -> float:
        """One evaluation during a stage."""
        evaluation: Evaluation | None = self.plans.inputs.run.evaluation
        if evaluation is None:
            return 0.0
        if evaluation.seconds is not None:
            return evaluation.seconds
        return -(-(evaluation.samples or 0) // stage.global_batch) * candidate.timed.forward_s

    def _followed(self, graph: Graph, way: Way) -> Way:
        """The same way where plans are made from the one before them, if that is better.

        It is asked where the bytes that move take more than the share of the steps within which plans are searched for.
        """
        if self.plans.inputs.plan is not None:
            return way
        for first, last in self._blocks(way)[1:]:
            former, own = way[first - 1].candidate, way[first].candidate
            steps = sum(leg.stage.steps for leg in way[first:last])
            moving_s = way[first].move.seconds - self.plans.inputs.run.restart
            if not steps or moving_s <= self.plans.inputs.run.search.gap * sum(leg.steps_s for leg in way[first:last]):
                continue
            plan = self.plans.following(former.plan, own.made_for, steps, way[first].stage.where)
            under = [self._under(plan, leg.stage, leg.candidate) for leg in way[first:last]]
            block = [each for each in under if each is not None]
            if len(block) < last - first:
                continue
            candidates = [leg.candidate for leg in way]
            other = graph.way([*candidates[:first], *block, *candidates[last:]])
            figures = graph.figures(other)
            if graph.keeps(figures) and figures < graph.figures(way):
                way = other
        return way

    def _under(self, plan: Plan, stage: ScheduledStage, former: Candidate) -> Candidate | None:
        """A stage under another plan for as many nodes; None where that is none, or does not fit."""
        if plan.objective is None:
            return None
        timed = self.plans.timed(plan, former.setting, stage.passes, stage.where)
        return replace(former, plan=plan, timed=timed) if isinstance(timed, Timed) else None

    @staticmethod
    def _blocks(way: Way) -> list[tuple[int, int]]:
        """Where neighbours run under one plan on the same nodes: from which stage to before which."""
        blocks, first = [], 0
        for _, legs in groupby(way, key=lambda leg: (id(leg.candidate.plan), leg.candidate.setting.nodes)):
            count = len(list(legs))
            blocks.append((first, first + count))
            first += count
        return blocks
