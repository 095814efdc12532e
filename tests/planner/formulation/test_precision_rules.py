"""Caches of full precision that a policy lets a plan choose."""

import numpy as np
import pytest

from cost_models.registry import cost_model
from cost_models.shards import HBM, HBM_MIXED, TABLE_WISE, Blocks
from cost_models.workload.formats import DTYPES
from cost_models.workload.models import Workload
from planner import plan, verify
from planner.formulation.choice_rules import allowed_choices
from planner.formulation.policy import Policy
from tests.oracles.instances import node_group, topology, workload
from topologies.errors import InputError

CLUSTER = topology(node_group("a", ranks=2, hbm_bytes=1e9, ddr_bytes=20e9))
TABLES = [{"rows": 4_000_000, "dim": 64, "pooling_factor": 10, "zipf_alpha": 1.05}] * 2
MODEL = workload(TABLES, embedding={"dtype": "fp16", "optimizer": "rowwise_adagrad"})


def choices(model: Workload = MODEL, **policy: object) -> tuple[list[bool], list[float]]:
    """Whether the first table may be in HBM alone and with a cache; shares of its rows."""
    found = allowed_choices(cost_model("physical", CLUSTER, model), Policy.model_validate(policy))
    return found.tiers[0, [HBM, HBM_MIXED]].tolist(), found.precision_caches[0].tolist()


def test_what_is_named_is_what_is_left() -> None:
    """`off` is the table alone, a share a cache beside it; rules for a table leave what both name; unnamed: none."""
    assert choices()[0] == [True, False]
    assert choices(precision_caches=["off", 0.01, 0.05]) == ([True, True], [0.01, 0.05])
    assert choices(precision_caches=[0.05])[0] == [False, True]
    assert choices(precision_caches=[False])[0] == [True, False]  # YAML reads off so
    rule = {"match": "t0", "precision_caches": ["off", 0.05]}
    assert choices(precision_caches=["off", 0.01, 0.05], tables=[rule])[1][0] == 0.05
    assert choices(tiers=["hbm_mixed"]) == ([False, True], [0.01, 0.05])


@pytest.mark.parametrize(
    ("fields", "policy", "message"),
    [
        ({}, {"precision_caches": [0.01], "runtime": "torchrec"}, "torchrec has no caches of full precision"),
        ({"precision_cache": "5%"}, {"precision_caches": ["off"]}, "the workload gives 't0' a precision_cache"),
        ({}, {"dtypes": ["int4"], "precision_caches": ["off"]}, "training cannot write int4 in place"),
        ({}, {"precision_caches": [0.01], "tables": [{"match": "t0", "precision_caches": [0.05]}]}, "no cache is left"),
    ],
)
def test_what_cannot_be_is_refused_by_name(fields: dict[str, str], policy: dict[str, object], message: str) -> None:
    """Runtimes without such caches, tables that have one already, formats that nothing could update."""
    model = workload([{**table, **fields} for table in TABLES])
    with pytest.raises(InputError, match=message):
        choices(model, **policy)


@pytest.mark.parametrize("dtype", ["int4", "int8"])
def test_a_chosen_cache_costs_what_a_stated_one_does(dtype: str) -> None:
    """The same seconds and bytes, whoever says that there is one."""
    stated = workload([{**table, "precision_cache": "5%", "dtype": dtype} for table in TABLES])
    one, width = np.zeros(1, dtype=np.int64), np.array([64])
    code = np.array([DTYPES.index(dtype)])
    chosen = Blocks(one, one + TABLE_WISE, one + HBM_MIXED, width, np.array([0.05]), code)
    own = Blocks(one, one + TABLE_WISE, one + HBM, width, np.array([0.0]))
    found = cost_model("physical", CLUSTER, MODEL).block_costs(chosen, 0)
    expected = cost_model("physical", CLUSTER, stated).block_costs(own, 0)
    for name in ("fixed", "by_rows", "everywhere", "bytes_fixed", "bytes_by_rows", "supported"):
        assert np.asarray(getattr(found, name)) == pytest.approx(np.asarray(getattr(expected, name)))


def test_a_plan_takes_a_cache_where_it_helps_and_is_no_slower_for_the_choice() -> None:
    """Tables that spill as fp16 fit as int4 with a cache, and where all fit the cheaper way stays; verified."""
    several = {"precision_caches": ["off", 0.01, 0.05], "dtypes": ["fp16", "int4"]}
    tight, roomy = (topology(node_group("a", ranks=2, hbm_bytes=size, ddr_bytes=20e9)) for size in (0.45e9, 4e9))
    for cluster, takes in ((tight, True), (roomy, False)):
        plain = plan(cluster, MODEL, effort=1)
        free = plan(cluster, MODEL, policy=Policy.model_validate(several), effort=1)
        assert free.objective is not None
        assert plain.objective is not None
        assert free.objective.step_s <= plain.objective.step_s
        assert any(table.tier == "hbm_mixed" for table in free.tables) == takes
        assert verify(free) == []
        assert free.simulated is not None
        assert free.simulated.step_s == pytest.approx(free.objective.step_s, rel=0.1)
