"""The types of arrays: what a problem declares is what it holds."""

from dataclasses import fields

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.numbers import Bools, Floats, Ints
from tests.oracles.instances import confined_instance, tiny_instance

KINDS = {Floats: "f", Ints: "i", Bools: "b"}


def test_the_arrays_of_a_problem_are_of_their_declared_types() -> None:
    """Doubles, integers of 8 bytes and truth values, whatever the instance."""
    checked = 0
    for instance in (*map(tiny_instance, range(20)), *map(confined_instance, range(20))):
        for field in fields(Problem):
            if field.type in KINDS:
                array = getattr(instance.problem, field.name)
                assert isinstance(array, np.ndarray), field.name
                assert array.dtype.kind == KINDS[field.type], field.name
                assert array.dtype.itemsize == (1 if array.dtype.kind == "b" else 8), field.name
                checked += 1
    assert checked > 500
