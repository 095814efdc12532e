"""The document of a run, from the way that is taken through it and those that it is compared with."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from planner.capacity.prices import notes as price_notes
from planner.document.plan import Plan
from planner.runs.choices import Manner, RunChoices
from planner.runs.findings import findings
from planner.runs.inputs import RunInputs
from planner.runs.paths import Candidate, Leg, Way, takes
from planner.runs.results import Alternative, Migration, NodeChoice, PlanOfRun, RunFigures, RunResult, StageCosts
from planner.runs.schedule import Schedule, ScheduledStage
from topologies.sentences import counted

MANNERS: dict[Manner, str] = {
    "one": "one plan for all stages on as many nodes",
    "each": "one plan for each batch",
    "best": "the best plan at each stage",
}


@dataclass(frozen=True)
class Costed:
    """What a run takes, with the plans that its stages run under, by their numbers."""

    result: RunResult
    plans: tuple[Plan, ...]


def plans_of(way: Way) -> list[Plan]:
    """The plans of a way, each once, in the order of its stages."""
    return list({id(leg.candidate.plan): leg.candidate.plan for leg in way}.values())


@dataclass(frozen=True)
class Account:
    """The document of a run, from the way that is taken and those that it is compared with."""

    inputs: RunInputs
    schedule: Schedule
    choices: RunChoices
    ways: dict[Manner, Way | None]
    way: Way | None

    @property
    def costed(self) -> Costed:
        """The document, and the plans that its stages number."""
        plans = [] if self.way is None else plans_of(self.way)
        run, schedule, way = self.inputs.run, self.schedule, self.way or ()
        result = RunResult(
            name=run.name,
            description=run.description,
            status="infeasible" if self.way is None else "planned",
            reason="" if self.way is not None else self._reason(),
            objective=run.objective,
            takes=None if self.way is None else self._takes(way),
            steps=sum(stage.steps for stage in schedule.stages),
            samples=schedule.distinct_samples,
            samples_read=sum(stage.samples_read for stage in schedule.stages),
            steps_s=self._sum([leg.steps_s for leg in way]),
            evaluations_s=self._sum([leg.evaluations_s for leg in way]),
            migrations_s=self._sum([Fraction(leg.move.seconds) for leg in way]),
            moved_bytes=None if self.way is None else sum(leg.move.moved_bytes for leg in way),
            low_s=self._at_end(way, "low_s"),
            high_s=self._at_end(way, "high_s"),
            lower_bound_s=self._lower_bound_s(way),
            stages=tuple(self._stage(leg, plans) for leg in way),
            plans=tuple(self._plan(number, plan) for number, plan in enumerate(plans, start=1)),
            alternatives=tuple(self._alternatives()),
            choices=tuple(self._node_choices()),
            prices=None if self.inputs.prices is None else self.inputs.prices.stated,
            findings=(),
            notes=tuple(self._notes()),
        )
        return Costed(result.model_copy(update={"findings": tuple(findings(result))}), tuple(plans))

    def _takes(self, legs: Sequence[Leg]) -> RunFigures:
        return takes(legs, self.choices.rates)

    def _sum(self, parts: Sequence[Fraction]) -> float | None:
        return None if self.way is None else float(sum(parts, Fraction(0)))

    def _at_end(self, way: Way, end: str) -> float | None:
        """The seconds of the run at one end of the bands of its steps: all of them, and forward passes, err alike."""
        seconds, evaluation = Fraction(0), self.inputs.run.evaluation
        is_stated = evaluation is None or evaluation.seconds is not None
        for leg in way:
            timed = leg.candidate.timed
            at_end: float | None = getattr(timed, end)
            if at_end is None:
                return None
            share = Fraction(at_end) / Fraction(timed.step_s)
            seconds += leg.steps_s * share + leg.evaluations_s * (1 if is_stated else share)
            seconds += Fraction(leg.move.seconds)
        return float(seconds) if way else None

    def _bound_s(self, leg: Leg) -> float | None:
        """No plan has a shorter training step in the setting of a stage; known where a plan was made for it."""
        own, setting = leg.candidate.plan, leg.candidate.setting
        if self.inputs.plan is None:
            own = self.choices.plans.own(setting, leg.stage.where)
        elif self.choices.plans.was_made_for(own, setting, leg.stage.where):
            own = self.inputs.plan
        else:
            return None
        return None if own.objective is None else min(own.objective.lower_bound_s, leg.candidate.timed.step_s)

    def _lower_bound_s(self, way: Way) -> float | None:
        """The run with every training step at its bound, of the passes those that no plan changes, evaluations only
        where their time is stated, and nothing moved."""
        seconds = Fraction(0)
        stated = self.inputs.run.evaluation is not None and self.inputs.run.evaluation.seconds is not None
        for leg in way:
            bound_s = self._bound_s(leg)
            if bound_s is None:
                return None
            fixed = sum(value for name, value in leg.candidate.timed.passes_s.items() if name != "line_search")
            seconds += leg.stage.steps * (Fraction(bound_s) + Fraction(fixed))
            seconds += leg.evaluations_s if stated else 0
        return float(seconds) if way else None

    def _stage(self, leg: Leg, plans: Sequence[Plan]) -> StageCosts:
        stage, candidate, move = leg.stage, leg.candidate, leg.move
        numbers = {id(plan): number for number, plan in enumerate(plans, start=1)}
        return StageCosts(
            name=stage.name,
            global_batch=stage.global_batch,
            nodes=candidate.setting.nodes,
            ranks=self.inputs.topology(candidate.setting.nodes).world_size,
            samples=stage.samples,
            steps=stage.steps,
            plan=numbers[id(candidate.plan)],
            step_s=candidate.timed.step_s,
            low_s=candidate.timed.low_s,
            high_s=candidate.timed.high_s,
            lower_bound_s=self._bound_s(leg),
            passes_s=candidate.timed.passes_s,
            steps_s=float(leg.steps_s),
            evaluations=stage.evaluations,
            evaluations_s=float(leg.evaluations_s),
            migration=Migration(
                moved_bytes=move.moved_bytes,
                copied_bytes=move.copied_bytes,
                new_bytes=move.new_bytes,
                seconds=move.seconds,
            )
            if move.is_change
            else None,
            takes=self._takes([leg]),
        )

    def _plan(self, number: int, plan: Plan) -> PlanOfRun:
        origin = plan.provenance
        assert self.way is not None
        leg = next(leg for leg in self.way if leg.candidate.plan is plan)
        batch = origin.workload.content.get("global_batch")
        return PlanOfRun(
            number=number,
            nodes=leg.candidate.setting.nodes,
            global_batch=leg.candidate.setting.global_batch if batch is None else batch,
            step_s=None if plan.objective is None else plan.objective.step_s,
            gap=None if plan.objective is None else plan.objective.gap,
            fingerprint=self.choices.plans.fingerprint(plan),
        )

    def _alternatives(self) -> list[Alternative]:
        """The run with one plan and with each stage's own; and on as many nodes throughout."""
        taken = self.inputs.run.plans
        made = [self._alternative(MANNERS[manner], manner, None) for manner in self.ways if manner != taken]
        chosen = [stage.node_choices for stage in self.schedule.stages]
        if any(len(choices) > 1 for choices in chosen):
            common = sorted(set(chosen[0]).intersection(*chosen[1:]))
            made += [
                self._alternative(f"{counted(nodes, 'node')} throughout", taken, [nodes] * len(chosen))
                for nodes in common
            ]
        return made

    def _alternative(self, label: str, manner: Manner, nodes: Sequence[int] | None) -> Alternative:
        """One of them; where none keeps the limits, the best without limits."""
        way = self.ways[manner] if nodes is None else self.choices.best(manner, nodes)
        keeps = way is not None
        way = way or self.choices.best(manner, nodes, limited=False)
        if way is None:
            return Alternative(
                label=label, nodes=(), plans=0, takes=None, reason="there is no plan for one of the stages"
            )
        return Alternative(
            label=label,
            nodes=tuple(leg.candidate.setting.nodes for leg in way),
            plans=len(plans_of(way)),
            takes=self._takes(way),
            reason="" if keeps else "which does not keep the limits",
        )

    def _node_choices(self) -> list[NodeChoice]:
        """Each stage that has a choice on each number of nodes."""
        return [
            self._node_choice(stage, nodes)
            for stage in self.schedule.stages
            if len(stage.node_choices) > 1
            for nodes in sorted(stage.node_choices)
        ]

    def _node_choice(self, stage: ScheduledStage, nodes: int) -> NodeChoice:
        setting = self.choices.plans.setting(stage, nodes)
        found = self.choices.candidate(stage, setting, setting)
        shared = {"stage": stage.name, "global_batch": stage.global_batch, "nodes": nodes}
        if not isinstance(found, Candidate):
            return NodeChoice(**shared, step_s=None, takes=None, reason=found)
        leg = self.choices.leg(stage, found)
        return NodeChoice(**shared, step_s=found.timed.whole_s, takes=self._takes([leg]))

    def _reason(self) -> str:
        """Why there is no way to run it."""
        for stage in self.schedule.stages:
            words = [self._why_not(stage, nodes) for nodes in stage.node_choices]
            if all(words):
                return f"{stage.name}: {'; '.join(words)}"
        limits = ", ".join(f"{name} {limit:,.10g}" for name, limit in self.inputs.run.limits.stated.items())
        return f"no way through the stages keeps the limits ({limits}) with plans: {self.inputs.run.plans}"

    def _why_not(self, stage: ScheduledStage, nodes: int) -> str:
        setting = self.choices.plans.setting(stage, nodes)
        found = self.choices.candidate(stage, setting, setting)
        return f"on {counted(nodes, 'node')} {found}" if isinstance(found, str) else ""

    def _notes(self) -> list[str]:
        used = sorted({leg.candidate.setting.nodes for leg in self.way or ()})
        notes = [note for nodes in used for note in price_notes(self.inputs.topology(nodes), self.inputs.prices)]
        notes += [warning for plan in plans_of(self.way or ()) for warning in plan.provenance.warnings]
        if any(leg.move.is_change for leg in self.way or ()) and not self.inputs.run.restart:
            notes.append(
                "changes of plan or nodes take the time of their bytes alone; say restart for what else passes"
            )
        return list(dict.fromkeys(notes))
