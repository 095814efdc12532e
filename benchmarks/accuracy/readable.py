"""Rows of `measured/` as far as they can be read; which are left out, and why, is said on standard error."""

import errno
import sys
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pandas as pd

_NOTHING_KNOWN: Mapping[str, Container[str]] = MappingProxyType({})


def measured(folder: Path, file: str) -> pd.DataFrame:
    """All rows of a file in `measured/`. Raises FileNotFoundError where it is missing or has no header."""
    path = folder / "measured" / file
    try:
        return pd.read_csv(path)
    except pd.errors.EmptyDataError:
        raise FileNotFoundError(errno.ENOENT, "no header", f"header in {path}") from None


def readable(
    rows: pd.DataFrame,
    name: str,
    numbers: Sequence[str],
    *,
    device: tuple[str, str] | None = None,
    known: Mapping[str, Container[str]] = _NOTHING_KNOWN,
) -> pd.DataFrame:
    """The rows of the data set `name` whose `numbers` are positive and finite, as such; of `device`, a column and
    the model that it has to name, where the data set's coefficients are those of one; with `known` words in columns."""
    rows, reason = rows.copy(), pd.Series("", index=rows.index)
    for column in numbers:
        values = pd.to_numeric(rows[column], errors="coerce").astype(float)
        is_wrong = ~(values > 0) | ~np.isfinite(values)
        reason[is_wrong] = [f"{column} {word!r} is not a positive number" for word in rows[column][is_wrong]]
        rows[column] = values.where(~is_wrong, 1.0)
    if device is not None:
        column, model = device
        is_other = ~rows[column].astype(str).str.contains(model, case=False, regex=False)
        reason[is_other] = [
            f"{column} {word!r}; its coefficients are those of {model}" for word in rows[column][is_other]
        ]
    for column, words in known.items():
        is_unknown = ~rows[column].map(lambda word, words=words: str(word) in words)
        reason[is_unknown] = [f"{column} {word!r} is not known" for word in rows[column][is_unknown]]
    for words, count in reason[reason != ""].value_counts(sort=False).items():
        print(f"{name}: {count} row{'s' * (count > 1)} left out: {words}", file=sys.stderr)
    kept = rows[reason == ""].copy()
    whole = [column for column in numbers if (kept[column] % 1 == 0).all()]
    return kept.astype(dict.fromkeys(whole, int))
