"""Why a plan is as it is: what each stage waits for, what each table pays, and what its other options would cost.

Costs of options are at the multipliers of the plan's own proof (see `planner.verification.proof`): what a second on
each resource and a byte of each memory are worth to the step as a whole. The bound is the sum, over all tables, of the
cheapest option at these multipliers. So an option that costs more there is one that lengthens the bound by the
difference, and an option that costs as much may be taken for no better reason than that it packs well.
"""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from cost_models.error_bars import Cause
from cost_models.stage_causes import stage_causes
from cost_models.step_costs import StepCosts
from cost_models.tables import Tables
from planner.diagnosis.exchanges import exchange_reasons
from planner.diagnosis.fixed_part import fixed_costs, fixed_seconds
from planner.diagnosis.forbidden_ways import ForbiddenWay, ForbiddenWays
from planner.diagnosis.network_sums import network_sums
from planner.diagnosis.priced_options import PricedOptions
from planner.diagnosis.reasons import (
    Contributor,
    HeldShard,
    OptionReasons,
    PlanReasons,
    RankReasons,
    RankStage,
    StageDetail,
    StageReasons,
    TableReasons,
)
from planner.diagnosis.sensitivity import gains
from planner.diagnosis.stage_loads import StageLoads
from planner.diagnosis.tail_stages import tail_stages
from planner.document.plan import Plan
from planner.document.planned import placed_shards, planned_model
from planner.document.provenance import planned_options
from planner.errors import UnsoundPlanError
from planner.formulation.formulation import Formulation
from planner.verification.proof import faults_of
from planner.verification.protocol_proofs import at_protocols_of, faults_of_protocols
from topologies.errors import Fault

NEGLIGIBLE = 1e-6
"""Share of a bound that is nothing but rounding."""


class Explainer:
    """The reasons behind one plan, which must place its tables. Raises InputError if its inputs cannot be read,
    and UnsoundPlanError where its proof is of something else."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        placed = placed_shards(plan)
        self.model = planned_model(plan).linearised_at(placed)
        self._loads = StageLoads(self.model, placed, plan.stages)
        self._options: PricedOptions | None = None
        """None where the plan has no proof."""
        if plan.proof is not None:
            options = planned_options(plan.provenance, self.model, plan.provenance.policy)
            formulation = Formulation.of_options(self.model, options)
            faults = list(faults_of_protocols(plan.proof, self.model))
            formulation = formulation if faults else at_protocols_of(plan.proof, formulation)
            faults += faults_of(plan.proof, formulation.model, formulation.problem)
            if faults:
                raise UnsoundPlanError(Fault("plan", 0, 0, "proof", text) for text in faults)
            self._options = PricedOptions(formulation, plan.proof, self._loads, plan.tables)

    def plan(self) -> PlanReasons:
        """Stage by stage, then the memory."""
        stages = tuple(self._stage(s) for s in range(len(self.model.stages)))
        memory, paid_s = ((), None) if self._options is None else self._options.memory()
        if self._is_bound_by_floor():
            left_s = self.model.whole_step_s(0.0) - sum(each.bound_s or 0.0 for each in stages)
            stages, memory, paid_s = (*stages[:-1], replace(stages[-1], bound_s=max(left_s, 0.0))), (), 0.0
        helpful = tuple(gains(self.model, self._loads.placed))
        above = self._above_parts(stages, paid_s)
        by_branching, elsewhere = (None, None) if above is None else (max(above, 0.0), min(above, 0.0))
        exchange = exchange_reasons(self._plan, self.model, self._loads.placed)
        costs = fixed_costs(self.model)
        tail = () if self._plan.robust is None else tail_stages(self._plan, self.model, self._loads.placed)
        worth = None if self._options is None else self._options.seconds_per_loss()
        summed = network_sums(self.model, self._loads.placed)
        parts = paid_s, by_branching, elsewhere, memory, helpful, costs, exchange, tail, worth, summed
        return PlanReasons(self.model, stages, *parts)

    def _is_bound_by_floor(self) -> bool:
        """Whether the bound is the floor of the step, whatever else is proven."""
        objective = self._plan.objective
        return objective is not None and self._options is not None and self.model.is_floor(objective.lower_bound_s)

    def _above_parts(self, stages: tuple[StageReasons, ...], memory_bound_s: float | None) -> float | None:
        """What the bound is above the sum of its parts, or above the threshold of their proof: by branching. Below it,
        it is that of plans at other protocols."""
        if self._plan.objective is None or self._plan.proof is None:
            return None
        if self._is_bound_by_floor():
            return 0.0
        parts = sum(each.bound_s or 0.0 for each in stages) + (memory_bound_s or 0.0)
        parts = min(parts, self._plan.proof.threshold_s or parts)
        above = self._plan.objective.lower_bound_s - parts
        return above if abs(above) > NEGLIGIBLE * parts else 0.0

    def table(self, name: str) -> TableReasons:
        """Raises KeyError for a table that the plan does not have."""
        names = [table.name for table in self._plan.tables]
        if name not in names:
            raise KeyError(name)
        index = names.index(name)
        stages, model = range(len(self.model.stages)), self.model
        paid = {model.stages[s]: float(self._loads.binding(s)[index]) for s in stages}
        most = {model.stages[s]: self._loads.longest(s, index) for s in stages}
        chosen = None if self._options is None else self._options.chosen(index)
        others = () if self._options is None else self._options.others(index)
        forbidden = () if chosen is None else self._forbidden(index, (chosen, *others))
        sorting_s = self._loads.id_sort_s(index)
        rows = self._rows_of_a_step(index)
        return TableReasons(model, self._plan.tables[index], paid, most, sorting_s, *rows, chosen, others, forbidden)

    def _rows_of_a_step(self, table: int) -> tuple[float, float]:
        """Ids of a table that a step looks up over all ranks, and the distinct rows among them."""
        workload, world = self.model.stated_workload, self.model.cluster.world_size
        tables = Tables.of(workload, world)
        ids = workload.batch(world) * float(tables.lookups_per_sample[table])
        return ids, float(tables.access.unique_rows(slice(table, table + 1), ids)[0])

    def _forbidden(self, table: int, possible: Iterable[OptionReasons]) -> tuple[ForbiddenWay, ...]:
        """The ways that are none of these options."""
        assert self._options is not None
        ways = ForbiddenWays(self._options.formulation, self._plan.provenance.policy, table)
        return ways.beside({(option.sharding, option.tier) for option in possible})

    def stage(self, name: str) -> StageDetail:
        """What a stage is made of. Raises KeyError for one that the plan does not have, as for a hidden one."""
        model = self.model
        if name not in model.stages:
            raise KeyError(name)
        s = model.stages.index(name)
        causes: tuple[Cause, ...] = ()
        if isinstance(model, StepCosts):
            causes = stage_causes(model, self._loads.placed, self._loads.evaluation, s)
        fixed = tuple(part for part in fixed_seconds(model) if part.stage == name)
        hidden = tuple(other for other in model.hidden if name in model.shown_in(other))
        summed = network_sums(model, self._loads.placed)
        summed = summed if summed is not None and any(each.stage == name for each in summed.stages) else None
        return StageDetail(model, self._stage(s), self._loads.of_groups(s), causes, fixed, hidden, summed)

    def rank(self, rank: int) -> RankReasons:
        """What a rank does in each stage, and what it holds. Raises IndexError for one that the plan does not have."""
        model, placed = self.model, self._loads.placed
        if not 0 <= rank < len(model.kind_of_rank):
            raise IndexError(rank)
        stages = []
        for s, stage in enumerate(self._plan.stages):
            constant, hidden, parts = self._parts(s, rank)
            seconds = float(self._loads.evaluation.rank_stage_seconds[rank, s])
            resource = self._loads.resource(s, rank)
            stages.append(RankStage(stage.name, seconds, stage.seconds, resource, constant, hidden, parts))
        held = tuple(
            HeldShard(table, n)
            for table in self._plan.tables
            for n in np.flatnonzero(table.shards.rank == rank).tolist()
        )
        return RankReasons(model, placed, rank, tuple(stages), held, self._loads.evaluation.rank_bytes)

    def _parts(self, s: int, rank: int | None = None) -> tuple[float, float, tuple[Contributor, ...]]:
        """The constant of a stage, what others hide of it, and what takes time of what binds it, for a rank or for
        all."""
        # Below zero, a constant takes off what others hide, and what it takes off stands in the base.
        constant = float(self.model.constants[s])
        if self.model.floor is not None and self.model.stages[s] == self.model.floor.stage:
            constant = self._plan.stages[s].seconds
            if rank is not None:
                constant = float(self._loads.evaluation.rank_stage_seconds[rank, s])
        loads, base = self._loads.binding(s, rank), self._loads.base(s, rank) + min(constant, 0.0)
        parts = [Contributor(None, base)] if base > 0 else []
        names = self.model.workload.tables
        parts += [Contributor(names[t].name, float(loads[t])) for t in np.flatnonzero(loads > 0).tolist()]
        parts.sort(key=lambda part: (-part.seconds, part.table or ""))
        return max(constant, 0.0), max(-base, 0.0), tuple(parts)

    def _stage(self, s: int) -> StageReasons:
        constant, hidden, parts = self._parts(s)
        bound = None if self._options is None else self._options.stage_bound_s(s)
        return StageReasons(self._plan.stages[s], self._loads.evaluation.binding[s], constant, hidden, parts, bound)
