"""Counts as the columns of a table profile, with what they cannot say."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.profiling.curves import access_curve, share_of_reads, steepness
from planner.profiling.statistics import TableStatistics
from topologies.sentences import counted

HASHED = 1 << 31
"""Ids from here on are hashes and not rows, if few of those below the largest were seen."""
SPARSE = 100
"""Rows for each distinct id from which on few of them were seen."""
STEEP = 0.01
"""Steepness of a curve from which on its log is too short."""
SHORT = "the log is short: curves are steeper than the truth, by this share of the reads or more; count more samples"
QUANTILES = (0.5, 0.9, 0.99)
DIGITS = 6
MOST_NAMED = 8


@dataclass(frozen=True)
class MeasuredTable:
    """One table, measured."""

    name: str
    columns: tuple[str, ...]
    """The features that feed it."""
    stated: Mapping[str, Any]
    """What the user says of it, under the names of a table profile."""
    statistics: TableStatistics
    rows: int
    rows_basis: str
    warnings: Mapping[str, str]
    """What the data cannot say: sentences that hold for any table, and the figure of this one."""

    def profile(self) -> dict[str, Any]:
        """The fields of a `TableProfile`; what is stated stays."""
        batches = self.statistics.batches
        fields: dict[str, Any] = {"rows": self.rows, **self._pooling()}
        if len(self.columns) > 1:
            fields["features"] = self.columns
        fields["access_cdf"] = access_curve(self.statistics.rows, self.rows)
        if batches.ids:
            fields["unique_fraction"] = _rounded(batches.distinct / batches.ids)
            fields["unique_fraction_batch"] = batches.samples // batches.batches
        if batches.sessions and batches.samples > batches.sessions:
            fields["samples_per_session"] = _rounded(batches.samples / batches.sessions)
            fields["duplicate_share"] = _rounded(batches.repeated / max(batches.followers, 1))
            if not fields["duplicate_share"]:
                del fields["samples_per_session"], fields["duplicate_share"]
        return {"name": self.name, **fields, **self.stated}

    def _pooling(self) -> dict[str, float]:
        lengths = self.statistics.lengths
        if lengths is None:
            return {}
        mean = float((lengths.values * lengths.counts).sum()) / lengths.total
        spread = float((lengths.counts * (lengths.values - mean) ** 2).sum()) / lengths.total
        return {"pooling_factor": _rounded(mean), "pooling_std": _rounded(np.sqrt(spread))}

    def record(self) -> dict[str, str | int | float | None]:
        """Its figures: ids per sample, share of distinct ids in a batch, share of reads of the hottest rows."""
        fields = self.profile()
        return {
            "table": self.name,
            "rows": self.rows,
            "rows_are": self.rows_basis,
            "ids": fields.get("pooling_factor"),
            "spread": fields.get("pooling_std"),
            "distinct": fields.get("unique_fraction"),
            "top_1%": self.hottest(0.01),
            "top_10%": self.hottest(0.1),
        }

    def lengths_at(self) -> dict[str, int]:
        """Ids of a sample: the quantiles, and the most; empty where only reads were counted."""
        lengths = self.statistics.lengths
        if lengths is None:
            return {}
        below = np.cumsum(lengths.counts) / max(lengths.total, 1)
        at = {f"p{share * 100:.0f}": int(lengths.values[np.searchsorted(below, share)]) for share in QUANTILES}
        return {**at, "most": int(lengths.values[-1])}

    @property
    def is_short(self) -> bool:
        """Whether the log is too short for the table's curve."""
        return SHORT in self.warnings

    def hottest(self, share: float) -> float:
        """Share of the reads that the hottest rows take, `share` of the table's."""
        return float(share_of_reads(self.statistics.rows, np.array([share * self.rows]))[0])


def measured(
    name: str, columns: tuple[str, ...], statistics: TableStatistics, stated: Mapping[str, Any], batch: int
) -> MeasuredTable | None:
    """A table from its counts; None where it has no ids."""
    rows_read, largest = statistics.rows, statistics.largest
    if not rows_read.total:
        return None
    distinct = max(round(rows_read.distinct), 1)
    are_few = largest >= SPARSE * distinct
    are_rows = statistics.are_numbers and statistics.least >= 0 and not (are_few and largest >= HASHED)
    warnings: dict[str, str] = {}
    if (rows := stated.get("rows")) is not None:
        basis = "stated"
        if statistics.are_numbers and (largest >= int(rows) or statistics.least < 0):
            warnings["ids beyond the stated rows, taken to be spread over these evenly"] = f"{largest:,}"
    elif are_rows:
        rows, basis = largest + 1, "largest id + 1"
        if are_few:
            warnings["few of the ids up to the largest were seen; state the rows if ids are hashes"] = (
                f"{distinct / rows:.2%}"
            )
    else:
        rows, basis = distinct, "distinct ids"
        warnings["ids are no row numbers: rows are the distinct ids seen; state how many there are"] = f"{rows:,}"
    if statistics.are_numbers and -HASHED < statistics.least < 0:
        warnings["ids below 0 are counted as ids; leave out what pads the lists"] = f"{statistics.least:,}"
    if (error := steepness(rows_read)) > STEEP:
        warnings[SHORT] = f"{error:.0%}"
    if statistics.lengths is not None and not statistics.batches.batches:
        cause = f"no whole batch of {counted(batch, 'sample')}" if batch else "these counts have no batches"
        warnings[f"{cause}: unique_fraction is left out" + ("; state --batch" if batch else "")] = ""
    return MeasuredTable(name, columns, stated, statistics, int(rows), basis, warnings)


def warnings_of(tables: Sequence[MeasuredTable]) -> list[str]:
    """The warnings of all tables, each sentence once with the tables that it is about."""
    about: dict[str, list[str]] = {}
    for table in tables:
        for sentence, figure in table.warnings.items():
            about.setdefault(sentence, []).append(f"{table.name} ({figure})" if figure else table.name)
    return [f"{sentence}: {shortened(names)}" for sentence, names in about.items()]


def shortened(names: Sequence[str]) -> str:
    """The first of some names, and how many more there are."""
    more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
