"""Whether the ranks of a job replicate the dense part, or shard it: what a workload, or a policy, says of it."""

from typing import Annotated, Literal, get_args

from pydantic import Field

from topologies.documents import Record

DenseStrategyWord = Literal["replicate", "zero1", "zero2", "fsdp"]
STRATEGY_WORDS: tuple[DenseStrategyWord, ...] = get_args(DenseStrategyWord)
"""As DistributedDataParallel has it; ZeRO's stages 1 and 2 (arXiv:1910.02054), which shard optimizer state, and
gradients too; its stage 3, which shards weights as well (PyTorch's FSDP)."""
ShardedOver = Literal["node", "world"]


class DenseSharding(Record):
    """One strategy for the whole dense part."""

    strategy: DenseStrategyWord = "replicate"
    """replicate: all of it on each rank; zero1: optimizer state is sharded; zero2: gradients, too; fsdp: weights,
    too."""
    over: Annotated[ShardedOver, Field(exclude_if=lambda over: over == "world")] = "world"
    """The ranks that share what is sharded: all of them, or those of each node (HYBRID_SHARD of PyTorch's FSDP)."""

    @property
    def is_sharded(self) -> bool:
        """Whether anything is."""
        return self.strategy != "replicate"

    @property
    def words(self) -> str:
        """`fsdp over node`."""
        return f"{self.strategy} over {self.over}" if self.is_sharded else self.strategy


REPLICATED = DenseSharding()
