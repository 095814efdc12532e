"""Why a plan is as it is, as plain data and as records for other programs."""

from collections.abc import Sequence
from dataclasses import asdict

from cost_models.model import CostModel
from cost_models.step_costs import StepCosts
from planner.diagnosis.dense_strategy import beside_replicated
from planner.diagnosis.exchanges import ExchangeReasons
from planner.diagnosis.fixed_part import OVERHEAD, FixedCost, fixed_part, fixed_seconds, host_beside
from planner.diagnosis.reasons import OptionReasons, PlanReasons, TableReasons
from planner.document.dense import PlannedDense
from planner.document.plan import Plan
from planner.document.replicas import OtherReplicas
from planner.planning.tower_modules import TowerModules
from planner.reports.explanation import KEPT, why
from planner.reports.network_sums import network_sums_document
from planner.reports.robustness import robust_document

Cell = str | int | float | None


def _dense_document(plan: Plan, dense: PlannedDense, reasons: PlanReasons) -> dict[str, object]:
    """The strategy of the dense part, and the same tables beside a replicated one."""
    beside = beside_replicated(plan, reasons.model) if isinstance(reasons.model, StepCosts) else None
    return {**dense.model_dump(mode="json"), "beside_replicated": None if beside is None else asdict(beside)}


def plan_document(
    plan: Plan, reasons: PlanReasons, others: Sequence[OtherReplicas] = (), modules: TowerModules | None = None
) -> dict[str, object]:
    """The explanation of a plan as plain data; of groups of ranks, what `others` would be."""
    fixed = None if plan.objective is None else fixed_part(plan.objective, reasons.model)
    return {
        "objective": plan.objective.model_dump(mode="json") if plan.objective else None,
        **robust_document(plan.robust, reasons.tail),
        **({"goals": [goal.model_dump(mode="json") for goal in plan.goals]} if plan.goals else {}),
        **({} if plan.replicas is None else {"other_replicas": [each.model_dump(mode="json") for each in others]}),
        **({} if plan.dense is None else {"dense": _dense_document(plan, plan.dense, reasons)}),
        "stages": [
            {
                **each.stage.model_dump(mode="json"),
                "resource": None if each.resource is None else str(each.resource),
                "constant_s": each.constant_s,
                "hidden_s": each.hidden_s,
                "bound_s": each.bound_s,
                "contributors": [{"table": part.table, "seconds": part.seconds} for part in each.contributors[:KEPT]],
            }
            for each in reasons.stages
        ],
        "hidden": dict(reasons.model.hidden),
        "fixed_s": None if fixed is None else fixed.seconds,
        "gap_of_rest": None if fixed is None else fixed.gap_of_rest,
        "fixed": [
            {
                "stage": cost.stage,
                "seconds": cost.seconds,
                "coefficient": cost.coefficient,
                "of": cost.of,
                **cost.evidence.model_dump(mode="json", include={"kind", "source", "residual_90", "fitted_on"}),
                "depends_on": _depends_on(cost, reasons.model),
            }
            for cost in reasons.fixed
        ],
        "fixed_seconds": [asdict(part) for part in fixed_seconds(reasons.model)],
        "host_beside": [asdict(part) for part in host_beside(reasons.model)],
        "memory_bound_s": reasons.memory_bound_s,
        "branching_bound_s": reasons.branching_bound_s,
        "other_protocols_s": reasons.other_protocols_s,
        "memory": [
            {"tier": memory.tier, "group": memory.group, "seconds_per_gib": memory.seconds_per_gib}
            for memory in reasons.memory
        ],
        "gains": [{"resource": gain.resource, "step_s": gain.step_s, "saved": gain.saved} for gain in reasons.gains],
        **({} if reasons.exchange is None else {"exchange": _exchange_document(plan, reasons.exchange)}),
        **network_sums_document(reasons.network_sums),
        **({} if modules is None else {"tower_modules": asdict(modules)}),
        **_dense_update(plan, reasons.model),
    }


def _depends_on(cost: FixedCost, model: CostModel) -> list[str]:
    """What of a workload a constant depends on."""
    if cost.coefficient != OVERHEAD:
        return ["dense"]
    return ["dense", "tables"] if model.workload.software_mode else []


def _dense_update(plan: Plan, model: CostModel) -> dict[str, object]:
    """What an optimizer takes whose steps differ, and the step with inverse roots; nothing of others."""
    if not isinstance(model, StepCosts) or not model.update.roots_s or plan.objective is None:
        return {}
    late_s = plan.objective.step_s + model.update.late_s
    return {"dense_update": {**asdict(model.update), "step_with_roots_s": late_s}}


def _exchange_document(plan: Plan, reasons: ExchangeReasons) -> dict[str, object]:
    """Why vectors are exchanged as they are, as plain data."""
    best = reasons.best_other
    return {
        "exchange": plan.provenance.exchange,
        "is_chosen": reasons.is_chosen,
        "only": reasons.only,
        "own": None if reasons.own is None else asdict(reasons.own),
        "other": None if reasons.other is None else asdict(reasons.other),
        "best_other": None if best is None else best.model_dump(mode="json", exclude={"proof"}),
        "rearranging": [asdict(part) for part in reasons.rearranging],
    }


def plan_records(reasons: PlanReasons) -> list[dict[str, Cell]]:
    """One record for each contributor of each stage."""
    return [
        {
            "stage": each.stage.name,
            "stage_s": each.stage.seconds,
            "bound_s": each.bound_s,
            "critical_rank": each.stage.critical_rank,
            "resource": None if each.resource is None else str(each.resource),
            "table": part.table,
            "seconds": part.seconds,
        }
        for each in reasons.stages
        for part in each.contributors[:KEPT]
    ]


def table_document(reasons: TableReasons) -> dict[str, object]:
    """The explanation of a table as plain data."""
    planned = reasons.table
    return {
        "table": planned.model_dump(mode="json"),
        "stages": [
            {"name": name, "critical_rank_s": paid, "most_s": reasons.own_seconds[name]}
            for name, paid in reasons.stage_seconds.items()
        ],
        "id_sort_s": reasons.id_sort_s,
        "ids": reasons.ids,
        "distinct_rows": reasons.distinct_rows,
        "options": [{**record, "by_stage": option.by_stage} for option, record in _options(reasons)],
        "forbidden": [asdict(way) for way in reasons.forbidden],
    }


def table_records(reasons: TableReasons) -> list[dict[str, Cell]]:
    """One record for each option of the table."""
    return [record for _, record in _options(reasons)]


def _options(reasons: TableReasons) -> list[tuple[OptionReasons, dict[str, Cell]]]:
    chosen = reasons.chosen
    if chosen is None:
        return []
    return [
        (
            option,
            {
                "sharding": option.sharding,
                "tier": option.tier,
                "cache_fraction": option.cache_fraction,
                "blocks": option.blocks,
                "seconds": option.seconds,
                **{f"{tier}_bytes": size for tier, size in option.bytes.items()},
                "chosen": int(option is chosen),
                "why": "this plan" if option is chosen else why(option, chosen, reasons.model),
            },
        )
        for option in (chosen, *reasons.others)
    ]
