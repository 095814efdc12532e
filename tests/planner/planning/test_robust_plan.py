"""Robust plans: never worse than the nominal one where they are compared, told truly, and refused where not known."""

import itertools
from functools import cache

import numpy as np
import pytest

from cost_models.registry import cost_model
from cost_models.scenario_steps import ScenarioModels
from cost_models.shards import HBM, TABLE_WISE, Blocks, PlacedShards
from planner import plan, verify
from planner.document.plan import Plan
from planner.formulation.policy import Policy
from planner.formulation.robust_aim import RobustAim
from planner.problem.scenario_loads import quantile
from planner.verification.robustness import scenarios_of
from tests.oracles.instances import node_group, topology, workload
from topologies.errors import InputError

WHOLE = {"tiers": ["hbm"], "shardings": ["table_wise"]}
ROBUST = {"quantile": "p90", "scenarios": 20, "simulated": 2, "pooling_drift": 0.0, "skew_drift": 0.0, "slow_rank": 1.0}
STEADY, VARYING = {"pooling_factor": 30.0}, {"pooling_factor": 30.0, "pooling_std": 600.0}
TABLES = [{"rows": 90_000 + i, "dim": 64, **(VARYING if i < 3 else STEADY)} for i in range(6)]
"""Alike at the means; three of six vary, by half of their ids in a batch of 1,600."""
CLUSTER = topology(node_group("g", ranks=3, hbm_bytes=4e9))
TRAINED = workload(TABLES, global_batch=1_600, overhead="10us")


def _policy(**more: object) -> Policy:
    return Policy.model_validate({**WHOLE, "robust": {**ROBUST, **more}})


@cache
def _robust() -> Plan:
    return plan(CLUSTER, TRAINED, policy=_policy(), effort=1)


def _every() -> list[float]:
    """The quantile of each placement of whole tables."""
    aim = RobustAim.model_validate(ROBUST)
    model = cost_model("physical", CLUSTER, TRAINED)
    models = ScenarioModels(model, scenarios_of(aim, model, held_back=False))
    tables = np.arange(len(TABLES))
    blocks = Blocks(tables, tables * 0 + TABLE_WISE, tables * 0 + HBM, model.tables.dim, tables * 0.0)
    placements = {
        tuple(ranks) for ranks in itertools.product(range(3), repeat=len(TABLES)) if np.bincount(ranks).max() <= 2
    }  # with three on a rank the step is longer in every scenario
    quantiles = []
    for ranks in sorted(placements):
        if list(dict.fromkeys(ranks)) != sorted(set(ranks)):  # the ranks are alike: one of each six
            continue
        placed = PlacedShards(blocks, np.array(ranks), model.tables.rows, np.ones(len(TABLES), dtype=bool))
        quantiles.append(quantile(models.of(placed).step_s, aim.quantile))
    return quantiles


def test_it_is_no_worse_and_what_it_says_holds() -> None:
    """The nominal plan is a candidate; figures are recomputed, the simulator's, too."""
    robust = _robust().robust
    assert robust is not None
    assert robust.sampled.planned.quantile_s <= robust.sampled.nominal.quantile_s
    assert robust.simulated is not None
    assert (robust.simulated.scenarios, robust.simulated.seed) == (2, 1)
    assert verify(_robust()) == []


def test_the_best_of_all_placements_is_found() -> None:
    """Six tables on three ranks: no placement has a smaller quantile, and some a larger one."""
    robust, every = _robust().robust, _every()
    assert robust is not None
    assert robust.sampled.planned.quantile_s == pytest.approx(min(every), rel=1e-9)
    assert robust.sampled.planned.quantile_s < max(every) * 0.98


def test_the_same_question_has_the_same_bytes() -> None:
    """Scenarios come from the seed, and work is counted."""
    assert plan(CLUSTER, TRAINED, policy=_policy(), effort=1).to_json() == _robust().to_json()


def test_a_quantile_alone_says_what_is_assumed() -> None:
    """`robust: p95` takes drift and a slow rank that nobody stated, and says so."""
    short = plan(
        CLUSTER,
        TRAINED,
        policy=Policy.model_validate({**WHOLE, "robust": {"quantile": "p95", "scenarios": 20}}),
        effort=0,
        simulate=False,
    )
    assert short.robust is not None
    assert short.robust.assumed == ("pooling_drift", "skew_drift", "slow_rank")
    assert short.robust.simulated is None
    assert _robust().robust.assumed == ()  # type: ignore[union-attr]
    assert verify(short) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("sampled", "planned", "quantile_s"), 1.0),
        (("held_back", "planned", "mean_s"), 1.0),
        (("simulated", "planned", "quantile_s"), 1.0),
        (("sampled", "planned", "overfull"), 3),
        (("sampled", "seed"), 9),
        (("simulated", "scenarios"), 3),
        (("pooling_drift",), 0.3),
        (("assumed",), ("slow_rank",)),
        (("sampled", "nominal", "quantile_s"), 1e-9),
    ],
)
def test_a_changed_figure_is_found(path: tuple[str, ...], value: object) -> None:
    """Each of its own, and the nominal plan's where that would have been the better choice."""
    robust = _robust().robust
    assert robust is not None
    told = robust.model_dump()
    told["quantile"] = robust.quantile
    here = told
    for key in path[:-1]:
        here = here[key]
    here[path[-1]] = value
    changed = _robust().model_copy(update={"robust": type(robust).model_validate(told | {"quantile": 90.0})})
    assert any(fault.startswith("robust") for fault in verify(changed))


def test_a_plan_without_its_scenarios_is_found() -> None:
    """The policy asks for a robust plan, and the document says nothing of scenarios; or the other way about."""
    assert any("robust: missing" in fault for fault in verify(_robust().model_copy(update={"robust": None})))
    nominal = plan(CLUSTER, TRAINED, policy=Policy.model_validate(WHOLE), effort=0, simulate=False)
    assert nominal.robust is None
    assert any("robust: there" in fault for fault in verify(nominal.model_copy(update={"robust": _robust().robust})))


def test_what_is_not_known_in_scenarios_is_refused() -> None:
    """By name, before anything is searched: ratings, and plans that follow another."""
    former = plan(CLUSTER, TRAINED, policy=Policy.model_validate(WHOLE), effort=0, simulate=False)
    with pytest.raises(InputError, match="rating"):
        plan(CLUSTER, TRAINED, policy=_policy(), cost_model="torchrec")
    with pytest.raises(InputError, match="follow another"):
        plan(CLUSTER, TRAINED, policy=_policy(), previous=former)


@pytest.mark.parametrize(
    ("robust", "words"),
    [
        ("p49", "no quantile"),
        ("95", "no quantile"),
        ({"quantile": 0.95}, "no quantile"),
        ({"quantile": "p99", "scenarios": 50}, "take 100"),
        ({"quantile": "p95", "slow_rank": 0.5}, "slow_rank"),
    ],
)
def test_a_wrong_aim_is_refused(robust: object, words: str) -> None:
    """Quantiles below the median, or of too few scenarios; ranks that are fast."""
    with pytest.raises(ValueError, match=words):
        Policy.model_validate({"robust": robust})


@pytest.mark.parametrize("more", [{"replicas": {"factor": 2}}, {"exchange": "auto"}])
def test_a_policy_that_asks_for_both_is_refused(more: dict[str, object]) -> None:
    """Groups of ranks, and an exchange that is left open."""
    with pytest.raises(ValueError, match="leave one of both out"):
        Policy.model_validate({"robust": "p95", **more})
