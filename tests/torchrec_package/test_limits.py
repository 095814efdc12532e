"""Kernels that constraints and sharders name are hard limits."""

import pytest
import torch
from torchrec import EmbeddingBagCollection
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import ParameterConstraints, Topology
from torchrec.distributed.planner.planners import validate_compute_kernels
from torchrec.distributed.types import CacheParams
from torchrec.modules.embedding_configs import EmbeddingBagConfig

from planner.integrations.torchrec_planner import ShardPlanner
from planner.verification.verify import verify
from topologies.errors import InputError

CLUSTER = Topology(world_size=4, local_world_size=2, compute_device="cuda", hbm_cap=2**30, ddr_cap=2**34)
"""Of little HBM, so that every kernel has its use."""
ROWS = {"small": 100, "middle": 10**5, "large": 2 * 10**6}


def bags() -> torch.nn.Module:
    tables = [
        EmbeddingBagConfig(num_embeddings=rows, embedding_dim=64, name=name, feature_names=[name])
        for name, rows in ROWS.items()
    ]
    return torch.nn.ModuleDict({"bags": EmbeddingBagCollection(tables=tables, device=torch.device("meta"))})


class Only(EmbeddingBagCollectionSharder):
    """A sharder that offers some kernels, whatever the sharding."""

    def __init__(self, *kernels: str, of: dict[str, list[str]] | None = None) -> None:
        super().__init__()
        self._offered, self._of = list(kernels), of or {}

    def compute_kernels(self, sharding_type: str, compute_device_type: str) -> list[str]:  # noqa: ARG002
        """The same everywhere but where something else is said."""
        return self._of.get(sharding_type, self._offered)


def ways(planner: ShardPlanner, sharder: EmbeddingBagCollectionSharder | None = None) -> dict[str, tuple[str, str]]:
    found = planner.plan(bags(), [sharder or EmbeddingBagCollectionSharder()]).plan["bags"]
    assert verify(planner.document) == []
    return {name: (held.sharding_type, held.compute_kernel) for name, held in found.items()}


def constrained(**more: object) -> ShardPlanner:
    return ShardPlanner(CLUSTER, batch_size=4096, constraints={name: ParameterConstraints(**more) for name in ROWS})


def test_fused_is_never_replicated_nor_dense() -> None:
    """Of constraints that name `fused` alone, also of tables for which copies on all ranks would be faster."""
    assert ways(constrained(pooling_factors=[50.0]))["small"] == ("data_parallel", "dense")
    found = ways(constrained(pooling_factors=[50.0], compute_kernels=["fused"]))
    assert {kernel for _, kernel in found.values()} == {"fused"}
    assert "data_parallel" not in {sharding for sharding, _ in found.values()}


def test_dense_is_never_fused() -> None:
    """Of constraints that name `dense` alone: replicated, and in no other way, whatever the sharder offers."""
    for sharder in (None, Only("fused", "dense"), Only("dense")):
        planner = constrained(compute_kernels=["dense"])
        assert set(ways(planner, sharder).values()) == {("data_parallel", "dense")}
        validate_compute_kernels(planner.get_selected_options())
        whole = constrained(compute_kernels=["dense"], sharding_types=["table_wise"])
        with pytest.raises(InputError, match="leave no kernel of dense for table_wise"):
            ways(whole, sharder)


@pytest.mark.parametrize("kernels", [("dense",), ("dense", "fused_uvm"), ("dense", "fused")])
def test_a_sharder_that_offers_dense_everywhere_has_it_for_copies_alone(kernels: tuple[str, ...]) -> None:
    """As TorchRec's planner checks of a plan that it has made."""
    planner = ShardPlanner(CLUSTER, batch_size=4096)
    found = ways(planner, Only(*kernels))
    assert all(way == "data_parallel" for way, kernel in found.values() if kernel == "dense")
    validate_compute_kernels(planner.get_selected_options())


@pytest.mark.parametrize("kernel", ["fused", "fused_uvm", "fused_uvm_caching"])
def test_a_sharder_has_the_kernels_that_it_offers(kernel: str) -> None:
    """One that offers one kernel gets no other, of no table."""
    assert {found for _, found in ways(ShardPlanner(CLUSTER, batch_size=4096), Only(kernel)).values()} == {kernel}


def test_kernels_are_those_of_their_sharding() -> None:
    """A sharder that has `fused` for whole tables and `fused_uvm` for cut ones mixes them for none."""
    sharder = Only("fused_uvm", of={"table_wise": ["fused"], "data_parallel": []})
    for sharding, kernel in ways(ShardPlanner(CLUSTER, batch_size=4096), sharder).values():
        assert kernel == ("fused" if sharding == "table_wise" else "fused_uvm")


def test_what_leaves_no_kernel_is_named() -> None:
    """The table, what was asked for and what there is; an unknown word with the nearest known one."""
    with pytest.raises(InputError) as error:
        ways(constrained(compute_kernels=["fused"]), Only("fused_uvm"))
    for name in ROWS:
        assert f"{name}: has constraints that leave no kernel of fused for" in str(error.value)
    assert "its Only has fused_uvm for plans; allow more in one of them" in str(error.value)
    with pytest.raises(InputError, match="'fussed' is no kernel; did you mean 'fused'"):
        ways(constrained(compute_kernels=["fussed"]))


def test_hbm_is_enforced() -> None:
    """`enforce_hbm` keeps a table out of host memory, by constraint or by a sharder's parameters."""
    sharder = EmbeddingBagCollectionSharder(fused_params={"enforce_hbm": True})
    kernels = {kernel for _, kernel in ways(ShardPlanner(CLUSTER, batch_size=4096), sharder).values()}
    assert kernels <= {"fused", "dense"}
    assert {kernel for _, kernel in ways(constrained(enforce_hbm=True)).values()} <= {"fused", "dense"}
    with pytest.raises(InputError, match=r"leave no kernel of fused_uvm in HBM \(enforce_hbm\)"):
        ways(constrained(enforce_hbm=True, compute_kernels=["fused_uvm"]))


def test_a_cache_has_the_load_factor_that_is_stated() -> None:
    """By constraint or by a sharder's parameters; what is no share is an error."""
    kept = constrained(compute_kernels=["fused_uvm_caching"], cache_params=CacheParams(load_factor=0.03))
    found = kept.plan(bags()).plan["bags"]
    assert {held.cache_params.load_factor for held in found.values()} == {0.03}
    sharder = EmbeddingBagCollectionSharder(fused_params={"cache_load_factor": 0.07})
    planner = constrained(compute_kernels=["fused_uvm_caching"])
    found = planner.plan(bags(), [sharder]).plan["bags"]
    assert {held.cache_params.load_factor for held in found.values()} == {0.07}
    with pytest.raises(InputError, match=r"has the cache load factor 1.5, which is no share"):
        ways(constrained(cache_params=CacheParams(load_factor=1.5)))
