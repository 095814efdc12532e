"""The dense parts of `measure.py` as workloads, and what the cost model says of them on one GPU."""

from dataclasses import replace
from typing import Any

from cost_models.dense import dense_seconds, optimizer_seconds
from cost_models.kinds import rank_kinds
from cost_models.software import software_of
from cost_models.workload.models import Workload
from topologies.cluster import Topology
from topologies.loading import load_topology

VECTORS, WIDTH = 26, 128
PICKED_BY_PLACES = ("dlrm",)
"""Models that pick pairs of dots by one list of places, whose gradients take next to nothing."""
_TABLES: dict[str, Any] = {"kind": "embeddings", "name": "vectors", "tables": "*"}
_DOTS = {"numerical_features": 13, "bottom_mlp": [512, 256, 128], "top_mlp": [1024, 1024, 512, 256, 1]}


def _wukong(read: str, name: str) -> list[dict[str, Any]]:
    """A layer of `torch_models.WukongLayer`, whose residual is projected in every layer."""
    return [
        {"kind": "fm", "name": f"{name}.fm", "inputs": read, "vectors": 32, "rank": 24, "sizes": [2048, 2048]},
        {"kind": "compress", "name": f"{name}.compress", "inputs": read, "vectors": 32},
        {"kind": "stack", "name": f"{name}.stack", "inputs": [f"{name}.fm", f"{name}.compress"]},
        {"kind": "compress", "name": f"{name}.residual", "inputs": read, "vectors": 64},
        {"kind": "add", "name": f"{name}.add", "inputs": [f"{name}.stack", f"{name}.residual"]},
        {"kind": "norm", "name": name, "inputs": f"{name}.add"},
    ]


def _attention(read: str, name: str) -> list[dict[str, Any]]:
    """A block of `torch_models.Attention`, whose MLP has no activation behind its second layer, as layers here have."""
    return [
        {"kind": "attention", "name": f"{name}.heads", "inputs": read, "heads": 4, "head_dim": 32},
        {"kind": "add", "name": f"{name}.met", "inputs": [read, f"{name}.heads"]},
        {"kind": "norm", "name": f"{name}.first", "inputs": f"{name}.met"},
        {"kind": "mlp", "name": f"{name}.mlp", "inputs": f"{name}.first", "sizes": [512, WIDTH], "per": "token"},
        {"kind": "add", "name": f"{name}.add", "inputs": [f"{name}.first", f"{name}.mlp"]},
        {"kind": "norm", "name": name, "inputs": f"{name}.add"},
    ]


DENSE: dict[str, dict[str, Any]] = {
    "mlp": {
        "numerical_features": 2048,
        "layers": [
            _TABLES,
            {"kind": "mlp", "name": "eight", "inputs": "numerical", "sizes": [2048] * 8},
            {"kind": "linear", "name": "last", "inputs": ["eight", "vectors"], "out": 1},
        ],
    },
    "dlrm": {**_DOTS, "interaction": "dot"},
    "dlrm_of_pairs": {**_DOTS, "interaction": "dot"},
    "dcn": {**_DOTS, "interaction": "dcn", "dcn_layers": 3, "dcn_low_rank": 512},
    "mixed": {
        "numerical_features": 13,
        "layers": [
            _TABLES,
            {"kind": "mlp", "name": "bottom", "inputs": "numerical", "sizes": [512, 128]},
            {"kind": "stack", "name": "all", "inputs": ["bottom", "vectors"]},
            {"kind": "cross", "name": "cross", "inputs": "all", "count": 2},
            {"kind": "dot", "name": "dots", "inputs": "all"},
            {"kind": "mlp", "name": "top", "inputs": ["cross", "dots", "bottom"], "sizes": [1536, 768, 1]},
        ],
    },
    "wukong": {
        "numerical_features": 13,
        "layers": [
            _TABLES,
            {"kind": "mlp", "name": "bottom", "inputs": "numerical", "sizes": [512, 128]},
            {"kind": "stack", "name": "crossed.0", "inputs": ["bottom", "vectors"]},
            *(layer for number in range(1, 5) for layer in _wukong(f"crossed.{number - 1}", f"crossed.{number}")),
            {"kind": "mlp", "name": "top", "sizes": [1024, 512, 1]},
        ],
    },
    "attention": {
        "numerical_features": 13,
        "layers": [
            {**_TABLES, "name": "block.0"},
            *(layer for number in range(1, 3) for layer in _attention(f"block.{number - 1}", f"block.{number}")),
            {"kind": "mlp", "name": "top", "inputs": ["block.2", "numerical"], "sizes": [1024, 512, 1]},
        ],
    },
}


def one_h100() -> Topology:
    """A DGX H100 with one GPU."""
    links = ["nodes.0.links.pcie.accelerators_per_switch=1", "nodes.0.links.scale_out.count=1"]
    return load_topology("dgx-h100", overrides=["nodes.0.accelerators.count=1", *links])


def workload(model: str, dtype: str, batch: int, optimizer: str, mode: str, *, checkpointed: bool = False) -> Workload:
    """A measured model; its vectors come from tables of one row each lookup."""
    dense = {**DENSE[model], "dtype": dtype, "optimizer": optimizer}
    if checkpointed:
        dense["checkpointing"] = "full"
    tables = [
        {"name": f"t{number}", "rows": 1000, "dim": WIDTH, "pooling_factor": 1}
        for number in range(1 if model == "mlp" else VECTORS)
    ]
    return Workload.model_validate(
        {
            "name": model,
            "global_batch": batch,
            "software": "torchrec",
            "software_mode": mode,
            "dense": dense,
            "tables": tables,
        }
    )


def device_seconds(topology: Topology, asked: Workload) -> float:
    """Forward and backward pass of the dense part, and its update, on the device; predicted."""
    kind = rank_kinds(topology, asked)[0]
    if asked.name in PICKED_BY_PLACES:
        kind = replace(kind, beside=replace(kind.beside, picked_gradient_bytes=0.0))
    passes = software_of(asked).activation_passes.value
    assert asked.global_batch is not None
    in_passes = dense_seconds(asked, float(asked.global_batch), kind, passes).total_s
    return in_passes + optimizer_seconds(asked, kind.hbm_bytes_per_s)
