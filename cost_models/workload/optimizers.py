"""What optimizers keep of the weights that they train. All of it is fp32 (FBGEMM, HugeCTR, torch)."""

from dataclasses import dataclass
from typing import Literal

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
