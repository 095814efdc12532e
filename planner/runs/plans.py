"""The plans that stages run under: made for a batch and a cluster, timed under others, and followed by others."""

from collections.abc import Callable
from dataclasses import dataclass, field

from cost_models.shards import PlacedShards
from cost_models.step_costs import StepCosts
from cost_models.workload.models import Workload
from planner.document.migration import migration_from, plan_fingerprint
from planner.document.plan import Plan
from planner.document.planned import placed_shards
from planner.document.traffic import moves_of
from planner.formulation.allowed_choices import planning_model
from planner.formulation.checkpoint_choices import checkpointed_as_found
from planner.formulation.policy import Policy
from planner.formulation.software import priced_as_run
from planner.planning import planning as api
from planner.runs.inputs import RunInputs
from planner.runs.passes import extra_seconds, forward_s, state_bytes, why_unknown
from planner.runs.schedule import Passes, ScheduledStage
from planner.verification.figures import overfull
from planner.verification.shape import placement_faults, status_faults
from topologies.cluster import Topology
from topologies.documents import Key, validate
from topologies.errors import InputError
from topologies.sentences import counted


@dataclass(frozen=True)
class Setting:
    """What a plan is made for: nodes and a batch, and what second-order passes keep on every rank."""

    nodes: int
    global_batch: int
    state_bytes: int = 0


@dataclass(frozen=True)
class Timed:
    """A step of a stage under a plan; times in seconds."""

    step_s: float
    low_s: float | None
    """Where the step would be measured, from here to `high_s`; None where that is unknown."""
    high_s: float | None
    passes_s: dict[str, float]
    """What each step takes beyond, by what it is for."""
    forward_s: float
    """A forward pass over a batch."""

    @property
    def whole_s(self) -> float:
        """With all passes."""
        return self.step_s + sum(self.passes_s.values())


@dataclass(frozen=True)
class Move:
    """From one plan to another."""

    moved_bytes: int = 0
    copied_bytes: int = 0
    new_bytes: int = 0
    seconds: float = 0.0
    is_change: bool = False
    """Whether anything changes its place, or the nodes change."""


@dataclass
class RunPlans:
    """All plans of a run, made on demand and once each."""

    inputs: RunInputs
    tell: Callable[[str], None] = lambda _: None
    stop: Callable[[], bool] | None = None
    made: dict[object, Plan] = field(default_factory=dict)
    """Plans by all that they depend on; runs that differ in other things share them."""
    _plans: dict[object, Plan] = field(default_factory=dict)
    _timed: dict[object, Timed | str] = field(default_factory=dict)
    _moves: dict[tuple[str, str, int, int], Move] = field(default_factory=dict)
    _prints: dict[int, str] = field(default_factory=dict)
    _models: dict[object, StepCosts] = field(default_factory=dict)

    def setting(self, stage: ScheduledStage, nodes: int) -> Setting:
        """What a stage asks of a plan on so many nodes. Raises InputError for passes that it cannot have."""
        given = self.inputs.workload(stage.global_batch, 0, stage.where)
        workload = priced_as_run(given, validate(self.inputs.policy, Policy))
        evaluation = self.inputs.run.evaluation
        evaluates = evaluation is not None and evaluation.samples is not None
        if (reason := why_unknown(workload, stage.passes, evaluates=evaluates)) is not None:
            raise InputError([self.inputs.document.fault(stage.where, reason)])
        return Setting(nodes, stage.global_batch, state_bytes(workload, stage.passes))

    def own(self, setting: Setting, where: tuple[Key, ...]) -> Plan:
        """The plan for a setting, by a search of its own; or the one that the run gives."""
        if self.inputs.plan is not None:
            return self.inputs.plan
        return self._planned(setting, where, setting, None, None)

    def following(self, former: Plan, setting: Setting, steps: int, where: tuple[Key, ...]) -> Plan:
        """The plan for a setting that moves no more than pays for itself within so many steps."""
        key = self.fingerprint(former), setting, steps
        return self._planned(setting, where, key, former, steps)

    def _planned(
        self, setting: Setting, where: tuple[Key, ...], key: object, former: Plan | None, steps: int | None
    ) -> Plan:
        if key not in self._plans:
            topology, workload = self._inputs(setting, where)
            search = self.inputs.run.search
            rules = validate(self.inputs.policy, Policy).model_dump_json()
            content = topology.fingerprint(), workload.fingerprint(), rules, search, id(former), steps
            if content not in self.made:
                again = "" if former is None else ", from the plan before it"
                self.tell(f"the plan for {counted(setting.nodes, 'node')}, a batch of {setting.global_batch:,}{again}")
                self.made[content] = api.plan(
                    topology,
                    workload,
                    policy=self.inputs.policy,
                    effort=search.effort,
                    gap=search.gap,
                    seed=search.seed,
                    previous=former,
                    pay_back_steps=steps,
                    simulate=False,
                    stop=self.stop,
                )
            self._plans[key] = self.made[content]
        return self._plans[key]

    def timed(self, plan: Plan, setting: Setting, passes: Passes, where: tuple[Key, ...]) -> Timed | str:
        """A step of a setting under a plan for as many nodes; in words, why there is none."""
        key = id(plan), setting, passes
        if key not in self._timed:
            self._timed[key] = self._time(plan, setting, passes, where)
        return self._timed[key]

    def _time(self, plan: Plan, setting: Setting, passes: Passes, where: tuple[Key, ...]) -> Timed | str:
        model = self._model(plan, setting, where)
        if faults := [*status_faults(plan), *(placement_faults(plan, model) if plan.objective is not None else ())]:
            nodes = counted(setting.nodes, "node")
            message = f"is no plan for {nodes} and this model: {faults[0]}; give another, or other nodes"
            raise InputError([self.inputs.document.fault(("plan",), message)])
        placed: PlacedShards = placed_shards(plan)
        linear = model.linearised_at(placed)
        evaluation = linear.evaluate(placed)
        if full := next(overfull(model, evaluation), None):
            return f"the plan does not fit: {full}"
        step_s = self._stated_s(plan, model)
        step_s = evaluation.step_s if step_s is None else step_s
        bars = model.error_bars(placed)
        low_s, high_s = (None, None) if bars is None else bars.step.around(step_s)
        return Timed(step_s, low_s, high_s, extra_seconds(model, evaluation, passes), forward_s(model, evaluation))

    def was_made_for(self, plan: Plan, setting: Setting, where: tuple[Key, ...]) -> bool:
        """Whether the plan's document speaks of these very inputs."""
        return self._stated_s(plan, self._model(plan, setting, where)) is not None

    def _stated_s(self, plan: Plan, model: StepCosts) -> float | None:
        """The step that the plan's document says, where it was made for these very inputs."""
        origin = plan.provenance
        made_for = origin.topology.fingerprint, origin.workload.fingerprint
        given = model.cluster.fingerprint(), model.stated_workload.fingerprint()
        return None if plan.objective is None or made_for != given else plan.objective.step_s

    def _model(self, plan: Plan, setting: Setting, where: tuple[Key, ...]) -> StepCosts:
        """The costs of a setting under the exchange of a plan, checkpointed as that is where the policy leaves it
        open."""
        checkpointing = None if plan.dense is None else plan.dense.checkpointing
        key = setting, plan.provenance.exchange, checkpointing
        if key not in self._models:
            topology, workload = self._inputs(setting, where)
            policy = validate(self.inputs.policy, Policy)
            priced = checkpointed_as_found(priced_as_run(workload, policy), policy.checkpointing, checkpointing)
            model = planning_model("physical", topology, priced, policy, plan.provenance.exchange)
            assert isinstance(model, StepCosts)
            self._models[key] = model
        return self._models[key]

    def move(self, before: Plan, before_nodes: int, after: Plan, setting: Setting, where: tuple[Key, ...]) -> Move:
        """What it takes to run under a plan after another one, as re-planning counts it; the tables' weights and
        optimizer state alone, since the dense part is on every rank."""
        nodes_change = before_nodes != setting.nodes
        key = self.fingerprint(before), self.fingerprint(after), before_nodes, setting.nodes
        if key[0] == key[1] and not nodes_change:
            return Move()
        if key not in self._moves:
            migration = migration_from(before, self._model(after, setting, where), ())
            moves = moves_of(migration, after.tables, 0.0, None, None)
            seconds = moves.moved_bytes * migration.seconds_per_byte() + self.inputs.run.restart
            self._moves[key] = Move(moves.moved_bytes, moves.copied.total, moves.new.total, seconds, is_change=True)
        return self._moves[key]

    def fingerprint(self, plan: Plan) -> str:
        """A hash over where a plan holds its tables; computed once for each document."""
        if id(plan) not in self._prints:
            self._prints[id(plan)] = plan_fingerprint(plan)
        return self._prints[id(plan)]

    def _inputs(self, setting: Setting, where: tuple[Key, ...]) -> tuple[Topology, Workload]:
        topology = self.inputs.topology(setting.nodes, where)
        return topology, self.inputs.workload(setting.global_batch, setting.state_bytes, where)
