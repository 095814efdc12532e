"""What each point is planned for: changes in their order, shared inputs made once, faults where they were written."""

from collections.abc import Callable
from pathlib import Path

import pytest

from cost_models.workload.loading import load_workload
from planner.capacity.prices import PRICE_SHEETS
from planner.studies.execution import Execution
from planner.studies.grid import Grid
from planner.studies.growth import grown
from planner.studies.inputs import Resolver, StudyInputs, resolved
from topologies.errors import InputError

NODES = "topology.nodes.0.count"


def inputs_of(grid: Grid) -> list[StudyInputs]:
    _, found = resolved(grid, grid)
    assert all(isinstance(one, StudyInputs) for one in found)
    return [one for one in found if isinstance(one, StudyInputs)]


def test_changes_reach_the_inputs(grid: Callable[..., Grid]) -> None:
    """Fields, whole inputs, every element of a list, policies and prices."""
    points = grid(
        topology=None,
        axes={
            "topology": ["dgx-a100-80", "dgx-h100"],
            "workload.tables.*.dim": [128],
            "workload.tables.t1.rows": [77],
            "policy.tiers": [["hbm"]],
            "prices": ["example-2025-01"],
            NODES: [2],
        },
    )
    found = inputs_of(points)
    assert [one.topology.nodes[0].accelerators.device for one in found] == ["A100-SXM4-80GB", "H100-SXM5-80GB"]
    assert all(one.topology.node_count == 2 for one in found)
    assert all(table.dim == 128 for one in found for table in one.workload.tables)
    assert found[0].workload.tables[1].rows == 77
    assert found[0].policy.tiers == ("hbm",)
    assert found[0].prices is not None


def test_what_points_share_is_made_once(grid: Callable[..., Grid]) -> None:
    """The very same objects."""
    points = grid(axes={NODES: [1, 2, 3], "workload.global_batch": [4096, 8192]})
    found = inputs_of(points)
    assert len({id(one.workload) for one in found}) == 2
    assert len({id(one.topology) for one in found}) == 3
    assert len({id(one.policy) for one in found}) == 1


def test_the_batch_of_a_point_replaces_either_batch(grid: Callable[..., Grid]) -> None:
    """A batch per rank in place of the file's global one."""
    (one,) = inputs_of(grid(axes={"workload.batch_per_rank": [512]}))
    assert (one.workload.global_batch, one.workload.batch_per_rank) == (None, 512)


def test_axes_win_over_the_scenario(grid: Callable[..., Grid]) -> None:
    """The later word stands."""
    points = grid(axes={NODES: [3]}, scenarios=[{"name": "a", "set": {NODES: 2, "workload.global_batch": 4096}}])
    (one,) = inputs_of(points)
    assert (one.topology.node_count, one.workload.global_batch) == (3, 4096)


def test_growth_multiplies_rows_and_tables() -> None:
    """Rows are rounded up; repeated tables have names of their own, and the same profile."""
    base = load_workload("dlrm-dcnv2")
    more = grown(base, rows=1.5, tables=2.5)
    assert len(more.tables) == 65
    assert len({table.name for table in more.tables}) == 65
    assert more.tables[0].rows == more.tables[26].rows == -(-base.tables[0].rows * 3 // 2)
    assert more.tables[26].pooling_factor == base.tables[0].pooling_factor
    assert grown(base) is base


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"topology": "dgx-a101"}, "study.yaml:2:1: topology: 'dgx-a101': is neither a file nor a topology"),
        ({"axes": {"topology": ["dgx-h100", "dgx-h1000"]}}, "'dgx-h1000': is neither a file"),
        ({"axes": {NODES: [1, "two"]}}, "must be a whole number, not 'two'"),
        ({"axes": {"topology.nodes.1.count": [1]}}, "nodes has 1 element and none is '1'"),
        ({"axes": {"workload.tables.t9.rows": [1]}}, "none is 't9'"),
        ({"axes": {"topology.nodes.0.accelerators.hbm.capacity": ["80 Gb/s"]}}, "is not in byte"),
        ({"axes": {"prices": ["nowhere"]}}, "'nowhere': is neither a file nor a price sheet"),
        ({"axes": {"growth.rows": [-1]}}, "factor above 0"),
        ({"workload": None}, "name a workload here, or in every scenario, or as an axis"),
        ({"axes": {"workload.name.*": ["a"]}}, "single value"),
    ],
)
def test_values_that_never_work_are_errors_of_the_file(
    grid: Callable[..., Grid], keys: dict[str, object], said: str
) -> None:
    """Named with file and line."""
    with pytest.raises(InputError) as caught:
        resolved(points := grid(**keys), points)
    assert said in str(caught.value)
    assert "study.yaml:" in str(caught.value)


def test_a_combination_that_does_not_work_is_a_row(grid: Callable[..., Grid]) -> None:
    """Where each of its values works elsewhere: three nodes do not fill domains of sixteen."""
    points = grid(
        axes={NODES: [2, 3], "topology.nodes.0.links.scale_up.domain": [8, 16]},
    )
    _, found = resolved(points, points)
    assert [isinstance(one, StudyInputs) for one in found] == [True, True, True, False]


def test_equal_points_are_one_job(grid: Callable[..., Grid], tmp_path: Path) -> None:
    """Prices do not change a plan."""
    (tmp_path / "other.yaml").write_text(PRICE_SHEETS.find("example-2025-01").read_text())
    points = grid(axes={NODES: [1, 2], "prices": ["example-2025-01", "other.yaml"]})
    execution = Execution(points, points)
    assert len(execution) == 4
    assert len(execution._tasks) == 2


def test_a_resolver_says_all_faults_of_a_point(grid: Callable[..., Grid]) -> None:
    """Of cluster, workload and policy together."""
    points = grid(axes={NODES: [0], "workload.global_batch": [0], "policy.tiers": [["ram"]]})
    with pytest.raises(InputError) as caught:
        Resolver(points).inputs(points.point(0))
    assert len(caught.value.faults) == 3
