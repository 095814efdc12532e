"""Ratios between TorchRec's own benchmark runs, predicted with a system that stands in for the unnamed one."""

import pandas as pd
import pytest

from benchmarks.accuracy.__main__ import PAGE
from benchmarks.accuracy.report import ratio_section
from benchmarks.torchrec_runs import CONFIGURATIONS, RUNS, at_the_nearest, errors, left_out, step_seconds
from topologies.loading import load_topology


def test_a_ratio_does_not_choose_its_own_stand_in() -> None:
    """The one that is nearest on all others is taken, though another one would be exact; where a system is named, that
    one, and the ratio chooses for no other."""
    found = pd.DataFrame({"published": [1.0, 2.0, 4.0, 8.0], "a": [1.0, 3.0, 6.0, 12.0], "b": [1.5, 2.0, 4.0, 8.0]})
    found["system"] = None
    assert left_out(found, ("a", "b")).tolist() == [1.5, 2.0, 4.0, 8.0]
    found.loc[[2, 3], "system"] = "a"
    assert left_out(found, ("a", "b")).tolist() == [1.5, 3.0, 6.0, 12.0]


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


def test_the_nearest_of_all_stands_in_for_every_unnamed_machine() -> None:
    """It has the least median error; a machine that is named is predicted as itself."""
    found = pd.DataFrame({"published": [1.0, 2.0, 4.0, 8.0], "a": [1.0, 2.0, 3.0, 8.0], "b": [1.5, 3.0, 4.0, 9.0]})
    found["system"] = [None, None, None, "b"]
    nearest, predicted = at_the_nearest(found, ("a", "b"))
    assert nearest == "a"
    assert predicted.tolist() == [1.0, 2.0, 3.0, 9.0]


def test_the_page_says_what_the_command_prints() -> None:
    """Whatever moves a predicted ratio moves the page with it, its verdict on the aim included."""
    assert ratio_section(errors()) in PAGE.read_text()
