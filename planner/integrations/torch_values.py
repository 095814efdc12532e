"""What a tensor of a model's forward pass carries: which layers' outputs, whole or in part, and which parameters."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

IN_ORDER = {
    *("cat", "concat", "concatenate", "stack", "hstack", "relu", "relu_", "dropout", "gelu", "silu", "sigmoid", "tanh"),
    *("reshape", "view", "flatten", "unflatten", "unsqueeze", "squeeze", "contiguous", "to", "float", "clone", "type"),
    *("narrow", "split", "chunk", "select", "__getitem__", "unbind", "leaky_relu", "add", "__add__", "mul", "__mul__"),
}
"""Functions that keep the numbers of a sample in their order, or take a run of them."""
JOINS = {"cat", "concat", "concatenate", "stack", "hstack"}


@dataclass(frozen=True)
class Part:
    """The output of a layer as a run of numbers in a tensor."""

    layer: str
    numbers: float


@dataclass(eq=False)
class Value:
    """What one tensor carries."""

    parts: tuple[Part, ...] = ()
    """Whose outputs it is, or is made of; none of a tensor that is the same for all samples."""
    is_exact: bool = True
    """Whether it is these outputs one after the other, and nothing else; number by number they may have changed."""
    in_order: bool = True
    """Whether each part's numbers are beside each other in memory, the parts in their order."""
    parameters: "tuple[torch.Tensor, ...]" = ()
    """Of which it is made, where it is the same for all samples."""
    made_by: str = ""
    """The module and the function that last made another thing of it."""

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the layers, each once."""
        return tuple(dict.fromkeys(part.layer for part in self.parts))

    @property
    def numbers(self) -> float:
        """Numbers of all parts."""
        return sum(part.numbers for part in self.parts)


def window(value: Value, read: "torch.Tensor", made: "torch.Tensor", batch: int) -> tuple[Part, ...] | None:
    """The parts that a view takes of a tensor; None where it is no run of whole parts for each sample."""
    if not (value.is_exact and value.in_order and made.dim() > 1 and read.dim() > 1):
        return None
    is_view = made._base is not None and made._base is (read if read._base is None else read._base)
    if not is_view or made.stride(0) != read.stride(0) or not (_is_run(read) and _is_run(made)):
        return None
    start, end = made.storage_offset() - read.storage_offset(), 0.0
    end = start + made.numel() / batch
    at, found = 0.0, []
    for part in value.parts:
        if start <= at and at + part.numbers <= end:
            found.append(part)
        elif at < end and start < at + part.numbers:
            return None
        at += part.numbers
    return tuple(found)


def _is_run(tensor: "torch.Tensor") -> bool:
    """Whether a sample's numbers are beside each other."""
    return bool(tensor[0].is_contiguous())


def flowed(
    function: str, read: Sequence[tuple[Value, "torch.Tensor"]], made: "torch.Tensor", batch: int, place: str
) -> Value:
    """What an operation without products and parameters makes of what it reads: outputs of layers as they are, or
    something made of them, as large as the tensor."""
    numbers = made.numel() / batch
    values = [value for value, _ in read]
    in_order = function in IN_ORDER and all(value.in_order for value in values)
    if len(read) == 1:
        value, tensor = read[0]
        if numbers == tensor.numel() / batch and not value.is_exact:
            return value
        if numbers == tensor.numel() / batch:
            return Value(value.parts, value.is_exact, in_order and value.in_order, made_by=value.made_by or place)
        if (parts := window(value, tensor, made, batch)) is not None:
            return Value(parts, made_by=place)
        if numbers == value.numbers and len(value.parts) == 1:
            return Value(value.parts, True, False, made_by=place)
    elif all(value.is_exact for value in values):
        parts = tuple(part for value in values for part in value.parts)
        if function in JOINS and sum(part.numbers for part in parts) == numbers:
            return Value(parts, True, in_order and _joins_runs(made, [tensor for _, tensor in read]), made_by=place)
        if function not in JOINS and len({value.parts for value in values}) == 1 and numbers == values[0].numbers:
            return Value(values[0].parts, True, in_order, made_by=place)
    names = dict.fromkeys(name for value in values for name in value.layers)
    return Value(tuple(Part(name, 0.0) for name in names), False, False, made_by=place)


def _joins_runs(made: "torch.Tensor", read: Sequence["torch.Tensor"]) -> bool:
    """Whether inputs lie one after the other for each sample: they are joined along the first dimension after it."""
    return made.dim() == 2 or all(tensor.shape[2:] == made.shape[2:] for tensor in read if tensor.dim() == made.dim())
