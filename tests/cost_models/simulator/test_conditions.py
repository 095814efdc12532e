"""Conditions that differ from the mean step: what is drawn, and which links are slow."""

import numpy as np
import pytest

from cost_models.kinds import rank_kinds
from cost_models.resources import NIC_IN, NIC_OUT, PCIE, Resource
from cost_models.simulator.conditions import Conditions
from cost_models.simulator.network import Instance, SimulatedNetwork
from tests.oracles.instances import node_group, topology, workload

MODEL = workload([{"rows": 1000, "dim": 64, "pooling_std": 4.0}, {"rows": 1000, "dim": 64}], dense={})
CLUSTER = topology(node_group("a", nodes=2, ranks=2, cards=2), oversubscription=2.0)
NETWORK = SimulatedNetwork(CLUSTER, rank_kinds(CLUSTER, MODEL))


@pytest.mark.parametrize(
    ("link", "slow"),
    [
        ((Resource("nic"), 1), {(NIC_OUT, 1), (NIC_IN, 1)}),
        ((NIC_OUT, 1), {(NIC_OUT, 1)}),
        ((PCIE, 0), {(PCIE, 0)}),
        ((Resource("uplink", level=0), 1), {(Resource("uplink", way, 0), 1) for way in ("out", "in")}),
    ],
)
def test_a_link_is_slow_in_the_directions_that_are_named(link: Instance, slow: set[Instance]) -> None:
    """Both where none is named; every other link is as it was."""
    capacity = Conditions(slow_links={link: 0.25}).capacity(NETWORK)
    assert {instance for instance, left in zip(NETWORK.instances, capacity, strict=True) if left == 0.25} == slow
    assert set(capacity.tolist()) == {0.25, 1.0}


@pytest.mark.parametrize("link", [(Resource("nic"), 4), (Resource("device"), 0), (Resource("uplink", level=1), 0)])
def test_a_link_that_does_not_exist_is_named(link: Instance) -> None:
    """With the kinds of links that there are, each once."""
    words = f"there is no {link[0]} {link[1]}; sorts of links are ddr, .*nic, pcie, ssd, "
    with pytest.raises(ValueError, match=words):
        Conditions(slow_links={link: 0.5}).capacity(NETWORK)


def test_ids_vary_as_far_as_the_tables_say() -> None:
    """Around their mean, by `pooling_std` over the pooling factor and the samples of a rank; without one not at all."""
    drawn = np.stack([ids for ids in Conditions(pooling=True).ids(MODEL, 4, 500) if ids is not None])
    assert drawn.shape == (500, 4, 2)
    assert drawn[..., 0].mean() == pytest.approx(1.0, abs=0.002)
    assert drawn[..., 0].std() == pytest.approx(4.0 / 10 / np.sqrt(4096 / 4), rel=0.05)
    assert (drawn[..., 1] == 1.0).all()
    assert list(Conditions().ids(MODEL, 4, 2)) == [None, None]


def test_a_straggler_is_slow_in_every_step() -> None:
    """Beside the jitter that everybody has."""
    slowness = np.stack(Conditions(jitter=0.1, slow_ranks={1: 2.0}).slowness(3, 400))
    spread = np.log(slowness)
    assert spread.mean(axis=0) == pytest.approx([0.0, np.log(2.0), 0.0], abs=0.02)
    assert spread.std(axis=0) == pytest.approx([0.1] * 3, rel=0.15)
