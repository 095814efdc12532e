"""A Wukong (arXiv:2403.02545) whose dense part fills the memory of accelerators, and nodes of H100 to train it on."""

from collections.abc import Sequence

from cost_models.workload.models import Workload
from topologies.cluster import Topology
from topologies.loading import load_topology


def dgx_h100(nodes: int) -> Topology:
    """So many DGX H100 on one network."""
    data = load_topology("dgx-h100").model_dump(mode="json", exclude_defaults=True)
    data["nodes"][0]["count"] = nodes
    return Topology.model_validate(data)


def wukong(
    sizes: Sequence[int] = (16_384,) * 4, count: int = 14, batch: int = 524_288, tables: int = 16, dim: int = 256
) -> Workload:
    """By default 102 GFLOP a training sample and 16.9 B dense parameters."""
    embedded = [{"name": f"t{i}", "rows": 2_000_000, "dim": dim, "pooling_factor": 5} for i in range(tables)]
    width = {"vectors": 64, "compressed": 64, "rank": 64}
    layers = [
        {"kind": "embeddings", "name": "bags", "tables": ["*"]},
        {"kind": "mlp", "name": "numbers", "inputs": "numerical", "sizes": [512, dim]},
        {"kind": "wukong", "inputs": ["bags", "numbers"], **width, "sizes": list(sizes), "count": count},
        {"kind": "mlp", "name": "top", "sizes": [2_048, 1_024, 1]},
    ]
    dense = {"numerical_features": 13, "dtype": "bf16", "optimizer": "adam", "layers": layers}
    return Workload.model_validate({"name": "wukong", "global_batch": batch, "tables": embedded, "dense": dense})
