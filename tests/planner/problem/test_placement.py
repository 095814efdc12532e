"""Placements: complete answers from which the options follow."""

import numpy as np
import pytest

from tests.oracles.instances import tiny_instance
from tests.oracles.placements import random_placement

SEEDS = range(24)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_placement_names_the_option_of_each_table(seed: int) -> None:
    """From its blocks alone."""
    problem = tiny_instance(seed).problem
    placement = random_placement(problem, np.random.default_rng(seed))
    options = placement.option_of_table(problem)
    assert (problem.option_table[options] == np.arange(problem.tables)).all()
    assert set(options.tolist()) == set(problem.block_option[placement.item_block].tolist())
