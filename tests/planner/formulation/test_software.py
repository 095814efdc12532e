"""Times are those of the runtime that is to execute a plan, unless the user chose another software profile."""

from pathlib import Path

import pytest

from cost_models.workload.loading import changed_workload, load_workload
from cost_models.workload.models import Workload
from planner import plan, verify
from planner.capacity.sizing import size
from planner.formulation.policy import Policy
from planner.formulation.software import priced_as_run, software_warnings
from planner.importers.adoption import AdoptionInputs
from planner.studies.execution import Execution
from planner.studies.grid import Grid
from planner.studies.growth import grown
from planner.studies.runners import Serial
from planner.studies.study import read_study
from planner.studies.table import results
from tests.oracles.instances import node_group, topology
from topologies.documents import Document
from topologies.errors import InputError

CLUSTER = topology(node_group("a", ranks=4, hbm_bytes=80e9))
TORCHREC = Policy(runtime="torchrec")
CHOSEN = "base: nv-tiny\nsoftware: hugectr\n"
NOT_CHOSEN = "base: nv-tiny\nglobal_batch: 4096\n"
OF_SET = "base: nv-tiny\nset: {software: hugectr}\n"
OWN = "name: own\nglobal_batch: 4096\nsoftware: hugectr\ntables: [{name: a, rows: 1000, dim: 64, pooling_factor: 3}]\n"
SILENT = OWN.replace("software: hugectr\n", "")


def of_file(text: str, folder: Path) -> Workload:
    path = folder / "w.yaml"
    path.write_text(text)
    return load_workload(path)


@pytest.mark.parametrize(
    ("text", "is_chosen"), [(CHOSEN, True), (OF_SET, True), (NOT_CHOSEN, False), (OWN, True), (SILENT, False)]
)
def test_a_file_of_the_user_chooses_and_the_catalog_does_not(text: str, is_chosen: bool, tmp_path: Path) -> None:
    """Also where the file is based on a workload of the catalog, which says hugectr or torchrec itself."""
    assert of_file(text, tmp_path).names_software is is_chosen
    assert grown(of_file(text, tmp_path), rows=2).names_software is is_chosen


def test_overrides_choose() -> None:
    """`--set workload.software=…`, and a field that a study changes; not what the catalog says."""
    plain = load_workload("dlrm-dcnv2")
    assert (plain.software, plain.names_software) == ("hugectr", False)
    assert load_workload("dlrm-dcnv2", overrides=["software=hugectr"]).names_software
    assert not load_workload("dlrm-dcnv2", overrides=["mode=inference"]).names_software
    assert changed_workload("dlrm-dcnv2", [("software", "torchrec", (Document(None, "s"), ()))]).names_software
    assert plain.fingerprint() == load_workload("dlrm-dcnv2", overrides=["software=hugectr"]).fingerprint()


def test_the_runtime_is_priced_unless_another_one_was_chosen(tmp_path: Path) -> None:
    unchosen, chosen = load_workload("dlrm-dcnv2"), of_file(OWN, tmp_path)
    assert priced_as_run(unchosen, TORCHREC).software == "torchrec"
    assert priced_as_run(unchosen, Policy()).software == "hugectr"
    assert priced_as_run(of_file(SILENT, tmp_path), Policy(runtime="hugectr")).software == "hugectr"
    assert priced_as_run(chosen, TORCHREC) is chosen
    (warning,) = software_warnings(chosen, TORCHREC)
    assert warning.startswith("the plan is for torchrec (runtime), but its times are those of hugectr")
    assert software_warnings(chosen, Policy()) == software_warnings(chosen, Policy(runtime="hugectr")) == ()


def test_a_plan_is_that_of_the_workload_it_says(tmp_path: Path) -> None:
    """By name, as a model and by override it is one plan; what is priced stands in it, so that it verifies."""
    found = plan("zionex", "dlrm-dcnv2", policy=TORCHREC, effort=0, simulate=False)
    asked = load_workload("dlrm-dcnv2", overrides=["software=torchrec"])
    same = plan("zionex", asked, policy=TORCHREC, effort=0, simulate=False)
    assert found.to_json() == same.to_json()
    assert found.provenance.coefficients.software == "torchrec"
    assert found.provenance.warnings == ()
    assert verify(found) == []
    assert {stage.name: stage.seconds for stage in found.stages}["overhead"] == 7e-3


def test_what_was_chosen_stays_and_the_document_warns(tmp_path: Path) -> None:
    """A document without the warning, or with another one, is refused."""
    found = plan(CLUSTER, of_file(OWN, tmp_path), policy=TORCHREC)
    assert found.provenance.coefficients.software == "hugectr"
    assert found.provenance.warnings == software_warnings(of_file(OWN, tmp_path), TORCHREC)
    assert verify(found) == []
    silent = found.provenance.model_copy(update={"warnings": ()})
    (fault,) = verify(found.model_copy(update={"provenance": silent}))
    assert fault.startswith("warnings: ")


def test_sizes_and_imports_are_priced_alike(tmp_path: Path) -> None:
    (first,) = size(CLUSTER, load_workload("dlrm-v1"), policy=Policy(runtime="hugectr"), max_nodes=1, each_tier=False)
    assert first.plan is not None
    assert first.plan.provenance.coefficients.software == "hugectr"
    (warned,) = size(CLUSTER, of_file(OWN, tmp_path), policy=TORCHREC, max_nodes=1, each_tier=False)
    assert warned.notes == software_warnings(of_file(OWN, tmp_path), TORCHREC)
    assert (
        AdoptionInputs(CLUSTER, load_workload("dlrm-dcnv2"), "physical", TORCHREC).model.coefficients.software.name
        == "torchrec"
    )


def test_a_study_prices_each_point_as_it_runs(tmp_path: Path) -> None:
    """A runtime is a field like others; what a point chooses stays, and the findings say where it differs."""
    path = tmp_path / "study.yaml"
    path.write_text(
        "kind: study\nname: s\ntopology: zionex\nworkload: nv-tiny\nsearch: {effort: 0, simulate: false}\n"
        "axes:\n  policy.runtime: [torchrec, hugectr]\n"
    )
    grid = Grid(*read_study(path))
    found = results(grid, Execution(grid, grid).run(Serial(), None))
    torchrec, hugectr = found.frame["stage_overhead_s"].tolist()
    assert torchrec == 7e-3
    assert hugectr < 1e-3
    assert not any("(runtime)" in sentence for sentence in found.findings)
    path.write_text(path.read_text().replace("axes:", "axes:\n  workload.software: [torchrec]"))
    grid = Grid(*read_study(path))
    found = results(grid, Execution(grid, grid).run(Serial(), None))
    assert found.frame["stage_overhead_s"].tolist() == [7e-3, 7e-3]
    own = "Warning: the plan is for hugectr (runtime), but its times are those of torch"
    assert any(sentence.startswith(own) for sentence in found.findings)


def test_a_mode_is_one_of_the_runtime_that_is_priced() -> None:
    """What the workload says of TorchRec's host is not taken for HugeCTR's."""
    asked = Workload.model_validate(
        {
            "name": "w",
            "global_batch": 64,
            "software_mode": "eager",
            "tables": [{"name": "a", "rows": 9, "dim": 4, "pooling_factor": 1}],
        }
    )
    assert priced_as_run(asked, TORCHREC).software_mode == "eager"
    with pytest.raises(InputError, match="eager is no known mode of hugectr, the policy's runtime; give overhead"):
        priced_as_run(asked, Policy(runtime="hugectr"))
    graph = asked.model_copy(update={"software_mode": "graph"})
    assert priced_as_run(graph, Policy(runtime="hugectr")).software == "hugectr"
