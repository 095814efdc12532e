"""HugeCTR's plans: `shard_matrix` and `shard_strategy`, as its samples make them and its logs print them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from cost_models.registry import COST_MODELS
from cost_models.shards import COLUMN_WISE, Ints, block_rows
from cost_models.workload.table_profile import TableProfile
from planner.importers.adoption import AdoptedTable, AdoptionInputs
from topologies.documents import did_you_mean
from topologies.errors import Fault, InputError, shown

COLUMN_UNIT = 4
WAYS = ("mp", "dp")


def planned_with(document: Mapping[str, Any], source: str) -> str | None:
    """The cost model of the plan that a file of ours was exported from; None where the file does not say.

    Raises InputError for what is no cost model.
    """
    origin = document.get("planned_with")
    name = origin.get("cost_model") if isinstance(origin, dict) else None
    if name is not None and name not in COST_MODELS:
        message = f"{shown(name)} is none of {', '.join(COST_MODELS)}; give --cost-model, or drop planned_with"
        raise InputError.at(source, message, path="planned_with.cost_model")
    return name


def differences(document: Mapping[str, Any], inputs: AdoptionInputs, tables: Sequence[AdoptedTable]) -> Iterator[str]:
    """What keeps the plan from being the one that was exported, with what to change.

    Of a file of ours other inputs and another cost model; of any file rows over some GPUs, which the rating has no
    other word for.
    """
    origin = document.get("planned_with")
    told = origin if isinstance(origin, dict) else {}
    flags = {"topology": "-t, --nodes and --set", "workload": "-w, --global-batch and --set"}
    for what, own in (("topology", inputs.topology), ("workload", inputs.workload)):
        if what in told and told[what] != own.fingerprint():
            yield f"the plan was made for another {what}: give {flags[what]} as `planner plan` had them"
    was = told.get("cost_model")
    if was is not None and was != inputs.cost_model:
        yield f"the plan was made under {was}, and this one is costed under {inputs.cost_model}: --cost-model {was}"
    spread = [
        profile.name
        for profile, table in zip(inputs.workload.tables, tables, strict=True)
        if table.sharding == "column_wise" and inputs.cost_model != was
    ]
    if spread and COLUMN_WISE in inputs.model.node_colocated_shardings:
        yield (
            f"{spread[0]!r} ({len(spread)} in all) has its rows cut over some GPUs, which the rating writes as"
            " column_wise in equal blocks: the same rating and bytes, not the same shards; --cost-model physical keeps"
            " rows over the GPUs of one node (table_row_wise) or of several (multi_node_row_wise), and on a"
            " single node, or scale-up domain, over some of its GPUs (multi_rank_row_wise)"
        )


def hugectr_tables(document: Mapping[str, Any], inputs: AdoptionInputs, source: str) -> list[AdoptedTable]:
    """How `shard_matrix` (the tables of each GPU) and `shard_strategy` hold the tables, in the workload's order.

    Tables are called by name or by their number in the workload. Replicated ones (`dp`) may stand in the matrix or not.
    A table on some GPUs has its rows cut evenly over them; under the `hugectr` cost model that is `column_wise` in as
    many equal blocks, which rates and weighs the same. Raises InputError with everything that is wrong.
    """
    reader = _HugeCTRReader(document, inputs, source)
    ranks, ways = reader.matrix(), reader.strategy()
    every, tables = list(range(inputs.topology.world_size)), []
    for table, profile in enumerate(inputs.workload.tables):
        way = ways.get(table)
        if way is None or (way == "mp" and not ranks[table]):
            reader.fault("shard_strategy" if way is None else "shard_matrix", f"lacks table {profile.name!r}")
            continue
        try:
            tables.append(_held(profile, every if way == "dp" else ranks[table], way == "dp", inputs, document))
        except ValueError as error:
            reader.fault(profile.name, str(error))
    if reader.faults:
        raise InputError(reader.faults)
    return tables


@dataclass
class _HugeCTRReader:
    document: Mapping[str, Any]
    inputs: AdoptionInputs
    source: str
    faults: list[Fault] = field(default_factory=list)

    def fault(self, path: str, message: str) -> None:
        self.faults.append(Fault(self.source, 0, 0, path, message))

    def matrix(self) -> list[list[int]]:
        """[T] the ranks of each table."""
        matrix, topology = self.document.get("shard_matrix"), self.inputs.topology
        lists = isinstance(matrix, list) and all(isinstance(own, list | tuple) for own in matrix)
        if not isinstance(matrix, list) or not lists or len(matrix) != topology.world_size:
            message = f"must be a list of the tables of each GPU, and {topology.name} has {topology.world_size}"
            raise InputError.at(self.source, message, path="shard_matrix")
        ranks: list[list[int]] = [[] for _ in self.inputs.workload.tables]
        for rank, own in enumerate(matrix):
            for table in dict.fromkeys(self._tables(own, f"shard_matrix.{rank}")):
                ranks[table].append(rank)
        return ranks

    def strategy(self) -> dict[int, str]:
        """The strategy of each table, mp or dp."""
        strategy = self.document.get("shard_strategy")
        strategy_of_table: dict[int, str] = {}
        for pair in strategy.items() if isinstance(strategy, dict) else strategy or []:
            if not isinstance(pair, list | tuple) or len(pair) != 2 or pair[0] not in WAYS:
                self.fault("shard_strategy", f"{shown(pair)} is neither mp nor dp with a list of tables")
                continue
            way = str(pair[0])
            for table in self._tables(pair[1], f"shard_strategy.{way}"):
                if strategy_of_table.setdefault(table, way) != way:
                    self.fault("shard_strategy", f"has {self.inputs.workload.tables[table].name!r} under mp and dp")
        return strategy_of_table

    def _tables(self, names: Any, path: str) -> list[int]:
        known, tables = self._number_of_name, []
        for name in names if isinstance(names, list | tuple) else [names]:
            if str(name) in known:
                tables.append(known[str(name)])
            else:
                self.fault(path, f"{shown(name)} is no table{did_you_mean(str(name), list(known))}")
        return tables

    @cached_property
    def _number_of_name(self) -> dict[str, int]:
        tables = self.inputs.workload.tables
        return {str(i): i for i in range(len(tables))} | {table.name: i for i, table in enumerate(tables)}


def _held(
    profile: TableProfile, ranks: list[int], replicated: bool, inputs: AdoptionInputs, document: Mapping[str, Any]
) -> AdoptedTable:
    model, on = inputs.model, np.array(ranks)
    count, (rows, columns) = len(ranks), inputs.workload.stored_shape(profile)
    zero, whole = np.zeros(count, dtype=np.int64), np.full(count, rows)
    width = np.full(count, columns)
    if replicated:
        return AdoptedTable("data_parallel", "hbm", None, on, zero, whole, zero, width)
    if count == 1:
        return AdoptedTable("table_wise", "hbm", None, on, zero, whole, zero, width)
    rows_of_rank: Ints = block_rows(np.array(rows), count, np.arange(count))
    start = np.cumsum(rows_of_rank) - rows_of_rank
    if count == len(model.node_of_rank):
        return AdoptedTable("row_wise", "hbm", None, on, start, rows_of_rank, zero, width)
    if COLUMN_WISE in model.node_colocated_shardings:
        if columns % (count * COLUMN_UNIT):
            raise ValueError(f"{count} GPUs share it, and {columns} columns are not so many multiples of 4")
        part = columns // count
        return AdoptedTable("column_wise", "hbm", None, on, zero, whole, np.arange(count) * part, np.full(count, part))
    nodes, first, held = np.unique(model.node_of_rank[on], return_index=True, return_counts=True)
    are_nodes = np.array_equal(on, np.flatnonzero(np.isin(model.node_of_rank, nodes))) and len(set(held.tolist())) == 1
    if are_nodes and _sums_by_node(profile.name, inputs, document):
        if len(nodes) == 1:
            return AdoptedTable("table_row_wise", "hbm", None, on, start, rows_of_rank, zero, width)
        order = _order_of_parts(profile.name, nodes, "nodes", document)
        on = np.concatenate([on[first[at] : first[at] + held[at]] for at in order])
        parts = block_rows(np.array(rows), len(nodes), np.arange(len(nodes)))
        rows_of_rank = np.concatenate([block_rows(part, held[0], np.arange(held[0])) for part in parts])
        start = np.cumsum(rows_of_rank) - rows_of_rank
        return AdoptedTable("multi_node_row_wise", "hbm", None, on, start, rows_of_rank, zero, width)
    if inputs.topology.is_one_domain and inputs.cost_model == "physical":
        if not rows_of_rank.all():
            raise ValueError(f"its {rows} rows are cut over {count} GPUs, which leaves one of them without any")
        on = on[_order_of_parts(profile.name, on, "ranks", document)]
        return AdoptedTable("multi_rank_row_wise", "hbm", None, on, start, rows_of_rank, zero, width)
    raise ValueError(
        f"its rows are cut over {count} of {len(model.node_of_rank)} GPUs, which are neither nodes nor all of them;"
        " only --cost-model hugectr costs that, and on a single node, or scale-up domain, physical"
    )


def _sums_by_node(table: str, inputs: AdoptionInputs, document: Mapping[str, Any]) -> bool:
    """Whether the ranks of a node sum what they hold of a table before they send it, where a table's ranks are nodes.

    In one scale-up domain HugeCTR deals tables to GPUs, each of which sends its own sums; a file of ours says whether
    it is otherwise.
    """
    if not inputs.topology.is_one_domain or inputs.topology.node_count == 1 or inputs.cost_model != "physical":
        return True
    origin = document.get("planned_with")
    summed = origin.get("sums_by_node") if isinstance(origin, dict) else []
    return not isinstance(summed, list) or table in summed


def _order_of_parts(table: str, sites: Ints, called: str, document: Mapping[str, Any]) -> list[int]:
    """In which order nodes or ranks hold the rows of a table: as a file of ours says, else ascending."""
    origin = document.get("planned_with")
    told = origin.get(f"order_of_{called}") if isinstance(origin, dict) else None
    order = told.get(table) if isinstance(told, dict) else None
    known: list[int] = sites.tolist()
    return [known.index(node) for node in order] if order and sorted(order) == known else list(range(len(known)))
