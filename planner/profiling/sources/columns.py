"""Columns of Arrow as lists of ids."""

from typing import TYPE_CHECKING, Any

import numpy as np

from planner.profiling.lists import Ids, Lists

if TYPE_CHECKING:
    import pyarrow as pa


def is_list(kind: "pa.DataType") -> bool:
    """Whether a column holds lists."""
    import pyarrow.types as types

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def is_id(kind: "pa.DataType") -> bool:
    """Whether values of a type can be ids: whole numbers and words."""
    import pyarrow.types as types

    if types.is_dictionary(kind):
        return is_id(kind.value_type)
    return bool(types.is_integer(kind) or types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind))


def is_whole(kind: "pa.DataType") -> bool:
    """Whether values of a type are whole numbers."""
    import pyarrow.types as types

    return is_whole(kind.value_type) if types.is_dictionary(kind) else bool(types.is_integer(kind))


def lists_of(column: Any) -> Lists:
    """A column of lists, or of one id for each sample; where a sample or an id is missing, it has none."""
    import pyarrow.compute as pc

    if is_list(column.type):
        lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64)
        values = pc.list_flatten(column)
        if values.null_count:
            samples = np.repeat(np.arange(len(lengths)), lengths)
            valid = values.is_valid().to_numpy(zero_copy_only=False)
            lengths = np.bincount(samples[valid], minlength=len(lengths)).astype(np.int64)
            values = values.drop_null()
        return Lists(ids_of(values), lengths)
    lengths = column.is_valid().to_numpy(zero_copy_only=False).astype(np.int64)
    return Lists(ids_of(column.drop_null()), lengths)


def ids_of(values: Any) -> Ids:
    """Values without gaps as whole numbers; words by their hash of 64 bits."""
    import pyarrow as pa
    import pyarrow.types as types

    if types.is_integer(values.type):
        numbers: Ids = values.to_numpy(zero_copy_only=False)
        return numbers.view(np.int64) if numbers.dtype == np.uint64 else numbers.astype(np.int64, copy=False)
    if not types.is_dictionary(values.type):
        values = values.dictionary_encode()
    if isinstance(values, pa.ChunkedArray):
        values = values.unify_dictionaries().combine_chunks()
    words = values.dictionary
    codes = values.indices.to_numpy(zero_copy_only=False)
    if types.is_integer(words.type):
        numbers = ids_of(words)
        return np.asarray(numbers[codes])
    return np.asarray(_hash_of_words(words)[codes])


def _hash_of_words(words: Any) -> Ids:
    """A hash of each word that is the same on every machine."""
    from pandas.util import hash_array

    texts = np.array([word if isinstance(word, str) else word.hex() for word in words.to_pylist()], dtype=object)
    return hash_array(texts, categorize=False).view(np.int64)
