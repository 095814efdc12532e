"""TorchRec's collection of copies on CPU processes over gloo."""

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.remote_device import _remote_device
from torchrec.distributed.model_parallel import DMPCollection
from torchrec.distributed.types import ShardingPlan


class OnCpus(DMPCollection):
    """Devices of shards are numbered as GPUs are; CPUs have no numbers."""

    def _remap_sharding_plan(self, plan: ShardingPlan, *arguments: Any, **named: Any) -> None:
        super()._remap_sharding_plan(plan, *arguments, **named)
        for parameters in plan.plan.values():
            for parameter in parameters.values():
                for shard in parameter.sharding_spec.shards if parameter.sharding_spec else ():
                    shard.placement = _remote_device(f"rank:{shard.placement.rank()}/cpu")

    def average(self, tensors: list[torch.Tensor]) -> None:
        """The mean over the copies, which gloo does not compute itself: a `custom_all_reduce`."""
        group = self._default_ctx.replica_pg
        for each in tensors:
            dist.all_reduce(each, group=group)
            each /= dist.get_world_size(group)
