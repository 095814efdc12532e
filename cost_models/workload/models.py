"""What is trained: the tables with their access profile, the dense part, the batch and the precisions."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from cost_models.workload.compressors import NO_COMPRESSOR, Compressor
from cost_models.workload.dense_part import Dense, Dtype
from cost_models.workload.embedding import Embedding
from cost_models.workload.formats import FORMATS
from cost_models.workload.layer_graph import SizedLayer, sized_layers
from cost_models.workload.layer_kinds import Shape
from cost_models.workload.layers import expect_heads, named, within
from cost_models.workload.mixed_dimensions import mixed_dimensions
from cost_models.workload.optimizers import Optimizer, Shampoo
from cost_models.workload.table_profile import Name, TableProfile, Whole
from cost_models.workload.tower_partition import Tower, partition
from cost_models.workload.towers import Towers
from topologies.cluster import fingerprint
from topologies.documents import Record
from topologies.errors import ConflictError
from topologies.flops import LATER
from topologies.units import ByteCount, Seconds, Share

Pipeline = Literal["none", "sparse-dist", "prefetch"]
Software = Literal["torchrec", "hugectr", "distributed-embeddings"]
SoftwareMode = Literal["eager", "compiled", "graph"]
MODES: dict[str, tuple[SoftwareMode, ...]] = {"torchrec": ("eager", "compiled", "graph"), "hugectr": ("graph",)}
"""The modes of each software profile of which something is known."""


class Communication(Record):
    """Precision of the pooled embeddings (forward) and of their gradients (backward) on the wire."""

    forward: Dtype = "fp32"
    """Of the pooled vectors."""
    backward: Dtype = "fp32"
    """Of their gradients."""


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
    """What plans and reports call the model."""
    description: str = ""
    """What it is and where its numbers come from; the first line is shown in lists."""
    global_batch: Annotated[int, Field(ge=1), Whole] | None = None
    """Samples per step over all ranks."""
    batch_per_rank: Annotated[int, Field(ge=1), Whole] | None = None
    """Samples per step of one rank; instead of global_batch."""
    tables: tuple[TableProfile, ...]
    """The embedding tables; in a file also the name of a CSV, Parquet or YAML file beside it."""
    embedding: Embedding = Embedding()
    """Format and optimizer of tables that state none."""
    communication: Communication = Communication()
    """Formats of vectors and gradients on the wire."""
    dense: Dense = Dense()
    """Everything but the tables; unset: it costs nothing."""
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
    """training, or inference: the forward pass alone."""
    towers: Annotated[Towers | None, LATER] = None
    """Tables that keep to one scale-up domain each, and modules between them and the dense part. Unset: none."""

    @field_validator("tables")
    @classmethod
    def _unique_names(cls, tables: tuple[TableProfile, ...]) -> tuple[TableProfile, ...]:
        if not tables:
            raise ValueError("is empty; a workload has at least one table")
        seen: dict[str, int] = {}
        at = [(table.name, index, seen.setdefault(table.name, index)) for index, table in enumerate(tables)]
        if twice := [f"{name!r} (tables {first} and {index})" for name, index, first in at if first < index]:
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
        of_training = ("gradients", "master_weights", "optimizer_state", "shampoo")
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
        if self.trained_by_shampoo is not None:
            message = "shampoo is for weights that all ranks have, and modules differ from tower to tower"
            raise ConflictError(f"{message}; choose another dense.optimizer", "towers.module", "dense.optimizer")
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

    @model_validator(mode="after")
    def _compressible(self) -> Self:
        """Each compressor is smaller than its table, and the rule of mixed dimensions is of tables of one width."""
        embedding = self.embedding
        if embedding.mixed_dimensions is not None and len(widths := {table.dim for table in self.tables}) > 1:
            shown = ", ".join(map(str, sorted(widths)))
            message = f"is a rule for tables of one width, not of {shown}; name dim:D table by table"
            raise ConflictError(message, "embedding.mixed_dimensions", "tables")
        for index, (table, compressor) in enumerate(zip(self.tables, self.compressors, strict=True)):
            if (fault := compressor.fault(table.rows, table.dim)) is not None:
                own = table.compressor is not None
                remedy = "give another one, or none" if own else "give it one of its own, or raise compress_above"
                field = f"tables.{index}.compressor" if own else "embedding.compressor"
                raise ConflictError(f"{table.name!r}: {fault}; {remedy}", field)
        return self

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """The same with other values of fields; what is known of the former ones is forgotten."""
        other = super().model_copy(update=update, deep=deep)
        for known in set(other.__dict__) - set(type(self).model_fields):
            del other.__dict__[known]
        return other

    @cached_property
    def compressors(self) -> tuple[Compressor, ...]:
        """[T] what makes each table smaller: its own, or by what is said of all."""
        embedding, tables = self.embedding, self.tables
        if embedding.mixed_dimensions is None:
            return tuple(self.compressor_of_profile(table) for table in tables)
        rows, reads = [table.rows for table in tables], [table.pooling_factor for table in tables]
        dims = mixed_dimensions(rows, tables[0].dim, embedding.mixed_dimensions, reads)
        pairs = zip(dims, tables, strict=True)
        of_all = [Compressor("dim", dim) if dim < table.dim else NO_COMPRESSOR for dim, table in pairs]
        return tuple(
            table.compressor or (each if table.rows > embedding.compress_above else NO_COMPRESSOR)
            for table, each in zip(tables, of_all, strict=True)
        )

    def compressor_of_profile(self, table: TableProfile) -> Compressor:
        """What makes a table of this profile smaller: its own compressor, or the one of all; the rule of mixed
        dimensions, which is of all tables together, aside."""
        embedding = self.embedding
        of_all = embedding.compressor if table.rows > embedding.compress_above else None
        return table.compressor or of_all or NO_COMPRESSOR

    @cached_property
    def _compressor_of_name(self) -> dict[str, Compressor]:
        return {table.name: each for table, each in zip(self.tables, self.compressors, strict=True)}

    def compressor_of(self, table: TableProfile) -> Compressor:
        """What makes a table smaller."""
        return self._compressor_of_name[table.name]

    @property
    def is_compressed(self) -> bool:
        """Whether something makes a table smaller."""
        return any(each != NO_COMPRESSOR for each in self.compressors)

    def with_compressors(self, of_tables: Sequence[Compressor]) -> Self:
        """The same with these compressors [T], whatever was said of them; unchecked."""
        tables = tuple(
            table.model_copy(update={"compressor": each}) for table, each in zip(self.tables, of_tables, strict=True)
        )
        return self.with_tables(tables)

    @property
    def uncompressed(self) -> Self:
        """The same with every table as large as its rows and columns say."""
        return self.with_compressors([NO_COMPRESSOR] * len(self.tables)) if self.is_compressed else self

    def remainders(self, *, joined: bool) -> tuple[Self, tuple[int, ...]] | None:
        """The same with nothing but the remainder tables whose vectors are joined to those of their quotient tables,
        or of the others; and [n] which table each one belongs to. None where there are none."""
        found, tables = [], []
        for index, (table, whole) in enumerate(zip(self.tables, self.compressors, strict=True)):
            if whole.has_two_parts and (whole.combine == "concat") == joined:
                found.append(index)
                changed = {"dim": whole.exact_dim(table.dim), "compressor": Compressor("remainder", whole.number)}
                tables.append(table.model_copy(update=changed))
        return (self.with_tables(tuple(tables)), tuple(found)) if found else None

    def with_tables(self, tables: tuple[TableProfile, ...]) -> Self:
        """The same with other tables, which have compressors of their own; unchecked."""
        return self.model_copy(update={"tables": tables})

    @property
    def embedding_parameters(self) -> int:
        """Numbers that are trained of all tables: their rows without padding, and projections."""
        pairs = zip(self.tables, self.compressors, strict=True)
        return sum(compressor.parameters(table.rows, table.dim) for table, compressor in pairs)

    @property
    def trained_by_shampoo(self) -> Shampoo | None:
        """How Shampoo, which trains the dense part, is set up; None where another optimizer does, or nothing."""
        if self.mode == "inference" or self.dense.optimizer != "shampoo":
            return None
        return self.dense.shampoo or Shampoo()

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
        """Rows as stored, of two parts the quotient table's; a profile's are ids, which compressors or formats join."""
        return FORMATS[self.dtype_of(table)].stored_rows(self.compressor_of(table).stored_rows(table.rows))

    def stored_dim(self, table: TableProfile) -> int:
        """Columns of a stored row; those of its profile are what the dense part sees."""
        return self.compressor_of(table).stored_dim(table.dim)

    def stored_shape(self, table: TableProfile) -> tuple[int, int]:
        """Rows and columns of a table as it is stored."""
        return self.stored_rows(table), self.stored_dim(table)

    def optimizer_of(self, table: TableProfile) -> Optimizer:
        """Optimizer of a table."""
        return table.optimizer or self.embedding.optimizer

    def fingerprint(self) -> str:
        """A content hash over all fields."""
        return fingerprint(self)
