"""A right plan has no violations; every way of falsifying one is named."""

import json
from collections.abc import Callable

import pytest

from cost_models.shards import USUAL_SHARDINGS
from planner import plan
from planner.document.plan import Plan
from planner.verification.unchecked import unchecked
from planner.verification.verify import verify
from tests.oracles.instances import node_group, tiny_instance, topology, workload
from tests.oracles.violations import Document, violations, violations_after
from topologies.cluster import Topology

TABLES = [{"rows": 1001, "dim": 64}, {"rows": 5003, "dim": 32}, {"rows": 20_000, "dim": 64}]


@pytest.fixture(scope="module")
def documents() -> dict[str, str]:
    """A plan of each sharding as text, on two nodes of two ranks; `cached` has its tables in DDR behind a cache."""
    cluster = topology(node_group("a", nodes=2))
    made = {
        sharding: plan(cluster, workload(TABLES), tiers=["hbm"], shardings=[sharding], effort=0)
        for sharding in USUAL_SHARDINGS
    }
    made["cached"] = plan(cluster, workload(TABLES), tiers=["ddr_cached"], shardings=["table_wise"], effort=0)
    assert {found.status for found in made.values()} <= {"optimal", "feasible"}
    return {name: found.to_json() for name, found in made.items()}


def shards(document: Document, table: int = 0) -> list[Document]:
    return document["tables"][table]["shards"]


@pytest.mark.parametrize("kind", [*USUAL_SHARDINGS, "cached"])
def test_a_right_plan_has_no_violations(documents: dict[str, str], kind: str) -> None:
    """Of every sharding, and behind a cache."""
    document = json.loads(documents[kind])
    assert violations(document) == []
    expected = "table_wise" if kind == "cached" else kind
    assert {table["sharding"] for table in document["tables"]} == {expected}


@pytest.mark.parametrize("seed", [0, 3, 9, 12, 21, 30])
def test_plans_of_mixed_clusters_verify(seed: int) -> None:
    """Solver and verifier sum the same placement in their own ways to the same figures."""
    instance = tiny_instance(seed)
    found = plan(instance.model.topology, instance.model.workload, tiers=instance.policy.tiers)
    assert found.objective is not None
    assert verify(found) == []


def _to_another_rank(document: Document) -> None:
    shard = shards(document)[0]
    shard["rank"] = (shard["rank"] + 1) % 4


def _beyond_the_world(document: Document) -> None:
    shards(document)[0]["rank"] = 4


def _drop_a_shard(document: Document) -> None:
    """The last one, or the last of those that are written as one."""
    last = shards(document)[-1]
    if last.get("replicas", 1) > 1:
        last["replicas"] -= 1
    else:
        del shards(document)[-1]


def _reverse_shards(document: Document) -> None:
    shards(document).reverse()


def _drop_all_shards(document: Document) -> None:
    shards(document).clear()


def _double_a_shard(document: Document) -> None:
    shards(document).append(shards(document)[-1])


def _fewer_rows(document: Document) -> None:
    shards(document)[0]["rows"] -= 1


def _uneven_rows(document: Document) -> None:
    first, second, *_ = shards(document)
    first["rows"] -= 1
    second["rows"] += 1
    second["row_start"] -= 1


def _swap_two_ranks(document: Document) -> None:
    first, second, *_ = shards(document)
    first["rank"], second["rank"] = second["rank"], first["rank"]


def _across_nodes(document: Document) -> None:
    first, *rest = shards(document)
    first["rank"] = (rest[0]["rank"] + 2) % 4


def _twice_on_one_rank(document: Document) -> None:
    first, second, *_ = shards(document)
    second["rank"] = first["rank"]


def _odd_widths(document: Document) -> None:
    first, second, *_ = shards(document)
    first["columns"] += 2
    second["column_start"] += 2
    second["columns"] -= 2


def _overlapping_columns(document: Document) -> None:
    shards(document)[0]["columns"] += 4


def _too_few_columns(document: Document) -> None:
    shards(document)[-1]["columns"] -= 4


def _other_dtype(document: Document) -> None:
    document["tables"][0]["dtype"] = "fp16"


def _other_tier(document: Document) -> None:
    document["provenance"]["policy"]["tiers"] = ["hbm", "ddr"]
    document["tables"][0]["tier"] = "ddr"


def _against_the_policy(document: Document) -> None:
    document["provenance"]["policy"]["tiers"] = ["ddr"]


def _a_cache_in_hbm(document: Document) -> None:
    document["tables"][0]["cache_fraction"] = 0.5


def _no_cache_fraction(document: Document) -> None:
    document["tables"][0]["cache_fraction"] = None


def _smaller_cache(document: Document) -> None:
    table = document["tables"][0]
    table["cache_fraction"] = 0.02 if table["cache_fraction"] != 0.02 else 0.1


def _no_such_cache(document: Document) -> None:
    document["tables"][0]["cache_fraction"] = 1.3


def _a_cache_that_was_no_option(document: Document) -> None:
    document["tables"][0]["cache_fraction"] = 0.0123


def _wrong_bytes(document: Document) -> None:
    shards(document)[0]["bytes"]["hbm"] += 1000


def _wrong_rank_bytes(document: Document) -> None:
    document["ranks"][1]["bytes"]["hbm"] -= 1000


def _wrong_rank_seconds(document: Document) -> None:
    document["ranks"][2]["seconds"]["output_dist"] *= 1.001


def _wrong_node(document: Document) -> None:
    document["ranks"][3]["node"] = 0


def _wrong_capacity(document: Document) -> None:
    document["ranks"][0]["capacity"]["ddr"] *= 2


def _rank_missing(document: Document) -> None:
    del document["ranks"][-1]


def _stage_seconds(document: Document) -> None:
    document["stages"][1]["seconds"] *= 1.01


def _stage_missing(document: Document) -> None:
    del document["stages"][1]


def _critical_rank(document: Document) -> None:
    stage = next(stage for stage in document["stages"] if stage["name"] == "lookup_backward")
    busy = [rank["seconds"]["lookup_backward"] for rank in document["ranks"]]
    stage["critical_rank"] = busy.index(min(busy))


def _shorter_step(document: Document) -> None:
    document["objective"]["step_s"] *= 0.999
    document["objective"]["gap"] = document["objective"]["step_s"] / document["objective"]["lower_bound_s"] - 1


def _bound_above_step(document: Document) -> None:
    document["objective"]["lower_bound_s"] = document["objective"]["step_s"] * 1.01


def _no_bound(document: Document) -> None:
    document["objective"]["lower_bound_s"] = 0.0


def _gap(document: Document) -> None:
    document["objective"]["gap"] += 0.01


def _table_missing(document: Document) -> None:
    del document["tables"][1]


def _tables_swapped(document: Document) -> None:
    document["tables"].reverse()


def _fingerprint(document: Document) -> None:
    document["provenance"]["workload"]["fingerprint"] = "sha256:0"


def _other_workload(document: Document) -> None:
    document["provenance"]["workload"]["content"]["global_batch"] *= 2


def _less_hbm(document: Document) -> None:
    """The cluster has too little memory, and the document says so consistently."""
    source = document["provenance"]["topology"]
    source["content"]["nodes"][0]["accelerators"]["hbm"]["capacity"] = "100kB"
    source["fingerprint"] = Topology.model_validate(source["content"]).fingerprint()


def _no_objective(document: Document) -> None:
    document["objective"] = None


def _infeasible_with_an_objective(document: Document) -> None:
    document["status"] = "infeasible"


def _optimal_by_word_only(document: Document) -> None:
    document["status"] = "optimal"
    document["objective"]["lower_bound_s"] *= 0.5
    document["objective"]["gap"] = document["objective"]["step_s"] / document["objective"]["lower_bound_s"] - 1


def _narrow_error_bar(document: Document) -> None:
    bar = document["objective"]["error_bar"]
    bar["low_s"] = bar["high_s"] = document["objective"]["step_s"]


def _error_bar_of_measurements(document: Document) -> None:
    document["stages"][0]["error_bar"]["basis"] = "measured"


def _one_error_bar_less(document: Document) -> None:
    document["stages"][0]["error_bar"] = None


@pytest.mark.parametrize(
    ("kind", "falsify", "said"),
    [
        ("table_wise", _to_another_rank, "its seconds per stage are not what its shards cost"),
        ("table_wise", _to_another_rank, "bytes, the document says"),
        ("table_wise", _beyond_the_world, "t0: has no shards, or one on a rank that does not exist"),
        ("table_wise", _drop_all_shards, "t0: has no shards"),
        ("table_wise", _double_a_shard, "t0: table_wise needs one shard"),
        ("table_wise", _fewer_rows, "t0: its row blocks are not those of table_wise"),
        ("table_wise", _too_few_columns, "t0: its column blocks do not tile"),
        ("table_wise", _other_dtype, "t0: is stored as fp16, which neither workload nor policy says"),
        ("table_wise", _other_tier, "bytes of 1 shards"),
        ("table_wise", _against_the_policy, "table_wise in hbm is not what the policy allows"),
        ("table_wise", _a_cache_in_hbm, "a cache fraction goes with the tiers that are partly in HBM"),
        ("cached", _no_cache_fraction, "a cache fraction goes with the tiers that are partly in HBM"),
        ("cached", _smaller_cache, "bytes of 1 shards"),
        ("cached", _no_such_cache, "t0: its cache fraction 1.3 is no share above 0 and at most 1"),
        (
            "cached",
            _a_cache_that_was_no_option,
            "t0: the bound does not cover how it is held: table_wise in ddr_cached: a cache of 0.0123",
        ),
        ("table_wise", _wrong_bytes, "bytes of 1 shards; first: t0"),
        ("table_wise", _wrong_rank_bytes, "rank 1: takes"),
        ("table_wise", _wrong_rank_seconds, "rank 2: its seconds"),
        ("table_wise", _wrong_node, "rank 3: stands on node 1, not 0"),
        ("table_wise", _wrong_capacity, "ddr: the capacity in the document"),
        ("table_wise", _rank_missing, "ranks: not 0 to 3"),
        ("table_wise", _stage_seconds, "stage lookup_forward: takes"),
        ("table_wise", _stage_seconds, "objective: step_s"),
        ("table_wise", _stage_missing, "stages: "),
        ("table_wise", _critical_rank, "stage lookup_backward: rank"),
        ("table_wise", _shorter_step, "objective: step_s"),
        ("table_wise", _bound_above_step, "objective: the bound"),
        ("table_wise", _no_bound, "objective: the bound"),
        ("table_wise", _gap, "objective: gap"),
        ("table_wise", _table_missing, "tables: missing ['t1']"),
        ("table_wise", _tables_swapped, "tables: "),
        ("table_wise", _fingerprint, "workload: the content hashes to"),
        ("table_wise", _other_workload, "workload: the content hashes to"),
        ("table_wise", _less_hbm, "hbm of rank"),
        ("table_wise", _no_objective, " without an objective"),
        ("table_wise", _infeasible_with_an_objective, "status: infeasible with an objective"),
        ("table_wise", _optimal_by_word_only, "status: optimal"),
        ("table_wise", _narrow_error_bar, "step: its error bar is not the cost model's"),
        ("table_wise", _error_bar_of_measurements, "its error bar is not the cost model's"),
        ("table_wise", _one_error_bar_less, "has no error bar"),
        ("column_wise", _drop_a_shard, "t0: its column blocks do not tile"),
        ("column_wise", _reverse_shards, "t0: its shards are not in the order of their columns"),
        ("column_wise", _odd_widths, "t0: a column block is not a multiple of 4"),
        ("column_wise", _overlapping_columns, "t0: its column blocks do not tile"),
        ("column_wise", _double_a_shard, "t0: column_wise needs one shard"),
        ("row_wise", _drop_a_shard, "t0: row_wise needs one shard on each of its ranks"),
        ("row_wise", _uneven_rows, "t0: its row blocks are not those of row_wise"),
        ("row_wise", _swap_two_ranks, "t0: row_wise needs one shard on each of its ranks, in their order"),
        ("row_wise", _twice_on_one_rank, "t0: row_wise needs one shard on each"),
        ("data_parallel", _drop_a_shard, "t0: data_parallel needs one shard on each of its ranks"),
        ("data_parallel", _fewer_rows, "t0: its row blocks are not those of data_parallel"),
        (
            "table_row_wise",
            _drop_a_shard,
            "t0: table_row_wise needs one shard on each of its ranks, in their order: ",
        ),
        ("table_row_wise", _across_nodes, "t0: table_row_wise needs one shard on each of its ranks"),
        ("table_row_wise", _uneven_rows, "t0: its row blocks are not those of table_row_wise"),
        ("grid_shard", _drop_a_shard, "t0: grid_shard needs one shard on each of its ranks"),
        ("grid_shard", _across_nodes, "t0: grid_shard needs one shard on each of its ranks"),
        ("table_column_wise", _across_nodes, "t0: table_column_wise needs different ranks of one node"),
        ("table_column_wise", _twice_on_one_rank, "t0: table_column_wise needs different ranks of one node"),
    ],
)
def test_a_falsified_plan_is_named(
    documents: dict[str, str], kind: str, falsify: Callable[[Document], None], said: str
) -> None:
    """Whatever is changed in a right plan, some violation says what no longer holds."""
    found = violations_after(falsify, documents[kind])
    assert any(said in violation for violation in found), found
    assert not any("np." in violation or "array" in violation for violation in found), "plain numbers only"


def test_an_infeasible_plan_carries_no_tables() -> None:
    """Nothing is placed, so nothing is wrong; stages, tables or ranks beside it are."""
    found = plan(topology(node_group("a")), workload([{"rows": 10**9, "dim": 128}]))
    assert found.status == "infeasible"
    assert verify(found) == []
    document = json.loads(found.to_json())
    document["stages"] = [{"name": "dense", "seconds": 1.0, "critical_rank": 0}]
    assert violations(document) == ["status: stages, tables or ranks without an objective"]


def test_a_bound_on_few_cuts_is_no_bound_where_every_cut_is_searched(documents: dict[str, str]) -> None:
    """The document narrows its own question; one from before cuts were stated is read, and said to be narrow."""
    document = json.loads(documents["table_wise"])
    document["provenance"]["cuts"] = {"hbm": "few", "below_hbm": "few"}
    assert any(violation.startswith("cuts: ") for violation in violations(document))
    del document["provenance"]["cuts"]
    assert not any(violation.startswith("cuts: ") for violation in violations(document))
    assert "provenance.cuts" in {one.field for one in unchecked(Plan.model_validate(document))}


def test_plans_from_before_error_bars_verify(documents: dict[str, str]) -> None:
    """The key is new: a document that states none anywhere is right without."""
    document = json.loads(documents["table_wise"])
    del document["objective"]["error_bar"]
    for stage in document["stages"]:
        del stage["error_bar"]
    assert violations(document) == []


@pytest.mark.parametrize("cost_model", ["torchrec", "hugectr"])
def test_ratings_have_no_error_bar_but_a_reason(cost_model: str) -> None:
    """Nothing was measured that they could be compared with; one that is claimed is a violation."""
    found = plan(topology(node_group("a")), workload(TABLES), cost_model=cost_model)
    document = json.loads(found.to_json())
    assert document["objective"]["error_bar"] is None
    assert "rating" in document["objective"]["no_error_bar"]
    assert violations(document) == []
    document["objective"]["error_bar"] = {"low_s": 0, "high_s": 1, "coverage": 0.9, "basis": "x", "spec_only": []}
    assert any("error bars" in violation for violation in violations(document))


def test_what_launching_the_search_of_caches_takes_is_checked(documents: dict[str, str]) -> None:
    """A plan with cached tables says it beside its step, one without says nothing; any other number is refused."""
    document = json.loads(documents["cached"])
    assert document["objective"]["cache_launch_s"] == pytest.approx(1.635e-4)
    assert "cache_launch_s" not in json.loads(documents["table_wise"])["objective"]
    for stated in (None, 1e-3):
        document["objective"]["cache_launch_s"] = stated
        assert any("cache_launch_s" in fault for fault in violations(document))
