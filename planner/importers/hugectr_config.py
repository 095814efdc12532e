"""The JSON of a HugeCTR model (`Model.graph_to_json`, and the configuration files of older releases) as a workload."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from cost_models.workload import spellings
from cost_models.workload.optimizers import Optimizer
from planner.importers.stated_workload import StatedTable, StatedWorkload, listed, unique_name
from topologies.documents import Document, Record, did_you_mean, validate
from topologies.errors import ConflictError, Fault, InputError

Count = Annotated[int, Field(ge=1, le=10**13), BeforeValidator(spellings.whole_number)]
Size = Annotated[int, Field(ge=0, le=10**13), BeforeValidator(spellings.whole_number)]
EMBEDDINGS = (
    "DistributedSlotSparseEmbeddingHash",
    "LocalizedSlotSparseEmbeddingHash",
    "LocalizedSlotSparseEmbeddingOneHot",
    "HybridSparseEmbedding",
)
OPTIMIZERS: dict[str, tuple[Optimizer, int]] = {
    "SGD": ("sgd", 0),
    "AdaGrad": ("adagrad", 1),
    "Adam": ("adam", 2),
    "MomentumSGD": ("adagrad", 1),
    "Nesterov": ("adagrad", 1),
    "RMSProp": ("adagrad", 1),
    "Ftrl": ("adam", 2),
}
"""Ours that keeps as much, and the numbers that HugeCTR keeps for a weight."""
SAME = ("SGD", "AdaGrad", "Adam")
MIB = 2**20


class Part(Record):
    """A part of a file; keys that say nothing of tables are left aside."""

    model_config = ConfigDict(extra="ignore")


class OptimizerOf(Part):
    """An optimizer, of the model or of one embedding."""

    type: str
    update_type: str = "Global"

    @model_validator(mode="after")
    def _known(self) -> Self:
        if self.type not in OPTIMIZERS:
            raise ConflictError(f"unknown optimizer {self.type!r}{did_you_mean(self.type, [*OPTIMIZERS])}", "type")
        return self

    @property
    def state(self) -> int:
        """Numbers for a weight; the lazy Adam also keeps the step of its last update."""
        is_lazy = self.type == "Adam" and self.update_type == "LazyGlobal"
        return OPTIMIZERS[self.type][1] + is_lazy


class Solver(Part):
    """What a file of an older release says of the batch and the GPUs."""

    batchsize: Count | None = None
    gpu: tuple[Any, ...] | None = None

    @property
    def gpus(self) -> int:
        """GPUs of one node, or of a list of nodes."""
        return sum(len(each) if isinstance(each, list) else 1 for each in self.gpu or ())


class Sparse(Part):
    """A sparse input of the data layer."""

    top: str
    slot_num: Annotated[int, Field(ge=1, le=100_000)]
    nnz_per_slot: Count | tuple[Count, ...] | None = None
    max_nnz: Count | None = None
    max_feature_num_per_sample: Count | None = None
    is_fixed_length: bool = False

    @model_validator(mode="after")
    def _one_number_a_slot(self) -> Self:
        given = self.nnz_per_slot
        if isinstance(given, tuple) and len(given) != self.slot_num:
            raise ConflictError(f"has {len(given)} numbers for slot_num {self.slot_num}", "nnz_per_slot")
        if given is None and self.max_nnz is None and self.max_feature_num_per_sample is None:
            raise ConflictError("says no number of ids: give nnz_per_slot", "nnz_per_slot", "top")
        return self

    @property
    def ids(self) -> list[float]:
        """Ids of a sample in each slot, at most."""
        given = self.nnz_per_slot or self.max_nnz
        if given is None:
            return [(self.max_feature_num_per_sample or 0) / self.slot_num] * self.slot_num
        return [float(number) for number in given] if isinstance(given, tuple) else [float(given)] * self.slot_num


class Dense(Part):
    """The numerical input of the data layer."""

    dense_dim: Size = 0


class Data(Part):
    """The data layer."""

    sparse: tuple[Sparse, ...]
    dense: Dense = Dense()


class Hparam(Part):
    """`sparse_embedding_hparam`."""

    embedding_vec_size: Annotated[int, Field(ge=1, le=65536)]
    slot_size_array: tuple[Count, ...] = ()
    max_vocabulary_size_global: Size = 0
    max_vocabulary_size_per_gpu: Size = 0
    vocabulary_size: Size = 0
    workspace_size_per_gpu_in_mb: Size = 0

    @property
    def is_by_workspace(self) -> bool:
        """Whether only the memory of a GPU says the rows."""
        others = (self.max_vocabulary_size_global, self.max_vocabulary_size_per_gpu, self.vocabulary_size)
        return self.workspace_size_per_gpu_in_mb > 0 and not any(others)

    def rows(self, state: int, gpus: int) -> int:
        """Rows of the hash table on all GPUs; 0 where the file does not say. The workspace of a GPU holds weights and
        optimizer state in fp32 (SparseEmbedding::initialize_max_vocabulary_size_per_gpu)."""
        row_bytes = 4 * (1 + state) * self.embedding_vec_size
        of_gpu = self.max_vocabulary_size_per_gpu or self.workspace_size_per_gpu_in_mb * MIB // row_bytes
        return self.max_vocabulary_size_global or self.vocabulary_size or of_gpu * gpus


class Embedding(Part):
    """A layer with embedding tables."""

    bottom: str
    top: str
    sparse_embedding_hparam: Hparam
    optimizer: OptimizerOf | None = None


class Header(Part):
    """The file but for its layers."""

    layers: tuple[Mapping[str, Any], ...]
    solver: Solver = Solver()
    optimizer: OptimizerOf | None = None


def hugectr_workload(document: Mapping[str, Any], source: str) -> StatedWorkload:
    """A table for each embedding, or for each of its slots where their sizes are told. Raises InputError with
    everything that is wrong, and for embedding collections, which HugeCTR does not write to such files."""
    header = validate(Document(dict(document), source), Header)
    inputs: dict[str, Sparse] = {}
    embeddings: list[tuple[int, Embedding]] = []
    numerical, faults = 0, list[Fault]()
    for index, layer in enumerate(header.layers):
        kind, at = layer.get("type"), f"layers.{index}"
        try:
            if kind == "Data":
                data = _part(layer, Data, at, source)
                inputs |= {sparse.top: sparse for sparse in data.sparse}
                numerical += data.dense.dense_dim
            elif kind in EMBEDDINGS:
                embeddings.append((index, _part(layer, Embedding, at, source)))
            elif "Embedding" in str(kind):
                known = f"known are {', '.join(EMBEDDINGS)}; write the tables of an embedding collection yourself"
                raise InputError.at(source, f"embeddings of type {kind!r} are not read; {known}", path=f"{at}.type")
        except InputError as error:
            faults += error.faults
    if not embeddings and not faults:
        message = (
            "has no layer with embedding tables; graph_to_json writes none of an embedding collection, whose tables"
            " you can list in a workload file"
        )
        faults.append(Fault(source, 0, 0, "layers", message))
    if faults:
        raise InputError(faults)
    return _Reader(header, inputs, source).workload(embeddings, numerical)


def _part(layer: Mapping[str, Any], model: type[Any], at: str, source: str) -> Any:
    """A layer by its model, with faults below its place in the file."""
    try:
        return validate(Document(dict(layer), source), model)
    except InputError as error:
        raise InputError(
            Fault(source, 0, 0, f"{at}.{fault.path}" if fault.path else at, fault.message) for fault in error.faults
        ) from None


class _Reader:
    """Reads the tables of one file's embeddings."""

    def __init__(self, header: Header, inputs: Mapping[str, Sparse], source: str) -> None:
        self.header, self.inputs, self.source = header, inputs, source
        self.padded: list[str] = []
        self.hashed: list[str] = []
        self.replaced: dict[str, str] = {}
        self.names: set[str] = set()

    def workload(self, embeddings: Sequence[tuple[int, Embedding]], numerical: int) -> StatedWorkload:
        tables, faults = [], list[Fault]()
        for index, embedding in embeddings:
            try:
                tables += [StatedTable(profile, self.source) for profile in self._tables(index, embedding)]
            except InputError as error:
                faults += error.faults
        if faults:
            raise InputError(faults)
        batch = self.header.solver.batchsize
        rest: dict[str, Any] = {"software": "hugectr"}
        if numerical:
            rest["dense"] = {"numerical_features": numerical}
        return StatedWorkload(
            tables,
            {"global_batch": batch} if batch else {},
            rest,
            unsaid=[*self._unsaid()],
            warnings=[*self._warnings()],
        )

    def _tables(self, index: int, embedding: Embedding) -> Iterator[dict[str, Any]]:
        at, hparam = f"layers.{index}", embedding.sparse_embedding_hparam
        sparse = self.inputs.get(embedding.bottom)
        if sparse is None:
            hint = did_you_mean(embedding.bottom, [*self.inputs])
            raise InputError.at(self.source, f"no sparse input is called so{hint}", path=f"{at}.bottom")
        common: dict[str, Any] = {"dim": 4 * -(-hparam.embedding_vec_size // 4)}
        told = embedding.optimizer or self.header.optimizer
        if told is not None:
            common["optimizer"] = OPTIMIZERS[told.type][0]
            if told.type not in SAME:
                self.replaced[told.type] = common["optimizer"]
        sizes = hparam.slot_size_array
        if sizes and len(sizes) != sparse.slot_num:
            message = f"has {len(sizes)} sizes for the {sparse.slot_num} slots of {embedding.bottom}"
            raise InputError.at(self.source, message, path=f"{at}.sparse_embedding_hparam.slot_size_array")
        rows = [*sizes] or [self._rows(at, hparam, told)]
        ids = sparse.ids if sizes else [sum(sparse.ids)]
        for slot, (size, number) in enumerate(zip(rows, ids, strict=True)):
            name = unique_name(f"{embedding.top}_{slot}" if sizes else embedding.top, self.names)
            if common["dim"] != hparam.embedding_vec_size:
                self.padded.append(name)
            features = {} if sizes else {"features": sparse.slot_num}
            yield {"name": name, "rows": size, **common, "pooling_factor": round(number, 9), **features}
        if not sizes:
            self.hashed.append(embedding.top)

    def _rows(self, at: str, hparam: Hparam, told: OptimizerOf | None) -> int:
        """Of a hash table that all slots share."""
        gpus = self.header.solver.gpus
        if hparam.is_by_workspace and told is None:
            message = "holds optimizer state, too, and no optimizer is told; give max_vocabulary_size_global"
            path = f"{at}.sparse_embedding_hparam.workspace_size_per_gpu_in_mb"
            raise InputError.at(self.source, message, path=path)
        if rows := hparam.rows(told.state if told else 0, gpus):
            return rows
        message = "says no rows: give slot_size_array or max_vocabulary_size_global"
        if (hparam.is_by_workspace or hparam.max_vocabulary_size_per_gpu) and not gpus:
            message += ", or solver.gpu, the GPUs that hold them"
        raise InputError.at(self.source, message, path=f"{at}.sparse_embedding_hparam")

    def _unsaid(self) -> Iterator[str]:
        yield "pooling_factor: here nnz_per_slot, which is the most ids of a slot unless is_fixed_length is true"
        if not self.header.solver.batchsize:
            yield "global_batch: as given with --global-batch; the file has no solver.batchsize"
        if self.header.optimizer is None:
            yield "embedding.optimizer, where no embedding has one of its own"
        yield "zipf_alpha or access_cdf: every row is taken to be read equally often"
        yield "dense: its layers are not read; embedding.dtype; communication; pipeline"

    def _warnings(self) -> Iterator[str]:
        for theirs, ours in self.replaced.items():
            yield f"{theirs} is planned as {ours}, which keeps as many numbers for a weight"
        if self.padded:
            yield f"the columns of {listed(self.padded)} are rounded up to a multiple of 4, as kernels need it"
        if self.hashed:
            yield f"{listed(self.hashed)}: no slot_size_array, so one table with the capacity of the hash table"
