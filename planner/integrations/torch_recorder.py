"""What a recorder sees of a forward pass: every function of torch, with the tensors that it reads and gives."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cost_models.workload.layer_kinds import Shape
from planner.integrations.torch_layers import Core, Form, Layers, Work
from planner.integrations.torch_patterns import join_cross
from planner.integrations.torch_values import Part, Value, flowed

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.utils.flop_counter import FlopCounterMode

FLOPS_PER_MAC = 2
ADDS = {"add", "add_", "__add__", "__iadd__", "__radd__"}
TIMES = {"mul", "__mul__", "__rmul__"}
MEANS = {"mean", "sum", "__sum__"}
NORMS = {"layer_norm", "batch_norm"}


class Recorder:
    """Sees the functions of a forward pass, and names its layers."""

    def __init__(self, module: "nn.Module", counter: "FlopCounterMode", batch: int, tables: set[int]) -> None:
        self.found = Layers()
        self.values: dict[int, Value] = {}
        self.unused = {
            id(each): path for path, each in module.named_parameters() if id(each) not in tables and each.requires_grad
        }
        self.batch_constant_macs = 0.0
        self.misfit: int | None = None
        """How many numbers more a layer needs than it was given, where the forward pass ended so."""
        self._weights = {id(each): each for each in module.parameters() if id(each) not in tables}
        self._counter, self._batch = counter, batch
        self._wholes = {path for path, part in module.named_modules() if path and _is_whole(part)}
        """Paths of modules whose functions have their names."""
        self._kept: list[torch.Tensor] = []
        self._path: list[str] = []
        self._products: dict[str, tuple[str, str, int, int]] = {}
        """Products of two tensors of a sample: what they read, and heads and width of the first."""
        self._scaled: dict[int, tuple[tuple[Value, Value], ...]] = {}
        """Of products number by number: both factors, in both orders."""
        self._kept_values: list[Value] = []
        self._unit: list[tuple[float, int]] | None = None
        """Multiply-accumulates and parameters of a module that is one layer, while it runs."""

    def give(self, tensor: "torch.Tensor", parts: Sequence[Part]) -> None:
        """Say what a tensor is."""
        self._kept.append(tensor)
        self.values[id(tensor)] = Value(tuple(parts))

    def call(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Call a function of torch, and note what it does."""
        before, function = self._counter.get_total_flops(), _name_of(func)
        try:
            made = func(*args, **kwargs)
        except Exception:
            self.misfit = _misfit(function, args)
            raise
        changed = [args[0]] if function == "__setitem__" else _tensors(made)
        if changed:
            macs = (self._counter.get_total_flops() - before) / FLOPS_PER_MAC / self._batch
            self._note(function, args, kwargs, changed, macs)
        return made

    def _note(self, function: str, args: Any, kwargs: Any, made: "Sequence[torch.Tensor]", macs: float) -> None:
        values = [(self._value(each), each) for each in _tensors((args, kwargs))]
        sampled = [(value, tensor) for value, tensor in values if value.parts]
        weights = {id(each): each for value, _ in values for each in value.parameters}
        self._kept += made
        if self._unit is not None:
            self._unit.append((macs, sum(self._first_read(weights))))
            return
        if not sampled:
            self.batch_constant_macs += macs
            for each in made:
                self.values[id(each)] = Value(parameters=tuple(weights.values()))
            return
        here = f"{self._path[-1] if self._path else ''}.{function.strip('_')}".strip(".")
        place = self._path[-1] if self._path and self._path[-1] in self._wholes else here
        fresh = self._first_read(weights)
        work = Work(
            place,
            function,
            macs,
            sum(fresh),
            made[0].numel() / self._batch,
            made[0].shape[-1] if made[0].dim() else 1,
            has_others_weights=bool(weights) and len(fresh) < len(weights),
        )
        name = self._layer(work, sampled, args, kwargs) if macs or weights else self._cheap(work, sampled, args, kwargs)
        for each in made:
            if name:
                own = each is made[0]
                parts = (Part(name, self.found.shape(name).numbers if own else 0.0),)
                self.values[id(each)] = Value(parts, is_exact=own, in_order=own, made_by=here)
            else:
                value = self.values[id(each)] = flowed(function, sampled, each, self._batch, here)
                if function in TIMES and len(sampled) == 2 and all(own.is_exact for own, _ in sampled):
                    (left, _), (right, _) = sampled
                    self._scaled[id(value)] = ((left, right), (right, left))
                    self._kept_values.append(value)

    def _first_read(self, weights: "Mapping[int, torch.Tensor]") -> list[int]:
        """Numbers of those that are trained and read for the first time."""
        return [each.numel() for key, each in weights.items() if self.unused.pop(key, None)]

    def _value(self, tensor: "torch.Tensor") -> Value:
        if id(tensor) in self._weights:
            return Value(parameters=(tensor,))
        return self.values.get(id(tensor), Value())

    def _layer(self, work: Work, read: "Sequence[tuple[Value, torch.Tensor]]", args: Any, kwargs: Any) -> str:
        """The layer of a function that multiplies, or has parameters."""
        name = ""
        if work.function == "multi_head_attention_forward":
            name = self._attention(work, args, kwargs)
        elif work.function == "scaled_dot_product_attention":
            return self._core(work, args, kwargs)
        elif work.function in NORMS and not work.macs:
            form = Form.of(work.numbers, work.width)
            value, tensor = read[0]
            if form and not work.has_others_weights and (work.function == "layer_norm" or tensor.dim() == 2):
                name = self._put_norm(work, value, form)
        elif work.macs and len(read) == 1 and work.parameters:
            value, tensor = read[0]
            name = self.found.put_weights(work, value, tensor.numel() / self._batch, tensor.dim())
        elif work.macs and len(read) == 2 and not work.parameters and not work.has_others_weights:
            return self._product(work, read)
        return name or self.found.put_totals(work, _names(read))

    def _put_norm(self, work: Work, value: Value, form: Form) -> str:
        if work.parameters != 2 * form.width:
            return ""
        inputs = self.found.reads(value, work.numbers, form)
        if form.is_vector and [self.found.shape(each) for each in inputs] != [Shape(1, form.width)]:
            inputs = (self.found.brought(value, work.numbers, form),)
        return self.found.put_if_equal(work, "norm", inputs)

    def _cheap(self, work: Work, read: "Sequence[tuple[Value, torch.Tensor]]", args: Any, kwargs: Any) -> str:
        """The layer of a function without products and parameters, where it is one: a sum of layers, or their mean."""
        values = [value for value, _ in read]
        if work.function in ADDS and len(read) == 2 and (name := self._cross(values)):
            return name
        if not all(value.is_exact for value in values):
            return ""
        if work.function in ADDS and len(read) == 2 and values[0].parts != values[1].parts:
            form = Form.of(work.numbers, work.width)
            if form is not None and all(tensor.numel() / self._batch == work.numbers for _, tensor in read):
                names = [self.found.read_as_one(value, work.numbers, form) for value in values]
                return self.found.put_if_equal(work, "add", names)
        if work.function in MEANS and len(read) == 1 and read[0][1].dim() == 3:
            dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
            form = Form.of(read[0][1].numel() / self._batch, work.numbers)
            if form is not None and dim in (1, -2, [1], (1,), [-2], (-2,)):
                name = self.found.read_as_one(values[0], form.tokens * form.width, form)
                return self.found.put_if_equal(work, "pool", (name,))
        return ""

    def _cross(self, values: Sequence[Value]) -> str:
        """The cross layer that a sum ends."""
        for scaled, last in (values, values[::-1]):
            for first, product in self._scaled.get(id(scaled), ()):
                if last.is_exact and (name := join_cross(self.found, first, product, last)):
                    return name
        return ""

    def _attention(self, work: Work, args: Any, kwargs: Any) -> str:
        """That of nn.MultiheadAttention, with its projections."""
        from torch.nn import functional

        given = inspect.signature(functional.multi_head_attention_forward).bind(*args, **kwargs).arguments
        queries, keys, values = (given[each] for each in ("query", "key", "value"))
        width, heads = given["embed_dim_to_check"], given["num_heads"]
        inputs: tuple[str, ...] = ()
        for tensor in (queries,) if queries is keys else (queries, keys):
            numbers = tensor.numel() / self._batch
            form = Form.of(numbers, width)
            if form is None or keys is not values:
                return ""
            inputs += (self.found.read_as_one(self._value(tensor), numbers, form),)
        causal = bool(given.get("is_causal")) and not given.get("need_weights", True) and len(inputs) == 1
        bias = {} if given["in_proj_bias"] is not None else {"bias": False}
        return self.found.put_attention(work, inputs, causal=causal, heads=heads, head_dim=width // heads, **bias)

    def _core(self, work: Work, args: Any, kwargs: Any) -> str:
        """Attention of projected queries, keys and values."""
        given = dict(zip(("query", "key", "value", "attn_mask", "dropout_p", "is_causal"), args, strict=False)) | kwargs
        queries, keys, values = (given[each] for each in ("query", "key", "value"))
        heads = queries.shape[1] if queries.dim() == 4 else 0
        causal = bool(given.get("is_causal"))
        name = self._put_core(work, [self._value(each) for each in (queries, keys, values)], queries)
        single = [self._value(each).layers for each in (queries, keys, values)]
        if all(len(each) == 1 for each in single):
            (query,), (key,), (value,) = single
            self.found.cores[name] = Core(query, key, value, heads, queries.shape[-1], causal)
        if causal:
            self.found.halve(name)
        return name

    def _put_core(self, work: Work, values: Sequence[Value], queries: "torch.Tensor") -> str:
        tokens = queries.shape[-2]
        form = Form.of(work.numbers, work.numbers / tokens)
        if form is None:
            return self.found.put_totals(work, _names([(value, queries) for value in values]))
        names = dict.fromkeys(name for value in values for name in value.layers)
        words = "attention without its projections"
        return self.found.put_other(work.place, words, tuple(names), form, macs=work.macs, parameters=work.parameters)

    def _product(self, work: Work, read: "Sequence[tuple[Value, torch.Tensor]]") -> str:
        """A product of two tensors of a sample: dots of all pairs, attention by hand, or another."""
        (first, left), (second, right) = read
        numbers = left.numel() / self._batch
        count = work.numbers**0.5
        if first.is_exact and first.parts == second.parts and count.is_integer() and left.numel() == right.numel():
            form = Form.of(numbers, numbers / count)
            if form is not None and work.macs == form.tokens**2 * form.width:
                inputs = self.found.reads(first, numbers, form)
                pairs = form.tokens * (form.tokens - 1) // 2
                if name := self.found.put_if_equal(work, "dot", inputs, gives=pairs):
                    return name
        scores = self._products.get(first.parts[0].layer) if len(first.layers) == 1 else None
        unread = scores and not any(first.layers[0] in each.inputs for each in self.found.layers.values())
        if scores and unread and first.is_exact and len(second.layers) == 1:
            return self._by_hand(work, first.layers[0], scores, second)
        name = self.found.put_totals(work, _names(read))
        if len(first.layers) == len(second.layers) == 1 and left.dim() >= 3:
            heads = left.shape[1] if left.dim() == 4 else 0
            self._products[name] = (first.layers[0], second.layers[0], heads, left.shape[-1])
        return name

    def _by_hand(self, work: Work, product: str, scores: tuple[str, str, int, int], values: Value) -> str:
        """Scores times values: with the product that gives the scores, attention."""
        queries, keys, heads, head_dim = scores
        wide = self.found.shape(queries)
        both = self.found.layers[product].macs or 0.0
        form = Form(round(wide.tokens), round(work.numbers / wide.tokens)) if wide.has_fixed_length else None
        if form is None or form.tokens * form.width != work.numbers:
            return self.found.put_totals(work, (product, *values.layers))
        names = tuple(dict.fromkeys((queries, keys, *values.layers)))
        self.found.drop(product)
        words = "attention without its projections"
        name = self.found.put_other(work.place, words, names, form, macs=work.macs + both)
        self.found.cores[name] = Core(queries, keys, values.layers[0], heads, head_dim, causal=False)
        return name

    def enter(self, path: str, module: "nn.Module") -> None:
        """A module begins."""
        self._path.append(path)
        if type(module).__name__ in UNITS and self._unit is None:
            self._unit = []

    def leave(self, module: "nn.Module", read: "torch.Tensor", made: "torch.Tensor") -> None:
        """It ends; where it is a layer of its own, as that."""
        place = self._path.pop()
        if type(module).__name__ not in UNITS or self._unit is None:
            return
        macs, parameters = (sum(each) for each in zip(*self._unit, strict=True))
        self._unit = None
        numbers = made.numel() / self._batch
        work = Work(place, type(module).__name__, macs, parameters, numbers, made.shape[-1])
        value = self._value(read)
        form = Form.of(numbers, numbers)
        name = ""
        if form is not None and value.parts:
            kind, keys = UNITS[type(module).__name__](module)
            name = self.found.put_if_equal(work, kind, self.found.reads(value, numbers, form), **keys)
        name = name or self.found.put_totals(work, value.layers)
        self.give(made, [Part(name, numbers)])


def _cross_net(module: Any) -> tuple[str, dict[str, Any]]:
    return "cross", {"rank": module.W_kernels[0].shape[1], "count": len(module.W_kernels), "inner_bias": False}


def _full_cross_net(module: Any) -> tuple[str, dict[str, Any]]:
    return "cross", {"count": len(module.kernels)}


UNITS: dict[str, Callable[["nn.Module"], tuple[str, dict[str, Any]]]] = {
    "LowRankCrossNet": _cross_net,
    "CrossNet": _full_cross_net,
}
"""Modules that are one layer, by their types: TorchRec's."""


def _is_whole(module: "nn.Module") -> bool:
    return next(module.children(), None) is None or type(module).__name__ == "MultiheadAttention"


def _tensors(tree: Any) -> "list[torch.Tensor]":
    """The tensors among arguments or results."""
    import torch
    from torch.utils import _pytree

    return [each for each in _pytree.tree_leaves(tree) if isinstance(each, torch.Tensor)]


def _name_of(function: Any) -> str:
    from torch.overrides import resolve_name

    name = resolve_name(function) or getattr(function, "__name__", str(function))
    return (
        "__get__" if name.endswith("__get__") and not name.endswith(("T.__get__", "H.__get__")) else name.split(".")[-1]
    )


def _names(read: "Sequence[tuple[Value, torch.Tensor]]") -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for value, _ in read for name in value.layers))


def _misfit(function: str, args: Any) -> int | None:
    """How many numbers more a layer needs than it was given."""
    try:
        if function == "linear":
            return int(args[1].shape[-1] - args[0].shape[-1])
        if function in ("matmul", "mm", "__matmul__", "__rmatmul__"):
            return int(args[1].shape[-2] - args[0].shape[-1])
        if function == "layer_norm":
            return int(args[1][-1] - args[0].shape[-1])
        if function == "batch_norm":
            return int(args[1].numel() - args[0].shape[1])
    except (AttributeError, IndexError, TypeError):
        return None
    return None
