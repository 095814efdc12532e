"""The constraints of the integer programme, one family a function."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from planner.problem.numbers import Floats, Ints
from planner.problem.regions import TableGroup
from planner.solvers.integer.variables import Labels, Variables

if TYPE_CHECKING:
    from ortools.math_opt.python import mathopt

    Terms = Iterable[tuple[mathopt.Variable, float]]


@dataclass(frozen=True)
class Rows:
    """A model to which constraints are added, its variables, and what they are called."""

    model: "mathopt.Model"
    variables: Variables
    labels: Labels
    unit_s: float
    """The programme's unit of time, a power of two: every coefficient is what the problem has, to the last bit."""

    def add(self, name: str, terms: "Terms", *, least: float = -np.inf, most: float = np.inf) -> None:
        """Keep a sum of terms, each variable in one of them, between two numbers."""
        row = self.model.add_linear_constraint(lb=least, ub=most, name=name)
        for variable, coefficient in terms:
            if coefficient:
                row.set_coefficient(variable, coefficient)


def one_option_per_table(rows: Rows) -> None:
    """Every table takes exactly one of its options."""
    problem, option = rows.variables.choices.problem, rows.variables.option
    for table, name in enumerate(rows.labels.tables):
        own = range(*problem.option_start[table : table + 2].tolist())
        rows.add(f"held:{name}", [(option[o], 1.0) for o in own if o in option], least=1.0, most=1.0)


def every_block_placed(rows: Rows) -> None:
    """A fixed option that is taken has each of its blocks as often as it says; another has none."""
    choices, count = rows.variables.choices, rows.variables.count
    problem = choices.problem
    for option, taken in rows.variables.option.items():
        for block in range(*problem.block_start[option : option + 2].tolist()):
            if not problem.option_units[option]:
                terms = [(each, 1.0) for each in count[choices.of_block(block)]]
                whole = (taken, -float(problem.block_count[block]))
                rows.add(f"placed:{_of(rows, option)}:{rows.labels.blocks[block]}", [*terms, whole], least=0, most=0)


def every_column_held(rows: Rows) -> None:
    """The blocks of a splittable option that is taken tile the columns of its table."""
    choices, problem = rows.variables.choices, rows.variables.choices.problem
    for option, taken in rows.variables.option.items():
        if units := float(problem.option_units[option]):
            pairs = choices.of_option(option)
            widths = problem.block_units[choices.block[pairs]].astype(float).tolist()
            terms = [*zip(rows.variables.count[pairs], widths, strict=True), (taken, -units)]
            rows.add(f"tiled:{_of(rows, option)}", terms, least=0.0, most=0.0)


def blocks_on_one_node(rows: Rows) -> None:
    """The blocks of a colocated option are on different ranks of one node."""
    choices, problem = rows.variables.choices, rows.variables.choices.problem
    for option in (o for o in rows.variables.option if problem.option_colocated[o]):
        pairs = range(*choices.of_option(option).indices(len(choices.block)))
        ranks = choices.place[pairs.start : pairs.stop]
        on_node = {
            int(node): rows.model.add_binary_variable(name=f"node:{_of(rows, option)}:{node}")
            for node in np.unique(problem.node_of_rank[ranks])
        }
        whole = (rows.variables.option[option], -1.0)
        rows.add(f"one_node:{_of(rows, option)}", [*((v, 1.0) for v in on_node.values()), whole], least=0.0, most=0.0)
        for rank in np.unique(ranks).tolist():
            here = [(rows.variables.count[pair], 1.0) for pair in pairs if choices.place[pair] == rank]
            node = on_node[int(problem.node_of_rank[rank])]
            rows.add(f"on_node:{_of(rows, option)}:{rank}", [*here, (node, -1.0)], most=0.0)


def parts_on_different_sites(rows: Rows) -> None:
    """No two parts of a table's rows are at one site."""
    choices, problem = rows.variables.choices, rows.variables.choices.problem
    for option, taken in rows.variables.option.items():
        if problem.option_apart[option]:
            pairs = range(*choices.of_option(option).indices(len(choices.block)))
            for site in np.unique(choices.place[pairs.start : pairs.stop]).tolist():
                here = [(rows.variables.count[pair], 1.0) for pair in pairs if choices.place[pair] == site]
                rows.add(f"apart:{_of(rows, option)}:{site}", [*here, (taken, -1.0)], most=0.0)


def affinity_groups_together(rows: Rows) -> None:
    """All blocks of an affinity group's tables are in one zone."""
    for number, group in enumerate(rows.variables.choices.problem.affinity_groups):
        zones = np.unique(group.zone_of_rank).tolist()
        chosen = {zone: rows.model.add_binary_variable(name=f"together:{number}:{zone}") for zone in zones}
        rows.add(f"one_zone:{number}", [(each, 1.0) for each in chosen.values()], least=1.0, most=1.0)
        for table in group.tables.tolist():
            name = f"{number}:{rows.labels.tables[table]}"
            for pair, touched in _zones_of_pairs(rows, group, table):
                if len(touched) > 1:
                    rows.add(f"spans:{name}:{pair}", [(rows.variables.count[pair], 1.0)], most=0.0)
            for zone, shares in _shares_in_zones(rows, group, table).items():
                rows.add(f"with:{name}:{zone}", [*shares, (chosen[zone], -1.0)], most=0.0)


def anti_affinity_groups_apart(rows: Rows) -> None:
    """No two tables of an anti-affinity group have blocks in one zone."""
    for number, group in enumerate(rows.variables.choices.problem.anti_affinity_groups):
        in_zone: dict[int, list[mathopt.Variable]] = {}
        for table in group.tables.tolist():
            for zone, shares in _shares_in_zones(rows, group, table).items():
                name = f"{number}:{rows.labels.tables[table]}:{zone}"
                is_there = rows.model.add_binary_variable(name=f"there:{name}")
                rows.add(f"is_there:{name}", [*shares, (is_there, -1.0)], most=0.0)
                in_zone.setdefault(zone, []).append(is_there)
        for zone, tables in in_zone.items():
            rows.add(f"alone:{number}:{zone}", [(each, 1.0) for each in tables], most=1.0)


def stages_outlast_loads(rows: Rows) -> None:
    """A stage lasts at least as long as any instance of its resources is busy."""
    problem, variables = rows.variables.choices.problem, rows.variables
    base = problem.base_loads[problem.kind_of_rank].T
    loads = _per_rank(rows, problem.fixed, problem.by_rows)
    for c, instance in enumerate(problem.resource_of_rank):
        stage = variables.stage[problem.stage_of_column[c]]
        busy = _of_instances(instance, loads[c])
        shared = _loads_everywhere(rows, c)
        for number in range(int(instance.max()) + 1):
            ranks = instance == number
            load = float(base[c, ranks].sum()) / rows.unit_s
            members = np.bincount(problem.kind_of_rank[ranks], minlength=problem.kinds).tolist()
            terms = [(variable, float(members[kind])) for kind, variable in shared.items()]
            terms += [(variables.count[pair], value / rows.unit_s) for pair, value in busy.get(number, ())]
            if any(coefficient for _, coefficient in terms):
                rows.add(f"busy:{rows.labels.columns[c]}:{number}", [*terms, (stage, -1.0)], most=-load)
            else:
                stage.lower_bound = max(stage.lower_bound, load)


def memories_hold_blocks(rows: Rows) -> None:
    """No pool of a memory holds more bytes than it has, in units of its capacity to a power of two."""
    problem = rows.variables.choices.problem
    sizes = _per_rank(rows, problem.bytes_fixed, problem.bytes_by_rows)
    for m, (pool, capacity) in enumerate(zip(problem.pool_of_rank, problem.pool_capacity, strict=True)):
        held = _of_instances(pool, sizes[m])
        base = np.bincount(pool, minlength=len(capacity)) * problem.base_bytes[m]
        for number, pairs in held.items():
            unit = power_of_two(float(capacity[number]))
            terms = [(rows.variables.count[pair], size / unit) for pair, size in pairs]
            free = float(capacity[number] - base[number]) / unit
            rows.add(f"bytes:{rows.labels.memories[m]}:{number}", terms, most=free)


CONSTRAINTS = (
    one_option_per_table,
    every_block_placed,
    every_column_held,
    blocks_on_one_node,
    parts_on_different_sites,
    affinity_groups_together,
    anti_affinity_groups_apart,
    stages_outlast_loads,
    memories_hold_blocks,
)


def power_of_two(value: float) -> float:
    """The power of two at or below a value, 1 if that is not above 0: to divide by it changes no digit."""
    return float(2.0 ** np.floor(np.log2(value))) if value > 0 else 1.0


def _of(rows: Rows, option: int) -> str:
    """What an option and its table are called."""
    table = rows.variables.choices.problem.option_table[option]
    return f"{rows.labels.tables[table]}:{rows.labels.options[option]}"


def _zones_of_pairs(rows: Rows, group: TableGroup, table: int) -> Iterable[tuple[int, list[int]]]:
    """The pairs of a table, each with the zones that its ranks are in."""
    choices = rows.variables.choices
    for pair in range(*choices.of_table(table).indices(len(choices.block))):
        ranks = choices.members(pair)
        yield pair, np.unique(group.zone_of_rank[ranks]).tolist()


def _shares_in_zones(rows: Rows, group: TableGroup, table: int) -> "dict[int, list[tuple[mathopt.Variable, float]]]":
    """By zone, the parts of a table that are in it: they sum to at most one."""
    shares: dict[int, list[tuple[mathopt.Variable, float]]] = {}
    for pair, zones in _zones_of_pairs(rows, group, table):
        for zone in zones:
            term = rows.variables.count[pair], float(rows.variables.choices.share[pair])
            shares.setdefault(zone, []).append(term)
    return shares


@dataclass(frozen=True)
class _Parts:
    """What the pairs ask of each rank of their sites. N parts."""

    pair: Ints
    """[N]"""
    rank: Ints
    """[N]"""
    value: Floats
    """[N]"""


def _per_rank(rows: Rows, fixed: Floats, by_rows: Floats) -> list[_Parts]:
    """For each of n columns or memories [K, B, n], what is asked, without what is 0."""
    choices = rows.variables.choices
    problem, row_shares = choices.problem, choices.problem.row_shares
    members = [choices.members(pair) for pair in range(len(choices.block))]
    sizes = np.array([len(ranks) for ranks in members])
    pair = np.repeat(np.arange(len(members)), sizes)
    rank = np.concatenate(members)
    share = np.concatenate(
        [row_shares.on_site(block, len(ranks)) for block, ranks in zip(choices.block.tolist(), members, strict=True)]
    )
    kind, block = problem.kind_of_rank[rank], choices.block[pair]
    share[problem.is_on_rank[block]] = 1.0
    value = fixed[kind, block] + by_rows[kind, block] * share[:, None]
    kept = [np.flatnonzero(column) for column in value.T]
    return [_Parts(pair[some], rank[some], column[some]) for some, column in zip(kept, value.T, strict=True)]


def _of_instances(instance: Ints, parts: _Parts) -> dict[int, list[tuple[int, float]]]:
    """By instance, the pairs that load it, and by how much."""
    key = instance[parts.rank] * (int(parts.pair.max(initial=0)) + 1) + parts.pair
    keys, where = np.unique(key, return_inverse=True)
    totals = np.bincount(where, weights=parts.value, minlength=len(keys))
    found: dict[int, list[tuple[int, float]]] = {}
    for code, total in zip(keys.tolist(), totals.tolist(), strict=True):
        number, pair = divmod(code, int(parts.pair.max(initial=0)) + 1)
        found.setdefault(number, []).append((pair, total))
    return found


def _loads_everywhere(rows: Rows, column: int) -> "dict[int, mathopt.Variable]":
    """For each kind of rank what blocks ask of every rank of it, wherever they are: one variable is the sum."""
    choices, problem = rows.variables.choices, rows.variables.choices.problem
    shared: dict[int, mathopt.Variable] = {}
    for kind in range(problem.kinds):
        load = problem.everywhere[kind, :, column]
        loads = load[choices.block] / rows.unit_s
        if loads.any():
            name = f"{rows.labels.columns[column]}:kind{kind}"
            shared[kind] = rows.model.add_variable(lb=0.0, name=f"everywhere:{name}")
            terms = [(rows.variables.count[pair], float(loads[pair])) for pair in np.flatnonzero(loads).tolist()]
            rows.add(f"everywhere:{name}", [*terms, (shared[kind], -1.0)], most=0.0)
    return shared
