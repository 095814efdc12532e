"""The table and its findings: constraints, prices, the frontier, measured steps, sentences that are true."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import yaml

from planner.studies.findings import best_point
from planner.studies.grid import Grid
from planner.studies.results import StudyResults
from planner.studies.study import Limit
from planner.studies.table import broken_constraints, measured_steps, on_frontier, unbeaten
from topologies.errors import InputError
from topologies.loading import load_topology

NODES = "topology.nodes.0.count"
UNPLAYED = {"simulate": False}
Computed = Callable[..., StudyResults]


def test_figures_agree_with_each_other(computed: Computed) -> None:
    """Throughput, price and power follow from the step; stages sum to it; units stand in the names."""
    found = computed(axes={NODES: [1, 2]}, prices="example-2025-01")
    for row in found.rows:
        assert row["samples_per_s"] == pytest.approx(8192 / row["step_s"])
        assert sum(row[name] for name in found.stages) == pytest.approx(row["step_s"])
        assert row["usd_per_hour"] == pytest.approx(2.305 * 8 * row["nodes"])
        assert row["usd_per_billion_samples"] == pytest.approx(row["usd_per_hour"] / 3600 / row["samples_per_s"] * 1e9)
        assert row["joules_per_sample"] == pytest.approx(row["kilowatts"] * 1e3 / row["samples_per_s"])
        assert row["gap"] == pytest.approx(row["step_s"] / row["lower_bound_s"] - 1)
        assert 0 < row["hbm_used_bytes"] < row["hbm_capacity_bytes"]
        assert all(0 <= row[name] < 0.1 for name in found.gains)


def test_clusters_of_unlike_parts_are_a_warning(computed: Computed, tmp_path: Path) -> None:
    """Once, of the points that have such; alike ones have none."""
    groups = [{**load_topology("dgx-a100-80").nodes[0].model_dump(mode="json"), "name": name} for name in ("a", "b")]
    cluster = tmp_path / "mixed.yaml"
    cluster.write_text(yaml.safe_dump({"name": "mixed", "nodes": groups}))
    axis = "topology.nodes.1.links.scale_out.bandwidth"
    for rates, warned in ((["25GB/s"], 0), (["25GB/s", "12.5GB/s", "6GB/s"], 1)):
        found = computed(topology=str(cluster), axes={axis: rates})
        assert sum("node groups have unlike cards or domains" in each for each in found.findings) == warned


def test_unknown_prices_stay_unknown(computed: Computed) -> None:
    """Neither 0 nor a guess; a budget cannot be kept then."""
    found = computed(axes={NODES: [1]}, constraints={"usd_per_hour": {"max": "100USD/h"}})
    (row,) = found.rows
    assert row["usd_per_hour"] is None
    assert not row["meets"]
    assert row["reason"] == "usd_per_hour is unknown"
    assert any("is unknown; give prices" in sentence for sentence in found.findings)


def test_tariffs_and_regions_are_an_axis(computed: Computed, tmp_path: Path) -> None:
    """The same plan, with the price, energy and greenhouse gases of each; a file beside the study."""
    sheet = tmp_path / "ours.yaml"
    sheet.write_text(
        "{name: ours, date: 2026-03-01, source: a contract, regions: {north: {carbon: 30g/kWh}}, accelerators: "
        "{A100-SXM4-80GB: {price: {on_demand: 4USD/h, spot: 1USD/h}, power: 1kW}}}"
    )
    found = computed(axes={"prices": [f"{sheet}@tariff=on_demand", f"{sheet}@tariff=spot,region=north"]})
    first, second = found.rows
    assert first["usd_per_billion_samples"] == pytest.approx(4 * second["usd_per_billion_samples"])
    assert first["kg_co2e_per_hour"] is None
    assert second["kg_co2e_per_hour"] == pytest.approx(second["kilowatts"] * 0.03)
    assert second["kg_co2e_per_billion_samples"] == pytest.approx(second["joules_per_sample"] * 1e9 * 0.03 / 3.6e6)


def test_constraints_say_what_breaks_them() -> None:
    """Both ends, and what is missing."""
    limits = {"samples_per_s": Limit(min=2e6), "step_s": Limit(max=0.02), "nodes": Limit(min=1, max=4)}
    assert broken_constraints({"samples_per_s": 2e6, "step_s": 0.02, "nodes": 4}, limits) == ""
    words = broken_constraints({"samples_per_s": 1e6, "step_s": 0.03, "nodes": 5}, limits)
    assert words == "samples_per_s 1e+06 is below 2e+06; step_s 0.03 is above 0.02; nodes 5 is above 4"
    assert "step_s is unknown" in broken_constraints({"samples_per_s": 3e6, "nodes": 1}, limits)


def test_the_frontier_is_what_nothing_beats() -> None:
    """Against every pair of points."""
    frame = pd.DataFrame(
        {
            "usd_per_hour": [1, 2, 2, 3, 4, 4, 5, None],
            "samples_per_s": [1, 3, 2, 3, 5, 5, 4, 9],
            "meets": [True, True, True, True, True, True, True, True],
        }
    )
    assert on_frontier(frame, "usd_per_hour", "samples_per_s").tolist() == [
        True,
        True,
        False,
        False,
        True,
        *[False] * 3,
    ]
    frame["meets"] = False
    assert not on_frontier(frame, "usd_per_hour", "samples_per_s").any()


@pytest.mark.slow
def test_the_best_point_keeps_the_constraints(computed: Computed) -> None:
    """The cheapest of those that are fast enough."""
    axes = {NODES: [1, 2, 4], "workload.global_batch": [262_144]}
    free = computed(axes=axes, prices="example-2025-01", objective="usd_per_billion_samples")
    cheapest = best_point(free)
    assert cheapest is not None
    assert cheapest["nodes"] == 1
    rates = [row["samples_per_s"] for row in free.rows]
    assert max(rates[:2]) < rates[2]
    wanted = (max(rates[:2]) + rates[2]) / 2
    bound = computed(
        axes=axes,
        prices="example-2025-01",
        objective="usd_per_billion_samples",
        constraints={"samples_per_s": {"min": wanted}},
    )
    best = best_point(bound)
    assert best is not None
    assert best["nodes"] == 4
    assert not bound.rows[0]["meets"]


def test_findings_are_true_of_the_table(computed: Computed) -> None:
    """Scaling, where tables fit, what limits."""
    found = computed(
        axes={"topology.nodes.0.accelerators.hbm.capacity": ["1MB", "40GB", "80GB"], "policy.tiers": [["hbm"]]}
    )
    text = " ".join(found.findings)
    assert "3 points: 2 planned, 1 do not fit" in text
    assert "Along hbm capacity, the tables fit from 40 GB." in text
    scaling = computed(axes={NODES: [1, 2, 4]}, search=UNPLAYED)
    speeds = [row["samples_per_s"] for row in scaling.rows]
    assert f"per rank it is highest at 8, and {speeds[2] / speeds[0] / 4:.0%} of that at 32" in " ".join(
        scaling.findings
    )


def test_measured_steps_stand_beside_their_point(computed: Computed) -> None:
    """With the error, and that of speed-ups."""
    found = computed(
        axes={NODES: [1, 2]},
        measured=[
            {"at": {NODES: 1}, "step_s": "2ms", "source": "a log"},
            {"at": {NODES: 2}, "step_s": "1ms", "source": "a log"},
        ],
        search=UNPLAYED,
    )
    assert [row["measured_samples_per_s"] for row in found.rows] == pytest.approx([8192 / 2e-3, 8192 / 1e-3])
    ratio = found.rows[1]["samples_per_s"] / found.rows[0]["samples_per_s"] / 2
    assert f"{ratio - 1:+.1%} off the measured ones at worst" in " ".join(found.findings)


@pytest.mark.parametrize(
    ("at", "said"),
    [
        ({NODES: 3}, "means 0 points"),
        ({}, "means 2 points"),
        ({"topology.nodes.0.cuont": 1}, "is no axis of this study; did you mean"),
    ],
)
def test_measured_rows_name_one_point(grid: Callable[..., Grid], at: dict[str, object], said: str) -> None:
    """Of those that the study has."""
    points = grid(axes={NODES: [1, 2]}, measured=[{"at": at, "step_s": "1ms", "source": "a log"}])
    with pytest.raises(InputError, match=said):
        measured_steps(points)


def test_groups_of_ranks_are_compared_with_one_world(computed: Computed) -> None:
    """Which is faster, and by how much, follows from the table; memory is that of the whole cluster."""
    settings = {"policy.replicas.layout": ["intra"], "policy.replicas.sync_every": [1, 100]}
    found = computed(
        axes={"policy.runtime": ["torchrec"], NODES: [1, 2], "policy.replicas.factor": [1, 2], **settings},
        search=UNPLAYED,
    )
    by = {(row["nodes"], row["policy.replicas.factor"], row["policy.replicas.sync_every"]): row for row in found.rows}
    for nodes in (1, 2):
        world, groups = by[nodes, 1, 1], by[nodes, 2, 100]
        assert groups["hbm_capacity_bytes"] == world["hbm_capacity_bytes"]
        assert groups["hbm_used_bytes"] > 1.5 * world["hbm_used_bytes"]
        assert groups["step_s"] < by[nodes, 2, 1]["step_s"]
        ratio = world["step_s"] / groups["step_s"]
        faster = f"2 groups (sync every 100) are {ratio - 1:.1%} faster"
        slower = f"one world is {1 / ratio - 1:.1%} faster than 2 groups (sync every 100)"
        text = next(text for text in found.findings if text.startswith("One world against groups"))
        assert f"at {8 * nodes} ranks {faster if ratio > 1 else slower}" in text
    at_most = next(text for text in found.findings if text.startswith("At 16 ranks, 2 groups (sync every 100)"))
    assert "of HBM a rank against" in at_most


def test_groups_alone_are_compared_with_nothing(computed: Computed) -> None:
    """Without one world there is no baseline, and no sentence."""
    found = computed(
        axes={"policy.runtime": ["torchrec"], NODES: [1], "policy.replicas.factor": [2, 4]}, search=UNPLAYED
    )
    assert not any("one world" in text.lower() for text in found.findings)


def test_rules_of_replicas_are_an_axis(computed: Computed) -> None:
    """As a whole and by their numbers; one group with copies of some tables is no one world to compare with."""
    copies = {"policy.replicas.factor": [1, 2], "policy.replicas.layout": ["intra"]}
    found = computed(
        axes={
            "policy.runtime": ["any"],
            NODES: [1],
            **copies,
            "policy.replicas.rules": [[], [{"tables": "t0", "factor": 4}]],
        },
        search={"gap": 0.1, "effort": 0, **UNPLAYED},
    )
    assert [row["status"] in ("optimal", "feasible") for row in found.rows] == [True] * 4
    one, ruled, two, more = (row["stage_replica_sync_s"] for row in found.rows)
    assert one is None
    assert min(ruled, two) > 0
    assert two < more
    assert not any("One world against groups" in text for text in found.findings)


def test_plans_that_lose_quality_are_compared_by_three_figures() -> None:
    """Nothing on the front has a rival with less of one figure and no more of the others; of equals, one is there."""
    rows = [(0, 8, 5.0), (1, 8, 4.0), (1, 4, 4.5), (2, 9, 4.0), (1, 8, 4.0), (3, 1, 3.0), (0, 1, 1.0)]
    frame = pd.DataFrame(rows, columns=["loss", "hbm_used_bytes", "step_s"]).assign(meets=[True] * 6 + [False])
    kept = unbeaten(frame, ("loss", "hbm_used_bytes", "step_s"))
    assert kept.tolist() == [True, True, True, False, False, True, False]
