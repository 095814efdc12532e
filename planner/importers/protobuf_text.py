"""Protocol buffers' text format without a schema: messages with the line and column of every field."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from topologies.documents import Position
from topologies.errors import InputError, shown
from topologies.sources import note

if TYPE_CHECKING:
    from google.protobuf.text_format import ParseError, Tokenizer

Value = TypeVar("Value")
DEEPEST = 100
"""Messages inside each other, as protobuf's own parsers allow."""
CLOSING = {"{": "}", "<": ">"}


@dataclass(frozen=True)
class Scalar:
    """A string, or a word: a number, true or false, a name of an enumeration."""

    text: str
    is_string: bool
    position: Position


@dataclass(frozen=True)
class Message:
    """A message: its fields in their order, each as often as it stands there."""

    source: str
    path: str
    position: Position
    fields: "list[tuple[str, Scalar | Message]]" = field(default_factory=list)

    def fault(self, key: str, message: str) -> InputError:
        """What is wrong with a field, where it stands; with the message, where the field is missing."""
        line, column = next((value.position for name, value in self.fields if name == key), self.position)
        return InputError.at(self.source, message, path=self._inside(key), line=line, column=column)

    def has(self, key: str) -> bool:
        """Whether a field is given."""
        return any(name == key for name, _ in self.fields)

    def messages(self, key: str) -> "list[Message]":
        """The messages of a field. Raises InputError where it holds anything else."""
        found = self._all(key)
        messages = [each for each in found if isinstance(each, Message)]
        if len(messages) < len(found):
            raise self.fault(key, "must be a message { … }")
        return messages

    def message(self, key: str) -> "Message | None":
        """The message of a field that stands once."""
        return self._once(key, self.messages(key))

    def strings(self, key: str) -> list[str]:
        """The strings of a field."""
        return self._texts(key, are_strings=True)

    def string(self, key: str) -> str | None:
        """The string of a field that stands once."""
        return self._once(key, self.strings(key))

    def words(self, key: str) -> list[str]:
        """The words of a field: numbers, truths, enumerations."""
        return self._texts(key, are_strings=False)

    def word(self, key: str) -> str | None:
        """The word of a field that stands once."""
        return self._once(key, self.words(key))

    def whole(self, key: str) -> int | None:
        """The number of a field that stands once, of 0 or more."""
        word = self.word(key)
        if word is None:
            return None
        try:
            number = int(word, 0)
        except ValueError:
            number = -1
        if not 0 <= number < 2**64:
            raise self.fault(key, f"must be a whole number of 0 or more (got {shown(word)})")
        return number

    def flag(self, key: str) -> bool:
        """The truth of a field that stands once; false where it is missing."""
        word = self.word(key)
        if word not in (None, "true", "True", "t", "1", "false", "False", "f", "0"):
            raise self.fault(key, f"must be true or false (got {shown(word)})")
        return word in ("true", "True", "t", "1")

    def _all(self, key: str) -> "list[Scalar | Message]":
        return [value for name, value in self.fields if name == key]

    def _texts(self, key: str, *, are_strings: bool) -> list[str]:
        found = self._all(key)
        texts = [each.text for each in found if isinstance(each, Scalar) and each.is_string is are_strings]
        if len(texts) < len(found):
            raise self.fault(key, "must be a string in quotes" if are_strings else "must be a word without quotes")
        return texts

    def _once(self, key: str, found: list[Value]) -> Value | None:
        if len(found) > 1:
            raise self.fault(key, "stands more than once; keep one")
        return found[0] if found else None

    def _inside(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key


def read_text_format(path: Path) -> Message:
    """The message that a file holds. Raises InputError with the line and column at which it is none."""
    from google.protobuf.text_format import ParseError, Tokenizer

    source = str(path)
    try:
        text = note(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError.at(source, f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError.at(source, "is not UTF-8 text") from None
    root = Message(source, "", (1, 1))
    try:
        tokens = Tokenizer(text.split("\n"))
        _read_fields(tokens, root, "", 0)
    except ParseError as error:
        raise _syntax(source, error) from None
    return root


def _syntax(source: str, error: "ParseError") -> InputError:
    cause = str(error).rpartition(" : ")[2]
    message = f"is not protobuf text: {' '.join(cause.split())}"
    return InputError.at(source, message, line=error.GetLine() or 0, column=error.GetColumn() or 0)


def _read_fields(tokens: "Tokenizer", into: Message, closing: str, depth: int) -> None:
    """Read fields up to the token that closes their message; up to the end where that is empty."""
    if depth > DEEPEST:
        raise tokens.ParseError("Nested too deep.")
    while not (tokens.TryConsume(closing) if closing else tokens.AtEnd()):
        if tokens.AtEnd():
            raise tokens.ParseError(f'Expected "{closing}".')
        at = _position(tokens)
        name = tokens.ConsumeIdentifier()
        has_colon = tokens.TryConsume(":")
        if has_colon and tokens.TryConsume("["):
            while not tokens.TryConsume("]"):
                into.fields.append((name, _read_value(tokens, into, name, at, depth)))
                if not tokens.LookingAt("]"):
                    tokens.Consume(",")
        elif has_colon or tokens.token in CLOSING:
            into.fields.append((name, _read_value(tokens, into, name, at, depth)))
        else:
            raise tokens.ParseError('Expected ":" or "{".')
        if not tokens.TryConsume(","):
            tokens.TryConsume(";")


def _read_value(tokens: "Tokenizer", parent: Message, name: str, at: Position, depth: int) -> Scalar | Message:
    opening = tokens.token
    if opening in CLOSING:
        tokens.NextToken()
        message = Message(parent.source, f"{parent.path}.{name}" if parent.path else name, at)
        _read_fields(tokens, message, CLOSING[opening], depth + 1)
        return message
    if opening[:1] in ('"', "'"):
        return Scalar(tokens.ConsumeString(), True, at)
    if not opening or not (opening[0].isalnum() or opening[0] in "_+-."):
        raise tokens.ParseError("Expected a value.")
    tokens.NextToken()
    return Scalar(opening, False, at)


def _position(tokens: "Tokenizer") -> Position:
    here = tokens.ParseError("")
    return here.GetLine() or 1, here.GetColumn() or 1
