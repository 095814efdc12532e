"""What optimizers keep of the weights that they train. All of it is fp32 (FBGEMM, HugeCTR, torch)."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from topologies.documents import Record

Optimizer = Literal[
    "sgd",
    "rowwise_adagrad",
    "adagrad",
    "adam",
    "lamb",
    "lars_sgd",
    "partial_rowwise_adam",
    "partial_rowwise_lamb",
]
DenseOptimizer = Literal[Optimizer, "adamw", "shampoo"]
"""Those of the dense part, of which no table has the last two."""
Grafting = Literal["none", "sgd", "adagrad", "rmsprop", "adam"]


@dataclass(frozen=True)
class OptimizerState:
    """How much an optimizer keeps."""

    arrays: int
    """Numbers for every weight."""
    per_row: int = 0
    """Numbers for every row of an embedding table."""

    @property
    def dense_arrays(self) -> int:
        """Numbers for every weight that is of no embedding table: there are no rows that could share one."""
        return self.arrays + self.per_row


STATE: dict[Optimizer, OptimizerState] = {
    "sgd": OptimizerState(0),
    "rowwise_adagrad": OptimizerState(0, 1),
    "adagrad": OptimizerState(1),
    "adam": OptimizerState(2),
    "lamb": OptimizerState(2),
    "lars_sgd": OptimizerState(1),
    "partial_rowwise_adam": OptimizerState(1, 1),
    "partial_rowwise_lamb": OptimizerState(1, 1),
}
"""FBGEMM 1.8.0, split_table_batched_embeddings_ops_training: momentum1 and momentum2 of each."""
ELEMENTWISE: dict[DenseOptimizer, int] = {
    **{name: state.dense_arrays for name, state in STATE.items()},
    "adamw": 2,  # Adam with another weight decay (arXiv:1711.05101)
}
"""What optimizers of the dense part keep for every weight. Shampoo's is in blocks: see `Shampoo`."""
UPDATE_BYTES = 4
"""Bytes of a number of an update that is not applied as soon as it is computed: fp32, as optimizers compute."""
NORM_READS, PARKED_PASSES = 1, 3
"""LAMB scales the update of each layer by two norms, of its weights and of the update itself (arXiv:1904.00962,
algorithm 2): weights are read once more, and the update is written, read for its norm and read to be applied (two
kernels with the norms between them, as in NVIDIA Apex's FusedLAMB)."""
LAYERWISE: tuple[DenseOptimizer, ...] = ("lamb", "partial_rowwise_lamb")
"""Optimizers that need norms of layers."""


class Shampoo(Record):
    """How Distributed Shampoo is set up (arXiv:2309.06497). What is left out is as the arguments of the published
    `DistributedShampoo` and of its `DDPDistributedConfig` have it (facebookresearch/optimizers)."""

    block: Annotated[int, Field(ge=1)] = 1024
    """The most numbers along a dimension of a block of weights (`max_preconditioner_dim`)."""
    grafting: Grafting = "none"
    """The diagonal method whose step length it takes (`grafting_config`). All but none and sgd keep a number for each
    weight."""
    momentum: bool = False
    """Whether it keeps the momentum of each weight (`momentum` above 0)."""
    filtered_gradient: bool = False
    """Whether it keeps a moving average of each gradient (`betas[0]` above 0)."""
    frequency: Annotated[int, Field(ge=1)] = 1
    """Steps from one computation of the inverse roots to the next (`precondition_frequency`)."""
    group: Annotated[int, Field(ge=1)] = 1
    """Consecutive ranks that share the work and the state (`num_trainers_per_group`); it divides the ranks. Unset: each
    rank does all of it, as without a `distributed_config`."""
    exchange: Literal["fp32", "fp16", "bf16"] = "fp32"
    """The format in which ranks of a group send each other updates, or updated weights (`communication_dtype`)."""

    @property
    def arrays(self) -> int:
        """Numbers that are kept for each weight."""
        return (self.grafting not in ("none", "sgd")) + self.momentum + self.filtered_gradient
