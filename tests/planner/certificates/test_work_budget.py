"""The budget of a search: it ends after the numbers that it allows, or when the time is up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.certificates.work_budget import WorkBudget, WorkExceededError


@given(work=st.integers(0, 100), lots=st.lists(st.integers(0, 30), max_size=20))
def test_numbers_are_spent_until_there_are_too_many(work: int, lots: list[int]) -> None:
    """Exactly the lot that exceeds the work raises; what was used and what is left add up to it."""
    budget, used = WorkBudget(work), 0
    for lot in lots:
        used += lot
        if used > work:
            with pytest.raises(WorkExceededError):
                budget.spend(lot)
            return
        budget.spend(lot)
        assert (budget.used, budget.left) == (used, work - used)


def test_a_search_ends_when_the_time_is_up() -> None:
    """Whatever work is left."""
    is_over = False
    budget = WorkBudget(1e9, lambda: is_over)
    budget.spend(1)
    is_over = True
    with pytest.raises(WorkExceededError):
        budget.spend(1)
