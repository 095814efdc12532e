"""The oracle: what candidate models cost beside one that is planned."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from planner.capacity.prices import Bill, PriceSheet, bill
from planner.document.plan import Plan
from planner.formulation.option_space import MOST_UNITS
from planner.oracle.base import Base
from planner.oracle.candidates import NAME, Candidates, KnownProfiles, Place, candidates_of
from planner.oracle.estimates import fixed_steps, memory_costs
from planner.oracle.fixed import DenseParts
from planner.oracle.lower_bounds import relaxed_steps, rounded_down
from planner.oracle.profiles import Profiles
from planner.planning.planning import plan as planned
from planner.problem.numbers import Bools, Floats, Ints
from planner.verification.loading import load_plan
from topologies.errors import Fault, InputError

CELLS = 200_000
"""Candidates x tables that are gathered at once, for the memory that this takes."""


@dataclass(frozen=True)
class Costs:
    """Of N candidates, in their order."""

    candidates: Candidates
    bytes: Ints
    """[N] weights and optimizer state of all tables, each once."""
    lower_bound_s: Floats
    """[N] no plan takes less; infinite where a table fits nowhere."""
    estimate_s: Floats
    """[N] what a plan may take; infinite where the estimate finds no room."""
    bill: Bill
    """What the cluster costs."""
    batch: float
    """Samples of a step."""
    plans: Mapping[int, Plan] = field(default_factory=dict)
    """Candidates that were planned, by number."""

    def order(self) -> Ints:
        """[N] candidates, the shortest estimated step first."""
        return np.lexsort((self.lower_bound_s, self.estimate_s))

    def records(self) -> list[dict[str, Any]]:
        """A row for each candidate, as `planner cost` writes it; None is unknown, or not there."""
        return [self._record(number) for number in range(len(self.bytes))]

    def _record(self, number: int) -> dict[str, Any]:
        estimate, bound = float(self.estimate_s[number]), float(self.lower_bound_s[number])
        samples_per_s = self.batch / estimate if np.isfinite(estimate) else None
        record = {
            "name": self.candidates.names[number],
            "bytes": int(self.bytes[number]),
            "lower_bound_s": bound if np.isfinite(bound) else None,
            "estimate_s": estimate if np.isfinite(estimate) else None,
            "samples_per_s": samples_per_s,
            "usd_per_billion_samples": self.bill.usd_per_billion_samples(samples_per_s),
        }
        if self.plans:
            found = self.plans.get(number)
            objective = None if found is None else found.objective
            record["status"] = None if found is None else found.status
            record["step_s"] = None if objective is None else objective.step_s
            record["planned_bound_s"] = None if objective is None else objective.lower_bound_s
        return record


class Oracle:
    """Costs candidate models beside one plan, with the multipliers of its proof. What it learns of table profiles it
    keeps: a profile takes about ten milliseconds once, and a candidate of known profiles a tenth of one."""

    def __init__(self, plan: Plan | str | Path, prices: PriceSheet | None = None) -> None:
        """`plan` is a plan or its file. Raises InputError for a plan that candidates are not costed beside: one that
        places nothing, of ratings, groups of ranks, towers, robust steps, several kinds of node, a sharded dense part,
        mixed dimensions, a choice of variants, or tables that the policy confines to ranks."""
        self._base = Base(plan if isinstance(plan, Plan) else load_plan(plan))
        self._prices = prices
        self._made: KnownProfiles = {}
        self._profiles = Profiles(self._base)
        self._dense_parts = DenseParts(self._base, self._profiles)
        own = self._cost(self.candidates({NAME: ["base"]}))
        relaxed_s, fixed_s = float(own.relaxed_s[0]), float(own.fixed_s[0])
        self._excess = max(1.0, (self._base.step_s - fixed_s) / (relaxed_s - fixed_s)) if relaxed_s > fixed_s else 1.0

    def candidates(
        self, changes: Mapping[str, Sequence[Any]], source: str = "changes", place: Place | None = None
    ) -> Candidates:
        """The candidates of columns of values; see `candidates_of`. Raises InputError for what no model has."""
        base = self._base
        return candidates_of(base.workload, changes, source, place, base.policy.runtime, self._made)

    def cost(self, changes: Candidates | Mapping[str, Sequence[Any]]) -> Costs:
        """What candidates cost: bytes, a proven lower bound of the step, an estimate of it."""
        candidates = changes if isinstance(changes, Candidates) else self.candidates(changes)
        known = self._cost(candidates)
        return Costs(
            candidates,
            known.bytes,
            known.lower_bound_s,
            self._estimates(known),
            bill(self._base.model.cluster, self._prices),
            candidates.base.batch(self._base.model.topology.world_size),
        )

    def _estimates(self, known: "_Known") -> Floats:
        likely = known.fixed_s + (known.relaxed_s - known.fixed_s) * self._excess + known.memory_s
        least = np.maximum(known.relaxed_s, known.lower_bound_s)  # which floors hold up
        return np.where(known.fits & np.isfinite(known.relaxed_s), np.maximum(likely, least), np.inf)

    def table(self, choices: Mapping[str, Sequence[Any]]) -> dict[str, Floats]:
        """For each table that the columns name, [K] the seconds that each of its K choices adds to the base's step.

        They are those of its bound, which at fixed multipliers is a sum over tables: with probabilities p of the
        choices, as of softmax(theta), a model takes the sum of p_k c_k over tables and choices more than the base, and
        that is linear in p. Raises InputError as `candidates` does.
        """
        tables = self._base.workload.tables
        base_s = self._cost(self.candidates({NAME: ["base"]})).lower_bound_s[0]
        found = {}
        for table in tables:
            own = {name: values for name, values in choices.items() if name.rpartition(".")[0] == table.name}
            if own:
                found[table.name] = self._cost(self.candidates(own)).lower_bound_s - base_s
        unknown = [name for name in choices if name.rpartition(".")[0] not in found]
        if unknown or not choices:
            message = "is of no table; write for example cat_0.dim, with a value for each choice"
            raise InputError([Fault("choices", 0, 0, name, message) for name in unknown or [""]])
        return found

    def exact(
        self, costs: Costs, best: int, *, effort: int = 1, gap: float = 0.0, seed: int = 0, progress: Any = None
    ) -> Costs:
        """The same with the `best` candidates planned: those with the shortest estimate, in their order.

        A search that ends at a `gap` above 0 does not tell models apart whose steps differ by less.
        """
        plans = {}
        for turn, number in enumerate(costs.order()[:best].tolist(), start=1):
            if progress is not None:
                progress(f"planning {costs.candidates.names[number]}, {turn} of {min(best, len(costs.bytes))}")
            plans[number] = planned(
                self._base.model.cluster,
                costs.candidates.workload(number),
                policy=self._base.policy,
                effort=effort,
                gap=gap,
                seed=seed,
                simulate=False,
            )
        return replace(costs, plans=plans)

    def _cost(self, candidates: Candidates) -> "_Known":
        rows = self._profiles.rows_of(candidates.profiles)
        row = np.stack([of[candidates.profile[:, t]] for t, of in enumerate(rows)], axis=1)
        at_once = max(1, CELLS // row.shape[1])
        parts = [
            self._of_some(candidates, row[first : first + at_once], np.arange(first, min(first + at_once, len(row))))
            for first in range(0, len(row), at_once)
        ]
        return _Known(*(np.concatenate(part) for part in zip(*(vars(part).values() for part in parts), strict=True)))

    def _of_some(self, candidates: Candidates, row: Ints, some: Ints) -> "_Known":
        costs = self._profiles.costs
        self._expect_narrow(candidates, row, some)
        fixed = self._dense_parts.fixed_parts(candidates, row, some)
        memory = memory_costs(self._base, costs, row, fixed)
        held = costs.sizes[row, 0].sum(axis=1)
        relaxed_s = relaxed_steps(self._base, costs.bounds, row, fixed, held)
        return _Known(
            bytes=held,
            relaxed_s=relaxed_s,
            lower_bound_s=rounded_down(relaxed_s, fixed),
            fixed_s=fixed_steps(self._base, fixed) - self._base.unwaited_s(held),
            memory_s=memory.seconds,
            fits=memory.fits,
        )

    def _expect_narrow(self, candidates: Candidates, row: Ints, some: Ints) -> None:
        """Raise InputError for candidates whose own option space may have more cuts than bounds are of."""
        costs, tables = self._profiles.costs, (row > 0).sum(axis=1)
        for space, (_, most) in enumerate(self._base.wider):
            is_wider = (tables <= most) & (costs.wider[row, space].sum(axis=1) <= most)
            is_wider &= costs.sizes[row, 3].max(axis=1) <= MOST_UNITS
            for number in some[is_wider].tolist():
                message = (
                    "is so much smaller that there are more ways to cut its tables; plan it, and begin with its plan"
                )
                raise candidates.refused(number, InputError.at("tables", message))


@dataclass(frozen=True)
class _Known:
    """What is known of n candidates, before anything is estimated."""

    bytes: Ints
    relaxed_s: Floats
    """[n] as its relaxation proves, without floors: what is rounded off a bound may be as much as tables take."""
    lower_bound_s: Floats
    fixed_s: Floats
    memory_s: Floats
    fits: Bools
