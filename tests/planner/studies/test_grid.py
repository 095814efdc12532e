"""Fields and grids: every combination once, values in the field's unit, mistakes at their place."""

from collections.abc import Callable

import pytest

from planner.studies.fields import field_at
from planner.studies.grid import Grid
from topologies.errors import InputError

NODES = "topology.nodes.0.count"
NIC = "topology.nodes.0.links.scale_out.bandwidth"


def test_every_combination_is_one_point_and_the_last_axis_changes_fastest(grid: Callable[..., Grid]) -> None:
    """Scenarios, then zips, then axes."""
    points = grid(
        axes={NODES: [1, 2], "workload.global_batch": [4096, 8192, 16384]},
        zips=[
            {"workload.communication.forward": ["fp32", "fp16"], "workload.communication.backward": ["fp32", "bf16"]}
        ],
        scenarios=[{"name": "a"}, {"name": "b", "set": {"workload.embedding.dtype": "fp16"}}],
    )
    assert len(points) == 24
    cells = [tuple(point.cells.values()) for point in points]
    assert len(set(cells)) == 12
    assert cells[:4] == [
        ("fp32", "fp32", 1, 4096),
        ("fp32", "fp32", 1, 8192),
        ("fp32", "fp32", 1, 16384),
        ("fp32", "fp32", 2, 4096),
    ]
    assert cells[6][:2] == ("fp16", "bf16")
    assert [point.scenario.name for point in points if point.scenario] == ["a"] * 12 + ["b"] * 12
    assert [points.point(number) for number in range(24)] == list(points)


@pytest.mark.parametrize(
    ("values", "cells"),
    [
        ({"first": "100Gb/s", "last": "400Gb/s", "step": "100Gb/s"}, [12.5e9, 25e9, 37.5e9, 50e9]),
        ({"first": "100Gb/s", "last": "900Gb/s", "factor": 2}, [12.5e9, 25e9, 50e9, 100e9]),
        ({"first": "100Gb/s", "last": "400Gb/s", "points": 3}, [12.5e9, 31.25e9, 50e9]),
        ({"first": "100Gb/s", "last": "400Gb/s", "points": 3, "spacing": "log"}, [12.5e9, 25e9, 50e9]),
        (["100Gb/s", "25GB/s"], [12.5e9, 25e9]),
    ],
)
def test_quantities_become_numbers_in_the_unit_that_their_column_names(
    grid: Callable[..., Grid], values: object, cells: list[float]
) -> None:
    """Lists and ranges alike."""
    points = grid(axes={NIC: values})
    assert points.axes[0].column == f"{NIC}_bytes_per_s"
    assert (points.axes[0].unit, points.axes[0].label) == ("B/s", "scale out bandwidth")
    assert [point.cells[f"{NIC}_bytes_per_s"] for point in points] == pytest.approx(cells)


def test_ranges_of_whole_numbers_stay_whole(grid: Callable[..., Grid]) -> None:
    """By factor, by step and by points; equal ones are one."""
    for values, expected in (
        ({"first": 1, "last": 32, "factor": 2}, [1, 2, 4, 8, 16, 32]),
        ({"first": 2, "last": 9, "step": 3}, [2, 5, 8]),
        ({"first": 1, "last": 3, "points": 9}, [1, 2, 3]),
    ):
        found = [point.cells[NODES] for point in grid(axes={NODES: values})]
        assert found == expected
        assert all(isinstance(cell, int) for cell in found)


def test_words_and_lists_are_cells_too(grid: Callable[..., Grid]) -> None:
    """Lists joined by +."""
    points = grid(axes={"policy.tiers": [["hbm"], ["hbm", "ddr"]], "topology": ["dgx-a100-80", "dgx-h100"]})
    assert [point.cells["policy.tiers"] for point in points] == ["hbm", "hbm", "hbm+ddr", "hbm+ddr"]
    assert not any(axis.is_number for axis in points.axes)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"axes": {"topology.nodes.0.cuont": [1]}}, "there is no 'cuont' at topology.nodes.0; did you mean 'count'?"),
        ({"axes": {"workload.embeding.dtype": ["fp16"]}}, "did you mean 'embedding'?"),
        ({"axes": {"workload.name.x": ["a"]}}, "workload.name is a single value; nothing called 'x' is inside it"),
        ({"axes": {"cluster.nodes": [1]}}, "must begin with topology., workload., policy. or growth."),
        ({"axes": {"stages.0.nodes": [1]}}, "stages are those of a training run, whose own file has axes, too"),
        ({"stages": []}, "not of a study; planner run"),
        ({"axes": {"growth.row": [2]}}, "did you mean 'growth.rows'?"),
        ({"axes": {NODES: []}}, "the grid is empty"),
        ({"axes": {NODES: [1, 2, 1]}}, f"axes.{NODES}.2: is the same as value 0 (counted from 0)"),
        ({"axes": {NIC: ["400Gb/s", "50GB/s"]}}, f"axes.{NIC}.1: is the same as value 0"),
        ({"zips": [{NODES: [1, 1], NIC: ["1Gb/s", "1Gb/s"]}]}, f"zips.0.{NODES}.1: is the same as value 0"),
        ({"zips": [{NODES: [1, 2], "workload.global_batch": [4096]}]}, "need equally many values"),
        ({"axes": {NODES: [1]}, "zips": [{NODES: [1]}]}, "each field varies once"),
        ({"axes": {NIC: {"first": "100Gb/s", "last": "25Gb/s", "step": "1Gb/s"}}}, "is below first"),
        ({"axes": {NIC: {"first": "100Gb/s", "last": "200Gb/s"}}}, "give one of step, factor and points"),
        ({"axes": {NIC: {"first": 100, "last": "200Gb/s", "points": 2}}}, "100 has no unit"),
        ({"axes": {NODES: {"first": "1kB", "last": 3, "step": 1}}}, "has no unit; write a plain number"),
        ({"axes": {NODES: {"first": 1, "last": 10**9, "step": 1}}}, "more than 1,000,000 values"),
        ({"constraints": {"step_s": {"min": "20ms", "max": "1ms"}}}, "nothing can keep both"),
        ({"constraints": {"step_s": {"max": "20GB"}}}, "constraints: step_s.max: '20GB' is not in second"),
        ({"constraints": {"throughput": {"min": 1}}}, "constraints"),
        ({"scenarios": [{"name": "a"}, {"name": "a"}]}, "scenario names must differ"),
        ({"objectve": "nodes"}, "did you mean 'objective'?"),
    ],
)
def test_mistakes_are_said_with_their_line_and_remedy(
    grid: Callable[..., Grid], keys: dict[str, object], said: str
) -> None:
    """Before anything is planned."""
    with pytest.raises(InputError) as caught:
        grid(**keys)
    assert said in str(caught.value)
    assert all(fault.line for fault in caught.value.faults)


def test_zips_may_repeat_a_value_beside_another(grid: Callable[..., Grid]) -> None:
    """Only the whole must differ; a list is no word of its elements."""
    assert len(grid(zips=[{NODES: [1, 1], NIC: ["1Gb/s", "2Gb/s"]}])) == 2
    assert len(grid(axes={"policy.tiers": [["hbm", "ddr"], "hbm+ddr"]})) == 2


def test_all_fields_that_do_not_exist_are_said_at_once(grid: Callable[..., Grid]) -> None:
    """One fault each, in the order of the file."""
    with pytest.raises(InputError) as caught:
        grid(axes={"topology.nodes.0.cuont": [1], "workload.globl_batch": [1]})
    assert len(caught.value.faults) == 2


def test_labels_are_short_words() -> None:
    """The last two, without the input they belong to."""
    assert field_at(NODES).label == "nodes"
    assert field_at("topology.nodes.*.accelerators.hbm.capacity").label == "hbm capacity"
    assert field_at("workload.global_batch").label == "global batch"
    assert field_at("growth.rows").label == "growth rows"
    assert field_at("topology").label == "topology"


def test_a_huge_grid_takes_no_time_to_make(grid: Callable[..., Grid]) -> None:
    """Points are made one by one."""
    values = {"first": 1, "last": 100_000, "step": 1}
    points = grid(axes={"workload.global_batch": values, NODES: {"first": 1, "last": 1000, "step": 1}})
    assert len(points) == 10**8
    assert points.point(10**8 - 1).cells == {"workload.global_batch": 100_000, NODES: 1000}
