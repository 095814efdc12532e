"""Chakra's messages in the wire format of protobuf: field numbers of `et_def.proto` of MLCommons Chakra, schema 0.0.4.

Written by hand: docs/decisions/0030-chakra-by-hand.md.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

SCHEMA_VERSION = "0.0.4"
VARINT, LENGTH = 0, 2
"""Wire types."""
NAME, INT32, INT64, BOOL, BOOLS, STRING = 1, 7, 9, 27, 28, 29
"""Fields of AttributeProto."""


class NodeType(IntEnum):
    """`NodeType` of the schema."""

    COMPUTE = 4
    SEND = 5
    RECEIVE = 6
    COLLECTIVE = 7


class CollectiveType(IntEnum):
    """`CollectiveCommType` of the schema."""

    ALL_REDUCE = 0
    ALL_GATHER = 2
    ALL_TO_ALL = 6
    REDUCE_SCATTER = 7


@dataclass(frozen=True)
class Attribute:
    """A named value of a node; `field` is its type in AttributeProto."""

    name: str
    field: int
    value: int | str | Sequence[bool]


@dataclass(frozen=True)
class Node:
    """One node of the trace of a rank."""

    id: int
    name: str
    type: NodeType
    after: Sequence[int]
    """Nodes that it waits for (`data_deps`)."""
    start_us: int
    duration_us: int
    attributes: Sequence[Attribute]

    def encoded(self) -> bytes:
        """The message."""
        return b"".join(
            (
                _number(1, self.id),
                _bytes(2, self.name.encode()),
                _number(3, self.type),
                _bytes(5, b"".join(_varint(each) for each in self.after)) if self.after else b"",
                _number(6, self.start_us),
                _number(7, self.duration_us),
                *(_bytes(10, _attribute(each)) for each in self.attributes),
            )
        )


def trace(attributes: Iterable[Attribute], nodes: Iterable[Node]) -> bytes:
    """A whole file: GlobalMetadata, then every Node, each after its length."""
    metadata = _bytes(1, SCHEMA_VERSION.encode()) + b"".join(_bytes(2, _attribute(each)) for each in attributes)
    return b"".join(_varint(len(message)) + message for message in (metadata, *(node.encoded() for node in nodes)))


def _attribute(attribute: Attribute) -> bytes:
    name, field, value = _bytes(NAME, attribute.name.encode()), attribute.field, attribute.value
    if isinstance(value, int):
        return name + _varint(field << 3 | VARINT) + _varint(value)  # a member of a oneof is written even where it is 0
    if isinstance(value, str):
        return name + _bytes(field, value.encode())
    return name + _bytes(field, _bytes(1, bytes(value)))


def _number(field: int, value: int) -> bytes:
    """A field that is left out where it is 0, as protobuf does."""
    return _varint(field << 3 | VARINT) + _varint(value) if value else b""


def _bytes(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | LENGTH) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first. `value` is not negative."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
