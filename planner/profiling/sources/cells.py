"""Cells of text files: lists of ids in one, and what shows that a cell holds something else than an id."""

import re
from typing import Any

from topologies.errors import InputError

_NUMBER = r"-?[0-9]+([.]0*)?"
_SEVERAL = rf"^\s*\[?\s*{_NUMBER}(\s*[|;,^\s]\s*{_NUMBER})+\s*\]?\s*$"
_BRACKETS = r"^\s*\[.*\]\s*$"
_FRACTION = r"^\s*-?[0-9]+[.][0-9]*\s*$"
MOSTLY = 0.5
"""Share of the cells from which on they are taken for what they look like."""


def lists_in(cells: Any, delimiter: str) -> Any:
    """The ids in each cell; brackets around a list and spaces around an id are no part of it, and nothing is no id."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pc.any(pc.starts_with(cells, "[")).as_py():
        cells = pc.utf8_trim(cells, " []")
    lists = pc.split_pattern(cells, delimiter)
    values = (
        pc.utf8_trim_whitespace(lists.values) if pc.any(pc.match_substring(lists.values, " ")).as_py() else lists.values
    )
    empty = pc.equal(values, "")
    if pc.any(empty).as_py():
        values = pc.replace_with_mask(values, empty, pa.scalar(None, values.type))
    return pa.ListArray.from_arrays(lists.offsets, values, mask=lists.is_null() if lists.null_count else None)


def refuse_what_is_no_id(cells: Any, column: str, source: str) -> None:
    """Raise InputError where most of the words of a column are several numbers in one, or numbers with a fraction."""
    import pyarrow.compute as pc
    import pyarrow.types as types

    words = (pc.list_flatten(cells) if types.is_list(cells.type) else cells).drop_null()
    for pattern, remedy in (
        (_SEVERAL, "name what separates the ids of a list with --separator"),
        (_BRACKETS, "name what separates the ids of a list with --separator"),
        (_FRACTION, "ids are whole numbers or words; write them without a fraction"),
    ):
        found = pc.match_substring_regex(words, pattern)
        if len(words) and (pc.sum(found).as_py() or 0) > MOSTLY * len(words):
            example = re.sub(r"\s+", " ", words.filter(found)[0].as_py())[:40]
            message = f"holds {example!r}: {remedy}; if this is one id, name the column with --words"
            raise InputError.at(source, message, path=column)
