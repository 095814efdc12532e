"""The dense part of a model: its layers or totals, and the formats of what it computes and keeps."""

from typing import Annotated, Literal, Self, get_args

from pydantic import BeforeValidator, Field, model_validator

from cost_models.workload import spellings, words
from cost_models.workload.checkpoints import Checkpointing
from cost_models.workload.dense_sharding import DenseSharding
from cost_models.workload.formats import wire_bytes
from cost_models.workload.layers import NUMERICAL, Layer
from cost_models.workload.optimizers import (
    ELEMENTWISE,
    LAYERWISE,
    NORM_READS,
    PARKED_PASSES,
    UPDATE_BYTES,
    DenseOptimizer,
    Shampoo,
)
from topologies.documents import Record
from topologies.errors import ConflictError
from topologies.flops import LATER

Dtype = Annotated[words.Dtype, BeforeValidator(spellings.dtype)]
ComputeWord = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "mxfp8", "mxint8", "mxfp6", "mxfp4", "mx9", "mx6", "mx4"]
COMPUTE_DTYPE_BYTES: dict[str, float] = {
    word: 4.0 if word == "tf32" else wire_bytes(word) for word in get_args(ComputeWord)
}
"""Bytes of a number that goes into a matrix product, its part of a block's shared bits included."""
ComputeDtype = Annotated[ComputeWord, BeforeValidator(spellings.dtype)]
SumDtype = Annotated[Literal["fp32", "fp16", "bf16"], BeforeValidator(spellings.dtype)]


OF_SHORTHANDS = ("bottom_mlp", "interaction", "dcn_layers", "dcn_low_rank", "pool_stride", "top_mlp")
"""What a graph of layers takes the place of."""


class Dense(Record):
    """The part of the model that every rank computes: by its layers, or by its totals."""

    layers: Annotated[tuple[Layer, ...], Field(exclude_if=lambda layers: not layers)] = ()
    """The layers as a graph, instead of bottom_mlp, interaction and top_mlp, which stand for the graph of a DLRM or a
    DCNv2."""
    numerical_features: Annotated[int, Field(ge=0)] = 0
    """Numbers of a sample that bottom_mlp reads."""
    bottom_mlp: tuple[Annotated[int, Field(ge=1)], ...] = ()
    """Output widths of the layers that read the numerical features."""
    interaction: Literal["concat", "dot", "dcn", "pool"] = "concat"
    """How features meet: joined, pairwise dots (DLRM), low-rank cross layers (DCNv2), average-pooled."""
    dcn_layers: Annotated[int, Field(ge=1)] = 3
    """Cross layers, with interaction: dcn."""
    dcn_low_rank: Annotated[int, Field(ge=1)] = 512
    """Columns of a cross layer's inner product, with interaction: dcn."""
    pool_stride: Annotated[int, Field(ge=1)] = 1
    """Neighbouring numbers that are averaged, with interaction: pool."""
    top_mlp: tuple[Annotated[int, Field(ge=1)], ...] = ()
    """Output widths of the layers after the interaction."""
    macs_per_sample: Annotated[int, Field(ge=0)] | None = None
    """Forward multiply-accumulates of one sample, instead of layers."""
    parameters: Annotated[int, Field(ge=0)] | None = None
    """Number of dense parameters, instead of layers."""
    activations_per_sample: Annotated[Annotated[int, Field(ge=0)] | None, LATER] = None
    """Numbers of one sample that are kept from the forward to the backward pass; they count as memory alone. Unset:
    inputs and outputs of all layers, and of totals none."""
    dtype: ComputeDtype = "tf32"
    """The data type of the matrix products."""
    gradients: Annotated[Dtype | None, LATER] = None
    """The format in which gradients are reduced among the ranks, those of replicated tables too. Unset: fp32 beside
    fp32 and tf32, the format of the matrix products where it has 16 bits, bf16 where it has fewer."""
    master_weights: Annotated[SumDtype | None, LATER] = None
    """The format of the weights that the optimizer updates; matrix products in fewer bits have a copy in theirs. Unset:
    fp32."""
    optimizer_state: Annotated[SumDtype | None, LATER] = None
    """The format of what the optimizer keeps for every dense parameter. Unset: fp32."""
    activations: Annotated[Annotated[ComputeWord, BeforeValidator(spellings.dtype)] | None, LATER] = None
    """The format of what layers read and write, and of what is kept for the backward pass. What goes into a product in
    fewer bits is converted on the way. Unset: the format of the matrix products, bf16 where that has fewer bits."""
    optimizer: DenseOptimizer = "sgd"
    """What updates the dense parameters; its state counts as memory."""
    shampoo: Annotated[Shampoo | None, LATER] = None
    """How the optimizer shampoo is set up. Unset: as its published defaults."""
    sharding: Annotated[DenseSharding | None, LATER] = None
    """Whether ranks shard it; a policy may choose. Unset: every rank has all of it."""
    checkpointing: Annotated[Checkpointing | None, LATER] = None
    """Activation checkpointing: the layers (all of them: full; or those whose names match patterns) that keep their
    inputs alone for the backward pass, and compute the others again there, block by block; a policy may choose. A block
    is a layer of the file, of a repeated one each repetition. Unset: none."""
    extra_bytes: Annotated[int, Field(ge=0, exclude_if=lambda size: not size)] = 0
    """Memory of every rank beyond parameters that are trained, their gradients and optimizer state: buffers, frozen
    parameters."""

    @property
    def gradient_format(self) -> words.Dtype:
        """The format in which gradients are reduced among the ranks."""
        if self.gradients is not None:
            return self.gradients
        if self.dtype == "fp16":
            return "fp16"
        return "bf16" if COMPUTE_DTYPE_BYTES[self.dtype] < wire_bytes("fp32") else "fp32"

    @property
    def activation_bytes(self) -> float:
        """Bytes of a number that layers read or write."""
        if self.activations is not None:
            return COMPUTE_DTYPE_BYTES[self.activations]
        return max(COMPUTE_DTYPE_BYTES[self.dtype], wire_bytes("bf16"))

    @property
    def conversion_bytes(self) -> float:
        """Bytes that are read and written for a number that goes into a matrix product in fewer bits than it has; 0
        where it has no more."""
        size = COMPUTE_DTYPE_BYTES[self.dtype]
        return self.activation_bytes + size if size < self.activation_bytes else 0.0

    @property
    def state_number_bytes(self) -> float:
        """Bytes of a number that the optimizer keeps."""
        return wire_bytes(self.optimizer_state or "fp32")

    @property
    def state_bytes(self) -> float:
        """Bytes that the optimizer keeps for every weight, whatever its layer; those of Shampoo are of blocks."""
        return ELEMENTWISE.get(self.optimizer, 0) * self.state_number_bytes

    @property
    def keeps_state(self) -> bool:
        """Whether the optimizer keeps anything of the weights."""
        return ELEMENTWISE.get(self.optimizer, 1) > 0

    @property
    def norm_bytes(self) -> float:
        """Bytes of each weight that pass through memory for norms of its layer."""
        if self.optimizer not in LAYERWISE:
            return 0.0
        return NORM_READS * wire_bytes(self.master_weights or "fp32") + PARKED_PASSES * UPDATE_BYTES

    @property
    def copy_bytes(self) -> float:
        """Bytes of a weight in the format of the matrix products, beside the one that the optimizer updates; 0 where
        that is the one."""
        size = COMPUTE_DTYPE_BYTES[self.dtype]
        return size if size < wire_bytes(self.master_weights or "fp32") else 0.0

    @property
    def stated_layers(self) -> tuple[Layer, ...]:
        """The layers as they are stated, or those that bottom_mlp, interaction and top_mlp stand for; none where there
        are totals, or nothing."""
        if self.layers or self.macs_per_sample is not None or not (self.top_mlp or self.bottom_mlp):
            return self.layers
        layers, vectors = [Layer(kind="embeddings", name="embeddings", tables=("*",))], ("embeddings",)
        if self.bottom_mlp:
            layers.append(Layer(kind="mlp", name="bottom_mlp", inputs=(NUMERICAL,), sizes=self.bottom_mlp))
        numbers = ("bottom_mlp",) if self.bottom_mlp else (NUMERICAL,) if self.numerical_features else ()
        joined = (*vectors, *numbers)
        if self.interaction == "dot":
            layers.append(Layer(kind="dot", name="interaction", inputs=joined if self.bottom_mlp else vectors))
            joined = ("interaction", *numbers)
        elif self.interaction == "dcn":
            rank, count = self.dcn_low_rank, self.dcn_layers
            layers.append(Layer(kind="cross", name="interaction", inputs=joined, rank=rank, count=count))
            joined = ("interaction",)
        elif self.interaction == "pool":
            layers.append(Layer(kind="pool", name="interaction", inputs=joined, stride=self.pool_stride))
            joined = ("interaction",)
        if self.top_mlp:
            layers.append(Layer(kind="mlp", name="top_mlp", inputs=joined, sizes=self.top_mlp))
        return tuple(layers)

    @model_validator(mode="after")
    def _layers_or_shorthands(self) -> Self:
        of_others = (*OF_SHORTHANDS, "macs_per_sample", "parameters")
        if self.layers and (given := [name for name in of_others if name in self.model_fields_set]):
            names = ", ".join(given)
            message = f"layers take the place of {names}; give layers or {names}, not both"
            raise ConflictError(message, given[0], "layers")
        return self

    @model_validator(mode="after")
    def _layers_of_shampoo(self) -> Self:
        if self.optimizer != "shampoo":
            if self.shampoo is not None:
                message = f"dense.shampoo is of that optimizer, and this one is {self.optimizer}; leave out one of them"
                raise ConflictError(message, "shampoo", "optimizer")
            return self
        if self.macs_per_sample is not None or self.parameters is not None:
            message = "shampoo works on matrices; give layers (layers, or bottom_mlp and top_mlp) instead of totals"
            raise ConflictError(message, "optimizer", "macs_per_sample", "parameters")
        unknown = [str(layer.name) for layer in self.layers if layer.parameters]
        if unknown:
            message = f"shampoo works on matrices; parameters of {', '.join(unknown)} have no shape: give its layers"
            raise ConflictError(message, "optimizer", "layers")
        return self

    @model_validator(mode="after")
    def _layers_or_totals(self) -> Self:
        totals = (self.macs_per_sample is not None, self.parameters is not None)
        if any(totals) and (self.bottom_mlp or self.top_mlp):
            message = "give layers (bottom_mlp, top_mlp) or totals (macs_per_sample, parameters), not both"
            given = "macs_per_sample" if totals[0] else "parameters"
            raise ConflictError(message, given, "macs_per_sample", "parameters", "bottom_mlp", "top_mlp")
        if any(totals) and not all(totals):
            given, other = ("macs_per_sample", "parameters") if totals[0] else ("parameters", "macs_per_sample")
            raise ConflictError(f"goes with {other}, which is missing; give both", given, other)
        if self.bottom_mlp and not self.numerical_features:
            raise ConflictError("needs numerical_features, the width of its input", "bottom_mlp", "numerical_features")
        return self
