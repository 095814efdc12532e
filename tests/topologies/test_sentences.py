"""Numbers of things as sentences say them."""

import pytest

from topologies.sentences import counted, every


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0 tables"), (1, "1 table"), (1.0, "1 table"), (2, "2 tables"), (65536, "65,536 tables")]
)
def test_one_thing_is_no_several(number, said):
    """Zero and many have the plural, thousands a comma."""
    assert counted(number, "table") == said


@pytest.mark.parametrize(("number", "said"), [(1, "every step"), (2, "every 2 steps"), (2000, "every 2,000 steps")])
def test_every_one_has_no_number(number, said):
    assert every(number, "step") == said
