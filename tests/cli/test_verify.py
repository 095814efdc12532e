"""`planner verify` names the inputs that a plan was not made for."""

from planner.cli.verify import SHOWN_DIFFERENCES, differences, other_input
from topologies.cluster import Memory


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
    given = Memory.model_validate({"capacity": "40GB", "bandwidth": "1555GB/s"})
    assert other_input("topology", given.model_dump(mode="json"), given) == []
    planned = {**given.model_dump(mode="json"), "capacity": "80GB"} | {f"x{i}": i for i in range(10)}
    found = other_input("topology", planned, given)
    assert len(found) == SHOWN_DIFFERENCES
    assert found[0].startswith("made for another topology: capacity was '80GB' and is '40000000000B'")
