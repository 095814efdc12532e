"""What the steps of candidates take before any table is placed: dense part by dense part."""

from dataclasses import replace

import numpy as np

from cost_models.fixed_parts import FixedParts
from cost_models.step_base import StepBase
from cost_models.workload.models import Workload
from planner.oracle.base import Base
from planner.oracle.candidates import Candidates
from planner.oracle.profiles import Profiles, summed_over_tables
from planner.problem.numbers import Ints
from topologies.errors import ConflictError, InputError


class DenseParts:
    """What steps take of dense parts, computed once for each of other sizes."""

    def __init__(self, base: Base, profiles: Profiles) -> None:
        self._base, self._profiles = base, profiles
        self._known: dict[bytes, StepBase] = {}

    def fixed_parts(self, candidates: Candidates, row: Ints, some: Ints) -> FixedParts:
        """[n] of `some` candidates, whose tables are at these rows [n, T] of the profiles."""
        key = _dense_keys(self._base, self._profiles, candidates, row, some)
        sizes, first, which = np.unique(key, axis=0, return_index=True, return_inverse=True)
        bases = []
        for size, number in zip(sizes, some[first].tolist(), strict=True):
            name = candidates.dense_parts[int(candidates.dense[number])].model_dump_json().encode() + size[1:].tobytes()
            if name not in self._known:
                workload = _dense_workload(self._base, candidates, number)
                self._known[name] = self._profiles.table_amounts.dense_base(workload)
            bases.append(self._known[name])
        costs = self._profiles.costs
        sums, projections = (summed_over_tables(of, row) for of in (costs.amounts, costs.projection_bytes))
        fixed = self._profiles.table_amounts.fixed_parts(bases, which.reshape(-1), sums)
        return replace(fixed, base_bytes=fixed.base_bytes + projections)


def _dense_keys(base: Base, profiles: Profiles, candidates: Candidates, row: Ints, some: Ints) -> Ints:
    """[n, k] what the sizes of the dense part follow from."""
    dense, sizes = candidates.dense[some][:, None], profiles.costs.sizes
    if base.workload.dense.layers:
        return np.concatenate([dense, row], axis=1)
    numbers = sizes[row, 1].sum(axis=1)
    first = np.argmax(row > 0, axis=1)
    width = sizes[np.take_along_axis(row, first[:, None], axis=1)[:, 0], 2]
    return np.concatenate([dense, np.stack([numbers, width], axis=1)], axis=1)


def _dense_workload(base: Base, candidates: Candidates, number: int) -> Workload:
    """A candidate's model, with layers that fit together. Raises InputError where they do not."""
    dense = candidates.dense_parts[int(candidates.dense[number])]
    workload = base.workload.model_copy(update={"tables": candidates.tables(number), "dense": dense})
    workload.__dict__.pop("layers", None)  # which the copy has of the base
    try:
        _ = workload.layers
    except ConflictError as error:
        raise candidates.refused(number, InputError.at("layers", str(error))) from None
    return workload
