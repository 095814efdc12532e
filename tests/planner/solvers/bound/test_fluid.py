"""The fluid bound: equal to the linear program it is the dual of, and valid whatever its prices."""

from dataclasses import replace

import numpy as np
import pytest
from ortools.math_opt.python import mathopt

from planner.certificates.multipliers import Multipliers
from planner.problem.arrays import Problem, row_shares
from planner.problem.extents import NODE, RANK, WORLD
from planner.solvers.bound.cutting_planes import solve_relaxation
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.infeasible import shortage
from tests.oracles.instances import tiny_instance


def roomy(seed: int) -> Problem | None:
    """The problem of a tiny instance; None where even the relaxation does not fit."""
    problem = tiny_instance(seed).problem
    return problem if shortage(Fluid(problem)) is None else None


class FluidProgram:
    """The relaxation written out: shares of options, blocks spread over kinds, one pool per kind and resource.

    The blocks of a fixed option are taken in proportion to its share. Those of a free one are taken in any amounts
    whose units add up to its share of the whole.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._model = mathopt.Model()
        self._option = [self._model.add_variable(lb=0.0, ub=1.0) for _ in problem.option_table]
        kinds = range(problem.kinds)
        self._load = [[self._base(k, c) for c in range(len(problem.stage_of_column))] for k in kinds]
        base = problem.base_bytes * problem.ranks_of_kind[:, None]
        self._size = [[mathopt.LinearExpression(float(base[k, m])) for m in range(len(base[k]))] for k in kinds]
        for table in range(problem.tables):
            own = np.flatnonzero(problem.option_table == table)
            self._model.add_linear_constraint(mathopt.fast_sum([self._option[o] for o in own]) == 1.0)
        amounts = [self._amount(block) for block in range(len(problem.block_option))]
        for block, amount in enumerate(amounts):
            self._add_block(block, amount)
        for option in np.flatnonzero(problem.option_units):
            own = np.flatnonzero(problem.block_option == option)
            units = mathopt.fast_sum([int(problem.block_units[block]) * amounts[block] for block in own])
            self._model.add_linear_constraint(units == int(problem.option_units[option]) * self._option[option])

    def optimum_s(self) -> float:
        problem = self._problem
        stages = [self._model.add_variable(lb=0.0) for _ in problem.stage_constants]
        for c, stage in enumerate(problem.stage_of_column):
            for ranks, total in self._pools_of(c):
                instances = len(np.unique(problem.resource_of_rank[c][ranks]))
                self._model.add_linear_constraint(total <= instances * stages[stage])
        for k in range(problem.kinds):
            ranks = problem.kind_of_rank == k
            for m, pool in enumerate(problem.pool_of_rank):
                capacity = float(problem.pool_capacity[m][np.unique(pool[ranks])].sum())
                unit = max(capacity, 1.0)
                self._model.add_linear_constraint(self._size[k][m] * (1 / unit) <= capacity / unit)
        self._model.minimize(mathopt.fast_sum(stages))
        result = mathopt.solve(self._model, mathopt.SolverType.GLOP)
        assert result.termination.reason is mathopt.TerminationReason.OPTIMAL
        return result.objective_value() + float(problem.stage_constants.sum())

    def _base(self, kind: int, column: int) -> mathopt.LinearExpression:
        seconds = float(self._problem.base_loads[kind, column] * self._problem.ranks_of_kind[kind])
        return mathopt.LinearExpression(seconds)

    def _pools_of(self, column: int) -> list[tuple[np.ndarray, mathopt.LinearExpression]]:
        """(ranks, load) of each pool: one per kind, or one in all where kinds share an instance."""
        problem, instance = self._problem, self._problem.resource_of_rank[column]
        of_kind = [problem.kind_of_rank == k for k in range(problem.kinds)]
        if sum(len(np.unique(instance[ranks])) for ranks in of_kind) > len(np.unique(instance)):
            return [(np.ones(problem.world, dtype=bool), sum(self._load[k][column] for k in range(problem.kinds)))]
        return [(ranks, self._load[k][column]) for k, ranks in enumerate(of_kind)]

    def _amount(self, block: int) -> mathopt.LinearBase:
        """How often the block is taken."""
        problem = self._problem
        if problem.option_units[problem.block_option[block]]:
            return self._model.add_variable(lb=0.0)
        return int(problem.block_count[block]) * self._option[problem.block_option[block]]

    def _add_block(self, block: int, amount: mathopt.LinearBase) -> None:
        problem = self._problem
        for k in range(problem.kinds):
            everywhere = problem.everywhere[k, block] * problem.ranks_of_kind[k]
            for c in np.flatnonzero(everywhere):
                self._load[k][c] += float(everywhere[c]) * amount
        if problem.block_extent[block] == WORLD:
            if not problem.allowed[:, block].all():
                self._model.add_linear_constraint(amount == 0.0)
            rows = int(problem.table_rows[problem.option_table[problem.block_option[block]]])
            held = np.ones(problem.world) if problem.block_replicated[block] else row_shares(rows, problem.world)
            for k in range(problem.kinds):
                of_kind = problem.kind_of_rank == k
                self._charge(block, k, amount, float(of_kind.sum()), float(held[of_kind].sum()))
            return
        parts = []
        for k in np.flatnonzero(problem.allowed[:, block]).tolist():
            part = self._model.add_variable(lb=0.0)
            parts.append(part)
            ranks = {RANK: 1, NODE: int(problem.node_ranks_of_kind[k])}[int(problem.block_extent[block])]
            self._charge(block, k, part, float(ranks), 1.0)
        self._model.add_linear_constraint(mathopt.fast_sum(parts) == amount)

    def _charge(self, block: int, k: int, amount: mathopt.LinearBase, ranks: float, rows: float) -> None:
        problem = self._problem
        seconds = problem.fixed[k, block] * ranks + problem.by_rows[k, block] * rows
        size = problem.bytes_fixed[k, block] * ranks + problem.bytes_by_rows[k, block] * rows
        for c in np.flatnonzero(seconds):
            self._load[k][c] += float(seconds[c]) * amount
        for m in np.flatnonzero(size):
            self._size[k][m] += float(size[m]) * amount


def test_the_bound_is_the_optimum_of_the_linear_program() -> None:
    """Within 1e-4 and never above it, on clusters of one and of two kinds, with ample and with tight memory."""
    compared = {1: 0, 2: 0}
    for seed in range(60):
        if (problem := roomy(seed)) is None:
            continue
        expected = FluidProgram(problem).optimum_s()
        found = solve_relaxation(Fluid(problem)).bound_s
        assert found <= expected * (1 + 1e-6), seed
        assert found == pytest.approx(expected, rel=1e-4), seed
        compared[problem.kinds] += 1
    assert min(compared.values()) >= 10


def test_the_best_prices_prove_the_bound_again() -> None:
    """The prices of a solution give its bound by plain arithmetic, and their weights sum to one per stage."""
    for problem in filter(None, map(roomy, range(0, 36, 3))):
        fluid = Fluid(problem)
        solution = solve_relaxation(fluid)
        assert fluid.bound(solution.multipliers)[0] == pytest.approx(solution.bound_s, rel=1e-12)
        own = ~fluid.shared_columns | (np.arange(problem.kinds)[:, None] == 0)
        total = (solution.multipliers.weight * fluid.instances * own).sum(axis=0)
        for stage in np.unique(problem.stage_of_column):
            assert total[problem.stage_of_column == stage].sum() == pytest.approx(1.0)
        assert solution.shares.sum() == pytest.approx(1.0)
        assert (solution.multipliers.byte >= 0).all()


def test_prices_of_nothing_cost_nothing() -> None:
    """Without any price the bound is what the base and the constants alone prove, never more than the best bound."""
    problem = tiny_instance(0).problem
    fluid = Fluid(problem)
    nothing = Multipliers(np.zeros_like(fluid.instances), np.zeros_like(fluid.capacity))
    value, _ = fluid.bound(nothing)
    assert value == pytest.approx(problem.stage_constants.sum())
    assert value <= solve_relaxation(fluid).bound_s


def test_a_table_without_options_costs_infinitely_much() -> None:
    """Wherever it stands among the others."""
    problem = tiny_instance(6).problem
    fluid = Fluid(problem)
    multipliers = Multipliers(np.zeros_like(fluid.instances), np.zeros_like(fluid.capacity))
    for missing in range(problem.tables):
        shifted = problem.option_table + (problem.option_table >= missing)
        rows = np.insert(problem.table_rows, missing, 1)
        sets = np.zeros_like(rows)
        cheapest, choices = Fluid(replace(problem, option_table=shifted, table_rows=rows, table_rank_set=sets)).price(
            multipliers
        )
        assert np.isinf(cheapest[missing])
        others = np.arange(len(rows)) != missing
        before, picks_before = fluid.price(multipliers)
        assert cheapest[others] == pytest.approx(before)
        assert (choices[others] == picks_before).all()


def test_less_memory_never_shortens_the_relaxed_step() -> None:
    """With headroom the fluid optimum is no better than without, and worse where memory is what binds."""
    worse = 0
    for seed in range(90):
        problem = roomy(seed)
        if problem is None or shortage(Fluid(problem), headroom=0.9) is not None:
            continue
        fluid = Fluid(problem)
        full, less = solve_relaxation(fluid).bound_s, solve_relaxation(fluid, headroom=0.9).bound_s
        assert less >= full * (1 - 1e-4), seed
        worse += less > full * (1 + 1e-3)
    assert worse


def random_prices(fluid: Fluid, random: np.random.Generator) -> Multipliers:
    """Any prices at all: what they are worth does not matter to a sum."""
    return Multipliers(random.random(fluid.instances.shape), random.random(fluid.capacity.shape) * 1e-9)


def test_values_and_usage_of_a_pick_agree() -> None:
    """A pick is worth what its blocks use, priced: for fixed options, and for free ones in fractions."""
    for seed in range(40):
        problem = tiny_instance(seed).problem
        fluid = Fluid(problem)
        multipliers = random_prices(fluid, np.random.default_rng(seed))
        values = fluid.choice_values(multipliers)
        named = np.flatnonzero(np.isfinite(values))
        base = (fluid.usage(multipliers, named[:0])[0] * multipliers.weight).sum()
        for choice in named.tolist():
            seconds, size = fluid.usage(multipliers, np.array([choice]))
            worth = (seconds * multipliers.weight).sum() - base + (size * multipliers.byte).sum()
            assert worth == pytest.approx(values[choice], rel=1e-9), (seed, choice)


def test_blocks_that_are_not_usable_are_not_picked() -> None:
    """Free options are picked by another width; fixed ones fall away whole."""
    for seed in range(40):
        problem = tiny_instance(seed).problem
        fluid, random = Fluid(problem), np.random.default_rng(seed)
        multipliers = random_prices(fluid, random)
        usable = random.random(len(problem.block_option)) < 0.6
        cheapest, choices = fluid.price(multipliers, usable)
        everything = fluid.choice_values(multipliers)
        for table in range(problem.tables):
            own = range(*problem.table_block_start[table : table + 2])
            fixed = [b for b in own if not problem.block_is_splittable[b]]
            broken = {int(problem.block_option[b]) for b in fixed if not usable[b]}
            left = [b for b in own if usable[b] and int(problem.block_option[b]) not in broken]
            assert cheapest[table] == min((everything[b] for b in left), default=np.inf)
            if np.isfinite(cheapest[table]):
                assert choices[table] in left


class ImpreciseSolver:
    """GLOP with a warm start that always ends as IMPRECISE, as it does now and then."""

    def __init__(self, *given: object) -> None:
        self._solver = INCREMENTAL_SOLVER(*given)

    def solve(self, *, params: mathopt.SolveParameters) -> mathopt.SolveResult:
        result = self._solver.solve(params=params)
        result.termination.reason = mathopt.TerminationReason.IMPRECISE
        return result


INCREMENTAL_SOLVER = mathopt.IncrementalSolver


def test_an_imprecise_linear_program_is_solved_afresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is the same without a single precise warm start."""
    for problem in list(filter(None, map(roomy, range(12))))[:5]:
        expected = solve_relaxation(Fluid(problem)).bound_s
        with monkeypatch.context() as patched:
            patched.setattr(mathopt, "IncrementalSolver", ImpreciseSolver)
            assert solve_relaxation(Fluid(problem)).bound_s == pytest.approx(expected, rel=1e-4)
