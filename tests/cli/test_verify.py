"""`planner verify` names the inputs that a plan was not made for."""

from planner.cli.verify import SHOWN_DIFFERENCES, differences, other_input
from topologies.cluster import NodeGroup

GROUP = {
    "name": "a",
    "accelerators": {
        "count": 8,
        "device": "X",
        "hbm": {"capacity": "40GB", "bandwidth": "1555GB/s"},
        "flops": {"fp32": "19.5TFLOP/s"},
    },
    "links": {"pcie": {"bandwidth": "32GB/s"}},
}


def test_equal_documents_have_no_difference():
    """Whatever they hold."""
    document = {"a": [1, {"b": None}], "c": "x"}
    assert list(differences(document, document)) == []


def test_every_leaf_that_differs_is_named():
    """Changed, added and removed leaves, by their path."""
    was = {"nodes": [{"count": 1}, {"count": 2}], "name": "x"}
    now = {"nodes": [{"count": 4}], "name": "x", "price": 3}
    assert list(differences(was, now)) == [
        ("nodes.0.count", 1, 4),
        ("nodes.1", {"count": 2}, None),
        ("price", None, 3),
    ]


def test_only_the_first_differences_are_shown():
    """Another model differs in every table; a few say enough."""
    planned = NodeGroup.model_validate(GROUP)
    given = NodeGroup.model_validate(
        GROUP
        | {"count": 2, "name": "b", "price": "1USD/h", "power": "1kW"}
        | {"reserve": {"hbm": "1%", "ddr": "1%", "ssd": "1%"}}
    )
    assert other_input("topology", planned, planned) == []
    found = other_input("topology", planned, given)
    assert len(found) == SHOWN_DIFFERENCES
    assert "made for another topology: count was 1 and is 2" in found
