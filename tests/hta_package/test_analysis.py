"""HolisticTraceAnalysis finds in our traces what the simulation says: ranks, steps, breakdown, overlap."""

from dataclasses import dataclass

import numpy as np
import pytest
from hta.trace_analysis import TraceAnalysis

from cost_models.resources import DEVICE
from cost_models.simulator.program import COMPUTE, DATA, HOST, Task
from cost_models.simulator.simulation import Simulation, covered
from planner.reports.timeline import write_timeline
from tests.oracles import simulations


@dataclass(frozen=True)
class Case:
    """A simulation and what the package reads of it."""

    simulation: Simulation
    analysis: TraceAnalysis

    def seconds(self, *groups: list[Task]) -> np.ndarray:
        """[W] of the counted time in which a rank does anything of these."""
        tasks = [task for group in groups for task in group]
        return covered(np.clip(self.simulation.intervals(tasks), *self.simulation.window))

    @property
    def compute(self) -> list[Task]:
        return [task for task in self.simulation.program.tasks if task.stream == COMPUTE]

    @property
    def exchanges(self) -> list[Task]:
        return [task for task in self.simulation.program.tasks if task.is_exchange]


@pytest.fixture(scope="module", params=list(simulations.CASES))
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    simulation = simulations.CASES[request.param]()
    directory = tmp_path_factory.mktemp("trace")
    write_timeline(simulation, directory)
    return Case(simulation, TraceAnalysis(trace_dir=str(directory), include_last_profiler_step=True))


def test_ranks_steps_and_the_device_are_found(case: Case) -> None:
    assert sorted(case.analysis.t.traces) == list(range(case.simulation.network.world))
    assert case.analysis.get_profiler_steps() == list(range(case.simulation.fill, case.simulation.last))
    assert case.analysis.t.get_device_type() == "NVIDIA GPU"


def test_the_breakdown_is_that_of_the_simulation(case: Case) -> None:
    """From the first kernel to the last one; while the host has its overhead, the device is idle."""
    found = case.analysis.get_temporal_breakdown(visualize=False).sort_values("rank")
    low, high = case.simulation.window
    computing = case.simulation.busy()[DEVICE] * (high - low)
    on_device = [task for task in case.simulation.program.tasks if task.stream not in (DATA, HOST)]
    working = case.seconds(on_device)
    start, end = np.moveaxis(np.clip(case.simulation.intervals(on_device), low, high), 2, 0)
    whole = np.where(end > start, end, low).max(axis=1) - np.where(end > start, start, high).min(axis=1)
    assert found["kernel_time(us)"].to_numpy() / 1e6 == pytest.approx(whole, rel=0.01)
    assert found["compute_time(us)"].to_numpy() / 1e6 == pytest.approx(computing, rel=0.01)
    assert found["non_compute_time(us)"].to_numpy() / 1e6 == pytest.approx(working - computing, rel=0.01, abs=5e-6)
    assert found["idle_time(us)"].to_numpy() / 1e6 == pytest.approx(whole - working, rel=0.01, abs=5e-6)


def test_the_overlap_is_that_of_the_simulation(case: Case) -> None:
    found = case.analysis.get_comm_comp_overlap(visualize=False).sort_values("rank")
    exchanging = case.seconds(case.exchanges)
    overlapping = exchanging + case.seconds(case.compute) - case.seconds(case.exchanges, case.compute)
    expected = 100 * overlapping / exchanging
    assert found["comp_comm_overlap_pctg"].to_numpy() == pytest.approx(expected, rel=0.01, abs=0.05)
    low, high = case.simulation.window
    exposed = (1 - found["comp_comm_overlap_pctg"].to_numpy() / 100) * exchanging / (high - low)
    assert exposed == pytest.approx(case.simulation.exposed_comm, rel=0.01, abs=1e-4)


def test_every_kernel_is_of_the_kind_that_it_was_written_as(case: Case) -> None:
    by_kind, _ = case.analysis.get_gpu_kernel_breakdown(visualize=False, include_memory_kernels=True)
    found = dict(zip(by_kind["kernel_type"], by_kind["sum"], strict=True))
    memory = [task for task in case.simulation.program.tasks if task.stream not in (COMPUTE, DATA, HOST)]
    memory = [task for task in memory if not task.is_exchange]
    for kind, tasks in (("COMPUTATION", case.compute), ("COMMUNICATION", case.exchanges), ("MEMORY", memory)):
        seconds = sum(value for name, value in found.items() if kind in name) / 1e6
        assert seconds == pytest.approx(case.seconds(tasks).sum(), rel=0.01)
