"""One point of a study: planned, simulated and summarised. Runs in any process, and depends on its job alone."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from importlib import metadata, resources
from pathlib import Path
from typing import Any

import numpy as np

from cost_models.model import CostModel
from cost_models.resources import Resource
from cost_models.stages import STAGES, VectorExchange
from cost_models.workload.checkpoints import Checkpointing, in_words
from cost_models.workload.models import Workload
from planner._version import VERSION
from planner.diagnosis.sensitivity import GROWTH, RESOURCES, gains
from planner.document.plan import Plan
from planner.document.planned import held_model, placed_shards
from planner.formulation.formulation import Formulation
from planner.formulation.policy import Policy, offered
from planner.formulation.question import Question
from planner.planning.dense_choice import best_of_dense
from planner.planning.exchanges import PlannedUnder, planned_under_each
from planner.planning.integer_solution import expect_programme
from planner.planning.pipeline import Pipeline, Searched, Steps
from planner.planning.question_bound import bound_of_question
from planner.problem.placement import Placement
from planner.solvers.incumbent import Outcome
from planner.solvers.limits import SearchLimits
from planner.solvers.search import better, bounded
from planner.studies.study import Search
from topologies.cluster import Topology
from topologies.errors import InputError

DRIFT = 0.005
"""A point that begins with the plan of another one is done where it is no farther from its bound than the search that
found that plan came, and this much."""
MOST_LINKS = 9
"""Points in a row that may do so, before one is searched for again."""

Record = dict[str, Any]
"""What is known of a point: figures and words, as in JSON."""


@dataclass(frozen=True)
class Job:
    """All that a point's figures depend on."""

    topology: Topology
    workload: Workload
    policy: Policy
    search: Search
    keeps_plan: bool = False
    start: "Start | None" = None
    """The plan of another point that differs in rates only."""


@dataclass(frozen=True)
class Start:
    """A placement that another point with the same options may begin with."""

    options: str
    """Digest of the options and block types that the numbers refer to."""
    blocks: tuple[int, ...]
    places: tuple[int, ...]
    gap: float
    """How near to its bound the search came that found it."""
    links: int = 0
    """Points that it served since."""

    def as_document(self) -> Record:
        """As plain data."""
        return {**asdict(self), "blocks": list(self.blocks), "places": list(self.places)}

    @classmethod
    def from_document(cls, data: Mapping[str, Any]) -> "Start":
        """The inverse of `as_document`."""
        return cls(data["options"], tuple(data["blocks"]), tuple(data["places"]), data["gap"], data["links"])


@dataclass(frozen=True)
class Answer:
    """What came of a job."""

    record: Record
    start: Start | None = None
    plan: str | None = None
    """The plan document, where it was asked for."""
    is_bug: bool = False
    """Whether the job failed for another reason than its inputs; such an answer is not kept."""


@lru_cache(maxsize=1)
def code_digest() -> str:
    """A hash over the planner's own files and the versions of what it computes with: other code, other results."""
    digest = hashlib.sha256(VERSION.encode())
    for package in ("planner", "cost_models", "topologies"):
        root = Path(str(resources.files(package)))
        for path in sorted(root.rglob("*")):
            if path.suffix in {".py", ".yaml", ".csv"}:
                digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    for name in ("numpy", "ortools"):
        digest.update(metadata.version(name).encode())
    return digest.hexdigest()


def job_key(topology: str, workload: str, policy: Policy, search: Search, leader: str | None) -> str:
    """A content hash of a job, by the fingerprints of its inputs; `leader` is the key of the point it starts from."""
    content = [
        topology,
        workload,
        policy.model_dump(mode="json"),
        search.model_dump(mode="json"),
        leader,
        code_digest(),
    ]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def shape(topology: Topology) -> tuple[object, ...]:
    """What points must share to begin with each other's plans: how many ranks there are, and how they hang together."""
    return tuple(
        (
            group.count,
            group.accelerators.count,
            group.links.pcie.accelerators_per_switch,
            None if group.links.scale_up is None else group.links.scale_up.domain,
            None if group.links.scale_out is None else group.links.scale_out.count,
        )
        for group in topology.nodes
    )


def answer(job: Job) -> Answer:
    """Plan a point. Never raises: what goes wrong is a record with the status `error`."""
    try:
        return _answer(job)
    except InputError as error:
        more = f" (and {len(error.faults) - 1} more)" if len(error.faults) > 1 else ""
        return Answer(failed(job, f"{error.faults[0]}{more}"))
    except Exception as error:  # noqa: BLE001 - one point's failure is not the end of the others
        return Answer(failed(job, f"{type(error).__name__}: {error}"), is_bug=True)


def failed(job: Job | None, reason: str) -> Record:
    """The record of a point without figures."""
    size: Record = {} if job is None else _size(job.topology, job.workload)
    return {"status": "error", "reason": reason, **size}


def _size(topology: Topology, workload: Workload) -> Record:
    world = topology.world_size
    return {"nodes": topology.node_count, "ranks": world, "samples_per_step": workload.batch(world)}


def _answer(job: Job) -> Answer:
    policy = offered(job.policy, job.topology, Question.cost_model)
    limits = SearchLimits(gap=job.search.gap, effort=job.search.effort, seed=job.search.seed)
    found: dict[tuple[Checkpointing | None, VectorExchange], tuple[CostModel, Start | None]] = {}

    def under(asked: Question, limits: SearchLimits, former: PlannedUnder | None) -> PlannedUnder:
        pipeline = _pipeline(job, asked.policy, limits)
        if former is None:
            formulation = pipeline.refined(asked.formulation())
        else:
            formulation, pipeline = former.formulation.under(asked.model()), replace(pipeline, start=former.searched)
        searched, reached = _searched(job, pipeline, formulation)
        plan = pipeline.assembled(pipeline.finished(searched))
        model = searched.formulation.model
        found[asked.workload.dense.checkpointing, model.exchange] = model, reached
        return PlannedUnder(plan, searched.formulation, searched)

    def planned(way: Question, left: SearchLimits, _: object = None) -> Plan:
        return planned_under_each(way, left, under)

    ways = Question(job.topology, job.workload, policy).choices_of_checkpointing()
    if len(ways) == 1:
        plan, checkpointing = planned(ways[0], limits), ways[0].workload.dense.checkpointing
    else:
        plan = best_of_dense(ways, lambda way, tell: bound_of_question(way, limits, tell), planned, limits, None)
        assert plan.dense is not None
        checkpointing = plan.dense.checkpointing
    plan = _pipeline(job, policy, limits).simulated(plan)
    model, reached = found[checkpointing, plan.provenance.exchange]
    text = plan.to_json() if job.keeps_plan else None
    return Answer(_record(job, model, plan), reached if plan.objective is not None else None, text)


def _pipeline(job: Job, policy: Policy, limits: SearchLimits) -> Pipeline:
    steps = Steps(proves=job.search.prove, simulates=job.search.simulate)
    return Pipeline(policy, limits, steps, solver=job.search.solver)


def _searched(job: Job, pipeline: Pipeline, formulation: Formulation) -> tuple[Searched, Start | None]:
    """The best placement of a point: that of another point, where it is good enough, or what a search finds; and what
    others may begin with, None without one."""
    search = job.search
    start = _placement(job.start, formulation)
    outcome = known = None
    enough = search.gap
    if start is not None and job.start is not None:
        enough = max(search.gap, job.start.gap + DRIFT)
        known = bounded(formulation.problem, start, enough)
        if known is not None and _gap(known) <= enough and job.start.links < MOST_LINKS:
            outcome = known
    is_searched = outcome is None
    expect_programme(formulation, search.solver)
    if outcome is None:
        searched = pipeline.solved(formulation)
        if known is not None and start is not None and searched.formulation is not formulation:  # at other lines
            known = bounded(searched.formulation.problem, start, enough)
        formulation = searched.formulation
        outcome = searched.outcome if known is None else better(searched.outcome, known)
    searched = pipeline.programmed(Searched(formulation, outcome))
    formulation, outcome, reached = searched.formulation, searched.outcome, None
    if outcome.placement is not None:
        blocks, places = outcome.placement.item_block.tolist(), outcome.placement.item_place.tolist()
        reached = Start(_digest(formulation), tuple(blocks), tuple(places), _gap(outcome))
        if not is_searched and job.start is not None:
            reached = replace(reached, gap=job.start.gap, links=job.start.links + 1)
    return searched, reached


def _gap(outcome: Outcome) -> float:
    """The gap of an outcome with a plan."""
    assert outcome.step_s is not None
    return outcome.step_s / outcome.bound_s - 1 if outcome.bound_s else math.inf


def _placement(start: Start | None, formulation: Formulation) -> Placement | None:
    """None where the other point chose from other options."""
    if start is None or start.options != _digest(formulation):
        return None
    return Placement(np.array(start.blocks, dtype=np.int64), np.array(start.places, dtype=np.int64))


def _digest(formulation: Formulation) -> str:
    """The digest of everything that gives the numbers of a placement their meaning."""
    options, problem = formulation.options, formulation.problem
    arrays = (
        *(options.table, options.profile, options.tier, options.cache_fraction, options.dtype),
        *(options.block_sharding, options.block_columns),
        *(options.block_option, options.block_count, options.state, problem.allowed, problem.block_units),
    )
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes() + b"|")
    return digest.hexdigest()


def _record(job: Job, model: CostModel, plan: Plan) -> Record:
    record: Record = {"status": plan.status, **_size(job.topology, job.workload)}
    if plan.objective is None:
        reason = plan.infeasibility.summary if plan.infeasibility else "no placement was found, nor a proof of none"
        limit = "memory" if plan.status == "infeasible" else None
        return {**record, "reason": reason, "limit": limit, "capacity": _of_cluster(_capacity(model), model)}
    step_s, batch = plan.objective.step_s, record["samples_per_step"]
    record |= {
        "step_s": step_s,
        "lower_bound_s": plan.objective.lower_bound_s,
        "gap": plan.objective.gap,
        "samples_per_s": batch / step_s,
    }
    if plan.simulated is not None:
        record |= {
            "simulated_step_s": plan.simulated.step_s,
            "simulated_samples_per_s": plan.simulated.samples_per_s,
        }
    if plan.quality is not None:
        record["loss"] = plan.quality.loss
    model = held_model(model, plan.tables)
    used: dict[str, int] = {tier: sum(rank.bytes[tier] for rank in plan.ranks) for tier in model.memories}
    placed = placed_shards(plan)
    return {
        **record,
        "exchange": plan.provenance.exchange,
        **({} if plan.dense is None else {"checkpointing": in_words(plan.dense.checkpointing)}),
        "limit": _limit(plan, model.evaluate(placed).binding),
        "stages": {stage.name: stage.seconds for stage in plan.stages},
        "used": _of_cluster(used, model),
        "capacity": _of_cluster(_capacity(model), model),
        "saves": _saves(plan, model, gains(model, placed)),
    }


def _capacity(model: CostModel) -> dict[str, int]:
    return {tier: int(pools.sum()) for tier, pools in zip(model.memories, model.memory_capacity, strict=True)}


def _of_cluster(sizes: dict[str, int], model: CostModel) -> dict[str, int]:
    """Bytes of all groups of ranks, from those of one."""
    groups = 1 if model.replicas is None else model.replicas.factor
    return {tier: size * groups for tier, size in sizes.items()}


def _saves(plan: Plan, model: CostModel, resource_gains: list[Any]) -> dict[str, float]:
    """The share of the step that 10 % more of each resource saves: of rates with the plan as it is; of memory at most
    so much, by the memory multipliers in the proof of the bound."""
    assert plan.objective is not None
    saved = dict.fromkeys(RESOURCES, 0.0) | {gain.resource: gain.saved for gain in resource_gains}
    saves = {_column(resource): share for resource, share in saved.items()}
    capacity = _capacity(model)
    for tier in model.memories:
        if not capacity[tier]:
            continue
        is_hidden = plan.proof is None or model.is_floor(plan.objective.lower_bound_s)
        multipliers = () if is_hidden or plan.proof is None else plan.proof.memory_multipliers
        seconds_per_byte = max((each.seconds_per_byte for each in multipliers if each.tier == tier), default=0.0)
        saves[f"{tier}_capacity"] = min(1.0, GROWTH * capacity[tier] * seconds_per_byte / plan.objective.step_s)
    return saves


def _column(resource: str) -> str:
    return resource.lower().replace("flop/s", "flops").replace("-", "_").replace(" ", "_")


def _limit(plan: Plan, binding: tuple[Resource | None, ...]) -> str:
    """What takes most of the step: the time of each stage laid to what binds it."""
    seconds: dict[str, float] = {}
    for stage, resource in zip(plan.stages, binding, strict=True):
        what = _bound_by(stage.name, resource)
        seconds[what] = seconds.get(what, 0.0) + stage.seconds
    return max(seconds, key=lambda what: seconds[what])


def _bound_by(stage: str, resource: Resource | None) -> str:
    if resource is None:
        return "overhead"
    if resource.row.limit is not None:
        return resource.row.limit
    return "hbm" if stage in STAGES and STAGES[stage].is_lookup else "dense"
