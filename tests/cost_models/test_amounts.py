"""Memory that is kept free belongs to a cost model from its construction on."""

import pytest

from cost_models.amounts import Amount
from cost_models.memory_model import MemoryModel
from cost_models.registry import COST_MODELS, cost_model
from tests.oracles.instances import node_group, topology, workload

CLUSTER = topology(node_group("g", nodes=2, ranks=4, hbm_bytes=1e9, ddr_bytes=8e9))
TRAINED = workload([{"rows": 1000, "dim": 32}])


@pytest.mark.parametrize("name", COST_MODELS)
def test_a_share_and_bytes_are_kept_free_of_every_pool(name: str) -> None:
    """Bytes of HBM are those of a rank: 8 ranks keep 1 MB each; a share is one of what the cluster's reserve leaves."""
    plain = cost_model(name, CLUSTER, TRAINED).memory_capacity[0]
    assert plain - cost_model(name, CLUSTER, TRAINED, {"hbm": Amount(size=10**6)}).memory_capacity[0] == pytest.approx(
        [1e6] * 8
    )
    assert cost_model(name, CLUSTER, TRAINED, {"hbm": Amount(share=0.25)}).memory_capacity[0] == pytest.approx(
        0.75 * plain
    )


def test_more_than_there_is_leaves_nothing() -> None:
    """No pool has less than nothing."""
    model = cost_model("physical", CLUSTER, TRAINED, {"ddr": Amount(size=10**12)})
    assert model.memory_capacity[1].tolist() == [0.0, 0.0]


def test_the_bytes_of_a_model_keep_the_same_free() -> None:
    """A model of the bytes alone has the capacities of the whole one."""
    whole = cost_model("physical", CLUSTER, TRAINED, {"hbm": Amount(size=10**6), "ddr": Amount(share=0.5)})
    for own, of_whole in zip(MemoryModel(whole).memory_capacity, whole.memory_capacity, strict=True):
        assert own.tolist() == of_whole.tolist()
