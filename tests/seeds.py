"""Seeds of random cases: a few for every run of the tests, the others for the long one."""

from collections.abc import Iterable
from typing import Any

import pytest


def seeds(few: Iterable[int], of: Iterable[int]) -> list[Any]:
    """Parameters of a test: `few` as they are, the others `of` these marked slow."""
    first = list(few)
    return [*first, *(pytest.param(seed, marks=pytest.mark.slow) for seed in of if seed not in first)]
