"""A study in one call."""

from pathlib import Path

from planner.studies.execution import Execution
from planner.studies.grid import Grid
from planner.studies.results import StudyResults
from planner.studies.runners import Processes, Runner
from planner.studies.store import Store
from planner.studies.study import read_study
from planner.studies.table import results


def run_study(source: str | Path, *, runner: Runner | None = None, cache: bool = True) -> StudyResults:
    """All points of a study, a file or a catalog name: `run_study("growth").frame` is its table.

    `runner` says where they are computed: on all cores of this machine where it is left out. With `cache` what was
    computed before is taken from the user's cache directory, and what is new added to it. Processes import the program
    that calls: its top level must be guarded by `if __name__ == "__main__":`. Raises InputError.
    """
    grid = Grid(*read_study(source))
    execution = Execution(grid, grid)
    with runner or Processes() as where:
        return results(grid, execution.run(where, Store() if cache else None))
