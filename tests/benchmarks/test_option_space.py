"""The benchmark of the option space compares what it says."""

import pytest

from benchmarks.option_space import CUTS, searched, tables_of
from planner.formulation.policy import Policy
from topologies.loading import load_topology


@pytest.mark.slow
def test_fewer_cuts_are_part_of_every_cut() -> None:
    """Fewer block types, and no plan of them is below the bound over every cut."""
    where, trained = load_topology("dgx-h100"), tables_of(256)
    policy = Policy(tiers=("hbm",))
    every, few = (searched("wide", words, where, trained, policy, CUTS[words]) for words in ("every", "few"))
    assert few.block_types < every.block_types
    assert few.step_s is not None
    assert every.bound_s is not None
    assert every.bound_s <= few.step_s
    assert every.gap is not None
    assert every.gap >= 0
