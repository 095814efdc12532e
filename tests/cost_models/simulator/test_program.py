"""Streams of ranks: what follows what on them, and what a program remembers of it."""

import numpy as np

from cost_models.simulator.engine import Engine
from cost_models.simulator.graph import Use
from cost_models.simulator.program import COMPUTE, COPY, Label, Streams


def test_a_stream_runs_in_order_and_beside_the_others() -> None:
    """Two kernels one after the other; a copy beside them; what joins a stream waits for both."""
    streams = Streams(2)
    streams.run(Label("first", "lookup", COMPUTE, 0), np.array([1.0, 2.0]))
    streams.run(Label("second", "update", COMPUTE, 0), np.array([1.0, 1.0]))
    copied = streams.run(Label("copy", "transfer", COPY, 1), np.array([5.0, 0.5]))
    joined = streams.join(COMPUTE, [copied])
    run = Engine(streams.graph, np.zeros(0)).run()
    tasks = {task.name: task for task in streams.program.tasks}
    assert run.start[tasks["second"].first].tolist() == [1.0, 2.0]
    assert run.start[tasks["copy"].first].tolist() == [0.0, 0.0]
    assert run.end[joined].tolist() == [5.0, 3.0]
    assert (tasks["copy"].step, tasks["copy"].kind, tasks["copy"].is_exchange) == (1, "transfer", False)


def test_who_moves_nothing_does_not_wait() -> None:
    """One of two ranks moves 4 units at 2 per second; where nobody moves anything there is no task."""
    streams = Streams(2)
    uses = [Use(np.array([0, 0]), np.ones(2))]
    moved = streams.move(Label("fetch", "transfer", COPY, 0), np.array([0.0, 4.0]), uses)
    streams.move(Label("nothing", "transfer", COPY, 0), np.zeros(2), uses)
    run = Engine(streams.graph, np.array([2.0])).run()
    assert run.end[moved].tolist() == [0.0, 2.0]
    assert [task.name for task in streams.program.tasks] == ["fetch"]


def test_work_of_the_host_holds_up_the_compute_stream_only() -> None:
    """Its overhead is a task of no stream that the device waits for."""
    streams = Streams(1)
    streams.wait_for_host(0, np.array([3.0]), [])
    kernel = streams.run(Label("kernel", "lookup", COMPUTE, 0), np.array([1.0]))
    copied = streams.run(Label("copy", "transfer", COPY, 0), np.array([1.0]))
    run = Engine(streams.graph, np.zeros(0)).run()
    assert (run.end[kernel[0]], run.end[copied[0]]) == (4.0, 1.0)
