"""The part of a module that every rank holds: all parameters and buffers outside of its tables."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cost_models.dense import parameter_bytes
from cost_models.dense_size import dense_size
from cost_models.workload.models import Workload
from cost_models.workload.optimizers import DenseOptimizer
from planner.integrations.torchrec_collections import Collection
from planner.integrations.torchrec_optimizers import dense_optimizer
from topologies.errors import Fault, InputError

if TYPE_CHECKING:
    from torch import nn

WORD = 4
"""Bytes of a number that the workload counts."""


@dataclass(frozen=True)
class DensePart:
    """What is outside of tables."""

    trained_bytes: int
    other_bytes: int
    """Buffers and frozen parameters."""
    macs: int
    """Multiplications of one vector through every linear layer."""
    optimizer: DenseOptimizer

    @classmethod
    def of(cls, module: "nn.Module", collections: Sequence[Collection], workload: Workload | None) -> "DensePart":
        """That of a module without the tables of its sharded collections. Raises InputError for parameters without a
        size."""
        from torch import nn

        tables = {id(parameter) for each in collections for parameter in each.parameters.values()}
        own = {path: each for path, each in module.named_parameters() if id(each) not in tables}
        lazy = [path for path, each in own.items() if nn.parameter.is_lazy(each)]
        if lazy:
            raise InputError(
                [
                    Fault(path, 0, 0, "", "has no size yet: give its lazy module the widths, or run it once")
                    for path in lazy
                ]
            )
        trained = [each for each in own.values() if each.requires_grad]
        sharded = [each.path for each in collections]
        buffers = [each for path, each in module.named_buffers() if not any(_is_within(path, at) for at in sharded)]
        return cls(
            _bytes(trained),
            _bytes(each for each in own.values() if not each.requires_grad) + _bytes(buffers),
            sum(
                part.in_features * part.out_features
                for path, part in module.named_modules()
                if isinstance(part, nn.Linear) and not any(_is_within(path, at) for at in sharded)
            ),
            dense_optimizer(trained, workload),
        )

    def totals(self) -> dict[str, Any]:
        """The dense part of a workload that says nothing of its own."""
        return {
            "macs_per_sample": self.macs,
            "parameters": -(-self.trained_bytes // WORD),
            "optimizer": self.optimizer,
            "extra_bytes": self.other_bytes,
        }

    def missing_bytes(self, workload: Workload) -> int:
        """What the module holds beyond the layers or totals that a workload states. Raises InputError for parameters
        that the layers do not have where these are trained with an optimizer that works on matrices."""
        if workload.dense.optimizer == "shampoo":
            return self._expect_all_matrices(workload)
        own = Workload.model_validate(
            workload.model_dump(mode="json", exclude_defaults=True) | {"dense": self.totals()}
        )
        return max(0, round(parameter_bytes(own) - parameter_bytes(workload)))

    def _expect_all_matrices(self, workload: Workload) -> int:
        """What the module holds that is not trained, where the layers have all that is."""
        stated, there = dense_size(workload).parameters, -(-self.trained_bytes // WORD)
        if there > stated:
            message = f"shampoo works on matrices: the layers have {stated:,} parameters, and the module {there:,}"
            raise InputError.at("dense.optimizer", f"{message}; give all layers, or another optimizer")
        return max(0, self.other_bytes - workload.dense.extra_bytes)


def _bytes(tensors: Iterable[Any]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _is_within(path: str, outer: str) -> bool:
    return not outer or f"{path}.".startswith(f"{outer}.")
