"""The features of a TorchEasyRec configuration that have embedding tables, and the sizes of these.

The rules are those of `tzrec/features/*.py` (`is_sparse`, `num_embeddings`, `value_dim`), 2026.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from planner.importers.protobuf_text import Message
from topologies.documents import did_you_mean
from topologies.errors import Fault, InputError

SPARSE = ("id_feature", "combo_feature", "tokenize_feature", "bool_mask_feature")
"""Kinds that always have a table."""
KINDS = (
    *SPARSE,
    "raw_feature",
    "lookup_feature",
    "match_feature",
    "expr_feature",
    "overlap_feature",
    "custom_feature",
    "kv_dot_product",
    "combine_feature",
)
SEQUENCE = "sequence_"
SIZES = ("zch", "dynamicemb", "hash_bucket_size", "num_buckets", "vocab_list", "vocab_dict", "vocab_file", "boundaries")
"""What says the rows of a table, the first of those given."""
MULTIVALUED = ("id_feature", "combo_feature", "bool_mask_feature", "tokenize_feature", "expr_feature")
"""Kinds that have any number of ids where value_dim is not given."""


@dataclass(frozen=True)
class Feature:
    """A feature with a table."""

    kind: str
    message: Message
    name: str
    table: str
    rows: int
    dim: int
    is_sequence: bool
    ids: float | None
    """Ids of a sample, of a sequence at most; None where the file does not say."""
    dtype: Literal["fp32", "fp16"]


def features_of(config: Message) -> tuple[list[Feature], list[str], list[Fault]]:
    """The features that have a table, the names of all features, and everything that is wrong with them."""
    features: list[Feature] = []
    faults: list[Fault] = []
    names: dict[str, None] = {}
    try:
        messages = [*_messages(config)]
    except InputError as error:
        return [], [], [*error.faults]
    for kind, message, group in messages:
        try:
            name = _name(message, group)
            if name in names:
                raise message.fault("feature_name", f"the name {name!r} stands twice; names must differ")
            names[name] = None
            if (feature := _feature(kind, message, group, name)) is not None:
                features.append(feature)
        except InputError as error:
            faults += error.faults
    return features, [*names], faults


def _messages(config: Message) -> Iterator[tuple[str, Message, Message | None]]:
    """Kind and message of every feature; with the sequence that it is a part of."""
    for holder in config.messages("feature_configs"):
        for kind, message in _parts(holder, (*KINDS, *(SEQUENCE + kind for kind in KINDS), "sequence_feature")):
            if kind != "sequence_feature":
                yield kind, message, None
                continue
            for inner in message.messages("features"):
                yield from ((of, part, message) for of, part in _parts(inner, KINDS))


def _parts(holder: Message, known: tuple[str, ...]) -> Iterator[tuple[str, Message]]:
    for kind, _ in holder.fields:
        if kind not in known:
            raise holder.fault(kind, f"unknown kind of feature{did_you_mean(kind, known)}")
        message = holder.message(kind)
        assert message is not None
        yield kind, message


def _name(message: Message, group: Message | None) -> str:
    """Of a feature; with that of the sequence that it is a part of."""
    name = _text(message, "feature_name")
    return name if group is None else f"{_text(group, 'sequence_name')}__{name}"


def _feature(kind: str, message: Message, group: Message | None, name: str) -> Feature | None:
    """A feature; None for one without a table."""
    own = kind.removeprefix(SEQUENCE)
    if message.flag("stub_type") or (own not in SPARSE and not any(map(message.has, SIZES))):
        return None
    is_sequence = group is not None or kind.startswith(SEQUENCE) or message.flag("tokens_as_sequence")
    longest = (group or message).whole("sequence_length") if is_sequence else 1
    values = _values(own, message, is_sequence)
    dim = message.whole("embedding_dim")
    if not dim:
        raise message.fault("embedding_dim", "is missing: the columns of the feature's table")
    dtype = message.string("data_type") or "FP32"
    if dtype not in ("FP32", "FP16"):
        raise message.fault("data_type", f"must be FP32 or FP16 (got {dtype})")
    return Feature(
        kind=kind,
        message=message,
        name=name,
        table=message.string("embedding_name") or f"{name}_emb",
        rows=_rows(own, message),
        dim=dim,
        is_sequence=is_sequence,
        ids=float(longest * values) if longest and values else None,
        dtype="fp16" if dtype == "FP16" else "fp32",
    )


def _text(message: Message, key: str) -> str:
    if not (text := message.string(key)):
        raise message.fault(key, "is missing")
    return text


def _values(kind: str, message: Message, is_sequence: bool) -> int | None:
    """Ids of a value, or of each element of a sequence; None where any number of them is allowed."""
    told = message.whole("value_dim")
    if told is not None:
        return told or None
    return None if kind in MULTIVALUED and not is_sequence else 1


def _rows(kind: str, message: Message) -> int:
    """Rows of a feature's table."""
    if kind == "tokenize_feature":
        raise message.fault("vocab_file", "the vocabulary of a tokenizer is not read; use an id_feature with its size")
    key = next((key for key in SIZES if message.has(key)), None)
    is_own = message.has("default_bucketize_value")
    if key in ("zch", "dynamicemb"):
        inside, size = message.message(key), "zch_size" if key == "zch" else "max_capacity"
        rows = inside.whole(size) if inside else None
    elif key in ("hash_bucket_size", "num_buckets"):
        rows = message.whole(key)
    elif key == "vocab_list":
        rows = len(message.strings(key)) + (0 if is_own else 2) + (kind == "match_feature")
    elif key == "vocab_dict":
        rows = max((entry.whole("value") or 0 for entry in message.messages(key)), default=0) + 1
    elif key == "vocab_file":
        rows = _lines(message)
    elif key == "boundaries":
        rows = len(message.words(key)) + 1
    else:
        raise message.fault("hash_bucket_size", f"is missing: the rows of the table, by one of {', '.join(SIZES[:-1])}")
    if not rows:
        raise message.fault(key, "says no rows")
    return rows


def _lines(message: Message) -> int:
    """Rows of a vocabulary file: a word in each line, or a word and its row. It is looked for as the trainer does, from
    the working directory, and beside the configuration."""
    from topologies.sources import note

    name = Path(message.string("asset_dir") or "") / (message.string("vocab_file") or "")
    found = next((file for file in (name, Path(message.source).parent / name) if _is_file(file)), None)
    if found is None:
        raise message.fault("vocab_file", f"there is no file {name}, whose lines are the table's rows")
    try:
        lines = [line.split(maxsplit=1) for line in note(found).read_text(encoding="utf-8").splitlines()]
        rows = {words[0]: int(words[1]) if len(words) > 1 else 0 for words in lines if words}
    except OSError as error:
        raise InputError.at(str(found), f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError.at(str(found), "is not UTF-8 text") from None
    except ValueError:
        raise InputError.at(str(found), "must have a word in each line, or a word and its row") from None
    return max(rows.values()) + 1 if any(len(words) > 1 for words in lines) else len(rows)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that no file can have
        return False
