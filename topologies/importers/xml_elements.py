"""XML as elements with the lines where they begin; entities are refused, and nothing outside the file is read."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.parsers import expat

from topologies.importers.facts import Text

DEEPEST = 200


@dataclass
class Element:
    """One element. `line` counts from 1."""

    name: str
    attributes: dict[str, str]
    line: int
    children: list["Element"] = field(default_factory=list)

    def walk(self) -> Iterator["Element"]:
        """This element and all below it, in the order of the file."""
        yield self
        for child in self.children:
            yield from child.walk()

    def of(self, name: str) -> list["Element"]:
        """The children of a name."""
        return [child for child in self.children if child.name == name]


class _ForbiddenError(Exception):
    pass


def parse(text: Text) -> Element:
    """The root of an XML file.

    A DOCTYPE that names an outer file (hwloc's does) is passed over: expat reads no outer file unless asked. Raises
    InputError for entities of the file's own, which can grow without limit, and for what is no XML.
    """
    parser = expat.ParserCreate()
    parser.buffer_text = True
    top = Element("", {}, 0)
    stack = [top]

    def start(name: str, attributes: dict[str, str]) -> None:
        element = Element(name, attributes, parser.CurrentLineNumber)
        stack[-1].children.append(element)
        stack.append(element)
        if len(stack) > DEEPEST:
            raise _ForbiddenError("is nested too deeply")

    def end(_name: str) -> None:
        stack.pop()

    def forbid(*_declared: object) -> None:
        raise _ForbiddenError("declares entities, which no dump of a machine needs; remove its <!ENTITY …>")

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.EntityDeclHandler = forbid
    try:
        parser.Parse(_document(text.text), True)
    except expat.ExpatError as error:
        if error.code == expat.errors.codes[expat.errors.XML_ERROR_JUNK_AFTER_DOC_ELEMENT]:
            text.refuse(error.lineno, "goes on behind the end of a document; give each dump in a file of its own")
        text.refuse(error.lineno, f"is not valid XML: {expat.ErrorString(error.code)}; paste the whole file")
    except _ForbiddenError as error:
        text.refuse(parser.CurrentLineNumber, str(error))
    except (UnicodeEncodeError, ValueError):
        text.refuse(1, "is not valid XML: it holds characters that are no text")
    return top.children[0]


def _document(text: str) -> str:
    """The XML in a text, without what a shell printed around it; its lines keep their numbers."""
    before, begin, rest = text.partition("<")
    return "\n" * before.count("\n") + begin + rest[: rest.rfind(">") + 1] if begin else text
