"""Rows over some nodes, or some ranks of one, on tiny clusters: planned, bounded, proven, simulated like others."""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from benchmarks.validation.ranking import random_shards
from cost_models.model import CostModel
from cost_models.shards import MULTI_NODE_ROW_WISE, MULTI_RANK_ROW_WISE, Sharding
from cost_models.simulator.simulation import simulate
from cost_models.workload.models import Workload
from planner import plan
from planner.document.plan import Plan
from planner.formulation.allowed_choices import planning_model
from planner.formulation.policy import Policy
from planner.verification.verify import verify
from tests.oracles.choices import Cluster
from tests.oracles.document_rules import rules_of
from tests.oracles.instances import node_group, topology, workload
from topologies.cluster import Topology

INSTANCES = 40
SHARDINGS: tuple[Sharding, ...] = ("table_wise", "row_wise", "table_row_wise", "multi_node_row_wise")
POLICY = Policy(tiers=("hbm",), shardings=SHARDINGS)
OF_RANKS = Policy(tiers=("hbm",), shardings=("table_wise", "row_wise", "multi_rank_row_wise"))
NEAR = 0.03
"""Relative difference of two ways to count the same step, where nothing overlaps."""


def question(seed: int, among: str = "nodes") -> tuple[Topology, Workload]:
    """Three or four nodes of one or two ranks, of one kind or two, or one node of three to five, or two to four nodes
    that are one scale-up domain, with short or ample HBM; two or three tables whose rows do not divide evenly."""
    random = np.random.default_rng([seed, 58])
    shapes = {
        "nodes": [(3, 1), (3, 2), (4, 1), (4, 2)],
        "a node": [(1, 3), (1, 4), (1, 5)],
        "a domain": [(2, 2), (3, 1), (4, 1), (2, 3)],
    }[among]
    nodes, ranks = shapes[seed % len(shapes)]
    tables = [
        {
            "rows": int(10 ** random.uniform(1, 5)),
            "dim": int(random.choice([8, 32, 64])),
            "pooling_factor": int(random.integers(1, 80)),
        }
        for _ in range(2 if nodes * ranks > 5 else 3)
    ]
    stored = sum(4.2 * int(table["rows"]) * int(table["dim"]) for table in tables) / (nodes * ranks)
    shared = {"ranks": ranks, "hbm_bytes": float(random.choice([60.0, 6.0, 2.5])) * stored + 4e8}
    if among == "a domain":
        return topology(node_group("a", nodes=nodes, domain=nodes * ranks, **shared)), workload(tables)
    split = int(random.integers(1, nodes)) if random.random() < 0.4 and nodes > 1 else nodes
    groups = [node_group("a", nodes=split, **shared)]
    if split < nodes:
        groups.append(node_group("b", nodes=nodes - split, hbm_bytes_per_s=3.3e12, **shared))
    return topology(*groups, oversubscription=float(random.choice([1.0, 2.5]))), workload(tables)


def fastest_s(model: CostModel, policy: Policy) -> tuple[float, set[str]] | None:
    """The shortest step of all documents that there could be, with their shardings; None where none fits."""
    each = (_fastest_s(model.at_protocols(protocols), policy) for protocols in model.all_protocols)
    return min((found for found in each if found is not None), key=lambda found: found[0], default=None)


def _fastest_s(model: CostModel, policy: Policy) -> tuple[float, set[str]] | None:
    """The same where exchanges take the model's protocols."""
    cluster = Cluster(model, rules_of(model, policy))
    choices = [cluster.choices(table, np.inf, 0) for table in range(len(model.workload.tables))]
    assert all(of.complete for of in choices)
    best: tuple[float, set[str]] | None = None
    last = choices[-1]
    for held in itertools.product(*(range(len(of.load)) for of in choices[:-1])):
        beside = cluster.base + sum(of.load[i] for of, i in zip(choices, held, strict=False))
        load = beside + last.load
        step = np.where(cluster.overflow(load) <= 0, cluster.step_s(load), np.inf)
        at = int(step.argmin())
        if np.isfinite(step[at]) and (best is None or step[at] < best[0]):
            ways = [*zip(choices, held, strict=False), (last, at)]
            best = float(step[at]), {of.families[of.family[i]].variant.sharding for of, i in ways}
    return best


def plans(policy: Policy, among: str) -> Iterator[tuple[int, tuple[float, set[str]] | None, Plan]]:
    for seed in range(INSTANCES):
        cluster, tables = question(seed, among)
        best = fastest_s(planning_model("physical", cluster, tables, policy), policy)
        yield seed, best, plan(cluster, tables, policy=policy, gap=0.0, effort=1, simulate=False)


@pytest.mark.slow(seconds=20)
@pytest.mark.parametrize(
    ("policy", "among", "in_parts"),
    [
        (POLICY, "nodes", "multi_node_row_wise"),
        (OF_RANKS, "a node", "multi_rank_row_wise"),
        (OF_RANKS, "a domain", "multi_rank_row_wise"),
    ],
)
def test_bound_and_plan_beside_every_document_that_there_could_be(policy: Policy, among: str, in_parts: str) -> None:
    """Bound <= optimum <= plan; the optimum is nearly always found and proven; every plan verifies."""
    used = found = proven = feasible = 0
    for seed, best, made in plans(policy, among):
        assert verify(made) == [], seed
        if best is None:
            assert made.objective is None, seed
            continue
        feasible += 1
        assert made.objective is not None, seed
        assert made.objective.lower_bound_s <= best[0] * (1 + 1e-9), seed
        assert best[0] <= made.objective.step_s * (1 + 1e-9), seed
        used += in_parts in best[1]
        found += made.objective.step_s <= best[0] * (1 + 1e-9)
        proven += made.status == "optimal"
    assert feasible >= 0.8 * INSTANCES
    assert used >= 0.1 * feasible
    assert found >= 0.95 * feasible
    assert proven >= 0.9 * feasible


@pytest.mark.parametrize("seed", range(8))
def test_the_estimate_is_near_the_simulator(seed: int) -> None:
    """Where nothing overlaps: sums are reduced inside each node, then sent to the samples."""
    random = np.random.default_rng(seed)
    tables = [{"rows": int(random.integers(1e4, 2e6)), "dim": 64, "pooling_factor": 20.0, "pooling_std": 3.0}] * 2
    nodes = int(random.integers(3, 7))
    model = planning_model("physical", topology(node_group("a", nodes=nodes)), workload(tables), POLICY)
    placed = random_shards(model, random, (MULTI_NODE_ROW_WISE,))
    assert placed.blocks.holders is not None
    simulated = simulate(model.topology, model.workload, placed, steps=1)
    assert model.evaluate(placed).step_s == pytest.approx(simulated.step_s, rel=NEAR)


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_so_it_is_of_rows_over_some_ranks_of_a_node_or_domain(seed: int, nodes: int) -> None:
    """Every holder sends its sums to the samples, where they meet."""
    random = np.random.default_rng(seed)
    tables = [{"rows": int(random.integers(1e4, 2e6)), "dim": 64, "pooling_factor": 20.0, "pooling_std": 3.0}] * 2
    ranks = int(random.integers(3, 9))
    cluster = topology(node_group("a", nodes=nodes, ranks=ranks, domain=nodes * ranks))
    model = planning_model("physical", cluster, workload(tables), OF_RANKS)
    placed = random_shards(model, random, (MULTI_RANK_ROW_WISE,))
    assert placed.blocks.holders is not None
    simulated = simulate(model.topology, model.workload, placed, steps=1)
    assert model.evaluate(placed).step_s == pytest.approx(simulated.step_s, rel=NEAR)
