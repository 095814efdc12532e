"""Formats of stored rows as a choice of the plan: taken where they help, refused where they cannot be, verified."""

import numpy as np
import pytest

import planner
from cost_models.workload.formats import DTYPES, row_bytes
from planner.document.plan import Plan
from planner.exporters.torchrec import torchrec_plan
from planner.formulation.allowed_choices import planning_model
from planner.formulation.options import enumerate_options
from planner.formulation.policy import Policy
from planner.verification.verify import verify
from tests.oracles.instances import node_group, topology, workload
from topologies.cluster import Topology
from topologies.errors import InputError

TABLES = [
    {"name": f"t{i}", "rows": 200_000 * (i + 1), "dim": 64, "pooling_factor": 8, "dtype": "fp32"} for i in range(6)
]
FP32_BYTES = sum(int(table["rows"]) * 64 * 4 for table in TABLES)


def cluster(share: float) -> Topology:
    """Two ranks that hold so much of the tables in fp32, and 50 MB for all else; nothing but HBM."""
    return topology(node_group("a", ranks=2, hbm_bytes=5e7 + share * FP32_BYTES / 2, ddr_bytes=None))


def planned(share: float, dtypes: list[str] | None, **fields: object) -> Plan:
    rules = [] if dtypes is None else [{"match": "*", "dtypes": dtypes}]
    policy = Policy.model_validate({"tables": rules})
    return planner.plan(cluster(share), workload(TABLES, global_batch=512, **fields), policy=policy, gap=0.0)


def test_a_narrow_format_makes_tables_fit() -> None:
    """With half of the memory none fits in fp32; in fp16 all do, and the plan says so and holds."""
    assert planned(0.55, None).status == "infeasible"
    found = planned(0.55, ["fp32", "fp16"])
    assert found.objective is not None
    assert verify(found) == []
    assert "fp16" in {table.dtype for table in found.tables}
    stored = sum(row_bytes(table.dtype, 64) * given["rows"] for table, given in zip(found.tables, TABLES, strict=True))
    held = sum(table.shards.bytes[:, 0].sum() for table in found.tables)
    assert stored < held < stored + 0.2 * FP32_BYTES
    assert found.simulated is not None
    assert found.simulated.step_s == pytest.approx(found.objective.step_s, rel=0.03)


def test_a_choice_is_never_worse() -> None:
    """Than either format alone; without a choice the workload's is taken."""
    both, wide, narrow = (planned(2.0, dtypes).objective for dtypes in (["fp32", "fp16"], ["fp32"], ["fp16"]))
    assert both is not None
    assert wide is not None
    assert narrow is not None
    assert both.step_s <= min(wide.step_s, narrow.step_s) * (1 + 1e-9)
    assert both.lower_bound_s <= min(wide.lower_bound_s, narrow.lower_bound_s) * (1 + 1e-9)
    assert {table.dtype for table in planned(2.0, None).tables} == {"fp32"}


def test_options_have_the_formats_of_their_tables() -> None:
    """Named ones where a rule names some, the workload's for the others."""
    policy = Policy.model_validate({"tables": [{"match": "t0", "dtypes": ["fp16", "int8_row"]}]})
    model = planning_model("physical", cluster(2.0), workload(TABLES), policy)
    options = enumerate_options(model, policy)
    formats = [{DTYPES[code] for code in np.unique(options.dtype[options.table == t]).tolist()} for t in range(2)]
    assert formats == [{"fp16", "int8_row"}, {"fp32"}]


def test_a_format_that_the_policy_does_not_name_is_found_out() -> None:
    found = planned(2.0, ["fp32", "fp16"])
    changed = [found.tables[0].model_copy(update={"dtype": "int8"}), *found.tables[1:]]
    faults = verify(found.model_copy(update={"tables": tuple(changed)}))
    assert any("t0: is stored as int8, which neither workload nor policy says" in fault for fault in faults)


@pytest.mark.parametrize(
    ("rules", "options", "words"),
    [
        ({"dtypes": ["mx9"]}, {}, "training cannot write mx9 in place: give 't0' and 5 more a precision_cache"),
        ({"dtypes": ["fp16"]}, {"cost_model": "torchrec"}, "the cost model torchrec takes the workload's formats"),
        ({"dtypes": ["fp16"], "tables": [{"match": "t1", "dtypes": ["int8"]}]}, {}, "no dtype is left for 't1'"),
        ({"runtime": "torchrec", "dtypes": ["int8_row"]}, {}, "no dtype is left for 't0' and 5 more"),
        ({"dtypes": ["half"]}, {}, None),
        ({"dtypes": ["fp17"]}, {}, "fp17"),
    ],
)
def test_what_cannot_be_is_refused(rules: dict[str, object], options: dict[str, str], words: str | None) -> None:
    """With the reason and the key; a spelling that is known is read."""
    case = workload(TABLES)
    if words is None:
        assert Policy.model_validate(rules).dtypes == ("fp16",)
        return
    with pytest.raises((InputError, ValueError), match=words):
        planner.plan(cluster(2.0), case, policy=Policy.model_validate(rules), effort=0, **options)


def test_an_inference_plan_takes_what_training_cannot() -> None:
    found = planned(0.2, ["mxfp4", "fp16"], mode="inference")
    assert {table.dtype for table in found.tables} <= {"mxfp4", "fp16"}
    assert verify(found) == []
    with pytest.raises(InputError, match="its rows are mxfp4"):
        torchrec_plan(found)


def test_a_plan_that_follows_keeps_its_formats() -> None:
    """Where nothing is gained: every table stays, in the format that it has."""
    first = planned(0.55, ["fp32", "fp16"])
    policy = Policy.model_validate({"tables": [{"match": "*", "dtypes": ["fp32", "fp16"]}]})
    again = planner.plan(
        cluster(0.55), workload(TABLES, global_batch=512), policy=policy, previous=first, max_move_bytes=0
    )
    assert again.moves is not None
    assert again.moves.moved_bytes == 0
    assert [table.dtype for table in again.tables] == [table.dtype for table in first.tables]
    assert verify(again, first) == []
