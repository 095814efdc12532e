"""Plans as TorchRec's dictionaries, made without torch."""

import numpy as np
import pytest

from cost_models.shards import USUAL_SHARDINGS
from cost_models.workload.models import Workload
from planner.document.plan import Plan
from planner.document.shards import Shards
from planner.exporters.modules import module_paths
from planner.exporters.torchrec import easyrec_environment, easyrec_plan, torchrec_constraints, torchrec_plan
from planner.formulation.policy import Policy
from planner.planning.planning import plan
from topologies.errors import InputError
from topologies.loading import load_topology


@pytest.fixture(scope="module")
def found() -> Plan:
    """One table per sharding on 2 nodes of 8, one cached, rows that do not divide evenly."""
    tables = [
        {"name": f"t_{s}", "rows": 1003 + i, "dim": 64, "pooling_factor": 3} for i, s in enumerate(USUAL_SHARDINGS)
    ]
    tables.append({"name": "cached", "rows": 5000, "dim": 32, "pooling_factor": 1, "zipf_alpha": 1.1})
    workload = Workload.model_validate({"name": "w", "global_batch": 1024, "tables": tables})
    rules = [{"match": f"t_{s}", "shardings": [s], "tiers": ["hbm"]} for s in USUAL_SHARDINGS]
    rules.append({"match": "cached", "tiers": ["ddr_cached"]})
    policy = Policy.model_validate({"runtime": "torchrec", "tables": rules})
    return plan(load_topology("dgx-a100-80", nodes=2), workload, policy=policy, effort=0, simulate=False)


def changed(found: Plan, name: str, **what: object) -> Plan:
    """The plan with another way to hold one table."""
    tables = [t.model_copy(update=what) if t.name == name else t for t in found.tables]
    return found.model_copy(update={"tables": tuple(tables)})


def test_shards_stand_as_torchrec_wants_them(found):
    """Offsets, sizes and placements of every table; none of a replicated one."""
    written = torchrec_plan(found, modules=["sparse.ebc"])
    assert (written["world_size"], written["local_world_size"]) == (16, 8)
    entries = written["plan"]["sparse.ebc"]
    assert list(entries) == [table.name for table in found.tables]
    for table in found.tables:
        entry = entries[table.name]
        assert entry["sharding_type"] == table.sharding
        assert entry["ranks"] == table.shards.rank.tolist()
        if table.sharding == "data_parallel":
            assert "shards" not in entry
            assert entry["compute_kernel"] == "dense"
            continue
        area = sum(int(np.prod(shard["shard_sizes"])) for shard in entry["shards"])
        assert area == entry["num_embeddings"] * entry["embedding_dim"]
        for rank, shard in zip(entry["ranks"], entry["shards"], strict=True):
            assert shard["placement"] == f"rank:{rank}/cuda:{rank % 8}"
    rows = [shard["shard_sizes"][0] for shard in entries["t_row_wise"]["shards"]]
    assert rows == [63] * 15 + [1003 + USUAL_SHARDINGS.index("row_wise") - 63 * 15]
    assert entries["cached"]["compute_kernel"] == "fused_uvm_caching"
    assert entries["cached"]["cache_params"]["load_factor"] > 0


def test_everything_that_cannot_run_is_refused_at_once(found):
    """Uneven rows, a subset of ranks, an SSD: each with its table."""
    rows = next(t for t in found.tables if t.name == "t_row_wise").shards
    node = next(t for t in found.tables if t.name == "t_table_row_wise").shards
    uneven = rows.as_matrix()
    uneven[0, 2] += 1
    uneven[1:, 1] += 1
    uneven[-1, 2] -= 1
    bad = changed(found, "t_row_wise", shards=Shards.from_matrix(uneven))
    bad = changed(bad, "t_table_row_wise", shards=Shards.from_matrix(node.as_matrix()[:5]))
    bad = changed(bad, "cached", tier="ssd_cached")
    with pytest.raises(InputError) as error:
        torchrec_plan(bad, source="bad.json")
    said = sorted(str(fault) for fault in error.value.faults)
    assert len(said) == 3
    assert "'t_row_wise': its row blocks are not those of row_wise" in said[0]
    assert "'t_table_row_wise': table_row_wise needs one shard on each of its ranks" in said[1]
    assert "'cached': it is held in ssd_cached" in said[2]
    assert all(line.startswith("bad.json: tables.") for line in said)


def test_a_plan_that_places_nothing_is_refused(found):
    """There is nothing to export."""
    with pytest.raises(InputError, match="is infeasible and places nothing"):
        torchrec_plan(found.model_copy(update={"status": "infeasible", "objective": None, "tables": ()}))


def test_constraints_leave_the_ranks_to_torchrec(found):
    """Sharding, kernel, narrowest width and pooling of every table."""
    constraints = torchrec_constraints(found)["constraints"]
    for table in found.tables:
        assert constraints[table.name]["sharding_types"] == [table.sharding]
        assert "ranks" not in constraints[table.name]
    widths = next(t for t in found.tables if t.name == "t_column_wise").shards.columns
    assert constraints["t_column_wise"]["min_partition"] == widths.min()


def test_torcheasyrec_gets_its_file_and_its_bandwidths(found):
    """Three keys of each parameter; bytes per millisecond."""
    written = easyrec_plan(found, modules=["m.ebc"])["m.ebc"]
    assert all(set(entry) == {"sharding_type", "compute_kernel", "ranks"} for entry in written.values())
    group = load_topology("dgx-a100-80", nodes=2).nodes[0]
    told = easyrec_environment(found)
    assert float(told["INTRA_NODE_BANDWIDTH"]) == group.links.scale_up.bandwidth / 1000
    assert float(told["CROSS_NODE_BANDWIDTH"]) == group.links.scale_out.bandwidth / 1000


def test_module_paths_go_by_name(found):
    """The last pattern that matches holds; the path's own prefix is dropped; a pattern for nothing is a fault."""
    paths = dict(zip((t.name for t in found.tables), module_paths(found, ["a", "cached=b"], "p"), strict=True))
    assert paths["cached"] == ("b", "cached")
    assert paths["t_row_wise"] == ("a", "t_row_wise")
    with pytest.raises(InputError, match="no table is called 'nothing_\\*'"):
        module_paths(found, ["nothing_*=a"], "p")


def test_sequences_keep_to_what_torchrec_has_for_them():
    """EmbeddingCollection knows no sharding that keeps to nodes: not planned with the runtime, refused without."""
    table = {"name": "s", "rows": 10**7, "dim": 64, "pooling_factor": 50, "pooled": False}
    workload = Workload.model_validate({"name": "w", "global_batch": 1024, "tables": [table]})
    cluster = load_topology("dgx-a100-80", nodes=2)
    node_wide = {"shardings": ["table_row_wise", "grid_shard"]}
    found = plan(cluster, workload, policy=Policy.model_validate(node_wide), effort=0, simulate=False)
    with pytest.raises(InputError, match=r"'s': it is .*, which only pooled tables can be"):
        torchrec_plan(found)
    with pytest.raises(InputError, match="no sharding is left for 's'"):
        plan(cluster, workload, policy=Policy.model_validate(node_wide | {"runtime": "torchrec"}))
    free = plan(cluster, workload, policy=Policy(runtime="torchrec"), effort=0, simulate=False)
    assert torchrec_plan(free)["plan"][""]["s"]["sharding_type"] in ("row_wise", "column_wise", "table_wise")


def test_no_rank_has_blocks_of_several_widths(found):
    """Blocks of one rank, 12 and 8 columns wide, become one; equally wide ones stay: TorchRec crashes otherwise."""
    name, rows = "t_column_wise", 1003 + USUAL_SHARDINGS.index("column_wise")

    def written(*blocks: tuple[int, int]) -> list[tuple[int, int, int]]:
        starts = np.cumsum([0, *(columns for _, columns in blocks)])
        matrix = [[rank, 0, rows, start, width, 0, 0, 0] for (rank, width), start in zip(blocks, starts, strict=False)]
        plan = changed(found, name, shards=Shards.from_matrix(np.array(matrix)))
        entry = torchrec_plan(plan)["plan"][""][name]
        shards = zip(entry["ranks"], entry["shards"], strict=True)
        return [(rank, shard["shard_offsets"][1], shard["shard_sizes"][1]) for rank, shard in shards]

    assert written((0, 24), (1, 20), (0, 20)) == [(0, 0, 44), (1, 44, 20)]
    assert written((0, 16), (1, 32), (0, 16)) == [(0, 0, 16), (1, 16, 32), (0, 48, 16)]


def test_what_cpu_kernels_crash_on_is_refused_there_only():
    """A rank without rows, and replicas of a table that is not pooled."""
    tables = [
        {"name": "few", "rows": 17, "dim": 16, "pooling_factor": 1},
        {"name": "sequence", "rows": 100, "dim": 16, "pooling_factor": 2, "pooled": False},
    ]
    workload = Workload.model_validate({"name": "w", "global_batch": 64, "tables": tables})
    rules = [{"match": "few", "shardings": ["row_wise"]}, {"match": "sequence", "shardings": ["data_parallel"]}]
    policy = Policy.model_validate({"runtime": "torchrec", "tables": rules})
    held = plan(load_topology("dgx-a100-80"), workload, policy=policy, effort=0, simulate=False)
    torchrec_plan(held)
    with pytest.raises(InputError) as error:
        torchrec_plan(held, compute_device="cpu")
    assert "'few' on CPU: a rank has none of its rows" in str(error.value)
    assert "'sequence' on CPU: it is data_parallel and not pooled" in str(error.value)


def test_cut_copies_are_refused_on_cpu_only():
    """TorchRec averages them on CUDA streams."""
    choices = {"factor": 2, "layout": "intra", "strategy": "fully_sharded"}
    table = {"name": "t", "rows": 90, "dim": 16, "pooling_factor": 1}
    workload = Workload.model_validate({"name": "w", "global_batch": 64, "tables": [table]})
    policy = Policy.model_validate({"runtime": "torchrec", "replicas": choices})
    held = plan(load_topology("dgx-a100-80", nodes=1), workload, policy=policy, effort=0, simulate=False)
    assert torchrec_plan(held)["dmp_collection"]["sharding_strategy"] == "FULLY_SHARDED"
    with pytest.raises(InputError, match=r"replicas.strategy: torchrec cuts copies \(FULLY_SHARDED\) on GPUs alone"):
        torchrec_plan(held, compute_device="cpu")


def test_a_precision_cache_goes_out_or_is_refused():
    """Of a cached table it is the cache's precision; beside a table in HBM TorchRec has none, so that none is planned
    for it and another plan's is refused."""
    table = {"name": "t", "rows": 100_000, "dim": 64, "pooling_factor": 3, "precision_cache": 0.05}
    fields = {"name": "w", "global_batch": 1024, "embedding": {"dtype": "fp16"}, "tables": [table]}
    words = {"effort": 0, "simulate": False}
    where, workload = load_topology("dgx-a100-80", nodes=1), Workload.model_validate(fields)
    with pytest.raises(InputError, match=r"held in fp32 beside it \(precision_cache\), and torchrec has no such cache"):
        torchrec_plan(plan(where, workload, tiers=["hbm"], **words))
    own = plan(where, workload, policy=Policy(runtime="torchrec"), **words)
    assert own.tables[0].tier == "ddr_cached"
    assert torchrec_plan(own)["plan"][""]["t"]["cache_params"]["precision"] == "FP32"
    with pytest.raises(InputError, match="torcheasyrec's file has no precision_cache, as 't' has; leave it out"):
        easyrec_plan(own, modules=["m"])
    with pytest.raises(ValueError, match=r"holds rows in fp32, and cache_params.precision says fp16"):
        Workload.model_validate(fields | {"tables": [table | {"kernel": {"cache_params": {"precision": "FP16"}}}]})
