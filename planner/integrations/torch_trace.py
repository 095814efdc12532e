"""The layers of a module, by its forward pass on the meta device: nothing is computed, and torch's FLOP counter counts.

Every function of torch that the module calls is seen, whatever Python does between them. Tables are stood for by
vectors of their shapes.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cost_models.workload.layer_kinds import Shape
from planner.integrations.torch_inputs import dense_tensors, looked_up
from planner.integrations.torch_layers import UnnameableError
from planner.integrations.torch_recorder import FLOPS_PER_MAC, Recorder
from planner.integrations.torch_values import Part
from planner.integrations.torchrec_collections import Collection

if TYPE_CHECKING:
    from torch import nn


class Interrupted(Exception):  # noqa: N818 - a forward pass that could not go on without numbers
    """What ended a forward pass."""

    def __init__(self, error: Exception, misfit: int | None) -> None:
        words = f"{type(error).__name__}: {error}".strip().splitlines()[0]
        super().__init__(
            str(error) if isinstance(error, UnnameableError) else f"its forward pass without numbers ended with {words}"
        )
        self.misfit = misfit
        """How many numbers more a layer needs than it was given, where that ended it."""


@contextlib.contextmanager
def _watched(module: "nn.Module", recorder: Recorder) -> Iterator[None]:
    """The recorder knows which module runs."""
    handles = []
    for path, part in module.named_modules():
        handles.append(part.register_forward_pre_hook(lambda own, _, path=path: recorder.enter(path, own)))
        handles.append(
            part.register_forward_hook(lambda own, read, made: recorder.leave(own, read[0] if read else None, made))
        )
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextlib.contextmanager
def _replaced(forwards: "Mapping[nn.Module, Callable[..., Any]]") -> Iterator[None]:
    """Modules with other forward passes."""
    for module, forward in forwards.items():
        module.forward = forward
    try:
        yield
    finally:
        for module in forwards:
            del module.forward


@dataclass(frozen=True)
class Traced:
    """A forward pass."""

    recorder: Recorder
    macs: float
    """Of a sample, as torch's FLOP counter has them."""
    inputs: tuple[tuple[str, int], ...]
    """Names of the numerical inputs, and their numbers for a sample."""


def traced(
    module: "nn.Module",
    collections: Sequence[Collection],
    arguments: Any,
    batch: int,
    sources: Mapping[tuple[int, int], tuple[str, Shape]],
) -> Traced:
    """The forward pass of a module on the meta device. `sources` are the name and shape of each table's vectors, by the
    indices of its collection and of itself. Raises Interrupted with what the module raises."""
    import torch
    from torch.overrides import TorchFunctionMode
    from torch.utils.flop_counter import FlopCounterMode

    class Seen(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return recorder.call(func, args, kwargs or {})

    tables = {id(weight) for each in collections for weight in each.parameters.values()}
    with FlopCounterMode(display=False) as counter:
        recorder = Recorder(module, counter, batch, tables)
        inputs = []
        for tensor in dense_tensors(arguments):
            numbers = tensor.numel() / batch
            if numbers.is_integer():
                name = recorder.found.free_name("input")
                inputs.append((name, round(numbers)))
                recorder.found.give_source(name, Shape(1, round(numbers)))
                recorder.give(tensor, [Part(name, numbers)])
        for name, shape in sources.values():
            recorder.found.give_source(name, shape)
        forwards = {each.module: _lookup(recorder, each, at, batch, sources) for at, each in enumerate(collections)}
        with _replaced(forwards), _watched(module, recorder), torch.no_grad(), torch.device("meta"):
            try:
                with Seen():
                    if isinstance(arguments, dict):
                        module(**arguments)
                    else:
                        module(*arguments)
            except Exception as error:
                raise Interrupted(error, recorder.misfit) from error
        return Traced(recorder, counter.get_total_flops() / FLOPS_PER_MAC / batch, tuple(inputs))


def _lookup(
    recorder: Recorder,
    collection: Collection,
    index: int,
    batch: int,
    sources: Mapping[tuple[int, int], tuple[str, Shape]],
) -> Callable[..., Any]:
    def forward(*_: Any, **__: Any) -> Any:
        import torch

        with torch._C.DisableTorchFunction():
            found, tensors = looked_up(collection, batch)
        for tensor, tables in tensors:
            widths = [collection.configs[table].embedding_dim for table in tables]
            parts = [Part(sources[index, t][0], width) for t, width in zip(tables, widths, strict=True)]
            recorder.give(tensor, parts)
        return found

    return forward
