"""What a trainer needs beside the plan: quantized exchanges, and tables that move while it runs."""

import json

import pytest
import torch
from torchrec.distributed.fbgemm_qcomm_codec import CommType

from benchmarks.gloo.model import Tables
from benchmarks.gloo.processes import Processes
from benchmarks.gloo.training import train_resharded
from cost_models.workload.models import Workload
from planner.document.plan import Plan, write_plan
from planner.exporters.torchrec import torchrec_plan
from planner.exporters.torchrec_reshard import torchrec_reshard
from planner.formulation.policy import Policy
from planner.integrations.torchrec_runtime import qcomms_config, sharders_of, to_reshard
from planner.planning.planning import plan
from topologies.errors import InputError
from topologies.loading import load_topology

WORLD = 2
OVERRIDES = [f"nodes.0.accelerators.count={WORLD}", f"nodes.0.links.scale_out.count={WORLD}"]
OVERRIDES += ["nodes.0.links.pcie.accelerators_per_switch=1"]


def made(rules: dict[str, dict[str, object]], **more: object) -> tuple[Plan, Workload]:
    """A plan of five tables of bags; a rule by the name of a table."""
    tables = [{"name": f"t{i}", "rows": 20 + i, "dim": 32, "pooling_factor": 2} for i in range(5)]
    told = {"name": "w", "batch_per_rank": 8, "tables": tables, "embedding": {"optimizer": "sgd"}} | more
    workload = Workload.model_validate(told)
    policy = {"runtime": "torchrec", "tables": [{"match": name, **own} for name, own in rules.items()]}
    cluster = load_topology("dgx-a100-80", nodes=1, overrides=OVERRIDES)
    return plan(cluster, workload, policy=Policy.model_validate(policy), effort=0, simulate=False), workload


def whole(rank: int) -> dict[str, object]:
    return {"shardings": ["table_wise"], "ranks": str(rank)}


def cut() -> dict[str, object]:
    return {"shardings": ["column_wise"], "max_shards": 2}


BEFORE = {"t0": whole(0), "t1": whole(0), "t2": whole(1), "t3": whole(1), "t4": {"shardings": ["row_wise"]}}
AFTER = BEFORE | {"t0": whole(1), "t3": whole(0)}


def test_quantized_exchanges_are_stated_and_offered(tmp_path) -> None:
    """In the file, as a QCommsConfig and in sharders; of fp32 ones there is nothing."""
    exchange = {"forward": "fp16", "backward": "bf16"}
    found, _ = made(BEFORE, communication=exchange)
    file = torchrec_plan(found)
    assert file["qcomms"] == {"forward_precision": "fp16", "backward_precision": "bf16"}
    write_plan(found, tmp_path / "plan.json")
    for source in (found, file, tmp_path / "plan.json"):
        config = qcomms_config(source)
        assert (config.forward_precision, config.backward_precision) == (CommType.FP16, CommType.BF16)
        assert all(sharder.qcomm_codecs_registry for sharder in sharders_of(source))
    plain, _ = made(BEFORE)
    assert "qcomms" not in torchrec_plan(plain)
    assert qcomms_config(plain) is None
    assert all(sharder.qcomm_codecs_registry is None for sharder in sharders_of(plain))


def test_a_format_that_the_codecs_lack_is_refused() -> None:
    """Named, with where it stands."""
    found, _ = made(BEFORE, communication={"forward": "mx6", "backward": "fp32"})
    with pytest.raises(InputError, match=r"communication.forward: torchrec's codecs have no mx6"):
        torchrec_plan(found)


def swapped(found: Plan, name: str) -> Plan:
    """The plan with the ranks of a table's two shards changed for each other."""
    document = json.loads(found.to_json())
    (table,) = (each for each in document["tables"] if each["name"] == name)
    for shard in table["shards"]:
        shard["rank"] = 1 - shard["rank"]
    return Plan.model_validate(document)


def weights_after(
    processes: Processes, workload: Workload, plans: list[Plan], *, moved: bool
) -> dict[str, torch.Tensor]:
    """Of a trainer that changes from the first plan to the second halfway, or keeps the first."""
    files = [torchrec_plan(each, modules=["tables"], compute_device="cpu") for each in plans]
    documents = json.dumps([json.loads(each.to_json()) for each in plans]) if moved else None
    return processes.run(train_resharded, workload.model_dump_json(), files, documents, 8, 3)[0]


def expect_no_difference(processes: Processes, workload: Workload, plans: list[Plan]) -> None:
    """Weights are those of a trainer whose tables stayed."""
    moved = weights_after(processes, workload, plans, moved=True)
    stayed = weights_after(processes, workload, plans, moved=False)
    assert moved.keys() == stayed.keys()
    for name, value in stayed.items():
        torch.testing.assert_close(moved[name], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("optimizer", ["sgd", "rowwise_adagrad", "adagrad"])
def test_tables_move_while_a_trainer_runs(two_ranks: Processes, optimizer: str) -> None:
    """Rows and optimizer state arrive, and each table goes on with its own ids, though their order has changed."""
    more = {"embedding": {"optimizer": optimizer}}
    (before, workload), (after, _) = made(BEFORE, **more), made(AFTER, **more)
    delta = torchrec_reshard(before, after, modules=["tables"], compute_device="cpu")
    assert list(delta["plan"]["tables"]) == ["t0", "t3"]
    expect_no_difference(two_ranks, workload, [before, after])


@pytest.mark.parametrize("optimizer", ["sgd", "rowwise_adagrad", "adagrad"])
def test_columns_move_while_a_trainer_runs(two_ranks: Processes, optimizer: str) -> None:
    """A table cut in two, whose halves change ranks."""
    before, workload = made(BEFORE | {"t1": cut()}, embedding={"optimizer": optimizer})
    expect_no_difference(two_ranks, workload, [before, swapped(before, "t1")])


@pytest.mark.parametrize("to_empty", [True, False])
def test_a_rank_may_have_no_tables_before_or_after(two_ranks: Processes, to_empty: bool) -> None:
    """All on rank 0, and one of them goes to rank 1; or comes back."""
    all_on_one = {f"t{i}": whole(0) for i in range(5)}
    told = {"embedding": {"optimizer": "rowwise_adagrad"}}
    (before, workload), (after, _) = made(all_on_one, **told), made(all_on_one | {"t2": whole(1)}, **told)
    expect_no_difference(two_ranks, workload, [before, after] if to_empty else [after, before])


def test_ranks_that_hash_names_otherwise_are_refused() -> None:
    """Over gloo reshard would wait for ever: said before anything moves."""
    (before, workload), (after, _) = made(BEFORE), made(AFTER)
    with Processes(WORLD, WORLD, one_hash_seed=False) as alone, pytest.raises(RuntimeError, match="PYTHONHASHSEED"):
        weights_after(alone, workload, [before, after], moved=True)


def test_rows_over_some_of_the_ranks_crash() -> None:
    """So that no plan for TorchRec has them: its row_wise looks for a shard on every rank."""
    found, workload = made(BEFORE)
    file = torchrec_plan(found, modules=["tables"], compute_device="cpu")
    table = file["plan"]["tables"]["t4"]
    first, last = table["shards"]
    whole_table = {**last, "shard_offsets": [0, 0], "shard_sizes": [24, 32]}
    some = {**table, "ranks": [1], "shards": [whole_table]}
    assert first["shard_sizes"] == last["shard_sizes"] == [12, 32]
    changed = {**file, "plan": {"tables": {**file["plan"]["tables"], "t4": some}}}
    with Processes(WORLD, WORLD) as alone, pytest.raises(RuntimeError, match=r"rw_sharding\.py"):
        alone.run(train_resharded, workload.model_dump_json(), [changed, changed], None, 8, 3)


def test_the_objects_are_the_files(tmp_path) -> None:
    """Tables by path with their new shards, and the megabytes of these."""
    (before, workload), (after, _) = made(BEFORE), made(AFTER)
    found = to_reshard(before, after, Tables(workload, "meta"), compute_device="cpu")
    ((megabytes, tables),) = found.values()
    assert list(tables) == ["t0", "t3"]
    assert megabytes == pytest.approx((20 + 23) * 32 * 4 / 2**20)
    assert [tables[name].ranks for name in tables] == [[1], [0]]
    assert to_reshard(before, before, Tables(workload, "meta"), compute_device="cpu") == {}


@pytest.mark.parametrize(
    ("table", "was", "now", "more", "said"),
    [
        (
            "t0",
            whole(0),
            {"shardings": ["row_wise"]},
            {},
            "it goes from table_wise to row_wise, and the way has to stay",
        ),
        ("t0", whole(0), {"shardings": ["data_parallel"]}, {}, "it goes from table_wise to data_parallel"),
        ("t0", whole(0), whole(1), {"embedding": {"optimizer": "adam"}}, "adam has two state arrays, of which one"),
        ("t0", whole(0), whole(1) | {"tiers": ["ddr_cached"]}, {}, "is fused_uvm_caching, and only fused ones move"),
    ],
)
def test_what_cannot_move_is_named(table, was, now, more, said) -> None:
    """With the reason, and what to do instead."""
    (before, _), (after, _) = made(BEFORE | {table: was}, **more), made(BEFORE | {table: now}, **more)
    with pytest.raises(InputError) as error:
        torchrec_reshard(before, after)
    assert said in str(error.value)
    assert "start from a checkpoint" in str(error.value)
