"""Candidate models: changes of one workload, as columns of values, and what they make of its tables and dense part.

N candidates, T tables. Few values of a table differ, so each distinct profile is made and checked once.
"""

import fnmatch
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from cost_models.workload.dense_part import Dense
from cost_models.workload.models import Workload
from cost_models.workload.table_profile import TableProfile
from planner.formulation.runtimes import RUNTIMES, Runtime
from planner.problem.numbers import Ints
from topologies.documents import Document, Model, did_you_mean, validate
from topologies.errors import Fault, InputError, shown

TABLE_FIELDS = ("rows", "dim", "pooling_factor", "compressor", "present")
DENSE, DENSE_FIELDS = "dense", ("bottom_mlp", "top_mlp")
WRITTEN = "; widths are written as 512|256|1"
NAME = "name"
"""The column of what candidates are called."""
WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}

KnownProfiles = dict[tuple[object, ...], TableProfile]
"""What tables become, by their names and the fields that change, each with the type and the value that it is given."""
Place = Callable[[int, str], tuple[int, int]]
"""Line and column at which the value of a candidate, by number, stands in a column."""


@dataclass(frozen=True)
class Candidates:
    """Models that differ from a base."""

    base: Workload
    names: tuple[str, ...]
    """[N]"""
    profiles: tuple[tuple[TableProfile | None, ...], ...]
    """[T] the distinct profiles of each table, the base's first; None where it is left out."""
    profile: Ints
    """[N, T] indices into these."""
    dense_parts: tuple[Dense, ...]
    """The distinct dense parts, the base's first."""
    dense: Ints
    """[N] indices into these."""
    source: str = "changes"
    place: Place = field(default=lambda _number, _column: (0, 0), compare=False)

    def __len__(self) -> int:
        return len(self.names)

    def tables(self, number: int) -> tuple[TableProfile, ...]:
        """The tables of a candidate, in the order of the base."""
        own = (of[which] for of, which in zip(self.profiles, self.profile[number].tolist(), strict=True))
        return tuple(each for each in own if each is not None)

    def workload(self, number: int) -> Workload:
        """The model of a candidate. Raises InputError where there is no such model."""
        changed = {"tables": self.tables(number), "dense": self.dense_parts[int(self.dense[number])]}
        kept = {name: getattr(self.base, name) for name in self.base.model_fields_set}
        if self.base.overhead is not None:  # as files state it, with its unit
            kept["overhead"] = f"{self.base.overhead!r}s"
        document = Document({**kept, **changed, "name": f"{self.base.name} {self.names[number]}"}, self.source)
        try:
            return validate(document, Workload)
        except InputError as error:
            raise self.refused(number, error) from None

    def refused(self, number: int, error: InputError) -> InputError:
        """What is wrong with a candidate, at its place."""
        line, column = self.place(number, NAME)
        named = f"candidate {self.names[number]}"
        return InputError(Fault(self.source, line, column, named, fault.message) for fault in error.faults)

    @cached_property
    def is_there(self) -> np.ndarray:
        """[N, T] whether a candidate has the table."""
        there = np.zeros(self.profile.shape, dtype=bool)
        for t, of in enumerate(self.profiles):
            there[:, t] = np.array([each is not None for each in of])[self.profile[:, t]]
        return there


def candidates_of(
    base: Workload,
    columns: Mapping[str, Sequence[Any]],
    source: str = "changes",
    place: Place | None = None,
    runtime: Runtime = "any",
    known: KnownProfiles | None = None,
) -> Candidates:
    """The candidates of columns of N values each: `TABLE.rows`, `TABLE.dim`, `TABLE.pooling_factor`,
    `TABLE.compressor`, `TABLE.present`, where TABLE may be a pattern (`*`), `dense.bottom_mlp` and `dense.top_mlp` with
    widths, `name`.

    None leaves what the base has. Profiles that are made are kept in `known`, for the next candidates of this base and
    runtime. Raises InputError with every column that is unknown or changes what another one changes, every value that
    cannot be, or that the runtime does not have, and every name that two candidates have.
    """
    reader = _Reader(base, source, place or (lambda _number, _column: (0, 0)), runtime, {} if known is None else known)
    return reader.read({str(name).strip(): _values(values) for name, values in columns.items()})


def _values(column: Sequence[Any]) -> list[Any]:
    values = column.tolist() if hasattr(column, "tolist") else list(column)
    return [None if value is None or value != value else value for value in values]  # NaN, as pandas writes nothing


@dataclass
class _Reader:
    base: Workload
    source: str
    place: Place
    runtime: Runtime
    known: KnownProfiles
    faults: list[Fault] = field(default_factory=list)

    def read(self, columns: dict[str, list[Any]]) -> Candidates:
        count = len(next(iter(columns.values()), []))
        if any(len(values) != count for values in columns.values()):
            raise InputError.at(self.source, "columns have different numbers of values; give every candidate one")
        if not count:
            raise InputError.at(self.source, "holds no candidates; write one a line below the header")
        names = self._names(columns.pop(NAME, [None] * count))
        of_table, of_dense = self._by_subject(columns)
        self._end()
        profiles, profile = self._profiles(columns, of_table, count)
        dense_parts, dense = self._dense_parts(columns, of_dense, count)
        self._end()
        found = Candidates(self.base, tuple(names), profiles, profile, dense_parts, dense, self.source, self.place)
        self.faults += _impossible(found)
        self._end()
        return found

    def _names(self, given: Sequence[Any]) -> list[str]:
        """What candidates are called: as given, or by number."""
        names = [str(n + 1) if name is None else str(name) for n, name in enumerate(given)]
        first: dict[str, int] = {}
        for number, name in enumerate(names):
            if first.setdefault(name, number) != number:
                message = f"candidate {first[name] + 1} is called {shown(name)}, too; give each a name of its own"
                self._fault(number, NAME, message)
        return names

    def _end(self) -> None:
        if self.faults:
            raise InputError(dict.fromkeys(self.faults))

    def _fault(self, number: int, column: str, message: str) -> None:
        self.faults.append(Fault(self.source, *self.place(number, column), column, message))

    def _by_subject(self, columns: Mapping[str, object]) -> tuple[dict[int, dict[str, str]], dict[str, str]]:
        """The columns of each table, then of the dense part, by field."""
        of_table: dict[int, dict[str, str]] = {}
        of_dense: dict[str, str] = {}
        names = [table.name for table in self.base.tables]
        number_of = {name: t for t, name in enumerate(names)}
        for column in columns:
            subject, _, name = column.rpartition(".")
            if subject == DENSE and name in DENSE_FIELDS:
                of_dense[name] = column
                continue
            if subject in number_of:
                found = [number_of[subject]]
            else:
                found = [t for t, table in enumerate(names) if fnmatch.fnmatchcase(table, subject)]
            if not found or name not in TABLE_FIELDS:
                self._fault(-1, column, f"unknown column{self._known(column, subject, bool(found))}")
            for t in found if name in TABLE_FIELDS else ():
                if name in of_table.setdefault(t, {}):
                    message = f"changes {name} of {names[t]}, as does {of_table[t][name]}; keep one of them"
                    self._fault(-1, column, message)
                of_table[t][name] = column
        return of_table, of_dense

    def _known(self, column: str, subject: str, is_table: bool) -> str:
        """What a column may be called instead."""
        if is_table:
            return f"; of a table there are {', '.join(TABLE_FIELDS)}"
        if subject == DENSE:
            return f"; of the dense part there are {', '.join(DENSE_FIELDS)}"
        known = [NAME, *(f"{DENSE}.{each}" for each in DENSE_FIELDS)]
        known += [f"{table.name}.{each}" for table in self.base.tables for each in TABLE_FIELDS]
        close = did_you_mean(column, known)
        if close.startswith("; did"):
            return close
        return f"; write TABLE.rows (a name or a pattern), or one of {', '.join(known[:3])}"

    # -- tables ----------------------------------------------------------------------------------------------------

    def _profiles(
        self, columns: Mapping[str, list[Any]], of_table: Mapping[int, Mapping[str, str]], count: int
    ) -> tuple[tuple[tuple[TableProfile | None, ...], ...], Ints]:
        """The distinct profiles of each table, and which one each candidate has."""
        codes = {column: _coded(columns[column]) for of in of_table.values() for column in of.values()}
        found: list[tuple[TableProfile | None, ...]] = []
        profile = np.zeros((count, len(self.base.tables)), dtype=np.int64)
        for t, table in enumerate(self.base.tables):
            if t not in of_table:
                found.append((table,))
                continue
            first, which = _distinct([codes[column] for column in of_table[t].values()])
            variants: dict[TableProfile | None, int] = {table: 0}
            number_of = [self._variant(table, of_table[t], columns, number, variants) for number in first]
            profile[:, t] = np.array(number_of)[which]
            found.append(tuple(variants))
        return tuple(found), profile

    def _variant(
        self,
        table: TableProfile,
        columns_of: Mapping[str, str],
        columns: Mapping[str, list[Any]],
        number: int,
        variants: dict[TableProfile | None, int],
    ) -> int:
        """The index of what a candidate makes of a table, added to those that there are."""
        given = {name: columns[column][number] for name, column in columns_of.items()}
        changes = {name: value for name, value in given.items() if value is not None}
        there = changes.pop("present", True)
        word = there if isinstance(there, bool) else WORDS.get(str(there).strip().lower())
        if word is None:
            message = f"{shown(there)} is neither true nor false; write one of {', '.join(WORDS)}"
            self._fault(number, columns_of["present"], message)
        if word is False:
            if changes:
                column = columns_of[next(iter(changes))]
                self._fault(number, column, f"is of {table.name}, which this candidate leaves out; leave it empty")
            return variants.setdefault(None, len(variants))
        key = (table.name, *((name, type(value), value) for name, value in changes.items()))
        profile = self.known.get(key) or self._profile(table, changes, columns_of, number)
        if profile is None:
            return 0
        self.known[key] = profile
        return variants.setdefault(profile, len(variants))

    def _profile(
        self, table: TableProfile, changes: dict[str, Any], columns_of: Mapping[str, str], number: int
    ) -> TableProfile | None:
        """The table with these changes; None, and its faults known, where there is none."""
        made = self._valid(TableProfile, {**dict(table), **changes}, columns_of, number)
        if made is None:
            return None
        if changes and (fault := self._compressor_fault(made)) is not None:
            column = next(columns_of[name] for name in ("compressor", *changes) if name in changes)
            self._fault(number, column, f"{table.name!r}: {fault}")
            return None
        return table.model_copy(update={name: getattr(made, name) for name in changes})

    def _compressor_fault(self, table: TableProfile) -> str | None:
        """Why a table cannot be made smaller as it is; None where it can."""
        compressor = self.base.compressor_of_profile(table)
        if compressor.kind not in RUNTIMES[self.runtime].compressors:
            lacks = f"{self.runtime} has no tables of two parts, which {compressor} makes of it"
            return f"{lacks}; give it hash:C or dim:D, or begin with a plan for any runtime"
        return compressor.fault(table.rows, table.dim)

    def _valid(
        self, model: type[Model], data: dict[str, Any], columns_of: Mapping[str, str], number: int
    ) -> Model | None:
        """The data as a model; None, and its faults known, where they are none."""
        try:
            return validate(Document(data, self.source), model)
        except InputError as error:
            for fault in error.faults:
                name = fault.path.split(".")[0]
                column = columns_of.get(name) or next(iter(columns_of.values()))
                self._fault(number, column, fault.message + (WRITTEN if model is Dense else ""))
            return None

    # -- the dense part --------------------------------------------------------------------------------------------

    def _dense_parts(
        self, columns: Mapping[str, list[Any]], of_dense: Mapping[str, str], count: int
    ) -> tuple[tuple[Dense, ...], Ints]:
        dense = self.base.dense
        if not of_dense:
            return (dense,), np.zeros(count, dtype=np.int64)
        first, which = _distinct([_coded(columns[column]) for column in of_dense.values()])
        variants: dict[Dense, int] = {dense: 0}
        number_of = []
        for number in first:
            given = {name: columns[column][number] for name, column in of_dense.items()}
            changes = {name: self._widths(value) for name, value in given.items() if value is not None}
            stated = {name: getattr(dense, name) for name in dense.model_fields_set}
            made = self._valid(Dense, {**stated, **changes}, of_dense, number) if changes else dense
            if made is not None and bool(made.bottom_mlp) != bool(dense.bottom_mlp):
                message = (
                    "a bottom_mlp comes or goes, which changes what a step waits for; plan a model that has as much"
                )
                self._fault(number, of_dense["bottom_mlp"], message)
            number_of.append(variants.setdefault(made or dense, len(variants)))
        return tuple(variants), np.array(number_of)[which]

    def _widths(self, value: Any) -> Any:
        """Widths as `512|256|1`, or as a list."""
        if isinstance(value, str):
            return [part.strip() for part in value.split("|")]
        return value if isinstance(value, (list, tuple)) else [value]


def _coded(values: Sequence[Any]) -> Ints:
    """[N] a number for each distinct value."""
    types = set(map(type, values))
    if list in types:
        values = [tuple(value) if isinstance(value, list) else value for value in values]
    if bool in types and types & {int, float}:  # True is not 1
        values = [(type(value), value) for value in values]
    number = {value: n for n, value in enumerate(dict.fromkeys(values))}
    return np.fromiter(map(number.__getitem__, values), dtype=np.int64, count=len(values))


def _distinct(codes: Sequence[Ints]) -> tuple[list[int], Ints]:
    """The first candidate of each combination of codes, and [N] which one each candidate has."""
    joined = codes[0]
    for more in codes[1:]:
        joined = np.unique(joined * (more.max() + 1) + more, return_inverse=True)[1]
    _, first, which = np.unique(joined, return_index=True, return_inverse=True)
    return first.tolist(), which.reshape(-1)


def _impossible(candidates: Candidates) -> Iterator[Fault]:
    """Candidates that are no models, as far as it is seen at once."""
    for number in np.flatnonzero(~candidates.is_there.any(axis=1)).tolist():
        line, column = candidates.place(number, NAME)
        message = "leaves out all tables; a model has at least one"
        yield Fault(candidates.source, line, column, f"candidate {candidates.names[number]}", message)
    if candidates.base.dense.interaction != "dot" or candidates.base.dense.layers:
        return
    widths = np.stack(
        [
            np.array([0 if each is None else each.dim for each in of])[candidates.profile[:, t]]
            for t, of in enumerate(candidates.profiles)
        ],
        axis=1,
    )
    ends = np.array([part.bottom_mlp[-1] if part.bottom_mlp else 0 for part in candidates.dense_parts])
    widths = np.concatenate([widths, ends[candidates.dense][:, None]], axis=1)
    most = widths.max(axis=1)
    least = np.where(widths > 0, widths, most[:, None]).min(axis=1)
    for number in np.flatnonzero(least < most).tolist():
        line, column = candidates.place(number, NAME)
        message = (
            f"interaction 'dot' needs vectors of one width, not of {least[number]} and {most[number]}; change those of"
            " all tables with a column *.dim, and the end of dense.bottom_mlp with them"
        )
        yield Fault(candidates.source, line, column, f"candidate {candidates.names[number]}", message)
