"""The validation of the simulator: its figures hold, and a figure that does not is named."""

from dataclasses import replace

import pandas as pd
import pytest

from benchmarks.accuracy.__main__ import FACTS
from benchmarks.validation import __main__ as validation
from benchmarks.validation import catalog, measured, ranking


def test_measured_steps() -> None:
    """The simulator against the logs: within 5 % in the median and 15 % at worst, with the configuration left out."""
    rows = measured.rows_of(FACTS)
    errors = {each.name: each for each in measured.summaries(rows)}
    mlperf, model_i = errors["MLPerf DLRM-DCNv2"], errors["MAD-Max Model-I"]
    assert mlperf.rows >= 20
    assert mlperf.held_out_median is not None
    assert mlperf.held_out_worst is not None
    assert mlperf.held_out_median <= 0.05
    assert mlperf.held_out_worst <= 0.15
    assert model_i.worst <= 0.05


def test_estimate_and_simulation() -> None:
    """Of quick plans where nothing contends, within 3 %."""
    found = catalog.compare("dgx-h100", "criteo-kaggle")
    assert found is not None
    assert abs(found.difference) <= 0.03
    assert found.reason is None


def test_what_is_missed_is_named() -> None:
    good = validation.Findings(
        comparisons=[],
        rows=pd.DataFrame(),
        errors=[measured.Summary("MLPerf DLRM-DCNv2", 3, 0.2, 0.3, 0.01, 0.1)],
        rankings=[ranking.Ranking("t", "w", 3, [(1.0, 1.0), (2.0, 2.0), (3.0, 3.5)])],
        stands=[ranking.Stand("t", "w", 5, 1.01)],
        speeds=[],
    )
    assert list(validation.missed(good)) == []
    bad = replace(
        good,
        errors=[replace(good.errors[0], held_out_worst=0.16)],
        rankings=[replace(good.rankings[0], steps_s=[(1.0, 1.0), (2.0, 3.0), (3.0, 2.5)])],
        stands=[replace(good.stands[0], ratio=1.03)],
    )
    assert len(list(validation.missed(bad))) == 3


def test_random_plans_fit() -> None:
    """Those that are compared keep the memory; where none does, that is said."""
    model = ranking.cost_model("physical", ranking.load_topology("dgx-h100"), ranking.load_workload("dlrm-v1"))
    assert all(ranking.fits(model, placed) for placed in ranking.feasible_plans(model, 3, seed=0))
    small = ranking.load_topology("dgx-h100", overrides=["nodes.0.accelerators.hbm.capacity=1GB"])
    with pytest.raises(ValueError, match="0 of 1 random plans fit"):
        list(ranking.feasible_plans(ranking.cost_model("physical", small, ranking.load_workload("dlrm-v1")), 1, seed=0))
