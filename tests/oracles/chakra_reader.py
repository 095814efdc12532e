"""Chakra traces read back: protobuf's wire format by its specification, fields by MLCommons' `et_def.proto` 0.0.4."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

NODE_FIELDS = {1: "id", 2: "name", 3: "type", 4: "ctrl_deps", 5: "data_deps", 6: "start", 7: "duration", 10: "attr"}
WIRE_TYPE = {"id": 0, "name": 2, "type": 0, "ctrl_deps": 2, "data_deps": 2, "start": 0, "duration": 0, "attr": 2}
COMP, SEND, RECV, COLL = 4, 5, 6, 7
ALL_REDUCE, ALL_GATHER, ALL_TO_ALL, REDUCE_SCATTER = 0, 2, 6, 7


@dataclass
class ReadNode:
    """A node as it stands in the file; fields that are not there have protobuf's defaults."""

    id: int = 0
    name: str = ""
    type: int = 0
    start: int = 0
    duration: int = 0
    deps: tuple[int, ...] = ()
    attributes: dict[str, Any] | None = None

    def __getitem__(self, name: str) -> Any:
        assert self.attributes is not None
        return self.attributes[name]


class Bytes:
    """A cursor over a message."""

    def __init__(self, content: bytes) -> None:
        self.content, self.at = content, 0

    def __bool__(self) -> bool:
        return self.at < len(self.content)

    def varint(self) -> int:
        shift = value = 0
        while True:
            byte = self.content[self.at]
            self.at += 1
            value += (byte % 128) * 2**shift
            shift += 7
            if byte < 128:
                assert value < 2**64
                return value

    def take(self) -> bytes:
        size = self.varint()
        assert self.at + size <= len(self.content), "a message ends early"
        self.at += size
        return self.content[self.at - size : self.at]

    def field(self) -> tuple[int, int, Any]:
        number, wire = divmod(self.varint(), 8)
        assert wire in (0, 2), "a wire type that no field here has"
        return number, wire, self.varint() if wire == 0 else self.take()


def read_trace(path: Path) -> tuple[dict[str, Any], list[ReadNode]]:
    """The attributes of the metadata (and its version), and the nodes in their order."""
    file = Bytes(path.read_bytes())
    metadata: dict[str, Any] = {}
    head = Bytes(file.take())
    while head:
        number, wire, value = head.field()
        assert wire == 2
        if number == 1:
            metadata["version"] = value.decode()
        else:
            assert number == 2
            metadata.update([_attribute(value)])
    nodes = []
    while file:
        nodes.append(_node(Bytes(file.take())))
    return metadata, nodes


def _node(message: Bytes) -> ReadNode:
    node = ReadNode(attributes={})
    while message:
        number, wire, value = message.field()
        name = NODE_FIELDS[number]
        assert wire == WIRE_TYPE[name], name
        if name == "attr":
            assert node.attributes is not None
            key, meaning = _attribute(value)
            assert key not in node.attributes
            node.attributes[key] = meaning
        elif name.endswith("deps"):
            packed = Bytes(value)
            while packed:
                node.deps += (packed.varint(),)
        else:
            setattr(node, name, value.decode() if wire == 2 else value)
    return node


def _attribute(content: bytes) -> tuple[str, Any]:
    """Name and value; the types that the schema's numbers 7, 9, 27, 28 and 29 have."""
    message, name, value = Bytes(content), "", None
    while message:
        number, wire, raw = message.field()
        if number == 1:
            name = raw.decode()
            continue
        assert value is None, "a oneof has one member"
        assert wire == (0 if number in (7, 9, 27) else 2)
        if number == 27:
            assert raw in (0, 1)
            value = bool(raw)
        elif number == 28:
            inner_number, inner_wire, packed = Bytes(raw).field()
            assert (inner_number, inner_wire) == (1, 2)
            value = [bool(each) for each in packed]
        else:
            value = raw.decode() if number == 29 else raw
            assert number in (7, 9, 29)
            assert number != 7 or value < 2**31
    return name, value
