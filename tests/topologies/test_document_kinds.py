"""Which kind of document a file holds, where another was expected."""

import pytest

from topologies.document_kinds import expect_kind, kind_of
from topologies.documents import Document
from topologies.errors import InputError

CLUSTER = {"name": "a", "nodes": [{"name": "n"}]}
MODEL = {"name": "w", "global_batch": 8, "tables": "t.csv"}


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (CLUSTER, "topology"),
        (MODEL, "workload"),
        ({"kind": "plan", "tables": []}, "plan"),
        ({"kind": "policy", "tables": [], "nodes": [0]}, "policy"),
        ({"tables": [{"match": "*"}], "nodes": [0, 1]}, None),
        ({"name": "mine", "base": "dgx-h100"}, None),
        ({"kind": "cluster", **CLUSTER}, None),
        ([CLUSTER], None),
        (None, None),
    ],
)
def test_only_what_is_certain_has_a_kind(data, kind):
    """A policy without its kind, a document on another and a misspelt kind are left to the checks of their fields."""
    assert kind_of(data) == kind


def test_the_kind_that_was_asked_for_passes():
    expect_kind(Document(CLUSTER, "t.yaml"), "topology")
    expect_kind(Document({"name": "mine", "base": "dgx-h100"}, "t.yaml"), "workload")


@pytest.mark.parametrize(
    ("data", "asked", "said"),
    [
        (CLUSTER, "workload", "x: is a topology, not a workload"),
        (MODEL, "topology", "x: is a workload, not a topology"),
        ({"base": "dgx-h100", "set": {"nodes.0.count": 3}}, "workload", "x: is a topology, not a workload"),
        ({"base": "dlrm-v1", "set": {"embedding.dtype": "fp16", "tables": 1}}, "topology", "x: is a workload"),
        ({"kind": "plan"}, "topology", "planner export x --to inputs -o FOLDER writes the topology that it was made"),
        ({"kind": "run"}, "study", "x: is a run, not a study; planner run x reads it"),
    ],
)
def test_another_kind_is_refused_in_one_sentence(data, asked, said):
    with pytest.raises(InputError) as refused:
        expect_kind(Document(data, "x"), asked)
    (fault,) = refused.value.faults
    assert said in str(fault)
