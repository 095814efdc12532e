"""A plan that follows another: the cheapest of all placements by its step and its moves, on terms that it records."""

import itertools
from functools import cache

import numpy as np
import pytest

from cost_models.registry import cost_model
from cost_models.shards import HBM, TABLE_WISE, Blocks, PlacedShards
from cost_models.step import StepModel
from cost_models.workload.models import Workload
from planner import plan, verify
from planner.document.migration import DEFAULT_PAY_BACK_STEPS
from planner.document.plan import Plan
from planner.formulation.policy import Policy
from planner.planning.following import FormerTerms
from planner.problem.goals import GIVE
from tests.oracles.instances import node_group, topology, workload
from topologies.cluster import Topology
from topologies.errors import InputError

ROWS = (2_000_000, 1_500_000, 700_000, 90_000)
DIM, STATE_BYTES = 64, 4
BYTES = np.array(ROWS) * (DIM * 4 + STATE_BYTES)
"""Weights in fp32, and a number of row-wise Adagrad for each row."""
TABLES = [{"rows": rows, "dim": DIM, "pooling_factor": 40 - 9 * i} for i, rows in enumerate(ROWS)]
WHOLE = {"tiers": ["hbm"], "shardings": ["table_wise"]}
CLUSTER = topology(node_group("g", ranks=2, hbm_bytes=4e9))
TRAINED = workload(TABLES, global_batch=65_536)


@cache
def _former() -> Plan:
    """All tables whole on the first of two ranks."""
    return plan(CLUSTER, TRAINED, policy=Policy.model_validate({**WHOLE, "ranks": "0"}), effort=0, simulate=False)


def _followed(trained: Workload = TRAINED, cluster: Topology = CLUSTER, **terms: object) -> Plan:
    return plan(
        cluster, trained, policy=Policy.model_validate(WHOLE), previous=_former(), gap=0.0, simulate=False, **terms
    )


def _every(cluster: Topology = CLUSTER) -> list[tuple[tuple[int, ...], float, float]]:
    """Each placement of the tables on two ranks with its step and the bytes that leave rank 0."""
    model = StepModel(cluster, TRAINED)
    tables = np.arange(len(ROWS))
    blocks = Blocks(tables, tables * 0 + TABLE_WISE, tables * 0 + HBM, model.tables.dim, tables * 0.0)
    every = []
    for ranks in itertools.product((0, 1), repeat=len(ROWS)):
        placed = PlacedShards(blocks, np.array(ranks), model.tables.rows, np.ones(len(ROWS), dtype=bool))
        every.append((ranks, model.evaluate(placed).step_s, float(BYTES @ np.array(ranks))))
    return every


def _ranks(found: Plan) -> tuple[int, ...]:
    return tuple(int(table.shards.rank[0]) for table in found.tables)


def _without_cards() -> Topology:
    group = CLUSTER.nodes[0]
    links = group.links.model_copy(update={"scale_out": None})
    return CLUSTER.model_copy(update={"nodes": (group.model_copy(update={"links": links}),)})


@pytest.mark.parametrize("steps", [1, 10, 10_000])
@pytest.mark.parametrize("has_cards", [True, False])
def test_a_move_pays_for_itself_in_so_many_steps(has_cards: bool, steps: int) -> None:
    """Step and priced bytes together are the least of all 16 placements, but for the tenth of a percent given up: a
    byte takes its time over the cards of both ranks, or over their links where there are no cards."""
    cluster = CLUSTER if has_cards else _without_cards()
    found = _followed(cluster=cluster, pay_back_steps=steps)
    (kind,) = StepModel(cluster, TRAINED).kinds
    price = 1 / (2 * (kind.nic_all_to_all if has_cards else kind.link_all_to_all)) / steps
    assert found.moves is not None
    assert found.objective is not None
    assert (found.moves.limit_bytes, found.moves.pay_back_steps) == (None, steps)
    every = _every(cluster)
    best = min(step_s + price * moved for _, step_s, moved in every)
    own = next((step_s, moved) for ranks, step_s, moved in every if ranks == _ranks(found))
    assert own[0] + price * own[1] <= best * (1 + GIVE)
    assert found.objective.step_s == pytest.approx(own[0])
    assert found.moves.moved_bytes == own[1]
    assert verify(found) == []


@pytest.mark.parametrize("limit", [0, 23_400_000, 200_000_000, 10**12])
def test_a_limit_leaves_the_fastest_of_the_placements_within_it(limit: int) -> None:
    """No more bytes move; of the placements that move so few the fastest is found, and a limit has no price."""
    found = _followed(max_move_bytes=limit)
    assert found.moves is not None
    assert (found.moves.limit_bytes, found.moves.pay_back_steps) == (limit, None)
    assert found.moves.moved_bytes <= limit
    within = [(step_s, ranks) for ranks, step_s, moved in _every() if moved <= limit]
    own_s = next(step_s for step_s, ranks in within if ranks == _ranks(found))
    assert own_s <= min(within)[0] * (1 + GIVE)


def test_terms_that_nobody_states_are_those_of_the_default() -> None:
    """Moves pay for themselves within 10,000 steps; of ratings, which are no seconds, nothing has a price."""
    found = _followed()
    assert found.moves is not None
    assert (found.moves.limit_bytes, found.moves.pay_back_steps) == (None, DEFAULT_PAY_BACK_STEPS)
    both = _followed(max_move_bytes=10**12, pay_back_steps=7)
    assert both.moves is not None
    assert (both.moves.limit_bytes, both.moves.pay_back_steps) == (10**12, 7)
    rated = plan(CLUSTER, TRAINED, cost_model="torchrec", policy=Policy.model_validate(WHOLE), effort=0)
    again = plan(CLUSTER, TRAINED, cost_model="torchrec", policy=Policy.model_validate(WHOLE), previous=rated)
    assert again.moves is not None
    assert again.moves.pay_back_steps is None


def test_the_same_question_moves_nothing() -> None:
    """A plan that follows itself is itself."""
    best = plan(CLUSTER, TRAINED, policy=Policy.model_validate(WHOLE), gap=0.0)
    again = plan(CLUSTER, TRAINED, policy=Policy.model_validate(WHOLE), gap=0.0, previous=best)
    assert again.moves is not None
    assert again.moves.moved_bytes == 0
    assert _ranks(again) == _ranks(best)


def test_too_little_room_to_move_is_no_want_of_memory() -> None:
    """A node is lost, and its tables must go elsewhere: a limit below them is infeasible, says the least that moves,
    and names no remedy of memory."""
    cluster = topology(node_group("g", nodes=2, ranks=1, hbm_bytes=4e9))
    spread = plan(cluster, TRAINED, policy=Policy.model_validate(WHOLE), gap=0.0)
    alone = topology(node_group("g", nodes=1, ranks=1, hbm_bytes=4e9))
    lost = sum(int(BYTES[t]) for t, rank in enumerate(_ranks(spread)) if rank == 1)
    terms = {"previous": spread, "lost_nodes": [1]}
    found = plan(alone, TRAINED, policy=Policy.model_validate(WHOLE), max_move_bytes=lost // 2, **terms)
    assert found.status == "infeasible"
    assert found.infeasibility is not None
    assert found.infeasibility.remedies == ()
    assert found.moves is not None
    assert found.moves.least_bytes == pytest.approx(lost, rel=1e-6)
    enough = plan(alone, TRAINED, policy=Policy.model_validate(WHOLE), max_move_bytes=lost, **terms)
    assert enough.moves is not None
    assert (enough.moves.moved_bytes, enough.moves.lost_bytes) == (lost, lost)


def test_want_of_memory_has_remedies() -> None:
    """Tables that grew beyond HBM: what would make them fit is told, as it is without a former plan."""
    grown = workload([{**table, "rows": int(str(table["rows"])) * 10} for table in TABLES], global_batch=65_536)
    found = _followed(grown)
    assert found.status == "infeasible"
    assert found.infeasibility is not None
    assert any(remedy.flags for remedy in found.infeasibility.remedies)


def test_a_former_plan_that_does_not_hold_together_is_refused() -> None:
    """Its shards are those of a plan, or it is no base for another; so is one without any of the tables."""
    former = _former()
    shards = former.tables[0].shards
    broken = former.tables[0].model_copy(update={"shards": type(shards).from_matrix(shards.as_matrix() * 0)})
    model = cost_model("physical", CLUSTER, TRAINED)
    with pytest.raises(InputError, match="the previous plan"):
        FormerTerms(former.model_copy(update={"tables": (broken, *former.tables[1:])})).migration(model)
    others = workload([{**table, "name": f"other{i}"} for i, table in enumerate(TABLES)])
    with pytest.raises(InputError, match="none is a table of workload"):
        FormerTerms(former).migration(cost_model("physical", CLUSTER, others))
