"""Plain documents differ in the leaves that are named, and in no others."""

from planner.document.differences import differences


def test_every_leaf_that_differs_is_named() -> None:
    """By its path, with both values; what one document lacks is None."""
    was = {"a": 1, "b": {"c": [1, 2]}, "gone": "x"}
    now = {"a": 1, "b": {"c": [1, 3, 4]}, "new": {"d": 0}}
    assert list(differences(was, now)) == [
        ("b.c.1", 2, 3),
        ("b.c.2", None, 4),
        ("gone", "x", None),
        ("new", None, {"d": 0}),
    ]
    assert list(differences(was, was)) == []
