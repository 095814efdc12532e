"""Other tools' words for the columns of a table profile."""

from collections.abc import Sequence
from typing import Any

from topologies.documents import Document, Key, Position
from topologies.errors import Fault

ALIASES: dict[str, str] = {
    # TorchRec: EmbeddingBagConfig, ParameterConstraints, ShardingOption and the flags of the DLRM examples
    "num_embeddings": "rows",
    "num_embeddings_per_feature": "rows",
    "hash_size": "rows",
    "embedding_dim": "dim",
    "pooling_factors": "pooling_factor",
    "multi_hot_sizes": "pooling_factor",
    "avg_pooling": "pooling_factor",
    "feature": "features",
    "feature_names": "features",
    "table_name": "name",
    "data_type": "dtype",
    "is_weighted": "weighted",
    # HugeCTR: EmbeddingTableConfig, DataReaderSparseParam and the flags of its benchmarks
    "max_vocabulary_size": "rows",
    "vocabulary_size": "rows",
    "ev_size": "dim",
    "vec_size": "dim",
    "embedding_vec_size": "dim",
    "hotness": "pooling_factor",
    "nnz_per_slot": "pooling_factor",
    # TorchEasyRec: feature configurations
    "num_buckets": "rows",
    "hash_bucket_size": "rows",
    "embedding_name": "name",
}
"""Their word → ours."""

TABLE_SET_NOTES = frozenset({"dtype_bytes", "num_poolings"})
"""Keys of a table in a published table set that follow from its other keys or say nothing about its cost."""

_SAYS_NOTHING: dict[str, tuple[object, ...] | None] = {
    "weight_init_max": None,
    "weight_init_min": None,
    "init_fn": None,
    "pooling": ("SUM", "MEAN", "PoolingType.SUM", "PoolingType.MEAN"),
    "need_pos": (False,),
    "use_virtual_table": (False,),
    "enable_embedding_update": (False,),
    "stash_weights": (False,),
    "num_embeddings_post_pruning": (None,),
    "input_dim": (None,),
    "total_num_buckets": (None,),
    "virtual_table_eviction_policy": (None,),
}
"""Fields of TorchRec's EmbeddingBagConfig, as `dataclasses.asdict` gives them, with the values that change no cost
(None: any); others are refused as keys that are not known."""


def is_table_set(data: object) -> bool:
    """Whether a mapping is a published table set: `tables` under a header that says where they come from."""
    if not isinstance(data, dict) or "tables" not in data:
        return False
    return "exactness" in data or str(data.get("schema", "")).startswith("tableset/")


def other_names(own: str) -> list[str]:
    """What other tools call our column `own`."""
    return [alias for alias, name in ALIASES.items() if name == own]


def translate(document: Document, at: tuple[Key, ...], ignored: frozenset[str] = frozenset()) -> list[Fault]:
    """Put the list of tables at the path `at` of a document into our words, in place; positions stay right.

    Leaves out `ignored` keys. Gives a fault for each column that is given under two names.
    """
    holder: Any = document.data
    for key in at[:-1]:
        holder = holder[key]
    records = holder[at[-1]] if at else holder
    if not isinstance(records, list):
        return []
    faults: list[Fault] = []
    translated = []
    for index, record in enumerate(records):
        if not isinstance(record, dict):
            translated.append(record)
            continue
        own: dict[Any, Any] = {}
        for key, value in record.items():
            name = ALIASES.get(key, key)
            if name in own:
                message = f"{name} is given twice, as {key!r} too; keep one"
                faults.append(document.fault((*at, index, key), message))
            elif key not in ignored and not _says_nothing(key, value):
                own[name] = str(value) if name == "name" and type(value) is int else value
        translated.append(own)
    if at:
        holder[at[-1]] = translated
    else:
        document.data = translated
    _keep_positions(document, at, records)
    return faults


def _says_nothing(key: object, value: object) -> bool:
    values = _SAYS_NOTHING.get(str(key), ())
    return values is None or any(value is each or (value == each and isinstance(value, str)) for each in values)


def _keep_positions(document: Document, at: tuple[Key, ...], originals: Sequence[Any]) -> None:
    """Let `locate` look for the words that the file uses."""
    located = document.locate
    depth = len(at) + 1

    def locate(path: Sequence[Key]) -> Position | None:
        if len(path) > depth and tuple(path[: len(at)]) == at:
            index, own = path[depth - 1], str(path[depth])
            record = originals[index] if isinstance(index, int) and index < len(originals) else None
            if isinstance(record, dict) and own not in record:
                spelled = next((name for name in other_names(own) if name in record), own)
                path = (*path[:depth], spelled, *path[depth + 1 :])
        return located(path)

    document.locate = locate
