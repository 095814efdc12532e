"""Table compressors: fewer rows, narrower rows, or two small tables in the place of a large one.

* `hash:C`: C ids share a row (Weinberger et al., arXiv:0902.2206): ceil(rows / C) rows.
* `qr:C`, `qr:C:add`, `qr:C:concat`: row id // C of a quotient table of ceil(rows / C) rows, and row id % C of a
  remainder table of C rows, whose pooled vectors are multiplied (unless another word is given), added or joined from
  halves (Shi et al., compositional embeddings, arXiv:1909.02107).
* `dim:D`: vectors of D numbers, projected to the table's width by a matrix of its own (Ginart et al., mixed dimension
  embeddings, arXiv:1909.11810).
"""

import re
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from topologies.errors import shown

Kind = Literal["none", "hash", "qr", "remainder", "dim"]
"""`remainder` is the second table of `qr`, which no word names."""
Combine = Literal["multiply", "add", "concat"]
ROW_MULTIPLE = 4
"""Columns to whole ones of which rows are padded: FBGEMM's vector width."""
_WORD = re.compile(r"(none)|(hash|dim):(\d{1,13})|qr:(\d{1,13})(?::(multiply|add|concat))?")


@dataclass(frozen=True)
class Compressor:
    """How a table is made smaller; written as one word."""

    kind: Kind
    number: int = 1
    """Ids that share a row (of the quotient table), or numbers of a vector."""
    combine: Combine = "multiply"
    """What becomes of the vectors of quotient and remainder."""

    @classmethod
    def parse(cls, word: object) -> "Compressor":
        """The compressor that a word names. Raises ValueError for any other."""
        if isinstance(word, Compressor):
            return word
        found = _WORD.fullmatch(word.strip()) if isinstance(word, str) else None
        if found is None:
            raise ValueError(f"{shown(word)} is no compressor; write for example hash:4, qr:4:multiply, dim:8 or none")
        if found[1]:
            return NO_COMPRESSOR
        kind, number = found[2] or "qr", int(found[3] or found[4])
        if number < (1 if kind == "dim" else 2):
            raise ValueError(f"{word}: a {'vector has a number' if kind == 'dim' else 'row is shared by ids'} at least")
        return cls(kind, number, found[5] or "multiply")  # type: ignore[arg-type]

    def __str__(self) -> str:
        if self.kind == "none":
            return "none"
        return f"{self.kind}:{self.number}" + (f":{self.combine}" if self.kind == "qr" else "")

    @property
    def has_two_parts(self) -> bool:
        """Whether a remainder table stands beside the rows."""
        return self.kind == "qr"

    def stored_rows(self, rows: int) -> int:
        """Rows that are held of a table with so many ids; those of its quotient table."""
        if self.kind == "remainder":
            return self.number
        return -(-rows // self.number) if self.kind in ("hash", "qr") else rows

    def exact_dim(self, dim: int) -> int:
        """Numbers of a held row, of a table whose vectors have `dim`."""
        if self.kind == "dim":
            return self.number
        return dim // 2 if self.kind == "qr" and self.combine == "concat" else dim

    def stored_dim(self, dim: int) -> int:
        """The same in whole columns of the kernels, the rest of which is padding."""
        return -(-self.exact_dim(dim) // ROW_MULTIPLE) * ROW_MULTIPLE

    def parameters(self, rows: int, dim: int) -> int:
        """Numbers that are trained of a table of so many ids and columns: rows without padding, and a projection."""
        width = self.exact_dim(dim)
        held = self.stored_rows(rows) + (self.number if self.has_two_parts else 0)
        return held * width + self.projected(dim)

    def projected(self, dim: int) -> int:
        """Numbers of the matrix that brings vectors to `dim` columns; 0 where there is none."""
        return self.number * dim if self.kind == "dim" else 0

    def fault(self, rows: int, dim: int) -> str | None:
        """Why a table of so many rows and columns cannot have it; None where it can."""
        if self.kind == "dim" and self.number >= dim:
            return f"{self} is no fewer than the {dim} columns of the table"
        if self.kind in ("hash", "qr") and self.number > rows:
            return f"{self} joins more ids than the {rows:,} of the table"
        if self.combine == "concat" and dim % (2 * ROW_MULTIPLE):
            return f"{self} joins two halves, which are multiples of {ROW_MULTIPLE} columns; {dim} has no such halves"
        return None


NO_COMPRESSOR = Compressor("none")
Word = Annotated[
    Compressor,
    BeforeValidator(Compressor.parse),
    PlainSerializer(str, return_type=str),
    WithJsonSchema({"type": "string", "examples": ["hash:4", "qr:4:multiply", "dim:8", "none"]}),
]
