"""The Lagrangian dual of one branch node, solved by Kelley's cutting planes (J. SIAM 8(4), 1960)."""

import numpy as np

from planner.certificates.block_costs import NodeChoice
from planner.certificates.branch_nodes import BranchingRules, NodeState
from planner.certificates.node_weights import NodeMultipliers
from planner.problem.numbers import Floats, Ints
from planner.solvers.bound.column_reduction import ReducedProblem
from planner.solvers.bound.programs import LinearProgram, optimum

MOST_ITERATIONS = 20_000
"""Simplex iterations of a branch node's program, which takes some hundreds where the solver does not cycle."""
_FIRST_BOX, _LARGEST_BOX = 8.0, 1e6


class NodeDual:
    """The program over the multipliers of a branch node: equal ranks share them. Its unknowns are shares of a stage's
    weight, multipliers of the whole free memory, and of each stage the share of the weight that counts the seconds it
    takes anyway: all of it where no column of the stage is left.
    """

    def __init__(self, rules: BranchingRules, state: NodeState, reduced: ReducedProblem) -> None:
        problem = rules.problem
        self._problem, self._reduced, self._labels = problem, reduced, state.labels
        self._ranks = np.unique(state.labels, return_index=True)[1]
        self._column_slot, columns = _slots(problem.resource_of_rank, state.labels, reduced.columns)
        self._pool_slot, pools = _slots(problem.pool_of_rank, state.labels, reduced.tiers)
        self._columns = len(columns)
        stage = np.array([problem.stage_of_column[row] for row, _ in columns])
        count = np.array([float(len(ranks)) for _, ranks in columns])
        self._count = np.concatenate([count, np.array([float(len(ranks)) for _, ranks in pools])])
        load = np.array([state.load[row, ranks].sum() for row, ranks in columns])
        free = np.array([max(float(np.maximum(state.free[row, ranks], 0.0).sum()), 0.0) for row, ranks in pools])
        self._load, self._free = load, free
        largest = [max(float(of_pool.max(initial=0.0)), 2.0**20) for of_pool in problem.pool_capacity]
        self._unit_bytes = np.array([largest[row] * len(ranks) for row, ranks in pools])
        self._constant = float(problem.stage_constants.sum())
        self._scale = 1.0 / rules.threshold_s
        used = (rules.problem.bytes_fixed + rules.problem.bytes_by_rows).max(axis=(0, 1)) > 0
        self._program = program = LinearProgram(maximize=True)
        (self._bound,) = program.add_variables(1, lower=-np.inf, is_counted=True)
        self._shares = program.add_variables(len(columns))
        boxes = [_FIRST_BOX if used[row] else 0.0 for row, _ in pools]
        self._multipliers = [variable for box in boxes for variable in program.add_variables(1, upper=box)]
        self._idle = program.add_variables(len(state.stage_seconds))
        self._idle_s: list[float] = (state.stage_seconds * self._scale).tolist()
        for s in range(len(self._idle)):
            members = [self._idle[s], *(self._shares[i] for i in np.flatnonzero(stage == s))]
            program.add_row(members, np.ones(len(members)), 1.0, 1.0)
        self._stage = stage

    def shares_of(self, multipliers: NodeMultipliers) -> Floats:
        """[slots] of given multipliers, where equal ranks may have had unlike ones."""
        values = np.zeros(len(self._count))
        for table, slot, at in (
            (multipliers.weight[self._reduced.columns], self._column_slot, 0),
            (multipliers.byte[self._reduced.tiers], self._pool_slot, self._columns),
        ):
            seen: dict[int, list[float]] = {}
            for row in range(len(slot)):
                for rank in range(slot.shape[1]):
                    seen.setdefault(int(slot[row, rank]), []).append(float(table[row, rank]))
            for number, weights in seen.items():
                values[at + number] = np.mean(weights)
        values *= self._count
        values[self._columns :] *= self._unit_bytes / self._count[self._columns :]
        shares = np.bincount(self._stage, weights=values[: self._columns], minlength=len(self._idle))
        return np.concatenate([values, np.maximum(1.0 - shares, 0.0)])

    def multipliers(self, values: Floats) -> NodeMultipliers:
        """The multipliers of every rank; those of a stage sum to one exactly, whatever the solver's tolerance."""
        problem = self._problem
        share, multiplier, idle = np.split(np.maximum(values, 0.0), [self._columns, len(self._count)])
        total = np.bincount(self._stage, weights=share, minlength=len(idle)) + idle
        weight = share / total[self._stage] / self._count[: self._columns]
        of_rank, of_pool = (np.zeros(instances.shape) for instances in (problem.resource_of_rank, problem.pool_of_rank))
        of_rank[self._reduced.columns] = weight[self._column_slot]
        of_pool[self._reduced.tiers] = (multiplier / self._unit_bytes)[self._pool_slot]
        return NodeMultipliers(of_rank, of_pool)

    def add_cut(self, choice: NodeChoice) -> None:
        """Add the cut of a choice."""
        seconds, size = self._load.copy(), -self._free.copy()
        for slot, column in zip(self._column_slot, self._reduced.columns.tolist(), strict=True):
            np.add.at(seconds, slot[self._ranks], choice.seconds[:, column])
        for slot, tier in zip(self._pool_slot, self._reduced.tiers.tolist(), strict=True):
            np.add.at(size, slot[self._ranks], choice.size[:, tier])
        seconds = seconds / self._count[: self._columns] * self._scale
        size = size / self._unit_bytes
        variables = [self._bound, *self._shares, *self._multipliers, *self._idle]
        cut = np.concatenate([[-1.0], seconds, size, self._idle_s])
        self._program.add_row(variables, cut, -self._constant * self._scale, np.inf)

    def solve(self) -> tuple[Floats, float] | None:
        """The best point under the cuts, and the value there: no bound of the branch node can be above it.

        None where the solver gives up.
        """
        program = self._program
        while True:
            found = optimum(program, MOST_ITERATIONS)
            if found is None:
                return None
            values = found.values
            pressed = [
                price
                for price in self._multipliers
                if 0 < program.upper_of(price) < _LARGEST_BOX and values[price] >= 0.999 * program.upper_of(price)
            ]
            for price in pressed:
                program.limit(price, program.upper_of(price) * 10)
            if not pressed:
                break
        point = values[[*self._shares, *self._multipliers, *self._idle]]
        point[self._columns : len(self._count)] /= self._scale
        return point, float(values[self._bound]) / self._scale


def _slots(instances: Ints, labels: Ints, rows: Ints) -> tuple[Ints, list[tuple[int, Ints]]]:
    """Instances that equal ranks use, of n rows: (number [n, W], row and first ranks of the instances of each)."""
    slot = np.zeros((len(rows), len(labels)), dtype=np.int64)
    known: dict[tuple[int, bytes], int] = {}
    members: list[tuple[int, list[int]]] = []
    for n, row in enumerate(rows.tolist()):
        instance = instances[row]
        order = np.argsort(instance, kind="stable")
        for ranks in np.split(order, np.flatnonzero(np.diff(instance[order])) + 1):
            key = row, np.sort(labels[ranks]).tobytes()
            number = known.setdefault(key, len(known))
            if number == len(members):
                members.append((row, []))
            members[number][1].append(int(ranks[0]))
            slot[n, ranks] = number
    return slot, [(row, np.array(firsts)) for row, firsts in members]
