"""Memory divided anew among caches once every table has its place."""

from cost_models.workload.models import Workload
from planner.formulation.policy import Policy
from planner.planning.planning import plan
from planner.verification.verify import verify
from topologies.cluster import Topology

SCARCE = {
    "name": "scarce",
    "nodes": [
        {
            "name": "g0",
            "count": 3,
            "accelerators": {
                "count": 1,
                "device": "H100-SXM5-80GB",
                "hbm": {"capacity": "18182851B", "bandwidth": "0.9TB/s"},
                "flops": {"fp32": "19.5TFLOP/s", "tf32": "156TFLOP/s"},
            },
            "host": {
                "ddr": {"capacity": "39402457B", "bandwidth": "200GB/s"},
                "ssd": {
                    "capacity": "3888143798B",
                    "iops": "1MIOPS",
                    "read_bandwidth": "6GB/s",
                    "write_bandwidth": "4GB/s",
                },
            },
            "links": {
                "pcie": {"bandwidth": "31.5GB/s", "accelerators_per_switch": 1},
                "scale_up": {"kind": "nvlink3", "bandwidth": "50GB/s"},
                "scale_out": {"kind": "roce", "count": 1, "bandwidth": "50GB/s"},
                "front_end": {"kind": "ethernet", "count": 1, "bandwidth": "12.5GB/s"},
            },
            "reserve": {"hbm": 0, "ddr": 0, "ssd": 0, "scm": 0, "remote": 0},
            "remote": {
                "count": 2,
                "capacity": "53985834B",
                "bandwidth": "100GB/s",
                "kind": "ethernet",
                "network_bandwidth": "12.5GB/s",
            },
        }
    ],
}


def test_prices_of_scarce_memory_do_not_end_the_bound() -> None:
    """A cache slightly smaller than all that the prices were made for still leaves a bound above nothing."""
    tables = [
        {"name": "t0", "rows": 1_270_868, "dim": 12, "pooling_factor": 38.7},
        {"name": "t2", "rows": 2873, "dim": 28, "pooling_factor": 42.7},
    ]
    embedding = {"dtype": "bf16", "optimizer": "adam"}
    asked = {"name": "scarce", "batch_per_rank": 250, "software": "hugectr", "pipeline": "sparse-dist"}
    workload = Workload.model_validate(asked | {"embedding": embedding, "tables": tables})
    rule = {"match": ["t0"], "max_shards": 4, "shardings": ["data_parallel", "grid_shard"]}
    policy = Policy.model_validate({"tables": [rule]})
    found = plan(Topology.model_validate(SCARCE), workload, policy=policy, effort=1, gap=0.0, simulate=False)
    assert found.objective is not None
    assert 0 < found.objective.lower_bound_s <= found.objective.step_s
    assert verify(found) == []
