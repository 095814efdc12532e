"""A format that joins ids in fewer rows needs its row in the table of formats alone: planned, simulated, verified."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import planner
from cost_models.workload.formats import FORMATS
from planner.document.plan import Plan, write_plan
from planner.document.planned import planned_inputs
from planner.exporters.torchrec import torchrec_plan
from planner.formulation.policy import Policy
from planner.importers.adoption import AdoptionInputs, adopted
from planner.importers.torchrec import parameters_of, torchrec_tables, with_settings
from planner.verification.loading import load_plan
from planner.verification.verify import verify
from tests.oracles.instances import node_group, topology, workload
from topologies.errors import InputError

IDS_PER_ROW = 4
TABLES = [
    {"name": f"t{i}", "rows": 400_001 * (i + 1), "dim": 64, "zipf_alpha": 1.05, "pooling_factor": 8, "dtype": "fp16"}
    for i in range(4)
]
STORED = [-(-int(str(table["rows"])) // IDS_PER_ROW) for table in TABLES]
WEIGHTS = sum(rows * 64 * 2 for rows in STORED)
CLUSTER = topology(node_group("a", ranks=2, hbm_bytes=5e7 + WEIGHTS, ddr_bytes=1e10))
"""Its HBM holds the stored rows twice, and half of the rows that the profiles state."""


@pytest.fixture(autouse=True)
def _hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compressor in the place of fp16: four ids share a row of half-precision numbers."""
    monkeypatch.setitem(FORMATS, "fp16", replace(FORMATS["fp16"], ids_per_row=IDS_PER_ROW))


def _planned(name: str, **options: object) -> Plan:
    return planner.plan(CLUSTER, workload(TABLES, name=name), **options)


def test_a_plan_holds_the_stored_rows(tmp_path: Path) -> None:
    """All fits in HBM, shards tile a quarter of the ids, bytes are theirs, and estimate and simulation agree."""
    found = _planned("hashed", tiers=["hbm"])
    assert found.objective is not None
    assert found.simulated is not None
    for table, rows in zip(found.tables, STORED, strict=True):
        shards = table.shards
        assert (shards.row_start + shards.rows).max() == rows
        if table.sharding != "data_parallel":
            assert (shards.rows * shards.columns).sum() == rows * 64
    held = sum(table.shards.bytes[:, 0].sum() for table in found.tables)
    assert held > WEIGHTS
    assert found.simulated.step_s == pytest.approx(found.objective.step_s, rel=0.05)
    assert verify(found) == []
    write_plan(found, tmp_path / "plan.json")
    assert verify(load_plan(tmp_path / "plan.json")) == []


def test_a_plan_for_other_rows_is_refused() -> None:
    """A document whose shards tile all ids is not verified: the rows of the format are what a plan must hold."""
    found = _planned("hashed, refused", tiers=["hbm"])
    document = json.loads(found.model_dump_json())
    document["tables"][0]["shards"][0]["rows"] += 1
    assert any("row blocks" in fault for fault in verify(Plan.model_validate(document)))


@pytest.mark.parametrize("tier", ["ddr_cached", "ddr", "ddr_split"])
def test_every_tier_holds_stored_rows(tier: str) -> None:
    """Caches, rows read in place and hot rows are shares of the stored rows, and the plan is verified."""
    found = _planned(f"hashed, {tier}", tiers=[tier])
    assert verify(found) == []
    for table, rows in zip(found.tables, STORED, strict=True):
        assert (table.shards.row_start + table.shards.rows).max() == rows
        if table.remap is not None:
            assert table.remap.hot_rows <= rows


def test_another_cost_model_counts_the_same_rows() -> None:
    """What TorchRec would plan for is the stored table, too."""
    found = _planned("hashed, rated", tiers=["hbm"], cost_model="torchrec")
    assert verify(found) == []
    assert [int((table.shards.row_start + table.shards.rows).max()) for table in found.tables] == STORED


def test_files_of_runtimes_state_stored_rows() -> None:
    """An exported plan of a format that the runtime knows is one of tables with as many rows as are stored, and comes
    back as the same plan."""
    found = _planned("hashed, exported", policy=Policy.model_validate({"runtime": "torchrec", "tiers": ["hbm"]}))
    exported = torchrec_plan(found, modules=["m"])
    assert [exported["plan"]["m"][f"t{i}"]["num_embeddings"] for i in range(len(TABLES))] == STORED
    parameters = parameters_of(exported, "their.json")
    told = AdoptionInputs(*planned_inputs(found), "physical", Policy(runtime="torchrec"))
    held, told = torchrec_tables(parameters, told, "their.json"), with_settings(parameters, told, "their.json")
    again = adopted(held, told, "torchrec", "their.json")
    assert [table.shards for table in again.tables] == [table.shards for table in found.tables]


def test_fewer_distinct_rows_make_the_update_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids that meet in a row are updated once: a shorter step than that of every id in a row of its own, both ways."""
    room = topology(node_group("a", ranks=2, hbm_bytes=5e9))
    shared = planner.plan(room, workload(TABLES, name="shared"), shardings=["table_wise"])
    monkeypatch.setitem(FORMATS, "fp16", replace(FORMATS["fp16"], ids_per_row=1))
    own = planner.plan(room, workload(TABLES, name="own"), shardings=["table_wise"])
    assert shared.objective is not None
    assert own.objective is not None
    assert shared.simulated is not None
    assert own.simulated is not None
    assert shared.objective.step_s < own.objective.step_s
    assert shared.simulated.step_s < own.simulated.step_s


def test_formats_of_other_rows_are_no_choice_of_a_plan() -> None:
    """Blocks of rows are cut from one number: a policy that names both formats is refused by name."""
    rules = Policy.model_validate({"dtypes": ["fp16", "fp32"]})
    with pytest.raises(InputError, match="fp32 stores another number of rows of 't0' than its format, fp16"):
        _planned("hashed, chosen", policy=rules)
