"""What a model's forward pass is given, and what its tables give it, where only shapes count: on the meta device."""

import dataclasses
import inspect
import itertools
import typing
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from planner.integrations.torchrec_collections import Collection

if TYPE_CHECKING:
    import torch
    from torch import nn

Arguments = dict[str, Any]


def made_arguments(
    module: "nn.Module", collections: Sequence[Collection], batch: int, width: int
) -> Iterator[Arguments]:
    """Arguments of a forward pass by the names and annotations of its parameters: a KeyedJaggedTensor with the features
    of all tables, and tensors of `width` numerical features; each of what has no annotation, in turn."""
    import torch
    from torchrec import KeyedJaggedTensor

    parameters = inspect.signature(module.forward).parameters.values()
    free = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [each for each in parameters if each.default is each.empty and each.kind not in free]
    try:
        hints = typing.get_type_hints(module.forward)
    except (NameError, TypeError, AttributeError):
        hints = {}
    kinds = (KeyedJaggedTensor, torch.Tensor)
    choices = [[hints[each.name]] if each.name in hints else kinds for each in needed]
    for chosen in itertools.product(*choices):
        if all(kind in kinds for kind in chosen):
            made = [_ids(collections, batch) if kind is KeyedJaggedTensor else (batch, width) for kind in chosen]
            values = (torch.zeros(each, device="meta") if isinstance(each, tuple) else each for each in made)
            yield {each.name: value for each, value in zip(needed, values, strict=True)}


def _ids(collections: Sequence[Collection], batch: int) -> Any:
    """One id of each feature and sample."""
    import torch
    from torchrec import KeyedJaggedTensor

    names = dict.fromkeys(name for each in collections for config in each.configs for name in config.feature_names)
    count = len(names) * batch
    return KeyedJaggedTensor(
        list(names),
        torch.zeros(count, dtype=torch.int64, device="meta"),
        lengths=torch.ones(count, dtype=torch.int32, device="meta"),
        stride=batch,
    )


def unfit_words(module: "nn.Module") -> str:
    """Why no arguments could be made."""
    return (
        f"forward{inspect.signature(module.forward)} of {type(module).__name__} takes more than tensors and a"
        " KeyedJaggedTensor; return (model, arguments of its forward pass)"
    )


def on_meta(arguments: Any) -> Any:
    """The same arguments without numbers."""
    import torch
    from torch.utils import _pytree

    def moved(each: Any) -> Any:
        if isinstance(each, torch.Tensor) or hasattr(each, "to"):
            return each.to("meta") if isinstance(each, torch.Tensor) else each.to(torch.device("meta"))
        return each

    return _pytree.tree_map(moved, arguments, is_leaf=_is_ids)


def dense_tensors(arguments: Any) -> "Iterator[torch.Tensor]":
    """Tensors of floating-point numbers among arguments, without those of ids."""
    import torch
    from torch.utils import _pytree

    for each in _pytree.tree_leaves(arguments, is_leaf=lambda one: _is_ids(one) or dataclasses.is_dataclass(one)):
        if isinstance(each, torch.Tensor) and each.is_floating_point():
            yield each
        elif dataclasses.is_dataclass(each) and not isinstance(each, type) and not _is_ids(each):
            yield from dense_tensors([getattr(each, field.name) for field in dataclasses.fields(each)])


def batch_of(arguments: Any) -> int | None:
    """Samples in some arguments; None where nothing tells."""
    import torch
    from torch.utils import _pytree

    for each in _pytree.tree_leaves(arguments, is_leaf=lambda one: _is_ids(one) or dataclasses.is_dataclass(one)):
        if _is_ids(each):
            return int(each.stride())
        if isinstance(each, torch.Tensor) and each.dim():
            return int(each.shape[0])
        if dataclasses.is_dataclass(each) and not isinstance(each, type):
            found = batch_of([getattr(each, field.name) for field in dataclasses.fields(each)])
            if found is not None:
                return found
    return None


def _is_ids(each: Any) -> bool:
    from torchrec import KeyedJaggedTensor

    return isinstance(each, KeyedJaggedTensor)


def looked_up(collection: Collection, batch: int) -> "tuple[Any, list[tuple[torch.Tensor, list[int]]]]":
    """What a collection gives for one id of each feature and sample, and its tensors with the numbers of each table's
    vectors in them, by the index of the table: of bags one tensor with all, else one for each feature."""
    import torch
    from torchrec import KeyedTensor
    from torchrec.modules.embedding_modules import get_embedding_names_by_table

    names = get_embedding_names_by_table(list(collection.configs))
    dims = [config.embedding_dim for config in collection.configs]
    if collection.is_pooled:
        keys = [name for own in names for name in own]
        widths = [dim for dim, own in zip(dims, names, strict=True) for _ in own]
        whole = torch.zeros(batch, sum(widths), device="meta")
        found: Any = KeyedTensor(keys=keys, length_per_key=widths, values=whole)
        tensors = [(whole, [index for index, own in enumerate(names) for _ in own])]
    else:
        places = _places()
        vectors = {name: (index, dims[index]) for index, own in enumerate(names) for name in own}
        made = {name: torch.zeros(batch, dim, device="meta") for name, (_, dim) in vectors.items()}
        lengths = torch.ones(batch, dtype=torch.int32, device="meta")
        found = {name: places(values=values, lengths=lengths) for name, values in made.items()}
        tensors = [(made[name], [index]) for name, (index, _) in vectors.items()]
    return ((found, None) if collection.is_managed else found), tensors


def _places() -> type:
    """JaggedTensor of histories of one place: without numbers, nothing says how long the longest one is."""
    import torch
    from torchrec import JaggedTensor

    class Places(JaggedTensor):  # type: ignore[misc]
        def to_padded_dense(self, desired_length: int | None = None, *_: Any, **__: Any) -> torch.Tensor:
            values = self.values()
            whole = values.unsqueeze(1)
            return whole if desired_length in (None, 1) else torch.cat([whole] * int(desired_length or 1), dim=1)

    return Places
