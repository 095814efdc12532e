"""The work that a search may do, counted in numbers worked on, so that it ends at the same place on every machine."""

from collections.abc import Callable


class WorkExceededError(Exception):
    """There is more to do than the work allows."""


class WorkBudget:
    """The numbers that a search may still work on."""

    def __init__(self, work: float, is_over: Callable[[], bool] = lambda: False) -> None:
        """Allow `work` numbers, until `is_over`, asked whenever some are spent, says that the time is up."""
        self._work, self._is_over = work, is_over
        self.left = work

    @property
    def used(self) -> float:
        """Numbers worked on so far."""
        return self._work - self.left

    def spend(self, numbers: int) -> None:
        """Count numbers that are worked on next; raise a WorkExceededError where they are too many."""
        self.left -= numbers
        if self.left < 0 or self._is_over():
            raise WorkExceededError
