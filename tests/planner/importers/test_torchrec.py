"""TorchRec's plans come in as they went out, with their distance from the bound."""

import json
import pickle

import numpy as np
import pytest

from cost_models.shards import USUAL_SHARDINGS
from cost_models.workload.models import Workload
from planner.document.plan import Plan
from planner.document.planned import planned_inputs
from planner.exporters.torchrec import easyrec_plan, torchrec_plan
from planner.formulation.policy import Policy
from planner.importers.adoption import RELAXED_BOUND_ABOVE, AdoptionInputs, adopted
from planner.importers.torchrec import parameters_of, torchrec_tables, unpickled, with_settings
from planner.planning.planning import plan
from planner.verification.verify import verify
from topologies.errors import InputError
from topologies.loading import load_topology


@pytest.fixture(scope="module")
def found() -> Plan:
    """One table per sharding on 2 nodes of 8, one cached, one in DDR."""
    tables = [
        {"name": f"t_{s}", "rows": 1003 + i, "dim": 64, "pooling_factor": 3} for i, s in enumerate(USUAL_SHARDINGS)
    ]
    tables += [{"name": n, "rows": 5000, "dim": 32, "pooling_factor": 1} for n in ("cached", "uvm")]
    workload = Workload.model_validate({"name": "w", "global_batch": 1024, "tables": tables})
    rules = [{"match": f"t_{s}", "shardings": [s], "tiers": ["hbm"], "column_multiple": 32} for s in USUAL_SHARDINGS]
    rules += [{"match": "cached", "tiers": ["ddr_cached"]}, {"match": "uvm", "tiers": ["ddr"]}]
    policy = Policy.model_validate({"runtime": "torchrec", "tables": rules})
    return plan(load_topology("dgx-a100-80", nodes=2), workload, policy=policy, effort=0)


def inputs(found: Plan, cost_model: str = "physical") -> AdoptionInputs:
    return AdoptionInputs(*planned_inputs(found), cost_model, Policy(runtime="torchrec"))


def brought_in(document: dict, told: AdoptionInputs) -> Plan:
    parameters = parameters_of(document, "their.json")
    held, told = torchrec_tables(parameters, told, "their.json"), with_settings(parameters, told, "their.json")
    return adopted(held, told, "torchrec", "their.json")


@pytest.mark.parametrize("shape", ["whole", "modules", "parameters"])
def test_a_round_trip_changes_nothing(found, shape):
    """Tables, bytes, stages, step and simulation; only the bound is that of fewer limits."""
    document = json.loads(json.dumps(torchrec_plan(found, modules=["m"])))
    document = {"whole": document, "modules": document["plan"], "parameters": document["plan"]["m"]}[shape]
    again = brought_in(document, inputs(found))
    assert again.tables == found.tables
    for ours, theirs in zip(found.ranks, again.ranks, strict=True):
        assert theirs.bytes == ours.bytes
        assert theirs.seconds == pytest.approx(ours.seconds, rel=1e-9)
    assert again.objective.step_s == pytest.approx(found.objective.step_s, rel=1e-9)
    assert again.simulated.step_s == pytest.approx(found.simulated.step_s, rel=1e-6)
    assert 0 < again.objective.lower_bound_s <= found.objective.lower_bound_s * (1 + 1e-9)
    assert again.objective.gap == pytest.approx(again.objective.step_s / again.objective.lower_bound_s - 1)
    assert verify(again) == []


def test_torcheasyrec_has_ranks_only(found):
    """Shards follow from the ranks, as TorchRec cuts; the cache is its default."""
    again = brought_in(easyrec_plan(found, modules=["m"]), inputs(found))
    assert verify(again) == []
    for ours, theirs in zip(found.tables, again.tables, strict=True):
        assert (theirs.sharding, theirs.tier) == (ours.sharding, ours.tier)
        np.testing.assert_array_equal(theirs.shards.rank, ours.shards.rank)
        if len(set(ours.shards.columns.tolist())) == 1:
            np.testing.assert_array_equal(theirs.shards.as_matrix()[:, :5], ours.shards.as_matrix()[:, :5])
    assert next(t for t in again.tables if t.name == "cached").cache_fraction == 0.2


def test_a_bad_plan_shows_its_distance_from_the_bound(found):
    """Everything on one rank."""
    document = {
        table.name: {"sharding_type": "table_wise", "compute_kernel": "fused", "ranks": [0]} for table in found.tables
    }
    bad = brought_in(document, inputs(found))
    assert bad.status == "feasible"
    assert bad.objective.step_s > found.objective.step_s
    assert bad.objective.gap > found.objective.gap
    assert verify(bad) == []


def test_what_cannot_be_read_is_said_at_once(found):
    """A missing and an unknown table, kernel, sharding, rows, rank, uneven row blocks."""
    document = torchrec_plan(found, modules=["m"])["plan"]["m"]
    document["extra"] = document.pop("uvm")
    document["t_data_parallel"]["sharding_type"] = "data_paralel"
    document["t_table_wise"]["compute_kernel"] = "fussed"
    document["t_column_wise"]["num_embeddings"] = 7
    document["cached"]["shards"][0]["placement"] = "rank:77/cuda:0"
    with pytest.raises(InputError) as error:
        brought_in(document, inputs(found))
    said = str(error.value)
    assert "uvm: the plan lacks this table of the workload" in said
    assert "extra: the workload has no such table" in said
    assert "'data_paralel' is no sharding_type; did you mean 'data_parallel'?" in said
    assert "'fussed' is no compute_kernel that can be costed; did you mean 'fused'?" in said
    assert "t_column_wise: num_embeddings is 7 in the plan and 1005 in the workload" in said
    assert "cached: has a shard on a rank that is none of 0 to 15" in said
    assert len(error.value.faults) == 6


def test_uneven_rows_are_refused(found):
    """TorchRec runs them without an error and computes wrong numbers."""
    document = torchrec_plan(found, modules=["m"])
    first, second = document["plan"]["m"]["t_row_wise"]["shards"][:2]
    first["shard_sizes"][0] += 1
    second["shard_offsets"][0] += 1
    second["shard_sizes"][0] -= 1
    with pytest.raises(InputError, match="t_row_wise: its row blocks are not those of row_wise"):
        brought_in(document, inputs(found))


def test_a_pickle_that_is_no_plan_is_refused(tmp_path):
    """Whatever else it holds."""
    file = tmp_path / "plan.pkl"
    file.write_bytes(pickle.dumps({"plan": 1}))
    with pytest.raises(InputError, match="holds no ShardingPlan but one dict"):
        unpickled(file)
    file.write_bytes(b"nothing")
    with pytest.raises(InputError, match="cannot be unpickled"):
        unpickled(file)


def many_tables(rows: int = 1000) -> AdoptionInputs:
    """More than an import searches a bound for."""
    count = RELAXED_BOUND_ABOVE + 1
    tables = [
        {"name": f"t{i}", "rows": rows * (1 + i % 7), "dim": 16, "pooling_factor": 1 + i % 5} for i in range(count)
    ]
    workload = Workload.model_validate({"name": "w", "global_batch": 8192, "tables": tables})
    return AdoptionInputs(load_topology("dgx-a100-80"), workload, "physical", Policy(runtime="torchrec"))


def on_one_rank(told: AdoptionInputs) -> dict:
    way = {"sharding_type": "table_wise", "compute_kernel": "fused", "ranks": [0]}
    return {table.name: way for table in told.workload.tables}


def test_many_tables_take_the_bound_of_the_prices(monkeypatch):
    """No search for a plan of our own, whose time would exceed the import's; the bound verifies, and is a search's."""
    told = many_tables()
    searched = plan(told.topology, told.workload, policy=told.policy, effort=0, simulate=False).objective
    monkeypatch.setattr("planner.importers.adoption.api.plan", None)
    bad = brought_in(on_one_rank(told), told)
    assert bad.objective.gap > 0.1
    assert verify(bad) == []
    assert bad.objective.lower_bound_s == pytest.approx(searched.lower_bound_s, rel=0.01)
    assert bad.objective.lower_bound_s <= searched.step_s


def test_many_tables_that_fit_nowhere_have_no_bound():
    """The reason is that of the planner."""
    told = many_tables(rows=10**11)
    with pytest.raises(InputError, match=r"has no bound: .* tables fit nowhere.*; check the inputs"):
        brought_in(on_one_rank(told), told)


SETTINGS = {
    "enforce_hbm": False,
    "stochastic_rounding": True,
    "bounds_check_mode": "V2_FATAL",
    "output_dtype": "BF16",
    "cache_params": {
        "algorithm": "LFU",
        "load_factor": 0.125,
        "reserved_memory": 1e6,
        "precision": "FP32",
        "prefetch_pipeline": False,
        "multipass_prefetch_config": {"num_passes": 3, "min_splitable_pass_size": 1000},
    },
    "key_value_params": {
        "ssd_storage_directory": "/ssd",
        "use_passed_in_path": False,
        "load_ckpt_without_opt": True,
        "ps_hosts": [["::1", 2000], ["::1", 2001]],
    },
}


@pytest.mark.parametrize("name", ["cached", "uvm", "t_row_wise", "t_data_parallel"])
def test_settings_of_kernels_come_in_and_go_out(found, name):
    """Every field that a ParameterSharding has for a kernel, of tables in every tier; and no other table's."""
    document = json.loads(json.dumps(torchrec_plan(found)))
    entry = document["plan"][""][name]
    entry |= SETTINGS
    again = brought_in(document, inputs(found))
    out = json.loads(json.dumps(torchrec_plan(again)))["plan"][""]
    assert {key: out[name][key] for key in SETTINGS} == SETTINGS
    assert out == document["plan"][""]
    assert brought_in(json.loads(json.dumps(torchrec_plan(again))), inputs(again)).tables == again.tables


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"bounds_check_mode": "LOUD"}, "bounds_check_mode"),
        ({"cache_params": {"size": 3}}, "cache_params.size"),
        ({"output_dtype": "FP7"}, "output_dtype"),
        ({"key_value_params": {"ps_host": []}}, "ps_host"),
    ],
)
def test_settings_that_are_unknown_are_named(found, change, words):
    """With the table; nothing of a plan is left out in silence."""
    document = json.loads(json.dumps(torchrec_plan(found)))
    document["plan"][""]["uvm"] |= change
    with pytest.raises(InputError, match=rf"uvm\..*{words}"):
        brought_in(document, inputs(found))


def test_a_kernel_other_than_the_usual_stays(found):
    """`dense` and `fused_triton` of tables in HBM that are not replicated."""
    document = json.loads(json.dumps(torchrec_plan(found)))
    document["plan"][""]["t_table_wise"]["compute_kernel"] = "dense"
    document["plan"][""]["t_column_wise"]["compute_kernel"] = "fused_triton"
    assert torchrec_plan(brought_in(document, inputs(found)))["plan"] == document["plan"]


def test_settings_against_the_workloads_are_named(found):
    """A workload that says one thing and a plan that says another."""
    document = json.loads(json.dumps(torchrec_plan(found)))
    document["plan"][""]["uvm"]["stochastic_rounding"] = True
    told = brought_in(document, inputs(found))
    document["plan"][""]["uvm"]["stochastic_rounding"] = False
    with pytest.raises(InputError, match="uvm: its kernel has other settings in the workload"):
        brought_in(document, inputs(told))
