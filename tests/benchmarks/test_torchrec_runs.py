"""Ratios between TorchRec's own benchmark runs, predicted with a system that stands in for the unnamed one."""

import pandas as pd
import pytest

from benchmarks.accuracy.__main__ import PAGE
from benchmarks.accuracy.report import ratio_section
from benchmarks.torchrec_runs import CONFIGURATIONS, RUNS, errors, left_out, step_seconds
from topologies.loading import load_topology


def test_a_ratio_does_not_choose_its_own_stand_in() -> None:
    """The one whose batches are nearest to those of all other runs is taken, though another one would be exact; where a
    system is named, that one, and the ratio chooses for no other."""
    found = pd.DataFrame({"configuration": ["p", "q", "r"], "reference": ["x", "x", "z"], "system": [None, None, None]})
    times = pd.DataFrame({"measured": [1.0, 1.0, 1.0, 1.0, 1.0]}, index=["p", "q", "r", "x", "z"])
    times["a"], times["b"] = [1.0, 1.5, 1.5, 1.0, 1.5], [2.0, 1.2, 1.2, 2.0, 1.2]
    assert left_out(found, times).tolist() == ["b", "a", "a"]  # by q, r, x, z; p, r, x, z; p, q, x
    found["system"] = [None, None, "b"]
    assert left_out(found, times).tolist() == ["a", "a", "b"]  # by q and x; p and x


def test_every_row_has_its_configurations() -> None:
    """Those of the files of TorchRec that it names."""
    rows = pd.read_csv(RUNS)
    assert set(rows.configuration) | set(rows.reference) == set(CONFIGURATIONS)


def test_configurations_are_placed_and_take_what_is_plausible() -> None:
    """More tables and ids take longer, in HBM less than below, pipelined less than not."""
    cluster = load_topology("dgx-h100", nodes=1, overrides=["nodes.0.accelerators.count=2"])
    names = ("sparse_data_dist_light", "base_pipeline_light", "sparse_data_dist_base")
    seconds = [step_seconds(CONFIGURATIONS[name], cluster) for name in names]
    assert seconds == sorted(seconds)
    assert seconds[2] == pytest.approx(5 * seconds[0], rel=0.2)


def test_the_page_says_what_the_command_prints() -> None:
    """Whatever moves a predicted ratio moves the page with it, its verdict on the aim included."""
    assert ratio_section(errors()) in PAGE.read_text()
