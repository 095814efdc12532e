"""Picking the faster plan or system: of two rows that differ in nothing else, which one is predicted to be faster.

A pair counts once, in whichever order; rows that are predicted alike (repeated runs, another submitter of the same
system) are no pair.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from benchmarks.accuracy.rows import DataSet

APART = 0.05
"""Times that differ by less are within what repeated runs differ by."""


@dataclass(frozen=True)
class Order:
    """How often two rows are put in their measured order."""

    pairs: int
    right: float
    """Share of the pairs."""


@dataclass(frozen=True)
class DataSetOrder:
    """Of one data set: by what is shipped, with the row's group left out, by line rates, by TorchRec's constants."""

    dataset: str
    groups: int
    """Sets of rows that differ in plan or system only."""
    shipped: Order
    apart: Order
    """Of that, the pairs whose measured times are 5 % apart or more."""
    left_out: Order | None
    naive: Order | None
    torchrec: Order | None


def ordered(rows: pd.DataFrame, predicted: pd.Series, apart: float = 0.0) -> Order:
    """The order of all pairs of rows that differ in plan or system only, by some predicted seconds [rows].

    Pairs are those that the shipped prediction tells apart and whose measured times differ by more than `apart`.
    """
    pairs = right = 0
    for _, group in rows[rows.gated.astype(bool) & rows.alike.notna()].groupby("alike"):
        measured, own = group.measured_s.to_numpy(float), group.predicted_s.to_numpy(float)
        other = predicted.loc[group.index].to_numpy(float)
        i, j = np.triu_indices(len(group), 1)
        ratio = np.abs(np.log(measured[i] / measured[j]))
        is_pair = (own[i] != own[j]) & (ratio > np.log1p(apart))
        pairs += int(is_pair.sum())
        right += int(((measured[i] < measured[j]) == (other[i] < other[j]))[is_pair & (other[i] != other[j])].sum())
    return Order(pairs, right / pairs if pairs else float("nan"))


def order_of(dataset: DataSet, rows: pd.DataFrame, held_out: pd.Series | None) -> DataSetOrder | None:
    """That of a data set; None where no two of its rows differ in plan or system only."""
    shipped = ordered(rows, rows.predicted_s)
    if not shipped.pairs:
        return None

    def of(seconds: pd.Series | None) -> Order | None:
        known = seconds is not None and seconds[rows.gated.astype(bool)].notna().all()
        return ordered(rows, seconds) if known else None

    paired = [len(group) for _, group in rows[rows.alike.notna()].groupby("alike")]
    return DataSetOrder(
        dataset.name,
        sum(size > 1 for size in paired),
        shipped,
        ordered(rows, rows.predicted_s, APART),
        of(held_out),
        of(rows.naive_s),
        of(rows.torchrec_s),
    )


HEADER = (
    "data",
    "groups",
    "pairs",
    "right",
    "pairs 5 % apart",
    "right",
    "right, left out",
    "line rate",
    "TorchRec",
)


def table(found: Iterable[DataSetOrder]) -> str:
    """A Markdown table, with all pairs of all data sets in its last line."""
    orders = list(found)
    lines: list[Sequence[str]] = [HEADER, ["---"] * len(HEADER), *map(_line, orders)]
    pairs, apart = (sum(order.pairs for order in column) for column in _columns(orders))
    if pairs:
        right, far = (sum(order.pairs * order.right for order in column if order.pairs) for column in _columns(orders))
        groups = str(sum(order.groups for order in orders))
        lines.append(
            ["all", groups, str(pairs), _percent(right / pairs), str(apart), _percent(far / max(apart, 1)), "", "", ""]
        )
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _columns(orders: Sequence[DataSetOrder]) -> tuple[list[Order], list[Order]]:
    return [order.shipped for order in orders], [order.apart for order in orders]


def _percent(share: float) -> str:
    return "–" if np.isnan(share) else f"{100 * share:.1f} %"


def _line(order: DataSetOrder) -> list[str]:
    others = (order.left_out, order.naive, order.torchrec)
    return [
        order.dataset,
        str(order.groups),
        str(order.shipped.pairs),
        _percent(order.shipped.right),
        str(order.apart.pairs),
        _percent(order.apart.right),
        *("–" if other is None else _percent(other.right) for other in others),
    ]
