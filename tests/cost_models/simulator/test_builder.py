"""Steps of a few ranks: what follows what, worked out by hand; equal to 0.1 %."""

from dataclasses import replace

import numpy as np
import pytest

from cost_models.coefficients import software_coefficients
from cost_models.resources import Resource
from cost_models.simulator.conditions import Conditions
from tests.oracles.instances import node_group, topology
from tests.oracles.simulated_steps import EXACT, in_hbm, kind_of, model_of, nothing, seconds, steps_of


def test_an_empty_step_is_its_overhead() -> None:
    cluster, model = topology(node_group("a", ranks=1)), model_of()
    software = software_coefficients(model.software)
    constants = software.step_overhead_s.value + software.forward_launch_s.value + software.backward_launch_s.value
    played = steps_of(cluster, model, nothing(1))
    copied = seconds(played, "copy to device")
    assert played.step_seconds == pytest.approx([constants + copied] * 2, rel=EXACT)


def hiding(ids_s: float, update_s: float) -> tuple[float, float]:
    """(step, step without ids) when the next batch's ids take `ids_s` and the update `update_s`."""
    cluster, model = topology(node_group("a", ranks=2)), model_of(pipeline="sparse-dist")
    kind = kind_of(cluster, model)
    latency = kind.exchange_protocols[-1].latency_s or 0.0
    update = replace(nothing(2), backward_s=in_hbm(np.full(2, update_s)))
    received = (ids_s - latency) * kind.link_all_to_all * 2  # half of them from the other rank
    with_ids = replace(update, ids_received_bytes=np.full(2, received))
    return tuple(steps_of(cluster, model, each, steps=4).step_s for each in (with_ids, update))  # type: ignore[return-value]


def test_ids_that_just_fit_and_that_just_do_not() -> None:
    """Ids leave after one forward pass and are needed by the next one: update, launches and overhead hide them."""
    software = software_coefficients("torchrec")
    hidden = software.backward_launch_s.value + 0.010 + software.step_overhead_s.value
    fits, without = hiding(hidden * 0.999, 0.010)
    assert fits == pytest.approx(without, rel=EXACT)
    late, without = hiding(hidden + 0.002, 0.010)
    assert late - without == pytest.approx(0.002, rel=EXACT)


def test_a_straggler_makes_everybody_wait() -> None:
    cluster, model = topology(node_group("a", ranks=2)), model_of()
    demand = replace(nothing(2), forward_s=in_hbm(np.full(2, 0.020)))
    slow = steps_of(cluster, model, demand, Conditions(slow_ranks={1: 1.5}))
    usual = steps_of(cluster, model, demand)
    launches = [software_coefficients("torchrec").forward_launch_s.value]
    launches += [software_coefficients("torchrec").backward_launch_s.value]
    assert slow.step_s - usual.step_s == pytest.approx(0.5 * (0.020 + sum(launches)), rel=EXACT)


def test_inference_has_no_backward_pass() -> None:
    cluster, model = topology(node_group("a", ranks=2)), model_of(mode="inference")
    played = steps_of(cluster, model, replace(nothing(2), forward_s=in_hbm(np.full(2, 0.020))))
    names = {task.name for task in played.program.tasks}
    assert not {"embedding update (hbm)", "all-reduce", "dense optimizer"} & names
    assert played.step_s > 0.020


def test_unknown_hardware_is_named() -> None:
    cluster, model = topology(node_group("a", ranks=2)), model_of()
    demand = nothing(2)
    with pytest.raises(ValueError, match="no rank 7"):
        steps_of(cluster, model, demand, Conditions(slow_ranks={7: 2.0}))
    with pytest.raises(ValueError, match="no uplink0 0; sorts of links are ddr, "):
        steps_of(cluster, model, demand, Conditions(slow_links={(Resource("uplink", level=0), 0): 0.5}))
    with pytest.raises(ValueError, match="no scale-out card 9"):
        steps_of(cluster, model, demand, Conditions(lost_cards=(9,)))
    with pytest.raises(ValueError, match="no scale-out card left"):
        steps_of(cluster, model, demand, Conditions(lost_cards=(0, 1)))
