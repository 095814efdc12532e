"""What distinct table profiles bring to a candidate: learned once, then gathered.

R rows, one for each profile of a table that was learned.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cost_models.compressed_costs import CompressedCosts
from cost_models.fixed_parts import TableAmounts
from cost_models.peak import GRADIENT_COPIES
from cost_models.tables import Tables
from cost_models.workload.table_profile import TableProfile
from planner.certificates.lagrangian import cheapest_options
from planner.formulation.options import enumerate_options
from planner.oracle.base import Base
from planner.oracle.choices import choices_of
from planner.problem.numbers import Bools, Floats, Ints

COPIES = (0.0, float(GRADIENT_COPIES))
"""Copies of a shard's vectors between which those of every candidate are (`Batching.output_copies`)."""


@dataclass(frozen=True)
class ProfileCosts:
    """Arrays over R profiles; the first one is no table, which costs nothing."""

    bounds: Floats
    """[R, pairs, 2] the least that the table costs at the multipliers of each pair, with either number of copies; [R,
    pairs, 1] where no memory has a price, so that it is the same."""
    amounts: Floats
    """[R, amounts] `TableAmounts`."""
    sizes: Ints
    """[R, 4] bytes of weights and optimizer state; numbers of a sample's vectors that the dense part reads; columns of
    one; column units of rows."""
    wider: Ints
    """[R, spaces] block types in each space with more cuts."""
    projection_bytes: Floats
    """[R] on every rank, of the matrix that vectors of a compressed table go through."""
    seconds: Floats
    """[R, L, C] of the choices of an estimate (`planner.oracle.choices`), on each instance of a resource."""
    stored: Floats
    """[R, L, M] their bytes, of all ranks together."""

    def joined(self, more: "ProfileCosts") -> "ProfileCosts":
        """Those of both, one after the other."""
        pairs = zip(vars(self).values(), vars(more).values(), strict=True)
        return ProfileCosts(*(np.concatenate(pair) for pair in pairs))

    def take(self, rows: Sequence[int]) -> "ProfileCosts":
        """Some of the rows."""
        return ProfileCosts(*(values[list(rows)] for values in vars(self).values()))

    def none(self) -> "ProfileCosts":
        """One row of no table."""
        return ProfileCosts(*(np.zeros_like(values[:1]) for values in vars(self).values()))


def summed_over_tables(values: Floats, row: Ints) -> Floats:
    """[n, ...] the values [R, ...] of candidates whose tables are at these rows [n, T], added up."""
    total = np.zeros((len(row), *values.shape[1:]))
    for own in row.T:
        total += values[own]
    return total


class Profiles:
    """The profiles that were learned beside one plan."""

    def __init__(self, base: Base) -> None:
        self._base = base
        self.table_amounts = TableAmounts(base.whole(base.model))
        self._number: list[dict[TableProfile, int]] = [{} for _ in base.workload.tables]
        own = self._costs(base.workload.tables)
        self.costs = own.none()
        self._keep(list(enumerate(base.workload.tables)), own)

    def rows_of(self, profiles: Sequence[Sequence[TableProfile | None]]) -> list[Ints]:
        """[T] the rows of the profiles of each table, which are learned where they are new; 0 for no table."""
        tables = self._base.workload.tables
        new = [
            [each for each in dict.fromkeys(of) if each is not None and each not in known]
            for of, known in zip(profiles, self._number, strict=True)
        ]
        for turn in range(max(map(len, new))):
            changed = [(t, of[turn]) for t, of in enumerate(new) if turn < len(of)]
            variant = list(tables)
            for t, profile in changed:
                variant[t] = profile
            self._keep(changed, self._costs(variant).take([t for t, _ in changed]))
        return [
            np.array([0 if each is None else known[each] for each in of], dtype=np.int64)
            for of, known in zip(profiles, self._number, strict=True)
        ]

    def _keep(self, changed: Sequence[tuple[int, TableProfile]], costs: ProfileCosts) -> None:
        first = len(self.costs.bounds)
        self.costs = self.costs.joined(costs)
        for row, (t, profile) in enumerate(changed, start=first):
            self._number[t][profile] = row

    def _costs(self, tables: Sequence[TableProfile]) -> ProfileCosts:
        """[T] of each of the tables, which are those of the base with other profiles."""
        base = self._base
        model = base.variant(tables)
        wider = [enumerate_options(model, base.policy, None, cuts) for cuts, _ in base.wider]
        counts = [np.bincount(each.table[each.block_option], minlength=len(tables)) for each in wider]
        whole = base.whole(model)
        numbers = [each.feature_count * each.dim for each in tables]
        sizes = [_held_bytes(model), np.array(numbers), whole.tables.dim, base.units(model)]
        none = np.zeros((len(tables), 0), dtype=np.int64)
        return ProfileCosts(
            self._bounds(model),
            self.table_amounts.of_each(whole),  # as base costs are
            np.stack(sizes, axis=1),
            np.stack(counts, axis=1) if counts else none,
            model.projection_bytes_of_each,
            *choices_of(base, model),
        )

    def _bounds(self, model: CompressedCosts) -> Floats:
        """[T, pairs, 2] see `ProfileCosts.bounds`."""
        base, options = self._base, self._base.options(model)
        copies = COPIES if base.is_scarce else COPIES[:1]
        bounds = np.empty((len(model.tables.rows), len(base.pairs), len(copies)))
        usable: Bools | None = None
        for n, copy in enumerate(copies):
            at_copies = model.with_output_copies(copy)
            problem = base.relaxed_problem(at_copies, options)
            usable = np.asarray(problem.allowed.any(axis=0)) if usable is None else usable
            for protocols in model.all_protocols:
                there = at_copies.at_protocols(protocols)
                at = base.relaxed_at(problem, there, options, at_copies.protocols)
                for m, pair in enumerate(base.pairs):
                    if pair.protocols == protocols:
                        bounds[:, m, n] = cheapest_options(at, pair.multipliers, usable, pair.peaks(at))
        return bounds


def _held_bytes(model: CompressedCosts) -> Ints:
    """[T] bytes of weights and optimizer state of each table, with those of its remainder table."""
    columns = model.tables.dim
    held = _stored_bytes(model.tables, np.arange(len(columns)), columns)
    for remainders in model.remainders:
        has_one = np.flatnonzero(remainders.number >= 0)
        held[has_one] += _stored_bytes(remainders.tables, remainders.number[has_one], columns[has_one])
    return held


def _stored_bytes(tables: Tables, table: Ints, columns: Ints) -> Ints:
    """[n] of all rows of so many columns [n] of each `table` [n]."""
    return np.asarray(tables.rows[table] * (tables.row_bytes(table, columns) + tables.row_state_bytes(table, columns)))
