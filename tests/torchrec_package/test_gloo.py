"""Steps over gloo: the clock that measures them, and collectives that are calibrated."""

import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pytest
import torch
from torch import distributed as dist

from benchmarks.gloo import dense
from benchmarks.gloo.clock import Event, step_seconds
from benchmarks.gloo.processes import Processes
from cost_models.calibration import gloo
from cost_models.calibration.collectives import calibrated
from cost_models.coefficients import USER_DIRECTORY, CollectiveOperation, forget

BOTH = (0, 1)
COEFFICIENTS = Path(__file__).parents[2] / "benchmarks" / "data" / "gloo"


def test_a_rank_waits_for_the_last_one() -> None:
    """Rank 1 enters after 5 s and works 1 s more; rank 0 entered after 1 s and works 3 s: 8 s in all."""
    first: list[Event] = [(False, BOTH, 0, 1.0), (True, BOTH, 0, 1.0), (True, (0,), 0, 4.0)]
    second: list[Event] = [(False, BOTH, 0, 5.0), (True, BOTH, 0, 5.0), (True, (1,), 0, 6.0)]
    assert step_seconds([first, second]) == pytest.approx(8.0)


def test_work_beside_a_collective_hides_in_it() -> None:
    """What rank 0 does between entering and waiting takes no time of its own while it would wait anyway."""
    first: list[Event] = [(False, BOTH, 0, 1.0), (True, BOTH, 0, 4.0), (True, (0,), 0, 5.0)]
    second: list[Event] = [(False, BOTH, 0, 3.0), (True, BOTH, 0, 3.0), (True, (1,), 0, 3.0)]
    assert step_seconds([first, second]) == pytest.approx(5.0)


def test_collectives_that_do_not_match_are_an_error() -> None:
    """A rank that waits for one that nobody else enters."""
    alone: list[Event] = [(False, BOTH, 0, 1.0), (True, BOTH, 0, 1.0)]
    with pytest.raises(RuntimeError, match="do not match"):
        step_seconds([alone, []])


def test_a_collective_takes_the_median_of_its_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all runs of all passes: not the least, in which the ranks happened to meet best."""
    given = itertools.cycle([1.0, 9.0, 2.0])
    monkeypatch.setattr(gloo, "_seconds", lambda *_: [next(given)])
    monkeypatch.setattr(gloo, "PASSES", 3)
    monkeypatch.setattr(gloo, "OPERATIONS", ("all_to_all",))
    gloo._measure(0, 1, (1024,), str(tmp_path))
    assert pd.read_csv(tmp_path / "0.csv").seconds.tolist() == [2.0]


def _fail_on_one_rank() -> None:
    assert dist.get_rank(), "rank 0"
    dist.barrier()


def test_a_job_that_fails_leaves_none_waiting() -> None:
    """Rank 0 fails while rank 1 waits for it: an error at once, and the next job finds two ranks again."""
    with Processes(2, 2) as processes:
        with pytest.raises(RuntimeError, match="rank 0 failed"):
            processes.run(_fail_on_one_rank)
        assert processes.run(dist.get_world_size) == [2, 2]


@pytest.mark.parametrize("operation", ["reduce_scatter", "all_gather"])
def test_sums_move_in_whole_buffers(operation: CollectiveOperation, monkeypatch: pytest.MonkeyPatch) -> None:
    """As TorchRec exchanges them; by lists of parts, gloo takes several times as long for small ones."""
    called: list[list[int]] = []
    for name in ("reduce_scatter_single", "reduce_scatter_tensor", "all_gather_single", "all_gather_into_tensor"):
        to_be_called = lambda *tensors: called.append([len(tensor) for tensor in tensors])  # noqa: E731
        monkeypatch.setattr(torch.distributed, name, to_be_called, raising=False)
    gloo._collective(operation, 8, 2)()
    assert called == [[4, 8] if operation == "reduce_scatter" else [8, 4]]


def test_collectives_are_measured_and_fitted() -> None:
    """All operations among 2 processes; large buffers take longer, and sums have laws of their own."""
    rows = gloo.measure([2], gloo.QUICK_BYTES)
    assert set(rows.operation) == set(gloo.OPERATIONS)
    assert (rows.seconds > 0).all()
    for _, own in rows.groupby("operation"):
        assert own.seconds.iloc[-1] > own.seconds.iloc[0]
    told = {"device": "cpu", "link": gloo.LINK, "source": "test"}
    found = calibrated(rows, name="g", bytes_per_s=1e10, among_processes=True, **told)
    assert found.sums_apart
    assert found.takes_turns
    assert len(found.laws) == len(gloo.OPERATIONS)


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], None]]:
    """Has the coefficients of a folder read, and those of others forgotten."""

    def read(folder: Path) -> None:
        monkeypatch.setenv(USER_DIRECTORY, str(folder))
        forget()

    yield read
    forget()


def test_steps_of_dense_models_follow_from_two_sizes(use: Callable[[Path], None]) -> None:
    """Where steps are passes, updates, collectives and a framework's units, tensors and numbers, the size between is
    predicted exactly."""
    use(COEFFICIENTS)
    costs, runs = dense.Costs.of(2, 5e9), []
    for (kind, size), (flops, units) in zip(
        dense.models(),
        [(1e9 * (1 + i), (100_000 * (1 + i % 3), 7_000 * (1 + i // 3))) for i in range(9)],
        strict=True,
    ):
        passes_s, tensors = 0.002 + flops / 50e9, 4 * (1 + dense.KINDS.index(kind))
        beside = {name: 0.001 * len(units) + 0.0002 * tensors + 1e-8 * sum(units) for name in dense.STRATEGIES[1:]}
        steps = {name: passes_s + costs.seconds(units, name) + beside.get(name, 0.0) for name in dense.STRATEGIES}
        of_rounds = {name: [step] * 3 for name, step in steps.items()}
        runs.append(dense.Measured(kind, size, 2, flops, tensors, units, of_rounds, [passes_s] * 3))
    assert dense.missed(runs) == []
    for race in dense.races(runs, calibrated=True):
        assert race.predicted == pytest.approx({name: steps[0] for name, steps in race.measured.items()}, rel=1e-6)


def test_measured_steps_of_dense_models_are_predicted(use: Callable[[Path], None], tmp_path: Path) -> None:
    """The rounds that are kept: strategies in their order, and steps of the size held out within 20 %."""
    for file in (COEFFICIENTS / "kernels.yaml", COEFFICIENTS / "dense" / "collectives.yaml"):
        shutil.copy(file, tmp_path)
    use(tmp_path)
    runs = dense.read_runs(COEFFICIENTS / "dense" / "rounds.json")
    assert dense.missed(runs) == []
    assert [race.tau for race in dense.races(runs, calibrated=False)] == [1.0] * 6
