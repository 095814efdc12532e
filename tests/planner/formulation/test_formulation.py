"""A formulation at other lines of its exchanges."""

from dataclasses import fields

import numpy as np
import pytest

from planner.formulation.formulation import Formulation
from planner.formulation.options import build_problem
from planner.problem.arrays import Problem
from tests.oracles.instances import tiny_instance


@pytest.mark.parametrize("seed", range(30))
def test_other_lines_change_what_building_anew_changes(seed: int) -> None:
    """On clusters of every sort: each array of the problem is that of one built for these lines, to the last digit but
    for shares of what is prefetched, which are made of other shares."""
    instance = tiny_instance(seed)
    formulation = Formulation(instance.model, instance.options, build_problem(instance.model, instance.options))
    for protocols in instance.model.all_protocols:
        there = formulation.at_protocols(protocols)
        anew = build_problem(instance.model.at_protocols(protocols), instance.options)
        assert there.model.protocols == protocols
        for field in fields(Problem):
            if isinstance(getattr(anew, field.name), np.ndarray):
                found, built = getattr(there.problem, field.name), getattr(anew, field.name)
                if "prefetch" in instance.model.protocol_stages and found.dtype == float:
                    np.testing.assert_allclose(found, built, rtol=1e-15, err_msg=field.name)
                else:
                    np.testing.assert_array_equal(found, built, field.name)
