"""Rules on numbers: each is a key of policies and a number of every table, and the order of rules does not matter."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cost_models.step import StepModel
from planner.formulation.allowed_choices import AllowedChoices
from planner.formulation.choice_rules import NUMBER_RULES, WIDEST, allowed_choices
from planner.formulation.policy import Limits, Policy
from tests.oracles.instances import node_group, topology, workload

NUMBERS = st.integers(1, 10**20)


@pytest.fixture(scope="module")
def model() -> StepModel:
    """One node of two ranks, three tables."""
    return StepModel(topology(node_group("g")), workload([{"rows": 1000, "dim": 32}] * 3))


@pytest.mark.parametrize("key", NUMBER_RULES)
def test_a_rule_is_a_key_of_policies_and_a_number_of_tables(key: str, model: StepModel) -> None:
    """A row of the table is all that makes a key of `Limits` a field of the allowed choices, unlimited by default."""
    assert key in Limits.model_fields
    assert key in AllowedChoices.__dataclass_fields__
    assert getattr(allowed_choices(model, Policy()), key).tolist() == [NUMBER_RULES[key].unlimited] * 3


@pytest.mark.parametrize("key", NUMBER_RULES)
@given(one=NUMBERS, other=NUMBERS, third=NUMBERS)
def test_limits_may_stand_in_any_order(key: str, one: int, other: int, third: int) -> None:
    """Two limits are one, whichever comes first and however three are grouped; none changes nothing, twice is once."""
    rule = NUMBER_RULES[key]
    of_none = rule.unlimited
    assert rule.both(one, other) == rule.both(other, one)
    assert rule.both(rule.both(one, other), third) == rule.both(one, rule.both(other, third))
    assert rule.both(of_none, of_none) == of_none
    assert rule.both(one, rule.both(one, of_none)) == rule.both(one, of_none)
    assert rule.both(one, of_none) <= np.iinfo(np.int64).max  # an element of an array


@given(one=st.integers(1, 512), other=st.integers(1, 512))
def test_parts_and_widths_obey_both_limits(one: int, other: int) -> None:
    """What two limits leave of small numbers is what a loop over all of them finds."""
    parts, multiple = (NUMBER_RULES[key].both(one, other) for key in ("max_shards", "column_multiple"))
    for number in range(1, 600):
        assert (number <= parts) == (number <= one and number <= other)
        assert (number % multiple == 0) == (number % one == 0 and number % other == 0)
    assert multiple == math.lcm(one, other) < WIDEST


def test_a_rule_holds_for_the_tables_that_it_names(model: StepModel) -> None:
    """The limit at the top and those of both rules, each for its own tables."""
    rules = [{"match": "t[01]", "max_shards": 6, "column_multiple": 8}, {"match": ["t1", "t2"], "max_shards": 3}]
    choices = allowed_choices(model, Policy.model_validate({"max_shards": 5, "column_multiple": 12, "tables": rules}))
    assert choices.max_shards.tolist() == [5, 3, 3]
    assert choices.column_multiple.tolist() == [24, 24, 12]
