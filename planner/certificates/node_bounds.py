"""The least that the plans of a branch node take, by multipliers: undecided tables cost their cheapest option where it
may be.

This is the Lagrangian dual function of the node. Every rank has weights and multipliers of its own; equal ranks share
them and are priced once. A splittable option is tiled by whole blocks (`planner.certificates.tilings`).
"""

import numpy as np

from planner.certificates.block_costs import CheapestBlocks, NodeBlockCosts, NodeChoice
from planner.certificates.branch_nodes import BranchingRules, NodeState
from planner.certificates.node_weights import NodeMultipliers
from planner.certificates.remaining_parts import RemainingParts
from planner.certificates.tilings import OptionTilings, option_tilings
from planner.problem.numbers import Bools, Ints
from planner.problem.products import product
from planner.problem.rounding import ROUNDING


class NodeBounds:
    """Bounds of the branch nodes of one problem."""

    def __init__(self, rules: BranchingRules) -> None:
        self._rules, self._tilings = rules, option_tilings(rules.problem)

    def bound(self, state: NodeState, multipliers: NodeMultipliers) -> float:
        """What the multipliers prove of a branch node: no plan of it is faster. Infinite where it holds none at all."""
        return self.priced(state, multipliers, with_choice=False)[0]

    def priced(
        self, state: NodeState, multipliers: NodeMultipliers, *, with_choice: bool = True
    ) -> tuple[float, NodeChoice | None]:
        """The bound of a branch node and the choice that attains it."""
        rules = self._rules
        even = rules.weights.evened(state.labels, multipliers)
        undecided = _Undecided(NodeBlockCosts(rules, state, even), state, self._tilings)
        value = undecided.value
        decided = float((even.weight * state.load)[rules.weights.first_of_instance].sum())
        paid = float((even.byte * np.maximum(state.free, 0.0))[rules.first_of_pool].sum())
        decided += float(product(rules.weights.idle_shares(even), state.stage_seconds))
        total = value + decided - paid + float(rules.problem.stage_constants.sum())
        if np.isinf(total):
            return np.inf, None
        choice = undecided.choice() if with_choice else None
        return total - ROUNDING * (abs(value) + abs(decided) + paid), choice


class _Undecided:
    """All that is not decided in a branch node, at its least cost."""

    def __init__(self, costs: NodeBlockCosts, state: NodeState, tilings: list[OptionTilings]) -> None:
        self._costs, self._tilings = costs, tilings
        self._decided = list(state.decisions)
        rules, problem = costs.rules, costs.problem
        self._remaining = RemainingParts(costs, state)
        self._option_cost = np.full(len(problem.option_table), np.inf)
        total = np.add.reduceat(costs.least[:-1] * problem.block_count, problem.block_start[:-1])
        self._option_cost[rules.fixed_options] = total[rules.fixed_options]
        for option in rules.colocated_options.tolist():
            self._option_cost[option] = self._colocated(option).cost
        tiled = [tilings.cheapest(costs.least) for tilings in self._tilings]
        for of_units, (best, _) in zip(self._tilings, tiled, strict=True):
            self._option_cost[of_units.options] = best[:, -1]
        self._widths = [width for _, width in tiled]
        self._cheapest = np.minimum.reduceat(self._option_cost, problem.option_start[:-1])
        self._is_open: Bools = np.ones(problem.tables, dtype=bool)
        self._is_open[self._decided] = False
        self._rest = [self._remaining.cheapest(parts) for parts in state.decisions.values()]
        self.value = float(self._cheapest[self._is_open].sum()) + sum(rest.cost for rest in self._rest)
        """The sum of the least costs; infinite where a table has no option left."""

    def _colocated(self, option: int) -> CheapestBlocks:
        return self._remaining.colocated(self._costs.rules.parts.sequence(option), None, [])

    def choice(self) -> NodeChoice:
        """The loads of the blocks that attain the value."""
        costs, problem = self._costs, self._costs.problem
        seconds = np.zeros((len(costs.ranks), costs.rules.columns))
        size = np.zeros((len(costs.ranks), len(problem.pool_capacity)))
        chosen = self._chosen_options()
        for option in chosen[problem.option_colocated[chosen]].tolist():
            for block, group in self._colocated(option).blocks:
                if group is not None:
                    costs.charge(seconds, size, block, group)
        is_fixed = np.zeros(len(problem.option_table), dtype=bool)
        is_fixed[chosen] = (problem.option_units[chosen] == 0) & ~problem.option_colocated[chosen]
        taken = np.where(is_fixed[problem.block_option], problem.block_count, 0).astype(float)
        for of_units, width in zip(self._tilings, self._widths, strict=True):
            of_units.count(width, np.isin(of_units.options, chosen), taken)
        for rest in self._rest:
            for block, group in rest.blocks:
                if group is None:
                    taken[block] += 1
                else:
                    costs.charge(seconds, size, block, group)
        costs.charge_cheapest(seconds, size, taken)
        of_table, lead = np.where(self._is_open, self._cheapest, 0.0), np.full(problem.tables, -1)
        for table, rest in zip(self._decided, self._rest, strict=True):
            of_table[table], lead[table] = rest.cost, max((block for block, _ in rest.blocks), default=-1)
        lead[problem.option_table[chosen]] = self._leads(chosen)
        return NodeChoice(seconds, size, of_table, lead)

    def _leads(self, chosen: Ints) -> Ints:
        """The first block of each chosen option; the widest of the cheapest tiling of a splittable one."""
        leads = self._costs.problem.block_start[chosen].copy()
        position = np.zeros(len(self._option_cost), dtype=np.int64)
        position[chosen] = np.arange(len(chosen))
        for of_units, width in zip(self._tilings, self._widths, strict=True):
            is_chosen = np.isin(of_units.options, chosen)
            leads[position[of_units.options[is_chosen]]] = of_units.widest_blocks(width, is_chosen)
        return leads

    def _chosen_options(self) -> Ints:
        """The first cheapest option of every open table."""
        table = self._costs.problem.option_table
        best = np.flatnonzero((self._option_cost == self._cheapest[table]) & self._is_open[table])
        _, first = np.unique(table[best], return_index=True)
        return best[first]
