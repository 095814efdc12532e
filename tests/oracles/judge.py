"""Whether a plan keeps the planner's promises, over all that the plan document's rules accept.

No placement is faster than the bound; none is faster than a plan that is called optimal; nothing fits where it is said
that nothing does. The judge finds placements of its own (`document_rules`, `covers`, `choices`, `fastest`), and the
cost model says what they take.
"""

import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cost_models.model import CostModel
from cost_models.registry import cost_model
from cost_models.shards import MEMORY_TIERS
from planner import plan
from planner.document.plan import Objective, Plan, RankPlan, StageTime, TablePlan
from planner.document.planned import placed_tables
from planner.document.shards import TierBytes
from planner.verification.verify import verify
from tests.oracles import legality
from tests.oracles.choices import Cluster
from tests.oracles.document_rules import rules_of
from tests.oracles.fastest import Found, fastest
from tests.oracles.questions import Question
from topologies.errors import InputError

BOUND_TOLERANCE = 1e-9
OPTIMAL_TOLERANCE = 1e-6
OUTSIDE = "the bound does not cover how it is held"
"""In what `verify` says of a placement that is right, and no option."""


@dataclass(frozen=True)
class Verdict:
    """What became of a question."""

    status: str
    """Of the plan; `refused` where the question is an error, `crash` where the planner ended with a traceback."""
    kind: str | None = None
    """The promise that does not hold: `below the bound`, `optimal is beaten`, `not infeasible`, `not verified` and
    `not allowed` (the plan's own document, by `verify` and by the judge), `crash`."""
    words: str = ""
    witness: tuple[TablePlan, ...] | None = None
    is_exact: bool = False
    """Whether all placements were tried."""
    traits: tuple[str, ...] = ()
    """What is uncommon about the witness."""
    refused_by_verify: tuple[str, ...] = ()
    """What `verify` finds wrong about the witness beside its bound."""
    is_outside: bool = False
    """Whether the witness is of a form that `verify` takes for none of the options that the bound covers."""
    is_missed: bool = False
    """Whether a placement exists where the planner found none and claimed nothing."""


def asked(question: Question) -> Plan:
    """The planner's answer. Raises InputError where it refuses the question."""
    topology, workload, policy = question.records
    return plan(
        topology,
        workload,
        cost_model=question.cost_model,
        policy=policy,
        effort=question.effort,
        gap=question.gap,
        simulate=False,
    )


def judged(question: Question, seed: int = 0) -> Verdict:
    """Ask, and hold the answer to its promises."""
    topology, workload, policy = question.records
    try:
        found = asked(question)
        faults = verify(found)
    except InputError as error:
        return Verdict("refused", words="; ".join(fault.message for fault in error.faults))
    except Exception:  # noqa: BLE001 — whatever ends the planner is what the audit looks for
        return Verdict("crash", "crash", traceback.format_exc(limit=-6))
    if faults:
        return Verdict(found.status, "not verified", "; ".join(faults))
    model = cost_model(question.cost_model, topology, workload)
    cluster = Cluster(model, rules_of(model, policy, found.provenance.cache_fractions))
    if broken := legality.faults(model, cluster.rules, found.tables) if found.tables else []:
        return Verdict(found.status, "not allowed", "; ".join(broken), found.tables)
    limit_s, kind = _limit(found)
    best = fastest(cluster, limit_s, seed, found.tables)
    if best.tables is None:
        return Verdict(found.status, is_exact=best.is_exact)
    verdict = _verdict(found, model, cluster, best, kind)
    if not verdict.is_outside:
        return verdict
    plain = Cluster(model, replace(cluster.rules, plain=True))
    inside = fastest(plain, limit_s, seed, found.tables)
    return verdict if inside.tables is None else _verdict(found, model, plain, inside, kind)


def _limit(found: Plan) -> tuple[float, str]:
    """What a placement has to be faster than to break a promise, and which one."""
    if found.objective is None:
        return float("inf"), "not infeasible"
    bound_s = found.objective.lower_bound_s * (1 - BOUND_TOLERANCE)
    optimal_s = found.objective.step_s * (1 - OPTIMAL_TOLERANCE)
    if found.status == "optimal" and optimal_s > bound_s:
        return optimal_s, "optimal is beaten"
    return bound_s, "below the bound"


def _verdict(found: Plan, model: CostModel, cluster: Cluster, best: Found, kind: str) -> Verdict:
    """A verdict for a placement that the planner says there is none of, after a second look at it."""
    assert best.tables is not None
    document = _document(found, model, cluster, best.tables)
    assert document.objective is not None
    step_s = document.objective.step_s
    assert np.isclose(step_s, best.step_s, rtol=1e-9), (step_s, best.step_s)
    if found.status == "timeout":
        return Verdict(found.status, is_exact=best.is_exact, witness=best.tables, is_missed=True)
    if found.objective is not None and step_s < found.objective.lower_bound_s * (1 - BOUND_TOLERANCE):
        kind = "below the bound"
    told = "nothing fits" if found.objective is None else f"bound {found.objective.lower_bound_s * 1e3:.9g} ms"
    expected = (
        "objective: the bound",
        "objective: gap",
        "status: feasible, though",
        "proof: the lower bound comes without one",
        "cache_fractions:",
    )
    refused = tuple(fault for fault in verify(document) if not fault.startswith(expected))
    words = f"{found.status}, {told}; a placement takes {step_s * 1e3:.9g} ms"
    is_outside = not cluster.rules.plain and any(OUTSIDE in fault for fault in refused)
    return Verdict(
        status=found.status,
        kind=None if is_outside else kind,
        words=words,
        witness=best.tables,
        is_exact=best.is_exact,
        traits=_traits(found, cluster, best.tables),
        refused_by_verify=refused,
        is_outside=is_outside,
    )


def _document(found: Plan, model: CostModel, cluster: Cluster, tables: Sequence[TablePlan]) -> Plan:
    """The plan document of a placement, with the bound that the planner gave."""
    placed = placed_tables(tables)
    evaluation, sizes = model.evaluate(placed), model.shard_bytes(placed)
    counted = [MEMORY_TIERS.index(tier) for tier in model.memories]
    written, first = [], 0
    for table in tables:
        size = np.zeros((len(table.shards), len(MEMORY_TIERS)), dtype=np.int64)
        size[:, counted] = sizes[first : first + len(size)].round()
        first += len(size)
        written.append(table.model_copy(update={"shards": replace(table.shards, bytes=size)}))
    capacity = [of[pool] for of, pool in zip(cluster.rules.capacity, model.memory_pool_of_rank, strict=True)]
    ranks = tuple(
        RankPlan(
            rank=rank,
            node=int(model.host_of_rank[rank]),
            bytes=TierBytes.of(model.memories, evaluation.rank_bytes[rank]),
            capacity=TierBytes.of(model.memories, [of[rank] for of in capacity]),
            seconds=dict(zip(model.stages, evaluation.rank_stage_seconds[rank].tolist(), strict=True)),
        )
        for rank in range(cluster.world)
    )
    pairs = zip(model.stages, evaluation.stage_seconds.tolist(), evaluation.critical_rank, strict=True)
    stages = tuple(StageTime(name=name, seconds=s, critical_rank=rank) for name, s, rank in pairs)
    bound_s = evaluation.step_s if found.objective is None else found.objective.lower_bound_s
    gap = evaluation.step_s / bound_s - 1 if bound_s else 0.0
    objective = Objective(step_s=evaluation.step_s, lower_bound_s=bound_s, gap=gap)
    update = {"status": "feasible", "objective": objective, "stages": stages, "tables": tuple(written), "ranks": ranks}
    return found.model_copy(
        update={**update, "simulated": None, "infeasibility": None, "unplaced": None, "moves": None}
    )


def _traits(found: Plan, cluster: Cluster, tables: Sequence[TablePlan]) -> tuple[str, ...]:
    """What is uncommon about a placement, to sort those of a kind."""
    said: list[str] = []
    for table, rules in zip(tables, cluster.rules.tables, strict=True):
        starts, first = np.unique(table.shards.column_start, return_index=True)
        widths, blocks = table.shards.columns[first], len(starts)
        if blocks > 1:
            said += [f"{table.sharding} {'+'.join(map(str, sorted(widths.tolist(), reverse=True)))} of {rules.dim}"]
            said += ["a block of 4 columns"] * bool(widths.min() == 4)
            said += ["several on one rank"] * bool(len(set(table.shards.rank.tolist())) < len(table.shards))
            said += ["narrower than 1/max_shards"] * bool(widths.min() * rules.max_shards < rules.dim)
        if not table.shards.rows.all():
            said.append("fewer rows than ranks")
        said += [f"{table.sharding} in {table.tier}"] if table.tier != "hbm" else []
        listed = found.provenance.cache_fractions.get(table.tier, {})
        if listed and table.cache_fraction not in listed.get(table.name, ()):
            said.append("a cache size that is not listed")
    return tuple(dict.fromkeys(said))
