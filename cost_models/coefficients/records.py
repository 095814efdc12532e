"""What the files of coefficients hold: a device, a link, collectives, a harness, a host, a software profile."""

from typing import Annotated, Literal, Self, TypeVar

from pydantic import ConfigDict, Field, model_validator

from cost_models.coefficients.evidence import (
    NEWER,
    Coefficient,
    CoefficientCurve,
    DtypeCoefficient,
    Kind,
    OptimizerCoefficient,
    StepEvidence,
)
from topologies.documents import Record
from topologies.errors import ConflictError

CollectiveOperation = Literal["all_to_all", "reduce_scatter", "all_gather", "all_reduce"]


class ProtocolLaw(Record):
    """Time of one collective among one number of ranks: the least of (latency + wire bytes / rate)."""

    operation: CollectiveOperation
    ranks: int
    protocols: tuple[tuple[float, float], ...]
    """(latency in s, rate in bytes/s) of each protocol."""
    buffer_bytes: tuple[float, float]
    """Smallest and largest buffer of the measurements."""
    rows: int
    """Number of measurements."""
    mean_error: float
    """Mean absolute relative error over them."""
    band_90: float
    """Relative error that 90 % of them stay within."""


class NamedCoefficients(Record):
    """A file of coefficients."""

    name: str


_LAWS = (
    ("kernel_utilization", "kernel_edge", "kernel_inner_edge"),
    ("batched_flops_per_byte", "batched_edge", "batched_inner_edge"),
    ("attention_utilization", "attention_gradient_utilization", "attention_edge", "attention_inner_edge"),
)
_OF_BAGS = ("lookup_bag_row_s", "lookup_bag_cached_row_s", "update_bag_id_s", "update_bags_at_once")
"""Coefficients that make a law together."""


class DeviceCoefficients(NamedCoefficients):
    """What a device achieves of its data sheet."""

    same_chip_as: str | None = None
    """Another device whose file gives what this one leaves out."""
    kernels_of: Annotated[str | None, NEWER] = None
    """The software whose kernels of pooled tables were measured on the device, or on another one of its chip, and
    replace what its own file and the software's say of lookups and updates. Unset: none, or what holds of every other
    software and of unpooled tables."""
    same_chip: Annotated[tuple[str, ...], NEWER] = ()
    """With it: other devices of this chip, with other memory or links, whose kernels are taken to be these."""
    lookup_efficiency: Coefficient
    sector_bytes: Coefficient
    flop_utilization: Coefficient
    """Of matrix products on matrix units."""
    fp32_utilization: Annotated[Coefficient | None, NEWER] = None
    """Of those in fp32, which the other units compute."""
    product_edge: Coefficient
    """Rows, and columns, that a matrix product on matrix units computes beyond its own."""
    product_inner_edge: Coefficient
    """Steps along its inner size that it takes beyond its own."""
    kernel_utilization: Annotated[DtypeCoefficient | None, NEWER] = None
    """Of matrix products timed by themselves, by data type, instead of flop_utilization, which is fitted to whole
    steps; for software whose steps it is not fitted to (`SoftwareCoefficients.fits_products`)."""
    kernel_edge: Annotated[DtypeCoefficient | None, NEWER] = None
    """With it, instead of product_edge."""
    kernel_inner_edge: Annotated[DtypeCoefficient | None, NEWER] = None
    """With it, instead of product_inner_edge."""
    unaligned_slowdown: Annotated[DtypeCoefficient | None, NEWER] = None
    """Times that a product takes longer whose rows do not begin at multiples of 16 bytes. Unset: 1."""
    batched_flops_per_byte: Annotated[DtypeCoefficient | None, NEWER] = None
    """Rate of products of each sample, all in one kernel, over that of device memory, which small ones wait for. Unset:
    that of large products."""
    batched_edge: Annotated[DtypeCoefficient | None, NEWER] = None
    """With it: rows, and columns, that each computes beyond its own."""
    batched_inner_edge: Annotated[DtypeCoefficient | None, NEWER] = None
    """With it: steps along the inner size."""
    attention_utilization: Annotated[DtypeCoefficient | None, NEWER] = None
    """Share of the peak that a fused kernel of attention reaches forward, of many tokens and numbers of each. Unset:
    that of large products, and half of it backward."""
    attention_gradient_utilization: Annotated[DtypeCoefficient | None, NEWER] = None
    """With it: of the FLOPs forward, backward."""
    attention_edge: Annotated[DtypeCoefficient | None, NEWER] = None
    """With it: tokens that each head computes beyond its own."""
    attention_inner_edge: Annotated[DtypeCoefficient | None, NEWER] = None
    """With it: numbers of a token."""
    activation_efficiency: Coefficient
    pcie_efficiency: Coefficient
    ddr_efficiency: Coefficient
    l2_reach: Coefficient
    l2_speedup: Coefficient
    lookup_bytes_per_s: Coefficient | None = None
    """Instead of lookup_efficiency: what rows of device memory were read at, whatever the data sheet says."""
    lookup_row_s: Coefficient | None = None
    """Time of a row beyond its bytes: what short rows waste."""
    lookup_distinct_row_s: Coefficient | None = None
    """Time of a distinct row of a batch beyond that, and its bytes. Where set, the tables of a rank push each other's
    rows out of the caches from step to step: distinct rows come from memory, and a cache (l2_speedup) serves those that
    the batch reads again while it holds them. Unset: a cache serves small tables (l2_reach)."""
    lookup_vector_s: Annotated[Coefficient | None, NEWER] = None
    """Time of each vector that a forward pass gives beyond that, with its bag of ids. Unset: not counted."""
    lookup_bag_row_s: Annotated[Coefficient | None, NEWER] = None
    """Time of each row of one bag, which are read one after the other, out of device memory. Unset: bags are read by
    their bytes alone, however long they are."""
    lookup_bag_cached_row_s: Annotated[Coefficient | None, NEWER] = None
    """With it: of a row that the device's cache holds."""
    lookup_launch_s: Coefficient | None = None
    """Time of a forward pass's launch, instead of the software's where that has one."""
    l2_reach_bytes: Coefficient | None = None
    """Instead of l2_reach."""
    update_passes_per_lookup: Coefficient | None = None
    """Row reads per lookup of a backward pass over pooled tables, instead of the software's."""
    update_row_s: Coefficient | None = None
    """Time of a lookup in a backward pass beyond the bytes it moves."""
    update_distinct_row_s: Coefficient | None = None
    """The same of a distinct row of device memory that is rewritten."""
    update_passes_per_row: Coefficient | None = None
    """Row reads for each distinct row that is rewritten, instead of the software's."""
    update_bag_id_s: Annotated[Coefficient | None, NEWER] = None
    """With lookup_bag_row_s: time of each id of one bag in a kernel that goes through them before a backward pass."""
    update_bags_at_once: Annotated[Coefficient | None, NEWER] = None
    """With it: bags that this kernel goes through at the same time."""
    update_launch_s: Coefficient | None = None
    """Time of a backward pass's launch, instead of the software's where that has one."""
    copy_bytes_per_s: Coefficient | None = None
    """Between host and device, instead of pcie_efficiency."""
    stream_bytes_per_s: Coefficient | None = None
    """Device memory read and written in order, instead of activation_efficiency."""
    id_cut_s: Coefficient | None = None
    """Time to sort an id by the rank that holds its row, for tables cut by rows. Unset: not counted."""
    dense_update_bytes_per_s: Coefficient | None = None
    """Rate at which the gradient of a replicated table is made, averaged and applied as a whole. Unset: not counted."""
    regroup_bytes_per_s: Coefficient | None = None
    """Rate at which vectors from several kinds of sharding are joined by sample. Unset: not counted."""
    regroup_piece_s: Annotated[Coefficient | None, NEWER] = None
    """Time of each piece of a vector that is joined by sample, beyond its bytes, and taken apart again. Unset: not
    counted."""
    matmul_flops_per_s: DtypeCoefficient | None = None
    """Rate of matrix products by data type, instead of flop_utilization."""

    @property
    def label(self) -> str:
        """The device, and the software whose kernels are meant."""
        return self.name if self.kernels_of is None else f"{self.name} (kernels of {self.kernels_of})"

    @model_validator(mode="after")
    def _chips_are_of_kernels(self) -> Self:
        """Other devices of the chip are named where kernels are."""
        if self.same_chip and self.kernels_of is None:
            raise ConflictError("same_chip is of shipped kernels; a device's own file has same_chip_as", "same_chip")
        return self

    @model_validator(mode="after")
    def _bags_are_whole(self) -> Self:
        """Bags that are read one row after the other have all coefficients of such."""
        if len({getattr(self, name) is None for name in _OF_BAGS}) > 1:
            raise ConflictError(f"{', '.join(_OF_BAGS)} go together: give all of them, or none", *_OF_BAGS)
        return self

    @model_validator(mode="after")
    def _laws_are_whole(self) -> Self:
        """A format of which products were timed by themselves has a rate and all edges of such."""
        for names in _LAWS:
            parts = [getattr(self, name) for name in names]
            if len({frozenset(part.by_dtype) if part else frozenset() for part in parts}) > 1:
                message = f"{', '.join(names)} go together: give by_dtype of all the same formats"
                raise ConflictError(message, *names)
        return self


class LinkCoefficients(NamedCoefficients):
    """What collectives achieve of a link's bandwidth."""

    all_to_all_efficiency: Coefficient
    all_reduce_efficiency: Coefficient
    ceiling_bytes_per_s: Coefficient | None = None
    """An upper limit whatever the bandwidth."""
    all_to_all_loss_per_doubling: Coefficient | None = None
    """How the efficiency falls for each doubling of the peers of a card: all_to_all_efficiency holds for few of them
    (see `between_domains`). Unset: not at all."""
    hop_s: Coefficient | None = None
    """Latency that the library adds to that of the cards in an exchange between domains. Unset: none."""
    peer_s: Annotated[Coefficient | None, NEWER] = None
    """What each peer of a card beyond the first adds to it. Unset: nothing."""
    tree_hop_s: Annotated[Coefficient | None, NEWER] = None
    """The same of an all-reduce, for each doubling of the domains, once up and once down. Unset: none."""
    ring_hop_s: Annotated[Coefficient | None, NEWER] = None
    """What a reduce-scatter or all-gather takes longer than an exchange for each domain beyond two. Unset: nothing."""
    all_reduce_growth: Coefficient | None = None
    """Replaces all_reduce_efficiency between domains, which comes after the reduction inside them."""


class CollectiveCoefficients(NamedCoefficients):
    """Fitted collectives of one system."""

    devices: tuple[str, ...]
    """Names that a topology may give to the accelerator."""
    link: str
    """The kind of link that the measurements went over."""
    stands_in_for: tuple[str, ...] = ()
    """Kinds of link without data that take these laws, scaled by bandwidth."""
    represents_link: bool = False
    """Whether other devices on the same kind of link take these laws, scaled by bandwidth."""
    sums_apart: bool = False
    """Whether partial sums (tables cut by rows) travel at the rates of reduce_scatter and all_gather. Unset: at that of
    all_to_all, as NCCL moves them."""
    takes_turns: Annotated[bool, NEWER] = False
    """Whether what a rank sends and what it gets take turns, as where its processor copies both. Unset: a link carries
    both at the same time."""
    bytes_per_s: float
    """Rate of one port in one direction, by the data sheet."""
    unit: str
    kind: Kind
    source: str
    laws: tuple[ProtocolLaw, ...]


class HarnessCoefficients(NamedCoefficients):
    """What belongs to the harness of some published measurements, not to a device or a framework that we plan for."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Coefficient] = Field(init=False)

    def __getitem__(self, name: str) -> float:
        return self.__pydantic_extra__[name].value


class HostCoefficients(NamedCoefficients):
    """What the host does in a step of a training framework, as the processor that it was measured on."""

    step_s: Coefficient
    module_s: Coefficient
    replicas_s: Coefficient
    table_s: Coefficient
    layer_s: Coefficient
    state_s: Coefficient
    checkpoint_block_s: Coefficient
    checkpoint_layer_s: Coefficient
    compiled_step_s: Coefficient
    compiled_layer_saved_s: Coefficient
    replay_s: Coefficient


class OptimizerCoefficients(NamedCoefficients):
    """What an optimizer of the dense part computes beyond what follows from its sizes."""

    root_column_s: Coefficient
    """Time of the inverse root of an n x n matrix over n: its columns are reduced one after the other."""
    root_flops: Coefficient
    """FLOPs beyond that over n^3, at the rate of products of large matrices in fp32."""


class SoftwareCoefficients(NamedCoefficients):
    """Overheads, memory passes and overlaps of a training framework and its kernels."""

    step_overhead_s: Coefficient
    """Overhead of the version that a plan is made for; older ones may have keys of their own,
    `step_overhead_s_VERSION`."""
    lookup_elsewhere_90: Annotated[CoefficientCurve | None, NEWER] = None
    """Relative error of forward passes of its kernels of pooled tables by bytes of a row, on devices where these were
    not measured. Unset: what the coefficients in their place state."""
    update_elsewhere_90: Annotated[Coefficient | None, NEWER] = None
    """The same of their backward passes."""
    step_overhead_s_23_04: Coefficient | None = None
    step_overhead_s_23_09: Coefficient | None = None
    fits_products: Annotated[bool, NEWER] = False
    """Whether a device's flop_utilization is fitted to steps of this software, and holds for no other one where
    products were timed by themselves (`DeviceCoefficients.kernel_utilization`)."""
    forward_launch_s: Coefficient
    backward_launch_s: Coefficient
    backward_passes: OptimizerCoefficient
    sequence_backward_passes: Coefficient
    row_update_passes: Coefficient
    id_sort_bytes: Annotated[Coefficient | None, NEWER] = None
    """Bytes that sorting an id by its row moves in a backward pass, where they are not part of its passes."""
    picked_gradient_bytes: Annotated[Coefficient | None, NEWER] = None
    """Bytes of device memory that could be read in the time of a picked pair's gradient. Unset: none."""
    norm_row_bytes: Annotated[Coefficient | None, NEWER] = None
    """The same of a vector that is normed, beyond what its passes read and write. Unset: none."""
    turned_number_bytes: Annotated[Coefficient | None, NEWER] = None
    """The same of a number read or written across layouts, beyond its own bytes, where kernels are counted."""
    counted_passes: Annotated[Coefficient | None, NEWER] = None
    """Bytes of device memory that could be read in the time of one that kernels beside products read or write. Where it
    is set, these are counted in each mode that a workload states (`workload.beside`), not crossings."""
    summed_row_bytes: Annotated[Coefficient | None, NEWER] = None
    """The same of a row that is summed over all samples, as a bias's gradient is, beyond its own bytes."""
    counted_norm_row_bytes: Annotated[Coefficient | None, NEWER] = None
    """The same of a vector that is normed, where kernels are counted."""
    norm_gradient_row_bytes: Annotated[Coefficient | None, NEWER] = None
    """The same of its gradient."""
    update_passes: Coefficient
    cache_search_s: Coefficient
    cache_launch_s: Annotated[Coefficient | None, NEWER] = None
    """Fixed time of a forward pass that searches caches of tables below HBM."""
    cache_update_s: Coefficient
    uvm_forward_passes_per_lookup: Coefficient
    uvm_forward_passes_per_row: Coefficient
    uvm_kept_rows: Annotated[Coefficient | None, NEWER] = None
    """The hottest rows in place of a table whose reads do not cross: they are read again before they are given up."""
    uvm_backward_passes_per_row: Coefficient
    cache_fetch_passes: Coefficient
    codec_passes: Coefficient
    """Crossings of device memory by what encoding or decoding numbers reads and writes."""
    activation_passes: Coefficient
    collective_latency_s: Coefficient
    allocator_overhead: Coefficient | None = None
    """Bytes that the allocator keeps reserved for each byte of tensors, beside the ids that other streams hold."""
    static_buffers: bool = False
    """Whether every buffer is there for the whole step, so that none takes the place of another."""
    vector_s: Coefficient | None = None
    """Time of a step for each vector that the lookup gives, beyond the bytes it moves."""
    ids_arrive_sharded: bool = False
    """Whether each rank reads the ids of its own tables, so that none are exchanged."""
    steps: StepEvidence | None = None
    exchange_in_phases: bool
    """Whether outputs and gradients cross the cards only after they were exchanged inside the domain."""
    node_sums_by_rail: Annotated[bool, NEWER] = False
    """Whether sums that the ranks of a node have reduced go from each of them to the ranks at its place in the other
    nodes only, and their gradients the same way back."""
    all_reduce_overlaps_dense: bool
    """Whether the dense gradients are reduced while the dense part still computes."""


CoefficientSet = TypeVar(
    "CoefficientSet",
    DeviceCoefficients,
    LinkCoefficients,
    SoftwareCoefficients,
    CollectiveCoefficients,
    HarnessCoefficients,
    HostCoefficients,
    OptimizerCoefficients,
)
