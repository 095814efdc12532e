"""Simulated steps that have something of everything: exchanges within and across nodes, caches, waiting, no waiting."""

from functools import cache

from cost_models.resources import FRONT_END
from cost_models.simulator.conditions import Conditions
from cost_models.simulator.simulation import Simulation
from planner import plan
from planner.formulation.policy import Policy
from planner.verification.simulation import simulate_plan
from tests.oracles.instances import node_group, topology, workload

DENSE = {
    "numerical_features": 13,
    "bottom_mlp": [512, 256, 64],
    "interaction": "concat",
    "top_mlp": [1024, 1024, 512, 1],
}
TABLES = [
    {"rows": 2_000_000, "dim": 64, "zipf_alpha": 1.05},
    {"rows": 600_000, "dim": 128, "pooling_factor": 40, "pooling_std": 10, "zipf_alpha": 1.05},
    {"rows": 900_000, "dim": 64, "pooling_factor": 25},
    {"rows": 5_000, "dim": 32, "pooling_factor": 3},
]


def varied() -> Simulation:
    """Two nodes of two ranks; every rank takes its own time, so that exchanges are waited for."""
    return _played({"pipeline": "sparse-dist"}, conditions=Conditions(pooling=True, jitter=0.1, seed=3))


def prefetched() -> Simulation:
    """Tables in host memory, their caches filled beside the computation."""
    return _played(
        {"pipeline": "prefetch"}, policy=Policy(tiers=("ddr_cached", "ddr"), shardings=("table_row_wise", "grid_shard"))
    )


def waiting_for_data() -> Simulation:
    """The devices idle, because the front-end cards bring the data too slowly."""
    slow = Conditions(data_loading=True, slow_links={(FRONT_END, 0): 0.02, (FRONT_END, 1): 0.02})
    return _played({"pipeline": "sparse-dist"}, conditions=slow)


def inference() -> Simulation:
    """Forward only."""
    return _played({"mode": "inference"}, policy=Policy(shardings=("table_wise", "row_wise")))


CASES = {each.__name__: cache(each) for each in (varied, prefetched, waiting_for_data, inference)}


def _played(
    fields: dict[str, object], *, policy: Policy | None = None, conditions: Conditions | None = None
) -> Simulation:
    group = node_group("a", nodes=2, hbm_bytes=8e9, ddr_bytes=40e9)
    group["links"] = {**group["links"], "front_end": {"kind": "ethernet", "count": 1, "bandwidth": "12.5GB/s"}}
    model = workload(TABLES, global_batch=262_144, dense=DENSE, **fields)
    found = plan(topology(group), model, policy=policy, effort=0, gap=1.0, simulate=False)
    return simulate_plan(found, steps=3, conditions=conditions)
