"""Multipliers beside candidates: what their weights on tables count."""

from dataclasses import replace

import numpy as np

from planner.certificates.multipliers import Multipliers
from planner.oracle.pairs import pairs_of
from tests.oracles.instances import tiny_instance


def test_weights_on_tables_count_columns_of_their_own_stage():
    """Also where something hides each of them for longer than any block takes."""
    problem = tiny_instance(0).problem
    hidden = replace(problem, base_loads=problem.base_loads - 1e3)
    regions = len(problem.capacity_regions.kind)
    for stage in set(problem.stage_of_column.tolist()):
        weight = np.zeros((regions, len(problem.stage_of_column)))
        byte = np.zeros((regions, len(problem.pool_capacity)))
        for pair in pairs_of(hidden, Multipliers(weight, byte, {(0, stage): 1.0}), [()]):
            assert (problem.stage_of_column[pair.columns_of[0, stage]] == stage).all()
