"""The validation of the simulator: its figures hold, and a figure that does not is named."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.accuracy.__main__ import FACTS
from benchmarks.validation import __main__ as validation
from benchmarks.validation import catalog, measured, questions, ranking
from benchmarks.validation.section import HEADING, against_the_estimate, with_pairs
from cost_models.shards import DATA_PARALLEL, HBM, TABLE_WISE, Blocks, PlacedShards


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
    assert found.cause is None


def test_rows_are_made_anew_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are named, and those that differ by more than a tenth; every other line stays to the letter."""
    held = [
        catalog.Comparison("a", "w", 1e-3, 0.99999e-3, 1.01e-3, 2e-5, None),
        catalog.Comparison("b", "w", 2e-3, 1.7e-3, 1.7e-3, 0.0, catalog.Cause("dense", -0.01, -0.02)),
        catalog.Comparison("c", "w", 3e-3, 3e-3, 3e-3, 0.0, None),
    ]
    text, made = "before\n" + against_the_estimate(held), []

    def anew(topology: str, workload: str) -> catalog.Comparison:
        made.append((topology, workload))
        return catalog.Comparison(topology, workload, 4e-3, 4.1e-3, 4.2e-3, 0.0, None)

    monkeypatch.setattr(catalog, "compare", anew)
    remade = with_pairs(text, [("c", "w")])
    assert made == [("b", "w"), ("c", "w")]
    assert remade.startswith("before\n" + HEADING)
    assert "2 of 3 pairs" not in remade
    assert "3 of 3 pairs of topology and workload are within 3 %" in remade
    assert "None differs by more than 10 %" in remade
    assert "| a | w | 1.000 ms | 1.000 ms | -0.0% | +2.0% | -1.0% |\n" in remade
    assert "| c | w | 4.000 ms | 4.100 ms | +2.5% | +0.0% | +5.0% |\n" in remade
    with pytest.raises(ValueError, match="no row of the page is of d/w"):
        with_pairs(text, [("d", "w")])


def test_pairs_are_kept_until_their_sources_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second run compares what the first did not; pairs of other sources are refused by their file's name."""
    kept = catalog.KeptPairs(tmp_path / "pairs.jsonl")
    cause = catalog.Cause("dense", -0.01, -0.02)
    held = {("cpu", "a"): catalog.Comparison("cpu", "a", 1e-3, 2e-3, 3e-3, 1e-4, cause), ("cpu", "b"): None}
    for pair, found in held.items():
        kept.add(pair, found)
    assert kept.read() == held
    (anew,) = catalog.comparisons(("cpu",), ("dlrm-v1",), 1, kept)
    assert kept.read() == {**held, ("cpu", "dlrm-v1"): anew}
    assert catalog.comparisons(("cpu",), ("a", "b", "dlrm-v1"), 1, kept) == [held["cpu", "a"], anew]
    monkeypatch.setattr(catalog, "sources_digest", lambda: "other")
    with pytest.raises(ValueError, match=r"pairs\.jsonl has pairs of other sources"):
        kept.read()


def test_ranks_of_a_switch_hold_alike() -> None:
    """Every row stays on its switch, in equal parts on its ranks; copies that all ranks have stay whole."""
    cluster = ranking.load_topology("dgx-2")
    model = ranking.cost_model("physical", cluster, ranking.load_workload("fbgemm-000"))
    table = np.arange(len(model.tables.rows))
    copies = len(table) - 1
    sharding = np.where(table == copies, DATA_PARALLEL, TABLE_WISE)
    blocks = Blocks(table, sharding, np.full(len(table), HBM), model.tables.dim, np.zeros(len(table)))
    every = np.append(table, np.full(15, copies))
    rank = np.append(np.where(table == copies, 0, table % 3), np.arange(1, 16))
    opens = np.append(table >= 0, np.zeros(15, dtype=bool))
    placed = PlacedShards(blocks.take(every), rank, model.tables.rows[every], opens)
    alike = catalog.alike_within_switches(model, placed)
    for number, rows in enumerate(model.tables.rows):
        before, now = (each.blocks.table == number for each in (placed, alike))
        on_switch = [np.bincount(each.rank[of] // 2, each.rows[of], 8) for each, of in ((placed, before), (alike, now))]
        assert (on_switch[0] == on_switch[1]).all()
        assert alike.opens_block[now].sum() == 1
        assert np.ptp(np.bincount(alike.rank[now], alike.rows[now])[alike.rank[now]]) <= 1
        assert now.sum() == (16 if number == copies else 2)
        assert number != copies or (alike.rows[now] == rows).all()


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


def test_random_questions_follow_from_their_number(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drawn alike again and again; some are answered, and a summary counts them."""
    assert questions.question(3) == questions.question(3)
    assert questions.question(3) != questions.question(4)
    assert questions.question(3, without_overhead=True).workload.overhead == 0
    assert len({questions.question(number).cluster.world_size for number in range(20)}) > 5
    monkeypatch.setattr("sys.argv", ["questions", "--count", "2"])
    assert questions.main() == 0
    assert "2 of 2 questions have a plan: 0 are simulated more than a tenth longer" in capsys.readouterr().out
