"""Right plan documents of many kinds: placed, divided, priced, following others, and without a plan."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cost_models.workload.models import Workload
from planner import plan
from planner.certificates.multipliers import Bound
from planner.document.plan import Plan
from planner.formulation.policy import Policy
from planner.formulation.question import Question, narrowed_policy
from planner.solvers.bound.cutting_planes import FluidSolution, solve_relaxation
from planner.solvers.bound.dual_feasible_cuts import strengthen
from planner.solvers.bound.few_block_cases import FewBlockCases
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.pattern_branching import PatternBranching
from planner.solvers.bound.pattern_prices import Work
from planner.solvers.bound.stage_cases import StageCaseSearch
from planner.solvers.limits import Clock, SearchLimits
from planner.verification.proof import write_proof
from tests.oracles.instances import node_group, topology, workload
from topologies.cluster import Topology

Json = Any


@dataclass(frozen=True)
class Base:
    """A right document, and the plan that it follows."""

    name: str
    text: str
    former: Plan | None = None

    @cached_property
    def data(self) -> Json:
        return json.loads(self.text)

    @cached_property
    def plan(self) -> Plan:
        return Plan.model_validate(self.data)


SMALL = [{"rows": 1001, "dim": 64}, {"rows": 5003, "dim": 32}, {"rows": 20_000, "dim": 64, "zipf_alpha": 1.05}]
LARGE = [{"rows": 4_000_000 * (i + 1), "dim": 64, "zipf_alpha": 1.05, "pooling_factor": 5 + 3 * i} for i in range(5)]


def bases() -> list[Base]:
    """A right document of every kind: optimal, with caches, infeasible for each reason, following another, unplaced."""
    two = topology(node_group("a", nodes=2))
    mixed = topology(node_group("a", nodes=1), node_group("b", nodes=1, hbm_bytes=2e9))
    scarce = topology(node_group("a", nodes=2, ranks=2, hbm_bytes=1.5e9, ddr_bytes=2e11))
    deep = topology(node_group("a", nodes=2, hbm_bytes=4e8, ddr_bytes=1e9, scm_bytes=3e9, remote_bytes=1e11))
    single = topology(node_group("a", hbm_bytes=1e9, ddr_bytes=None))
    small, large = workload(SMALL), workload(LARGE)
    like = [{"rows": 3_000_000 + i, "dim": 64} for i in range(5)]
    many = [{**table, "rows": 20_000_000 + i} for i, table in enumerate(2 * like)]
    packs = [{**table, "rows": 2_200_000 + i} for i, table in enumerate(like[:3])]
    rows = {"shardings": ["row_wise", "column_wise", "grid_shard"]}
    apart = {"tiers": ["hbm", "ddr"], "dtypes": ["fp16", "int8"], "optimizer_state": ["ddr"]}
    found = {
        "hbm": plan(single, workload(SMALL[:2]), tiers=["hbm"], shardings=["table_wise"], gap=0.0),
        "cut": plan(mixed, small, tiers=["hbm"], effort=0, **rows),
        "policy": plan(two, small, policy=_policy(), gap=0.0),
        "cached": plan(scarce, large, tiers=["hbm", "ddr_cached"], effort=0),
        "split": plan(scarce, large, tiers=["hbm", "ddr_split"], effort=0),
        "deep": plan(deep, workload(LARGE[:3]), effort=0),
        "apart": plan(two, small, policy=Policy.model_validate(apart), effort=0),
        "torchrec": plan(two, small, cost_model="torchrec", effort=0),
        "hugectr": plan(two, small, cost_model="hugectr", tiers=["hbm"]),
        "homeless": plan(two, workload([{"rows": 10**9, "dim": 128}, *SMALL]), tiers=["hbm"]),
        "shortage": plan(mixed, workload(many), tiers=["ddr"]),
        "confined": plan(two, workload(like), policy=_confined()),
        "trial": plan(single, workload(packs, global_batch=64), tiers=["hbm"], shardings=["table_wise"]),
    }
    return [
        *(Base(name, each.to_json()) for name, each in found.items()),
        divided(),
        beside_blocks(),
        priced(),
        *_followed(),
    ]


def _policy() -> Policy:
    rules = [{"match": "t1", "forbid_ranks": "3"}, {"match": "t0", "ranks": "0-1", "shardings": ["table_wise"]}]
    return Policy.model_validate({"tiers": ["hbm"], "tables": rules, "separate": [["t0", "t2"]], "max_shards": 4})


def _confined() -> Policy:
    return Policy.model_validate({"tiers": ["hbm"], "tables": [{"match": "t[0-2]", "ranks": [0, 1]}]})


def divided() -> Base:
    """A plan whose bound is proven by cases of how long a stage lasts, and by nothing else."""
    tables = [{"rows": 100_000 + i, "dim": 64, "pooling_factor": 20 + 3 * i} for i in range(3)]
    inputs = topology(node_group("a", nodes=2, ranks=2, hbm_bytes=40e9)), workload(tables)
    terms = {"cost_model": "torchrec", "tiers": ["hbm"], "shardings": ["table_wise", "column_wise"]}

    def raised(fluid: Fluid, relaxed: FluidSolution, step_s: float) -> Bound:
        search = StageCaseSearch(fluid, relaxed, Bound(relaxed.bound_s, relaxed.multipliers, None))
        search.run(2 * step_s, 2 * relaxed.stage_seconds, 6)
        bound = search.whole.proven()
        assert bound.seconds > 1.2 * relaxed.bound_s
        return bound

    return Base("divided", _with_bound(inputs, terms, raised).to_json())


def beside_blocks() -> Base:
    """A table whose blocks outlast all others on the mean, beside copies of those: its rank has both."""
    large: dict[str, object] = {"rows": 3_000_000, "dim": 64, "pooling_factor": 90}
    small = [{"rows": 20_000 + 1000 * i, "dim": 64, "pooling_factor": 8 + i} for i in range(6)]
    inputs = topology(node_group("a", nodes=4, ranks=2, hbm_bytes=40e9)), workload([large, *small])
    shardings = ["table_wise", "column_wise", "data_parallel"]
    terms = {"cost_model": "torchrec", "tiers": ["hbm"], "shardings": shardings}

    def raised(fluid: Fluid, relaxed: FluidSolution, step_s: float) -> Bound:
        cases = FewBlockCases(fluid, relaxed, 2 * step_s)
        cases.run(2 * relaxed.stage_seconds, 2 * step_s)
        bound = cases.whole.proven()
        assert bound.cases is not None
        assert any(leaf.bound.multipliers.beside for leaf in cases.whole.leaves())
        return bound

    return Base("beside blocks", _with_bound(inputs, terms, raised).to_json())


def priced() -> Base:
    """A plan whose bound is proven by prices of rank patterns, case by case."""
    tables = [{"rows": 100_000 + i, "dim": 64, "pooling_factor": 5 + i} for i in range(6)]
    inputs = topology(node_group("a", nodes=4, ranks=2, hbm_bytes=40e9)), workload(tables)
    shardings = ["table_wise", "column_wise", "data_parallel", "row_wise", "table_row_wise"]
    terms = {"cost_model": "torchrec", "tiers": ["hbm"], "shardings": shardings}

    def raised(fluid: Fluid, relaxed: FluidSolution, step_s: float) -> Bound:
        search = PatternBranching(fluid, Bound(relaxed.bound_s, relaxed.multipliers, None))
        bound = search.run(step_s, Work(2e8), Clock(SearchLimits()))
        assert bound.patterns is not None
        assert len(bound.patterns.cases) > 1
        return bound

    return Base("priced", _with_bound(inputs, terms, raised).to_json())


def in_whole_pools() -> Base:
    """Five whole tables of two fifths of a rank's HBM each, on two ranks: four fit."""
    tables = [{"rows": 1_600_000, "dim": 60, "pooling_factor": 20}] * 5
    inputs = topology(node_group("a", nodes=1, ranks=2, hbm_bytes=1e9, ddr_bytes=4e9)), workload(tables)
    terms = {"cost_model": "torchrec", "tiers": ["hbm", "ddr"], "shardings": ["table_wise"]}

    def raised(fluid: Fluid, relaxed: FluidSolution, step_s: float) -> Bound:
        bound = strengthen(fluid, Bound(relaxed.bound_s, relaxed.multipliers, None), step_s)
        assert bound.packing is not None
        return bound

    return Base("in whole pools", _with_bound(inputs, terms, raised).to_json())


def in_one_memory() -> Base:
    """A table of which the relaxation has a part in HBM and the rest in host memory, beside equal ones."""
    alike: list[dict[str, object]] = [{"rows": 1_000_000, "dim": 64, "pooling_factor": 10}] * 18
    large: dict[str, object] = {"rows": 20_000_000, "dim": 64, "pooling_factor": 10}
    inputs = topology(node_group("a", nodes=2, ranks=2, hbm_bytes=2e9, ddr_bytes=40e9)), workload([*alike, large])
    terms = {"cost_model": "torchrec", "tiers": ["hbm", "ddr"], "shardings": ["table_wise", "row_wise"]}

    def raised(fluid: Fluid, relaxed: FluidSolution, step_s: float) -> Bound:
        search = StageCaseSearch(fluid, relaxed, Bound(relaxed.bound_s, relaxed.multipliers, None))
        search.run_options(step_s, 4)
        bound = search.whole.proven()
        assert bound.cases is not None
        return bound

    return Base("in one memory", _with_bound(inputs, terms, raised).to_json())


def _with_bound(
    inputs: tuple[Topology, Workload],
    terms: dict[str, Any],
    raised: Callable[[Fluid, FluidSolution, float], Bound],
) -> Plan:
    """A plan whose bound is raised from the relaxation's in one way, and not by the search, too: it ends at once."""
    found = plan(*inputs, effort=0, gap=1.0, **terms)
    asked = Question.asked(*inputs, narrowed_policy(None, terms["tiers"], terms["shardings"]), terms["cost_model"])
    formulation, objective = asked.formulation(), found.objective
    fluid = Fluid(formulation.problem)
    assert objective is not None
    bound = raised(fluid, solve_relaxation(fluid), objective.step_s)
    gap = objective.step_s / bound.seconds - 1
    objective = objective.model_copy(update={"lower_bound_s": bound.seconds, "gap": gap})
    proof = write_proof(formulation.model, formulation.problem, bound)
    return found.model_copy(update={"proof": proof, "objective": objective, "status": "feasible"})


def _followed() -> Iterator[Base]:
    """A plan after a node was lost, one for which more must move than may, and one of which none was found in time."""
    tables = [{"rows": 100_000 + i, "dim": 64} for i in range(8)]
    model = workload(tables, global_batch=64)
    wide = topology(node_group("a", nodes=3, hbm_bytes=1e9, ddr_bytes=None))
    old = plan(wide, model, shardings=["table_wise"])
    less = topology(node_group("a", nodes=2, hbm_bytes=1e9, ddr_bytes=None))
    yield Base("followed", plan(less, model, previous=old, lost_nodes=[1], pay_back_steps=100).to_json(), old)
    yield Base("limited", plan(less, model, previous=old, lost_nodes=[1], max_move_bytes=1000).to_json(), old)
    ample = topology(node_group("a", ranks=2, hbm_bytes=1e9, ddr_bytes=None))
    even = plan(ample, model, shardings=["table_wise"])
    moved = json.loads(even.to_json())
    for table in moved["tables"]:
        table["shards"][0]["rank"] = 0
    uneven = Plan.model_validate(moved)
    tight = topology(node_group("a", ranks=2, hbm_bytes=8 * 100_000 * 260 * 0.75, ddr_bytes=None))
    terms = {"shardings": ["table_wise"], "previous": uneven}
    least = plan(tight, model, max_move_bytes=10**9, gap=1.0, **terms).moves
    assert least is not None
    yield Base("unplaced", plan(tight, model, max_move_bytes=least.least_bytes, **terms).to_json(), uneven)
