"""Layers of a workload, named by what a forward pass computes: products, the parameters in them, and whose outputs they
read. A name is given only where its own formulas give the products and parameters that torch counts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from cost_models.workload.layer_kinds import KINDS, LayerSizes, Shape
from cost_models.workload.layers import NUMERICAL, Layer
from planner.integrations.torch_values import Part, Value
from topologies.errors import ConflictError

LONGEST_NAME = 180


class UnnameableError(Exception):
    """What no layer of a workload can stand for."""


@dataclass(frozen=True)
class Form:
    """How a layer reads or gives a sample: tokens of one width."""

    tokens: int
    width: int

    @property
    def is_vector(self) -> bool:
        """Whether it is one vector."""
        return self.tokens == 1

    @classmethod
    def of(cls, numbers: float, width: float) -> "Form | None":
        """That of so many numbers; None where they are no whole tokens."""
        tokens = numbers / width if width else 0
        whole = tokens >= 1 and float(tokens).is_integer() and float(width).is_integer()
        return cls(round(tokens), round(width)) if whole else None


@dataclass(frozen=True)
class Work:
    """What one function of a forward pass does for a sample."""

    place: str
    """The path of the module that calls it."""
    function: str
    macs: float
    parameters: int
    """Numbers of those that are trained and that nothing has read before."""
    numbers: float
    """That it gives."""
    width: int
    """Of the last dimension of what it gives."""
    has_others_weights: bool = False
    """Whether some of its parameters are frozen, or those of a layer before it."""


@dataclass(frozen=True)
class Core:
    """Attention between its projections: an `other` until these are found."""

    queries: str
    keys: str
    values: str
    heads: int
    """0 where the tensors do not tell."""
    head_dim: int
    causal: bool


@dataclass
class Layers:
    """Layers so far, in the order of the forward pass."""

    layers: dict[str, Layer] = field(default_factory=dict)
    sizes: dict[str, LayerSizes] = field(default_factory=dict)
    cores: dict[str, Core] = field(default_factory=dict)
    made_of: dict[str, str] = field(default_factory=dict)
    """Of those that have no kind of their own: what they do."""
    skipped_macs: dict[str, float] = field(default_factory=dict)
    """What torch counts of causal attention and no causal kernel computes."""

    def shape(self, name: str) -> Shape:
        """What a layer gives."""
        return self.sizes[name].output

    def give_source(self, name: str, shape: Shape) -> None:
        """What the layers read and no layer makes."""
        self.sizes[name] = LayerSizes(shape)

    def free_name(self, wanted: str) -> str:
        """This name, or with a number where it is taken."""
        wanted = wanted[-LONGEST_NAME:]
        name, number = wanted, 1
        while name in self.sizes or name == NUMERICAL:
            number += 1
            name = f"{wanted}-{number}"
        return name

    def put(self, name: str, kind: str, inputs: Sequence[str], **keys: Any) -> str:
        """Add a layer. Raises ConflictError where its inputs do not fit."""
        name = self.free_name(name)
        layer = Layer(kind=kind, name=name, inputs=tuple(inputs), **keys)
        self.sizes[name] = KINDS[kind](layer, [self.shape(each) for each in inputs])
        self.layers[name] = layer
        return name

    def put_if_equal(
        self, work: Work, kind: str, inputs: Sequence[str], gives: float | None = None, **keys: Any
    ) -> str:
        """Add a layer where its own formulas give what torch counts; else nothing, and ''."""
        try:
            name = self.put(work.place or work.function, kind, inputs, **keys)
        except ConflictError:
            return ""
        if self._does(name, work.macs, work.parameters, work.numbers if gives is None else gives):
            return name
        self.drop(name)
        return ""

    def _does(self, name: str, macs: float, parameters: int, numbers: float) -> bool:
        sizes = self.sizes[name]
        own = sum(each.macs for each in sizes.products)
        weights = sum(each.weights for each in sizes.products) + sum(sizes.vectors)
        return own == macs and weights == parameters and sizes.output.numbers == numbers

    def renamed(self, name: str, wanted: str) -> str:
        """Give a layer that nobody reads another name."""
        layer, sizes = self.layers[name], self.sizes[name]
        self.drop(name)
        wanted = self.free_name(wanted)
        self.layers[wanted], self.sizes[wanted] = layer.model_copy(update={"name": wanted}), sizes
        return wanted

    def drop(self, *names: str) -> None:
        """Forget layers."""
        for name in names:
            for known in (self.layers, self.sizes, self.cores, self.made_of, self.skipped_macs):
                known.pop(name, None)

    def reads(self, value: Value, numbers: float, form: Form) -> tuple[str, ...]:
        """The layers whose outputs a value is, in this form; a layer that brings it there is added where there is
        none."""
        if value.is_exact and value.numbers == numbers and self._are_whole(value) and self._fit(value, form):
            return value.layers
        return (self.brought(value, numbers, form),)

    def brought(self, value: Value, numbers: float, form: Form) -> str:
        """A layer without work that gives a value in this form."""
        name = self.put_other(value.made_by or "input", "selects, joins or multiplies numbers", value.layers, form)
        value.parts, value.is_exact, value.in_order = (Part(name, numbers),), True, False
        return name

    def read_as_one(self, value: Value, numbers: float, form: Form) -> str:
        """The layer whose output a value is, in this form: tokens of several are stacked."""
        names = self.reads(value, numbers, form)
        return names[0] if len(names) == 1 else self.put(f"{names[0]}.stack", "stack", names)

    def _are_whole(self, value: Value) -> bool:
        of_layers: dict[str, float] = dict.fromkeys(value.layers, 0.0)
        for part in value.parts:
            of_layers[part.layer] += part.numbers
        return all(self.shape(name).numbers == numbers for name, numbers in of_layers.items())

    def _fit(self, value: Value, form: Form) -> bool:
        shapes = [self.shape(name) for name in value.layers]
        if form.is_vector:
            return True
        return {shape.width for shape in shapes} == {form.width} and sum(s.tokens for s in shapes) == form.tokens

    def put_other(self, name: str, words: str, inputs: Sequence[str], form: Form, **totals: Any) -> str:
        """Add a layer by its totals."""
        keys = {key: value for key, value in totals.items() if value}
        if not form.is_vector:
            keys["vectors"] = form.tokens
        name = self.put(name, "other", inputs, out=form.width, **keys)
        self.made_of[name] = words
        return name

    def put_totals(self, work: Work, inputs: Sequence[str]) -> str:
        """Add what has no kind of its own. Raises UnnameableError where a sample has no whole numbers of it."""
        form = Form.of(work.numbers, work.width) or Form.of(work.numbers, work.numbers)
        if form is None:
            raise UnnameableError(f"{work.place or 'the model'} gives {work.numbers:g} numbers a sample")
        words = work.function + " with parameters that are frozen or used before" * work.has_others_weights
        return self.put_other(
            work.place or work.function, words, inputs, form, macs=work.macs, parameters=work.parameters
        )

    def put_weights(self, work: Work, value: Value, numbers: float, dimensions: int) -> str:
        """Add a product with weights: of tokens t x k and weights k x m all follows from the numbers read, t k, given,
        t m, and the multiply-accumulates, t k m."""
        inner, columns = work.macs / work.numbers, work.macs / numbers
        form = Form.of(numbers, inner)
        biases = work.parameters - inner * columns
        if work.has_others_weights or form is None or biases not in (0, columns):
            return ""
        if biases == 0 and not form.is_vector and (name := self._put_compress(work, value, form)):
            return name
        of_tokens = not form.is_vector or (dimensions > 2 and self._is_history(value))
        keys: dict[str, Any] = {"out": round(columns)}
        if of_tokens:
            keys["per"] = "token"
        if not biases:
            keys["bias"] = False
        return self.put_if_equal(work, "linear", self.reads(value, numbers, form), **keys)

    def _put_compress(self, work: Work, value: Value, form: Form) -> str:
        """Weights over the tokens of what is read, where its width is none that the weights read."""
        across = Form(form.width, form.tokens)
        if form.tokens == form.width or not value.is_exact or self._fit(value, form) or not self._fit(value, across):
            return ""
        if not self._are_whole(value):
            return ""
        return self.put_if_equal(work, "compress", value.layers, vectors=round(work.numbers / across.width))

    def put_attention(self, work: Work, inputs: Sequence[str], *, causal: bool, **keys: Any) -> str:
        """Attention with its projections. Torch's counter knows no causal kernel: it counts all products."""
        name = self.put_if_equal(work, "attention", inputs, **keys)
        if not name or not causal:
            return name
        self.drop(name)
        name = self.put(name, "attention", inputs, causal=True, **keys)
        self.skipped_macs[name] = work.macs - sum(each.macs for each in self.sizes[name].products)
        return name

    def halve(self, name: str) -> None:
        """Count half of a layer's multiply-accumulates: those that a causal kernel computes."""
        layer = self.layers[name]
        macs = (layer.macs or 0.0) / 2
        self.layers[name] = layer.model_copy(update={"macs": macs})
        self.sizes[name] = KINDS["other"](self.layers[name], [self.shape(each) for each in layer.inputs])
        self.skipped_macs[name] = macs

    def _is_history(self, value: Value) -> bool:
        """Whether a value of one token may have more: it is the output of one layer, in which tokens stand apart."""
        return value.is_exact and len(value.layers) == 1


def whole_numbers(layer: Layer) -> dict[str, Any]:
    """A layer as a file states it."""
    stated = layer.model_dump(mode="json", exclude_unset=True)
    if "macs" in stated and float(stated["macs"]).is_integer():
        stated["macs"] = int(stated["macs"])
    return stated


def read_by(layers: Mapping[str, Layer]) -> dict[str, list[str]]:
    """The names of those that read each layer."""
    readers: dict[str, list[str]] = {}
    for name, layer in layers.items():
        for source in layer.inputs:
            readers.setdefault(source, []).append(name)
    return readers


def renamed(layer: Layer, names: Mapping[str, str]) -> Layer:
    """The layer with other names of what it reads, each once."""
    inputs = tuple(dict.fromkeys(names.get(each, each) for each in layer.inputs))
    return layer.model_copy(update={"inputs": inputs}) if inputs != layer.inputs else layer


def shared_name(names: Sequence[str]) -> str:
    """The path that some names share; empty where they share none."""
    steps = zip(*(name.split(".") for name in names), strict=False)
    return ".".join(each[0] for each in takewhile(lambda step: len(set(step)) == 1, steps))
