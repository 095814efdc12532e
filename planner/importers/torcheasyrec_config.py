"""TorchEasyRec's pipeline configuration (`EasyRecConfig` as protobuf text) as a workload."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cost_models.workload.optimizers import Optimizer
from planner.importers.protobuf_text import Message, read_text_format
from planner.importers.stated_workload import StatedTable, StatedWorkload, listed, unique_name
from planner.importers.torcheasyrec_features import Feature, features_of
from topologies.documents import did_you_mean
from topologies.errors import Fault, InputError

BATCH = 1024
"""DataConfig.batch_size where a file has none."""
WIDE_DIM = 4
"""Columns of a wide group's tables where the model has no wide_embedding_dim."""
WIDE_DIMS = {"wide_and_deep": WIDE_DIM, "deepfm": WIDE_DIM, "xdeepfm": 16}
"""The same by model, for those that read wide_embedding_dim (rank_model.proto)."""
POOLED = {"DEEP": False, "0": False, "WIDE": True, "1": True}
"""Types of feature groups whose vectors are pooled, and whether their tables are wide."""
SEQUENCES = ("SEQUENCE", "2", "JAGGED_SEQUENCE", "3")
OPTIMIZERS: dict[str, Optimizer] = {
    "sgd_optimizer": "sgd",
    "adagrad_optimizer": "adagrad",
    "adam_optimizer": "adam",
    "lars_sgd_optimizer": "lars_sgd",
    "lamb_optimizer": "lamb",
    "partial_rowwise_lamb_optimizer": "partial_rowwise_lamb",
    "partial_rowwise_adam_optimizer": "partial_rowwise_adam",
    "rowwise_adagrad_optimizer": "rowwise_adagrad",
    "adadelta_optimizer": "adam",
    "rmsprop_optimizer": "adagrad",
}
REPLACED = ("adadelta_optimizer", "rmsprop_optimizer")
"""Those planned as one that keeps as many numbers for a weight."""


@dataclass
class Table:
    """A table of one collection, with the features that read it."""

    name: str
    is_pooled: bool
    dim: int
    rows: int
    features: dict[str, Feature] = field(default_factory=dict)

    def stated(self, name: str) -> StatedTable:
        """Its profile under a name of its own, where its first feature stands."""
        readers = [*self.features.values()]
        profile: dict[str, Any] = {
            "name": name,
            "rows": self.rows,
            "dim": self.dim,
            "pooling_factor": sum(each.ids or 1.0 for each in readers),
            "features": [*self.features],
        }
        if readers[0].dtype != "fp32":
            profile["dtype"] = readers[0].dtype
        if any(each.message.flag("weighted") for each in readers):
            profile["weighted"] = True
        if not self.is_pooled:
            profile["pooled"] = False
        return StatedTable(profile, readers[0].message.source, readers[0].message.position)


def read_torcheasyrec(path: Path) -> StatedWorkload:
    """The tables that the feature groups of a configuration ask for. Raises InputError with what is wrong."""
    config = read_text_format(path)
    features, names, faults = features_of(config)
    collected = _Collections(config, features, names)
    faults += collected.faults
    if not collected.tables and not faults:
        raise InputError.at(str(path), "has no feature with an embedding: no table to plan")
    if faults:
        raise InputError(faults)
    taken: set[str] = set()
    tables = []
    for table in sorted(collected.tables.values(), key=lambda each: not each.is_pooled):
        name = table.name if table.name not in taken else f"{table.name}_sequence"
        tables.append(table.stated(unique_name(name, taken)))
    batch = (config.message("data_config") or config).whole("batch_size") or BATCH
    rest, replaced = _optimizer(config)
    warnings = [*replaced, *_warnings(config, collected)]
    unsaid = [*_unsaid(config, rest)]
    return StatedWorkload(tables, {"batch_per_rank": batch}, rest, unsaid=unsaid, warnings=warnings)


class _Collections:
    """Tables of the pooled and of the sequence collections, as the feature groups ask for them."""

    def __init__(self, config: Message, features: Sequence[Feature], names: Sequence[str]) -> None:
        self.tables: dict[tuple[bool, str], Table] = {}
        self.used: dict[int, Feature] = {}
        self.faults: list[Fault] = []
        model = config.message("model_config")
        self.groups = model.messages("feature_groups") if model else []
        self.by_name = {each.name: each for each in features}
        self.all = features
        self.names = {*names, *(name.replace("__", "_") for name in names)}
        for each in features:  # as named with USE_RTP=1
            self.by_name.setdefault(each.name.replace("__", "_"), each)
        self.wide_dim = _wide_dim(model)
        for group in self.groups:
            self._collect(self._enter_group, group)
        if not self.groups:
            for each in features:
                self._collect(self._enter, each, not each.is_sequence, "", None)

    @property
    def left_out(self) -> list[str]:
        """Features with an embedding that no group asks for."""
        return [each.name for each in self.all if id(each) not in self.used]

    def _collect(self, enter: Any, *arguments: Any) -> None:
        try:
            enter(*arguments)
        except InputError as error:
            self.faults += error.faults

    def _enter_group(self, group: Message) -> None:
        kind = group.word("group_type") or "DEEP"
        if kind not in POOLED and kind not in SEQUENCES:
            hint = did_you_mean(kind, [*POOLED, *SEQUENCES])
            raise group.fault("group_type", f"there is no type {kind} of feature groups{hint}")
        suffix = group.string("embedding_name_suffix") or ""
        is_wide = POOLED.get(kind, False)
        for each in self._named(group):
            self._collect(
                self._enter,
                each,
                kind in POOLED,
                "_wide" * is_wide + _suffix(suffix),
                self.wide_dim if is_wide else None,
            )
        for inner in group.messages("sequence_groups"):
            own = inner.string("embedding_name_suffix") or suffix
            for each in self._named(inner):
                self._collect(self._enter, each, False, _suffix(own), None)

    def _named(self, group: Message) -> list[Feature]:
        """The features of a group that have a table. Raises InputError for names that no feature has."""
        names = group.strings("feature_names")
        for name in names:
            if self.names and name not in self.names:
                hint = did_you_mean(name, sorted(self.names))
                raise group.fault("feature_names", f"there is no feature {name!r}{hint}")
        return [self.by_name[name] for name in names if name in self.by_name]

    def _enter(self, feature: Feature, is_pooled: bool, suffix: str, dim: int | None) -> None:
        self.used[id(feature)] = feature
        name = feature.table + suffix
        own = Table(name, is_pooled, dim or feature.dim, feature.rows)
        table = self.tables.setdefault((is_pooled, name), own)
        if (table.dim, table.rows) != (own.dim, own.rows):
            message = f"shares {name}, of {table.rows:,} x {table.dim}, but has {own.rows:,} x {own.dim}"
            raise feature.message.fault("embedding_name", message)
        table.features.setdefault(feature.name, feature)


def _wide_dim(model: Message | None) -> int:
    """Columns of the tables of wide groups, by whichever model there is."""
    for kind, default in WIDE_DIMS.items():
        if model and (told := model.message(kind)):
            return told.whole("wide_embedding_dim") or default
    return WIDE_DIM


def _suffix(suffix: str) -> str:
    return f"_{suffix}" if suffix else ""


def _optimizer(config: Message) -> tuple[dict[str, Any], list[str]]:
    """`embedding` of the workload, and a warning where another optimizer takes the place of the file's."""
    train = config.message("train_config")
    sparse = train.message("sparse_optimizer") if train else None
    if sparse is None:
        return {}, []
    names = [name for name, _ in sparse.fields if name.endswith("_optimizer")]
    for name in names:
        if name not in OPTIMIZERS:
            raise sparse.fault(name, f"unknown optimizer{did_you_mean(name, [*OPTIMIZERS])}")
    if len(names) > 1:
        raise sparse.fault(names[1], f"is the second optimizer, after {names[0]}; keep one")
    if not names:
        return {}, []
    ours = OPTIMIZERS[names[0]]
    same = f"{names[0]} is planned as {ours}, which keeps as many numbers for a weight"
    return {"embedding": {"optimizer": ours}}, [same] if names[0] in REPLACED else []


def _unsaid(config: Message, rest: dict[str, Any]) -> Iterator[str]:
    yield "pooling_factor: here value_dim and sequence_length, which is the longest; 1 where neither is given"
    if not (config.message("data_config") or config).has("batch_size"):
        yield f"batch_per_rank: TorchEasyRec's default, {BATCH:,}"
    if not rest:
        yield "embedding.optimizer"
    yield "zipf_alpha or access_cdf: every row is taken to be read equally often"
    yield "dense: the model's layers are not read; communication; pipeline; embedding_constraints go into a policy"


def _warnings(config: Message, collected: _Collections) -> Iterator[str]:
    used = [*collected.used.values()]
    if not collected.groups:
        yield "no feature_groups in model_config: every feature with an embedding has a table"
    elif collected.left_out:
        yield f"in no feature group, so without a table: {listed(collected.left_out)}"
    if unsaid := [each.name for each in used if each.ids is None]:
        yield f"number of ids not given, taken as 1: {listed(unsaid)}"
    if longest := [each.name for each in used if each.is_sequence and each.ids is not None]:
        yield f"sequence_length, the longest, taken as the mean: {listed(longest)}"
    if frozen := [each.name for each in used if each.message.word("trainable") in ("false", "False", "f", "0")]:
        yield f"not trained, but planned as trained: {listed(frozen)}"
    if remapped := [each.name for each in used if each.message.has("zch") or each.message.has("dynamicemb")]:
        yield f"planned as tables of fixed size, without what maps their ids to rows: {listed(remapped)}"
    data = config.message("data_config")
    if data and any(name.endswith("sampler") for name, _ in data.fields):
        yield "with a sampler, features of sampled items have collections of their own: shared tables are counted once"
