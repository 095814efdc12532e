"""What played steps show: steps, critical path, exposed communication, and how busy links are; by hand."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from cost_models.resources import DEVICE, LINK_OUT, NIC_OUT
from cost_models.simulator.conditions import Conditions
from cost_models.simulator.simulation import HOST_OVERHEAD, Simulation, covered
from tests.oracles.instances import node_group, topology
from tests.oracles.simulated_steps import EXACT, in_hbm, model_of, nothing, seconds, steps_of


def straggler() -> Simulation:
    """Two ranks that look up for 20 ms, the second for 30, and exchange vectors."""
    cluster, model = topology(node_group("a", ranks=2)), model_of()
    demand = replace(nothing(2), forward_s=in_hbm(np.full(2, 0.020)), vectors_to_each_bytes=np.full(2, 30e6))
    return steps_of(cluster, model, demand, Conditions(slow_ranks={1: 1.5}))


def test_the_critical_path_is_the_step() -> None:
    """Its pieces have no gap, and their seconds by task add up to a step; the lookup is the straggler's."""
    simulation = straggler()
    pieces, (low, high) = simulation.path(), simulation.window
    assert pieces[0].start == pytest.approx(low)
    assert pieces[-1].end == pytest.approx(high)
    assert all(before.end == pytest.approx(after.start) for before, after in itertools.pairwise(pieces))
    shares = simulation.critical_path()
    assert sum(share.seconds for share in shares) == pytest.approx(simulation.step_s)
    assert shares == sorted(shares, key=lambda share: -share.seconds)
    (lookup,) = (share for share in shares if share.task == "lookup (hbm)")
    assert (lookup.rank, lookup.seconds) == (1, pytest.approx(seconds(simulation, "lookup (hbm)", 1)))
    (exchange,) = (share for share in shares if share.task == "output dist (table-wise)")
    assert exchange.rank is None


def test_who_waits_for_an_exchange_is_exposed() -> None:
    """The rank that comes early waits for the straggler and for the bytes, the straggler for the bytes only."""
    simulation = straggler()
    early, late = simulation.exposed_comm
    assert early > late > 0
    assert np.all(simulation.exposed_comm <= simulation.comm)
    share = (early + late) / simulation.comm.sum()
    assert simulation.exposed_share_of_comm == pytest.approx(share)
    assert 0 < share <= 1


def test_links_are_busy_while_bytes_cross_them() -> None:
    """Vectors and their gradients over each rank's port; devices while they compute; no card without a second node."""
    simulation = straggler()
    busy = simulation.busy()
    (kind,) = simulation.network.kinds
    assert busy[LINK_OUT] * simulation.step_s == pytest.approx([2 * 30e6 / kind.link_all_to_all] * 2, rel=EXACT)
    assert NIC_OUT not in busy
    on_device = [task for task in simulation.program.tasks if task.stream == "compute"]
    worked = [sum(np.diff(simulation.intervals(on_device)[r])[:, 0]) for r in range(2)]
    played = len(simulation.program.done) * simulation.step_s
    assert busy[DEVICE] * played == pytest.approx(worked, rel=0.05)
    assert (busy[HOST_OVERHEAD] > 0).all()


def test_steps_are_counted_once_the_pipeline_is_full() -> None:
    """Throughput is the batch over the mean of the counted steps."""
    simulation = straggler()
    assert len(simulation.step_seconds) == simulation.last - simulation.fill == 2
    assert simulation.samples_per_s == pytest.approx(4096 / simulation.step_seconds.mean())
    assert simulation.window[1] - simulation.window[0] == pytest.approx(simulation.step_seconds.sum())


def test_intervals_cover_what_any_of_them_covers() -> None:
    """Overlaps count once, gaps not at all."""
    intervals = np.array([[[0.0, 2.0], [1.0, 3.0], [5.0, 6.0]], [[4.0, 5.0], [0.0, 1.0], [0.0, 0.5]]])
    assert covered(intervals).tolist() == [4.0, 2.0]
    assert covered(np.zeros((3, 0, 2))).tolist() == [0.0, 0.0, 0.0]


def test_a_replay_tells_the_loads_of_the_same_run() -> None:
    """Whoever listens hears no load above a link's capacity, and hears of the port of every rank."""
    simulation, heard = straggler(), set()

    def observe(_time: float, resources: np.ndarray, share: np.ndarray) -> None:
        assert (share <= 1 + 1e-9).all()
        heard.update(resources[share > 0].tolist())

    simulation.replay(observe)
    assert set(simulation.network.number(LINK_OUT, np.arange(2)).tolist()) <= heard
