"""What is trained: the tables with their access profile, the dense part, the batch and the precisions."""

import itertools
import math
from functools import cached_property
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, PositiveFloat, field_validator, model_validator

from cost_models.workload import spellings
from cost_models.workload.dense_part import Dense, Dtype
from cost_models.workload.formats import FORMATS
from cost_models.workload.kernels import KernelSettings
from cost_models.workload.layer_graph import Shape, SizedLayer, sized_layers
from cost_models.workload.layers import expect_heads, named, within
from cost_models.workload.optimizers import Optimizer
from cost_models.workload.tower_partition import Tower, partition
from cost_models.workload.towers import Towers
from topologies.cluster import LATER, fingerprint
from topologies.documents import Record
from topologies.errors import ConflictError
from topologies.units import ByteCount, Seconds, Share

Whole = BeforeValidator(spellings.whole_number)
Pipeline = Literal["none", "sparse-dist", "prefetch"]
Software = Literal["torchrec", "hugectr", "distributed-embeddings"]
SoftwareMode = Literal["eager", "compiled", "graph"]
MODES: dict[str, tuple[SoftwareMode, ...]] = {"torchrec": ("eager", "compiled", "graph"), "hugectr": ("graph",)}
"""The modes of each software profile of which something is known."""
Name = Annotated[str, Field(min_length=1, max_length=200)]
Curve = tuple[tuple[Share, Share], ...]


class TableProfile(Record):
    """One embedding table and how a training step uses it."""

    name: Name
    rows: Annotated[int, Field(ge=1, le=10**13), Whole]
    """Number of embeddings."""
    dim: Annotated[int, Field(ge=4, le=65536), Whole]
    """Elements per embedding; a multiple of 4, as the kernels need it."""
    pooling_factor: Annotated[PositiveFloat, BeforeValidator(spellings.pooling)]
    """Mean number of ids per sample, summed over the features that share the table (a list is summed)."""
    features: Annotated[int | tuple[str, ...], BeforeValidator(spellings.features)] = 1
    """How many inputs share the table, or their names. A pooled table gives a vector for each per sample."""
    pooling_std: Annotated[float, Field(ge=0)] = 0.0
    """Standard deviation of the number of ids per sample. The step is that of the mean; spread does not change it."""
    zipf_alpha: Annotated[float, Field(ge=0, le=10)] | None = None
    """Exponent of a power-law access curve. Unset, with no curve and no unique_fraction: uniform access."""
    access_cdf: Annotated[Curve | None, BeforeValidator(spellings.curve)] = None
    """The access curve as points (share of the hottest rows, share of the accesses), rising to (1, 1)."""
    unique_fraction: Annotated[float, Field(gt=0, le=1)] | None = None
    """Distinct ids over all ids of one global batch before deduplication, if measured. Without a curve, it implies
    one."""
    unique_fraction_batch: Annotated[int | None, Field(ge=1), LATER] = None
    """Samples of the batch in which unique_fraction was measured. Unset: the workload's global batch."""
    dedup_factor: Annotated[float, Field(ge=1)] = 1.0
    """Ids before over ids after deduplication across the samples of a batch. It leaves the distinct ids: it acts as
    1 / unique_fraction where it is more, and a plan says so."""
    samples_per_session: Annotated[float, Field(ge=1, exclude_if=lambda samples: samples == 1.0)] = 1.0
    """Samples of a session, on the mean, that come in one batch, clustered in storage (16.5 in RecD's logs). With
    duplicate_share, instead of dedup_factor."""
    duplicate_share: Annotated[Share, Field(exclude_if=lambda share: share == 0.0)] = 0.0
    """Share of a sample's ids that the sample before of its session has, too. Readers leave these out, so that they are
    neither stored, nor sent, nor copied to the device: of S samples 1 - (S-1)/S of them stay (RecD, arXiv:2211.05239).
    """
    dedup_group: Name | None = None
    """Name of the features that change together from sample to sample (those of a user in a session): lists that repeat
    are looked up and pooled once, and their vectors travel once (inverse jagged tensors; RecD, arXiv:2211.05239). All
    tables of a group have one dedup_factor. Unset: ids are deduplicated, vectors of pooled tables are not."""
    dtype: Dtype | None = None
    """The data type of the stored weights. Unset: the workload's."""
    precision_cache: Annotated[Share, Field(gt=0)] | None = None
    """Share of the rows, the hottest, that HBM holds in fp32 beside the table; they are updated there and written back
    in the table's own format when they cool down. Below HBM, the size of the cache is the plan's. Unset: none."""
    optimizer: Optimizer | None = None
    """Unset: the workload's."""
    weighted: bool = False
    """Whether every id carries a fp32 weight."""
    pooled: bool = True
    """Whether the vectors of a sample are summed (a bag); false for sequences."""
    poolings: Annotated[PositiveFloat, Field(exclude_if=lambda vectors: vectors == 1.0)] = 1.0
    """Vectors that each feature of a pooled table gives per sample, on the mean: below 1 where samples share lists of
    ids (variable batch), above 1 where one has several. The pooling factor counts the ids of all of them."""
    group: str | None = None
    """A label for your own use; tables of one feature group."""
    kernel: Annotated[KernelSettings, Field(exclude_if=lambda kernel: kernel == KernelSettings())] = KernelSettings()
    """How TorchRec is to set up the table's kernel, beyond sharding and tier."""

    @field_validator("dim")
    @classmethod
    def _multiple_of_four(cls, dim: int) -> int:
        if dim % 4:
            padded = 4 * math.ceil(dim / 4)
            raise ValueError(f"{dim} is not a multiple of 4; pad the table to {padded} columns")
        return dim

    @field_validator("access_cdf")
    @classmethod
    def _rising(cls, points: Curve | None) -> Curve | None:
        if points is None:
            return None
        pairs = list(itertools.pairwise(((0.0, 0.0), *points)))
        if not points or points[-1] != (1.0, 1.0) or any(b[0] <= a[0] or b[1] < a[1] for a, b in pairs):
            raise ValueError("must rise from (0, 0) to a last point (1, 1)")
        slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairs]
        if any(after > before * (1 + 1e-9) for before, after in itertools.pairwise(slopes)):
            raise ValueError("must be concave: its first rows are the hottest")
        return points

    @model_validator(mode="after")
    def _one_curve(self) -> Self:
        if self.zipf_alpha is not None and self.access_cdf is not None:
            raise ConflictError("zipf_alpha and access_cdf exclude each other; give one", "access_cdf", "zipf_alpha")
        return self

    @model_validator(mode="after")
    def _batch_of_a_measured_fraction(self) -> Self:
        if self.unique_fraction_batch is not None and self.unique_fraction is None:
            message = "says where unique_fraction was measured, which is missing; give both"
            raise ConflictError(message, "unique_fraction_batch", "unique_fraction")
        return self

    @model_validator(mode="after")
    def _one_format_of_cached_rows(self) -> Self:
        cached = self.kernel.cache_dtype
        if self.precision_cache is not None and cached not in (None, "fp32"):
            message = f"holds rows in fp32, and cache_params.precision says {cached}; leave one of them out"
            raise ConflictError(message, "precision_cache", "cache_params")
        return self

    @model_validator(mode="after")
    def _one_account_of_duplicates(self) -> Self:
        if self.dedup_factor > 1 and self.duplicate_share > 0:
            message = "say what repeats once: dedup_factor, or duplicate_share with samples_per_session"
            raise ConflictError(message, "duplicate_share", "dedup_factor")
        if (self.samples_per_session > 1) != (self.duplicate_share > 0):
            fields = ("samples_per_session", "duplicate_share")
            given, missing = fields if self.samples_per_session > 1 else fields[::-1]
            raise ConflictError(f"goes with {missing}, which is missing; give both", given, missing)
        return self

    @property
    def stated_deduplication(self) -> float:
        """Ids before over ids after deduplication, as stated."""
        repeated = (self.samples_per_session - 1) / self.samples_per_session
        return self.dedup_factor / (1 - repeated * self.duplicate_share)

    @property
    def deduplication(self) -> float:
        """The same, but no fewer ids are left than are distinct."""
        return min(self.stated_deduplication, 1 / (self.unique_fraction or 1e-300))

    @property
    def ids_read(self) -> float:
        """Ids of a sample that readers send: without duplicates of sessions, which they leave out."""
        return self.pooling_factor / (self.deduplication if self.duplicate_share else 1.0)

    @property
    def vectors_per_sample(self) -> float:
        """Vectors that leave the lookup for a sample, after deduplication."""
        if not self.pooled:
            return self.pooling_factor / self.deduplication
        return self.feature_count * self.poolings / (self.deduplication if self.dedup_group is not None else 1.0)

    @property
    def feature_count(self) -> int:
        """How many inputs share the table."""
        return self.features if isinstance(self.features, int) else len(self.features)


class Embedding(Record):
    """What holds for every table that does not say otherwise."""

    dtype: Dtype = "fp32"
    optimizer: Optimizer = "rowwise_adagrad"


class Communication(Record):
    """Precision of the pooled embeddings (forward) and of their gradients (backward) on the wire."""

    forward: Dtype = "fp32"
    backward: Dtype = "fp32"


class Ingestion(Record):
    """How samples come from storage through readers to the ranks."""

    stored_bytes_per_sample: ByteCount | None = None
    """Bytes of a sample in storage, as it was logged: with all its ids, and compressed."""
    reader_samples_per_s: Annotated[float, Field(gt=0)] | None = None
    """Samples that one reader node decodes and preprocesses in a second where no ids are left out."""
    work_by_ids: Share = 0.6
    """Share of a reader's work that goes with its ids; implied by RecD's up to 1.79 x faster readers at 3.71 x fewer
    bytes."""
    readers: Annotated[int, Field(ge=1)] | None = None
    """Reader nodes that there are. Unset: as many as are needed."""

    @model_validator(mode="after")
    def _rate_of_readers(self) -> Self:
        if self.readers is not None and self.reader_samples_per_s is None:
            message = "goes with reader_samples_per_s, which is missing; give both"
            raise ConflictError(message, "readers", "reader_samples_per_s")
        return self


class Workload(Record):
    """A model, its batch and the way it is trained."""

    name: Name
    description: str = ""
    global_batch: Annotated[int, Field(ge=1), Whole] | None = None
    """Samples per step over all ranks."""
    batch_per_rank: Annotated[int, Field(ge=1), Whole] | None = None
    """Samples per step of one rank; instead of global_batch."""
    tables: tuple[TableProfile, ...]
    embedding: Embedding = Embedding()
    communication: Communication = Communication()
    dense: Dense = Dense()
    pipeline: Pipeline = "sparse-dist"
    """What overlaps: nothing, the next batch's ids with the dense part, and also its cache misses."""
    free_inputs_early: Annotated[bool, Field(exclude_if=lambda early: not early)] = False
    """Whether the ids of a pipelined batch are freed once they were sent to the holders of the rows, as TorchRec does
    with `free_features_storage_early`."""
    ingestion: Annotated[Ingestion | None, LATER] = None
    """How samples come to the ranks. A plan says what that needs; its step waits for no reader."""
    software: Software = "torchrec"
    """Whose overheads and overlaps the costs follow. A policy's runtime takes the place of the default and of what a
    workload of the catalog says."""
    software_mode: Annotated[SoftwareMode | None, LATER] = None
    """How the host gives a device its work: kernel by kernel, with a dense part that torch.compile made, or with one
    that was captured as a graph. In files also `software: {mode: ...}`. Unset: the profile's own one number."""
    overhead: Annotated[Seconds | None, LATER] = None
    """The fixed overhead of a step, instead of what the software profile says of it. The dense optimizer is a part of
    it, and counts where it takes longer."""
    mode: Literal["training", "inference"] = "training"
    towers: Annotated[Towers | None, LATER] = None
    """Tables that keep to one scale-up domain each, and modules between them and the dense part. Unset: none."""

    @field_validator("tables")
    @classmethod
    def _unique_names(cls, tables: tuple[TableProfile, ...]) -> tuple[TableProfile, ...]:
        if not tables:
            raise ValueError("is empty; a workload has at least one table")
        seen: dict[str, int] = {}
        twice = []
        for index, table in enumerate(tables):
            if table.name in seen:
                twice.append(f"{table.name!r} (tables {seen[table.name]} and {index})")
            seen.setdefault(table.name, index)
        if twice:
            raise ValueError(f"table names must differ; these stand twice: {', '.join(twice[:5])}")
        return tables

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.global_batch is None) == (self.batch_per_rank is None):
            message = "give exactly one of global_batch and batch_per_rank (flag: --global-batch)"
            raise ConflictError(message, "global_batch", "batch_per_rank")
        if self.free_inputs_early and (self.pipeline == "none" or self.mode == "inference"):
            message = "is of a training pipeline that holds several batches; give pipeline sparse-dist or prefetch"
            raise ConflictError(message, "free_inputs_early", "pipeline", "mode")
        of_training = ("gradients", "master_weights", "optimizer_state")
        if self.mode == "inference" and (given := [name for name in of_training if getattr(self.dense, name)]):
            message = "is of training, and the mode is inference; leave it out"
            raise ConflictError(message, f"dense.{given[0]}", "mode")
        self._check_software()
        if self.dense.interaction == "dot":
            widths = {table.dim for table in self.tables} | set(self.dense.bottom_mlp[-1:])
            if len(widths) > 1:
                shown = ", ".join(map(str, sorted(widths)))
                message = (
                    f"interaction 'dot' needs vectors of one width, not of {shown}; give the tables and the end of"
                    " bottom_mlp one width, or choose concat, dcn or pool"
                )
                raise ConflictError(message, "dense.interaction", "dense.bottom_mlp", "tables")
        return self

    def _check_software(self) -> None:
        """A mode is one of the profile's, and counts the overhead of training steps."""
        if self.software_mode is None:
            return
        if self.overhead is not None:
            message = "is the whole of what software_mode would count; give one of the two"
            raise ConflictError(message, "overhead", "software_mode")
        if self.mode == "inference":
            message = "counts what the host does in training steps; for inference give overhead"
            raise ConflictError(message, "software_mode", "mode")
        known = MODES.get(self.software, ())
        if self.software_mode not in known:
            what = f"only {', '.join(known)} is" if known else "none is"
            others = " or ".join(name for name, modes in MODES.items() if self.software_mode in modes)
            remedy = f"choose software {others}, or give overhead, the seconds of a step"
            message = f"of {self.software} {what} known, not {self.software_mode}; {remedy}"
            raise ConflictError(message, "software_mode", "software")

    @model_validator(mode="after")
    def _buildable_towers(self) -> Self:
        """Modules read one vector of each feature and sample, and the dense part what they give."""
        if self.towers is None:
            return self
        parts = self.tower_parts
        if not self.towers.has_modules:
            return self
        odd = [i for i, table in enumerate(self.tables) if not table.pooled or table.vectors_per_sample % 1]
        if odd:
            message = f"{self.tables[odd[0]].name!r} has no fixed number of vectors a sample, as tower modules need it"
            raise ConflictError(message, "towers.module", f"tables.{odd[0]}")
        if self.dense.macs_per_sample is not None:
            message = "modules change what the dense part reads: give its layers instead of its totals"
            raise ConflictError(message, "towers.module", "dense.macs_per_sample")
        width = self.dense.bottom_mlp[-1] if self.dense.bottom_mlp else self.tables[0].dim
        ragged = [part.outputs for part in parts if part.outputs % width]
        if self.dense.interaction == "dot" and ragged:
            message = f"interaction 'dot' needs whole vectors of {width} numbers, and a tower gives {ragged[0]}"
            raise ConflictError(message, "towers.width", "dense.interaction")
        return self

    @model_validator(mode="after")
    def _buildable_layers(self) -> Self:
        """Layers read what there is, and all of it."""
        if self.dense.layers:
            try:
                _ = self.layers
                expect_heads(named(self.dense.layers))
            except ConflictError as error:
                raise within(error, "dense.layers") from None
        return self

    @cached_property
    def layers(self) -> tuple[SizedLayer, ...]:
        """The dense part layer by layer, in the order of the forward pass; none where totals are given, or nothing."""
        if not (stated := self.dense.stated_layers):
            return ()
        vectors = None if self.dense.layers and not self.tower_modules else self._joined_vectors
        return sized_layers(stated, self.dense.numerical_features, self.tables, vectors)

    @property
    def _joined_vectors(self) -> Shape:
        """What reaches the dense part of all tables: one vector for each feature, or what modules of towers give."""
        dense = self.dense
        dim = dense.bottom_mlp[-1] if dense.bottom_mlp else self.tables[0].dim
        numbers = sum(table.feature_count * table.dim for table in self.tables)
        if modules := self.tower_modules:
            numbers = sum(tower.outputs for tower in modules)
        return Shape(1, numbers) if numbers % dim else Shape(numbers // dim, dim)

    @cached_property
    def tower_parts(self) -> tuple[Tower, ...]:
        """The towers of the model; none without any."""
        if self.towers is None:
            return ()
        columns = [round(table.vectors_per_sample * table.dim) for table in self.tables]
        return partition(self.towers, [table.name for table in self.tables], columns)

    @property
    def tower_modules(self) -> tuple[Tower, ...]:
        """Those with a module; none where towers leave the model as it is."""
        return self.tower_parts if self.towers is not None and self.towers.has_modules else ()

    @model_validator(mode="after")
    def _one_factor(self) -> Self:
        factors: dict[str, dict[float, int]] = {}
        for index, table in enumerate(self.tables):
            if table.dedup_group is not None:
                factors.setdefault(table.dedup_group, {}).setdefault(table.deduplication, index)
        for name, found in factors.items():
            if len(found) > 1:
                shown = ", ".join(f"{factor:g}" for factor in sorted(found))
                raise ConflictError(
                    f"the tables of dedup_group {name!r} have dedup_factor {shown}; features that change together"
                    " repeat equally often: give them one factor, or groups of their own",
                    *(f"tables.{index}.dedup_factor" for index in sorted(found.values(), reverse=True)),
                )
        return self

    @model_validator(mode="after")
    def _updatable(self) -> Self:
        """Training writes rows: in their own format, or in a cache of full precision."""
        if self.mode != "training":
            return self
        fixed = {
            index: table
            for index, table in enumerate(self.tables)
            if table.precision_cache is None and not FORMATS[self.dtype_of(table)].updates_in_place
        }
        if fixed:
            frozen = [f"{table.name} ({self.dtype_of(table)})" for table in fixed.values()]
            fields = [f"tables.{index}.dtype" if table.dtype else "embedding.dtype" for index, table in fixed.items()]
            known = ", ".join(name for name, each in FORMATS.items() if each.updates_in_place)
            more = f" and {len(frozen) - 5:,} more" if len(frozen) > 5 else ""
            raise ConflictError(
                f"training cannot update the rows of {', '.join(frozen[:5])}{more} in their format; give the tables"
                f" precision_cache (for example 5%), one of {known}, or the workload mode: inference",
                *fields,
                "mode",
            )
        return self

    @property
    def names_software(self) -> bool:
        """Whether the user chose the software profile: neither its default nor what the catalog says is a choice."""
        return "software" in self.model_fields_set

    def with_unchosen_software(self) -> Self:
        """The same, but nobody chose its software profile."""
        same = self.model_copy()
        same.model_fields_set.discard("software")
        return same

    def batch(self, world_size: int) -> float:
        """Samples per step over all `world_size` ranks."""
        return float(self.global_batch or (self.batch_per_rank or 0) * world_size)

    def dtype_of(self, table: TableProfile) -> Dtype:
        """Storage type of a table's weights."""
        return table.dtype or self.embedding.dtype

    def stored_rows(self, table: TableProfile) -> int:
        """Rows of a table as it is stored; those of its profile are its ids, some of which its format may join."""
        return FORMATS[self.dtype_of(table)].stored_rows(table.rows)

    def optimizer_of(self, table: TableProfile) -> Optimizer:
        """Optimizer of a table."""
        return table.optimizer or self.embedding.optimizer

    def fingerprint(self) -> str:
        """A content hash over all fields."""
        return fingerprint(self)
