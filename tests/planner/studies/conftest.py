"""A small study on a small cluster, as files."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from planner.studies.execution import Done, Execution
from planner.studies.grid import Grid
from planner.studies.results import StudyResults
from planner.studies.runners import Serial
from planner.studies.store import Store
from planner.studies.study import read_study
from planner.studies.table import results

TABLES = [
    {"name": f"t{i}", "rows": 200_000 * (1 + i % 3), "dim": 64, "pooling_factor": 4 + 3 * i, "zipf_alpha": 1.05}
    for i in range(6)
]
WORKLOAD = {
    "name": "small",
    "global_batch": 8192,
    "tables": TABLES,
    "dense": {"macs_per_sample": 10**6, "parameters": 10**6},
}


@pytest.fixture
def study_file(tmp_path: Path) -> Callable[..., Path]:
    """`study_file(axes={…})`: a study of small tables on DGX A100, beside its workload."""
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(WORKLOAD))

    def write(**keys: object) -> Path:
        path = tmp_path / "study.yaml"
        base = {"name": "test", "topology": "dgx-a100-80", "workload": "small.yaml"}
        path.write_text(yaml.safe_dump({**base, **keys}, sort_keys=False))
        return path

    return write


@pytest.fixture
def grid(study_file: Callable[..., Path]) -> Callable[..., Grid]:
    """`grid(axes={…})`: the points of such a study."""
    return lambda **keys: Grid(*read_study(study_file(**keys)))


@pytest.fixture
def computed(grid: Callable[..., Grid]) -> Callable[..., StudyResults]:
    """`computed(axes={…})`: its results, computed here."""

    def run(store: Store | None = None, **keys: object) -> StudyResults:
        points = grid(**keys)
        return results(points, Execution(points, points).run(Serial(), store))

    return run


@pytest.fixture
def run_grid() -> Callable[..., list[Done]]:
    """All points of a grid, by a runner and with a store."""
    return lambda points, runner, store=None: list(Execution(points, points).run(runner, store))
