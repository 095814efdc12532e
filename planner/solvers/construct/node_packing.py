"""Which nodes hold what, where their shared memories are nearly full: a linear programme over nodes, and a dive.

The relaxation fills a tier as one pool. What it takes there may be a dozen tables whose blocks are thirds of a node's
pool and fit no eight of them. Here every node has pools of its own. The programme mixes ways to hold tables, and the
largest table that it mixes is decided first, for the way and the nodes that cost least once all others are mixed anew
(diving: Wäscher & Gau, OR Spektrum 18, 1996). Small tables fill what is left; they have no nodes until the end.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.load_state import LoadState
from planner.problem.numbers import Bools, Floats, Ints
from planner.problem.placement import Placement
from planner.problem.sites import Sites
from planner.solvers.bound.cutting_planes import FluidSolution
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.programs import LinearProgram, Optimum
from planner.solvers.construct.partial_placement import PartialPlacement
from planner.solvers.construct.potential import Potential
from planner.solvers.integer.node_choices import NodeChoices, asked, dominant, node_choices, ranks_sharing

SMALL = 0.01
"""Share of a node's pool up to which a table's blocks are small: the programme fills nodes with any part of them."""
SLACK = 0.03
"""Share of the step that a way to hold a table may cost above its cheapest one."""
BYTE_FACTORS = (1.0, 3.0, 1e6)
"""Multiples of what bytes of single ranks cost at which the cheapest ways are kept: of the last, those of least
bytes."""
FINER = 0.75
"""How much smaller the blocks of a way are at least to be kept beside a cheaper one."""
HEADROOM_OF_RANKS = 0.997
"""Share of the pools of single ranks, all of a node together, that may be taken."""
HEADROOMS_OF_NODES = (0.998, 0.996)
"""Shares of those of nodes that may be taken, tried in turn."""
OVERFULL = 4.0
"""What a whole pool too much costs, in steps."""
ENOUGH = 5e-4
"""Share of the step by which a decision may make the rest dearer without others being tried."""
WHOLE = 1e-5
"""A count is a whole number where it is this near to one."""
MOST_VARIABLES, MOST_ITERATIONS = 60_000, 20_000
"""Variables of the programme, above which nothing is packed; simplex iterations of each solution at most."""


@dataclass(frozen=True)
class _Decision:
    """How a table is held: the way, and how many of each of its blocks [H, N] are on each node; of a small table
    none."""

    way: int
    counts: dict[int, Floats]


class NodePacking:
    """The ways to hold the tables of one problem on nodes that are alike."""

    def __init__(self, fluid: Fluid, relaxed: FluidSolution, usable: Bools) -> None:
        """Ways are cut into the `usable` blocks [B]; `is_possible` says whether the rest may be asked for."""
        problem = self._problem = fluid.problem
        self._columns, self._nodes = len(problem.stage_of_column), problem.nodes.count
        self._ranks, sharing = int(problem.nodes.sizes[0]), ranks_sharing(problem)
        self._shared: Ints = np.flatnonzero(sharing[self._columns :] == self._ranks)
        alike = problem.kinds == 1 and self._nodes > 1 and len(np.unique(problem.nodes.sizes)) == 1
        self.is_possible = bool(
            alike
            and self._ranks > 1
            and len(self._shared)
            and (sharing[self._columns :] <= self._ranks).all()
            and problem.reach.all()
            and not problem.is_confined
        )
        """Whether nodes are alike and have memories that their ranks share, and tables may be anywhere."""
        if not self.is_possible:
            return
        self._unit_s = relaxed.bound_s
        value = fluid.choice_values(relaxed.multipliers, usable)
        one_each = [np.array([table]) for table in range(problem.tables)]
        every = node_choices(problem, one_each, value, SLACK * relaxed.bound_s, None, uneven=True)
        self.is_possible = len(np.unique(every.of_class)) == problem.tables
        if self.is_possible:
            self._ways = every.only(self._kept(every, value, relaxed.multipliers.byte[0]))
            self._measure(sharing)
            variables = len(self._ways.of_class) + int(self._is_large[self._table].sum()) * self._nodes
            self.is_possible = variables <= MOST_VARIABLES

    def _kept(self, every: NodeChoices, value: Floats, byte: Floats) -> Bools:
        """[Q] of each table and set of shared tiers the cheapest way at multiples of the price of ranks' bytes, and
        with it ever finer ones."""
        problem, columns = self._problem, self._columns
        of_way, on_site = asked(problem, every)
        per_block = np.where(problem.is_on_rank[every.block], 1, self._ranks)[:, None] * on_site[:, columns:]
        pool = np.array([capacity.min() for capacity in problem.pool_capacity])
        block_share = np.zeros(len(every.of_class))
        np.maximum.at(block_share, every.choice, (per_block / np.maximum(pool, 1.0))[:, self._shared].max(axis=1))
        size = of_way[:, columns:] * problem.world
        np.add.at(size, every.choice, per_block * every.count[:, None])
        of_ranks = np.delete(size, self._shared, axis=1)
        first = np.searchsorted(every.choice, np.arange(len(every.of_class)))
        worth, of_bytes = value[every.block[first]], of_ranks @ np.delete(byte, self._shared)
        of_bytes = of_bytes + 1e-12 * self._unit_s * of_ranks.sum(axis=1) / max(float(pool.max()), 1.0)
        stored = (size[:, self._shared] > 0) @ (1 << np.arange(len(self._shared)))
        share, kept = np.maximum(block_share, SMALL), np.zeros(len(worth), dtype=bool)
        group = every.of_class * (1 << len(self._shared)) + stored
        for factor in BYTE_FACTORS:
            order = np.lexsort((worth + (factor - 1) * of_bytes, group))
            least, now = np.inf, -1
            for way in order.tolist():
                if group[way] != now:
                    least, now = np.inf, int(group[way])
                if not np.isfinite(least) or (least > SMALL and share[way] <= FINER * least):
                    kept[way], least = True, float(share[way])
        return kept

    def _measure(self, sharing: Ints) -> None:
        """Set what ways and blocks ask of a node: seconds in steps, bytes in pools."""
        problem, ways, columns = self._problem, self._ways, self._columns
        of_way, on_site = asked(problem, ways)
        state = LoadState(problem)
        scale = np.concatenate([np.full(columns, 1 / self._unit_s), 1 / np.maximum(state.free.min(axis=1), 1.0)])
        ranks = np.where(problem.is_on_rank[ways.block], self._ranks, 1)[:, None]
        self._each: Floats = of_way * sharing * scale
        """[Q, C + M] of every node."""
        self._on_node: Floats = on_site / ranks * sharing * scale
        """[H, C + M] of the node that a block is on."""
        self._base: Floats = state.load.max(axis=1) / self._unit_s
        self._is_wide: Bools = problem.is_world_wide[ways.block]
        self._table: Ints = ways.of_class[ways.choice]
        """[H]"""
        self._first: Ints = np.searchsorted(ways.of_class, np.arange(problem.tables + 1))
        self._blocks_of: list[Ints] = [np.flatnonzero(self._table == table) for table in range(problem.tables)]
        shared = columns + self._shared
        share = np.zeros(problem.tables)
        np.maximum.at(share, self._table, self._on_node[:, shared].max(axis=1))
        self._is_large: Bools = share > SMALL
        """[T]"""
        total = self._each[:, shared] * self._nodes
        np.add.at(total, ways.choice, self._on_node[:, shared] * ways.count[:, None])
        self._size: Floats = np.zeros(problem.tables)
        np.maximum.at(self._size, ways.of_class, total.max(axis=1))

    # -- the programme -----------------------------------------------------------------------------------------------

    def _write(self, headroom: float) -> None:
        """Write the programme: stages as long as their busiest resource, were loads the same on all nodes."""
        problem, ways, nodes, columns = self._problem, self._ways, self._nodes, self._columns
        program = self._program = LinearProgram(maximize=False)
        self._taken: Ints = np.array(program.add_variables(len(ways.of_class), upper=1.0))
        large = np.flatnonzero(self._is_large[self._table] & ~self._is_wide)
        self._held: Ints = np.full((len(ways.choice), nodes), -1)
        for h in large.tolist():
            self._held[h] = program.add_variables(nodes, upper=float(ways.count[h]))
        stages = program.add_variables(len(problem.stage_constants), is_counted=True)
        self._counted = list(stages)
        for first, stop in zip(self._first[:-1].tolist(), self._first[1:].tolist(), strict=True):
            program.add_row(self._taken[first:stop], np.ones(stop - first), 1.0, 1.0)
        for h in large.tolist():
            row = np.append(self._held[h], self._taken[ways.choice[h]])
            program.add_row(row, np.append(np.ones(nodes), -float(ways.count[h])), 0.0, 0.0)
        in_all, small = self._each * 1.0, np.zeros_like(self._each)
        placed = np.flatnonzero(~self._is_wide)
        np.add.at(in_all, ways.choice[placed], self._on_node[placed] * ways.count[placed, None] / nodes)
        left = np.setdiff1d(placed, large)
        np.add.at(small, ways.choice[left], self._on_node[left] * ways.count[left, None])
        loads = np.concatenate([in_all[:, :columns].T, self._base[:, None]], axis=1)
        for column in dominant(loads, problem.stage_of_column).tolist():
            row = np.append(self._taken, stages[int(problem.stage_of_column[column])])
            program.add_row(row, np.append(in_all[:, column], -1.0), -np.inf, -float(self._base[column]))
        for tier in range(len(problem.pool_capacity)):
            at = columns + tier
            if not in_all[:, at].any():
                continue
            most = headroom if tier in self._shared else HEADROOM_OF_RANKS
            filled = np.array(program.add_variables(nodes))
            program.add_row(np.append(filled, self._taken), np.append(np.ones(nodes), -small[:, at]), 0.0, 0.0)
            over, paid = program.add_variables(nodes), program.add_variables(nodes, is_counted=True)
            self._counted += paid
            for node in range(nodes):
                program.add_row([over[node], paid[node]], [OVERFULL, -1.0], 0.0, 0.0)
                row = np.concatenate([self._taken, self._held[large, node], [filled[node], over[node]]])
                asks = np.concatenate([self._each[:, at], self._on_node[large, at], [1.0, -1.0]])
                program.add_row(row, asks, -np.inf, most)

    def _solved(self) -> Optimum | None:
        return self._program.solve_on(MOST_ITERATIONS)

    def _cost(self, found: Optimum) -> float:
        """Steps that the programme takes, constants aside."""
        return float(found.values[self._counted].sum())

    # -- the dive ----------------------------------------------------------------------------------------------------

    def _decisions(self, headroom: float, is_over: Callable[[], bool]) -> list[_Decision] | None:
        """One for each table; None where a solver ends otherwise, or time is over."""
        self._write(headroom)
        found, decided = self._solved(), dict[int, _Decision]()
        room = np.ones((len(self._problem.pool_capacity), self._nodes))
        for table in np.argsort(-self._size, kind="stable").tolist():
            if found is None or is_over():
                return None
            if not self._is_large[table]:
                continue
            ways = np.arange(self._first[table], self._first[table + 1])
            share = found.values[self._taken[ways]]
            order = ways[np.argsort(-np.round(share, 4), kind="stable")]
            held = self._held[self._blocks_of[table]]
            counts = np.append(found.values[held[held[:, 0] >= 0]], share)
            if (np.abs(counts - np.round(counts)) < WHOLE).all():
                decision = self._rounded(int(order[0]), found, None)
                self._fix(table, decision)
            else:
                best = self._best(table, order, found, room)
                if best is None:
                    return None
                decision, found = best
            decided[table] = decision
            room -= self._asked_by(decision)
        if found is None:
            return None
        for table in np.flatnonzero(~self._is_large).tolist():
            ways = np.arange(self._first[table], self._first[table + 1])
            decided[table] = _Decision(int(ways[found.values[self._taken[ways]].argmax()]), {})
        return [decided[table] for table in range(self._problem.tables)]

    def _best(self, table: int, ways: Ints, found: Optimum, room: Floats) -> tuple[_Decision, Optimum] | None:
        """Of the ways, the first that makes the rest hardly dearer, or the one that does so least."""
        best: tuple[float, _Decision] | None = None
        for way in ways.tolist():
            decision = self._rounded(way, found, room)
            before = self._fix(table, decision)
            then = self._solved()
            cost = np.inf if then is None else self._cost(then)
            if then is not None and cost <= self._cost(found) + ENOUGH:
                return decision, then
            if best is None or cost < best[0]:
                best = cost, decision
            for variable, upper in before:
                self._program.limit(variable, upper)
        if best is None:
            return None
        self._fix(table, best[1])
        then = self._solved()
        return None if then is None else (best[1], then)

    def _rounded(self, way: int, found: Optimum, room: Floats | None) -> _Decision:
        """The way with its blocks where the optimum has most of them; where they do not fit the `room` [M, N], or it
        has none, where there is most."""
        counts = dict[int, Floats]()
        for h in np.flatnonzero((self._ways.choice == way) & (self._held[:, 0] >= 0)).tolist():
            count, has = int(self._ways.count[h]), found.values[self._held[h]]
            wanted = has * count / max(float(has.sum()), 1e-12)
            whole = np.floor(wanted + WHOLE)
            for node in np.argsort(whole - wanted, kind="stable")[: max(count - int(whole.sum()), 0)].tolist():
                whole[node] += 1
            size = self._on_node[h, self._columns + self._shared]
            if room is not None:
                left = room[self._shared] - size[:, None] * whole
                if has.sum() < WHOLE or (left[:, whole > 0] < 0).any():
                    whole = _roomiest(room[self._shared].copy(), size, count)
            counts[h] = whole
        return _Decision(way, counts)

    def _fix(self, table: int, decision: _Decision) -> list[tuple[int, float]]:
        """Bar all else that a table may be; return what the limits were."""
        held = self._held[self._blocks_of[table]]
        blocks = self._blocks_of[table][held[:, 0] >= 0]
        limits = [(way, 1.0 if way == decision.way else 0.0) for way in range(*self._first[table : table + 2].tolist())]
        wanted = [(int(self._taken[way]), upper) for way, upper in limits]
        nothing = np.zeros(self._nodes)
        for h in blocks.tolist():
            wanted += zip(self._held[h].tolist(), decision.counts.get(h, nothing).tolist(), strict=True)
        before = [(variable, self._program.upper_of(variable)) for variable, _ in wanted]
        for variable, upper in wanted:
            self._program.limit(variable, upper)
        return before

    def _asked_by(self, decision: _Decision) -> Floats:
        """[M, N] shares of pools."""
        size = np.repeat(self._each[decision.way, self._columns :][:, None], self._nodes, axis=1)
        for h, counts in decision.counts.items():
            size += self._on_node[h, self._columns :][:, None] * counts
        return size

    # -- placing -----------------------------------------------------------------------------------------------------

    def placement(
        self, priced: Problem, stage_seconds: Floats, headroom: float, is_over: Callable[[], bool]
    ) -> Placement | None:
        """Return all blocks on ranks of their nodes; None where nothing is found. In `priced`, the same problem, pools
        may be a little too full, at a cost; its stages aim at `stage_seconds`.

        Of pools of nodes the share `headroom` may be taken.
        """
        decisions = self._decisions(headroom, is_over)
        if decisions is None:
            return None
        blocks, node = self._on_nodes(decisions)
        partial = PartialPlacement(priced, None, None)
        potential = Potential(partial, stage_seconds, np.zeros(len(priced.pool_capacity), dtype=bool), None)
        partial.charge_everywhere(blocks)
        size = potential.sizes(np.unique(blocks))
        on_group = priced.is_on_group[blocks]
        order = np.lexsort((-np.array([size[block] for block in blocks.tolist()]), ~on_group))
        for i in order[~priced.is_world_wide[blocks[order]]].tolist():
            block = int(blocks[i])
            growth = potential.by_block_on_group(block)[0] if on_group[i] else potential.by_block_on_rank(block)
            growth = np.where(priced.node_of_rank == node[i], growth, np.inf)
            sites = priced.sites_of(block)
            of_site = sites.sum(growth)
            site = int(of_site.argmin())
            if of_site[site] == np.inf:  # balancing makes room
                site = int(
                    np.where(priced.node_of_rank[sites.first] == node[i], _least_left(partial, sites), -1e300).argmax()
                )
            partial.put(block, site, sites.members(site))
        return partial.finished()[0]

    def _on_nodes(self, decisions: list[_Decision]) -> tuple[Ints, Ints]:
        """[I] all blocks and [I] the node of each: of small tables, the largest first, the one with most room."""
        problem, ways = self._problem, self._ways
        items, small = list[tuple[int, int]](), list[tuple[int, int]]()
        room = np.ones((len(problem.pool_capacity), self._nodes))
        for decision in decisions:
            room -= self._asked_by(decision)
            for h in np.flatnonzero(ways.choice == decision.way).tolist():
                first = int(ways.block[h])
                is_free = problem.option_units[problem.block_option[first]] > 0
                parts = problem.blocks_of_choice(first) if is_free else [first] * int(ways.count[h])
                if h in decision.counts:
                    nodes = np.repeat(np.arange(self._nodes), np.round(decision.counts[h]).astype(np.int64))
                    items += zip(parts, nodes.tolist(), strict=True)
                elif self._is_wide[h]:
                    items += [(part, -1) for part in parts]
                else:
                    small += [(h, part) for part in parts]
        size, shared = self._on_node[:, self._columns :], self._shared
        for h, part in sorted(small, key=lambda item: (-size[item[0], shared].max(), -size[item[0]].max(), item)):
            tier = int(shared[size[h, shared].argmax()]) if size[h, shared].any() else int(size[h].argmax())
            node = int(room[tier].argmax())
            room[:, node] -= size[h]
            items.append((part, node))
        pairs = np.array(items, dtype=np.int64)
        return pairs[:, 0], pairs[:, 1]


def _least_left(partial: PartialPlacement, sites: Sites) -> Floats:
    """[N] bytes that are left in the pool of each site's ranks, of single ranks, that has least."""
    problem = partial.problem
    single = [tier for tier, pool in enumerate(problem.pool_of_rank) if len(np.unique(pool)) == problem.world]
    left = partial.state.free[single].min(axis=0) if single else np.zeros(problem.world)
    return np.asarray(np.minimum.reduceat(left[sites.order], sites.start))


def _roomiest(room: Floats, size: Floats, count: int) -> Floats:
    """[N] how many of `count` blocks of `size` [m] each node takes, one after the other where `room` [m, N] is most."""
    taken, tier = np.zeros(room.shape[1]), int(size.argmax())
    for _ in range(count):
        node = int(room[tier].argmax())
        taken[node] += 1
        room[:, node] -= size
    return taken
