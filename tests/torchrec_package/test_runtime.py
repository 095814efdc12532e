"""What a trainer needs beside the plan: quantized exchanges, and tables that move while it runs."""

import json
from collections.abc import Iterator

import pytest
import torch
from torchrec.distributed.fbgemm_qcomm_codec import CommType

from benchmarks.gloo.model import Tables
from benchmarks.gloo.processes import Processes
from benchmarks.gloo.training import train_resharded
from cost_models.workload.models import Workload
from planner.api import plan
from planner.document import Plan, write_plan
from planner.exporters.torchrec import torchrec_plan
from planner.exporters.torchrec_reshard import torchrec_reshard
from planner.integrations.torchrec_runtime import qcomms_config, sharders_of, to_reshard
from planner.policy import Policy
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


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    """One gloo group for all trainers."""
    with Processes(WORLD, WORLD) as found:
        yield found


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


@pytest.mark.parametrize("optimizer", ["sgd", "rowwise_adagrad", "adagrad"])
def test_tables_move_while_a_trainer_runs(processes: Processes, optimizer: str) -> None:
    """Weights are those of a trainer whose tables stayed: rows, columns and optimizer state arrive."""
    more = {"embedding": {"optimizer": optimizer}}
    (before, workload), (after, _) = made(BEFORE, **more), made(AFTER, **more)
    files = [torchrec_plan(each, modules=["tables"], compute_device="cpu") for each in (before, after)]
    delta = torchrec_reshard(before, after, modules=["tables"], compute_device="cpu")
    assert list(delta["plan"]["tables"]) == ["t0", "t3"]
    documents = json.dumps([json.loads(each.to_json()) for each in (before, after)])
    told = workload.model_dump_json(), files
    moved = processes.run(train_resharded, *told, documents, 8, 3)[0]
    stayed = processes.run(train_resharded, *told, None, 8, 3)[0]
    assert moved.keys() == stayed.keys()
    for name, value in stayed.items():
        torch.testing.assert_close(moved[name], value, rtol=1e-5, atol=1e-6)


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
