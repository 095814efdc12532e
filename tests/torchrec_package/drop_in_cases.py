"""Tables on two GPUs, and what planners of TorchRec are given with them."""

from collections.abc import Sequence

import torch
from torch import nn
from torchrec import EmbeddingBagCollection
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import Topology
from torchrec.distributed.planner.types import (
    PlanLoader,
    ShardingOption,
)
from torchrec.distributed.types import ShardingPlan
from torchrec.modules.embedding_configs import EmbeddingBagConfig

GIB = 2**30
DIM, ROWS = 64, 10**6
GPUS = Topology(world_size=2, local_world_size=2, compute_device="cuda", hbm_cap=40 * GIB)
META = torch.device("meta")


class Sharder(EmbeddingBagCollectionSharder):
    """Whole tables, or tables cut by rows, in HBM."""

    def __init__(self, *shardings: str) -> None:
        super().__init__()
        self.shardings = shardings

    def sharding_types(self, compute_device_type: str) -> list[str]:  # noqa: ARG002 - called by name
        return list(self.shardings)

    def compute_kernels(self, sharding_type: str, compute_device_type: str) -> list[str]:  # noqa: ARG002
        return ["fused"]


def model(names: str = "abcd", rows: int = ROWS, dense: int = 0) -> nn.Module:
    """Tables, and a layer of so many outputs."""
    configs = [
        EmbeddingBagConfig(num_embeddings=rows, embedding_dim=DIM, name=name, feature_names=[f"f_{name}"])
        for name in names
    ]
    parts: dict[str, nn.Module] = {"bags": EmbeddingBagCollection(tables=configs, device=META)}
    if dense:
        parts["over"] = nn.Linear(1024, dense, bias=False, device=META)
    return nn.ModuleDict(parts)


def ranks(plan: ShardingPlan) -> dict[str, tuple[int, ...]]:
    return {name: tuple(sharding.ranks) for name, sharding in plan.plan["bags"].items()}


class Loader(PlanLoader):
    """Has a plan, or none."""

    def __init__(self, options: Sequence[ShardingOption] | None = None, context: str | None = None) -> None:
        self.options, self.context = options, context

    def load(self) -> dict[int, ShardingOption] | None:
        return None if self.options is None else {option.storage_hash(): option for option in self.options}

    def plan_context_hash(self) -> str | None:
        return self.context

    def get_plan_id(self) -> str:
        return "yesterday's"
