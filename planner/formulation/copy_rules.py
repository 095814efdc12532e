"""Where tables may be of which ranks have copies: in HBM, as whole tables or cut by rows or columns.

T tables.
"""

from collections.abc import Sequence

import numpy as np

from cost_models.model import CostModel
from cost_models.replicas import Replicas
from cost_models.shards import ROWS_OF_NODE, SHARDINGS, STATE_PLACES, TIERS, Sharding
from cost_models.workload.optimizers import Optimizer
from planner.formulation.narrowing import Narrowing, Path
from planner.formulation.policy import Group
from planner.problem.numbers import Bools
from planner.problem.regions import TableGroup

AVERAGED_BY_TORCHREC: tuple[Optimizer, ...] = ("sgd", "adagrad", "rowwise_adagrad")
"""Optimizers of embeddings whose copies DMPCollection can keep together (`_cache_sync_tensors`, TorchRec 1.8.0)."""
OF_COPIES: tuple[Sharding, ...] = ("table_wise", "column_wise", "row_wise", "table_row_wise", "grid_shard")
"""Ways to hold a table of which ranks have copies. Where its blocks are to be on one node, or its rows on several,
is not searched."""


def narrow_copies(narrowing: Narrowing) -> None:
    """Copies are averaged in HBM: what a cache below it has not written back would be lost."""
    model, copied = narrowing.model, _copied(narrowing.model)
    if model.replicas is None:
        return
    words = f"{model.replicas.words}, which are in HBM"
    in_hbm = [tier == "hbm" or row.how == "stashed" for tier, row in TIERS.items()]
    narrowing.narrow("tiers", ("replicas",), words, copied, in_hbm)
    narrowing.narrow("states", ("replicas",), words, copied, [place == "with_table" for place in STATE_PLACES])
    narrowing.rules.append((words, copied))
    _narrow_by_rules(narrowing, model.replicas)
    if narrowing.policy.runtime == "torchrec":
        for table in (table for table, has_copies in zip(model.workload.tables, copied, strict=True) if has_copies):
            if (optimizer := model.workload.optimizer_of(table)) not in AVERAGED_BY_TORCHREC:
                message = (
                    f"table {table.name}: DMPCollection averages the optimizer state called sum, which {optimizer}"
                    f" has not; use {' or '.join(AVERAGED_BY_TORCHREC)}, or no replicas"
                )
                narrowing.fault(("replicas",), message)


def _copied(model: CostModel) -> Bools:
    """[T] tables that have copies."""
    return (model.copies > 1) | (model.replicas is not None and model.replicas.factor > 1)


def _narrow_by_rules(narrowing: Narrowing, replicas: Replicas) -> None:
    """Tables with more copies than the others have just as many, each on one rank, or cut by rows or columns. In
    TorchRec types of modules have copies (`submodule_configs`), and groups within nodes are those of one of them
    (`intra_and_cross_node_pg_2D`)."""
    more = narrowing.model.copies > 1
    if not more.any():
        return
    key = ("replicas", "rules")
    words = f"{replicas.words}, which are no other number"
    narrowing.narrow("shardings", key, words, more, [s in OF_COPIES for s in SHARDINGS])
    if narrowing.policy.runtime == "torchrec":
        bags = f"{replicas.words}, whose groups TorchRec has no nodes for"
        narrowing.narrow("shardings", key, bags, more, [s not in ROWS_OF_NODE for s in SHARDINGS])
        _refuse_unlike_modules(narrowing)


def _refuse_unlike_modules(narrowing: Narrowing) -> None:
    """Tables of one type of TorchRec's modules that differ in their copies."""
    model = narrowing.model
    for pooled, module in ((True, "EmbeddingBagCollection"), (False, "EmbeddingCollection")):
        of_type = np.array([table.pooled == pooled for table in model.workload.tables], dtype=bool)
        copies, first = np.unique(model.copies[of_type], return_index=True)
        if len(copies) > 1:
            one, other = (narrowing.names[int(np.flatnonzero(of_type)[n])] for n in first[:2])
            message = (
                f"{one!r} and {other!r} are tables of an {module}, and TorchRec's submodule_configs give all"
                " modules of a type the same copies; write rules that hold for all pooled tables, or for all others"
            )
            narrowing.fault(("replicas", "rules"), message)


def refuse_groups_of_copies(narrowing: Narrowing, groups: Sequence[tuple[Path, Group, TableGroup]]) -> None:
    """Refuse tables with copies by rules in `colocate` and `separate`, which know no ranks that stand in for others."""
    for path, _, members in groups:
        if (more := members.tables[narrowing.model.copies[members.tables] > 1]).size:
            message = f"{path[0]} does not know copies that rules of replicas give single tables"
            narrowing.fault(path, f"{message}, as {narrowing.names[int(more[0])]!r}; leave one of both out")


def refuse_caches_of_copies(narrowing: Narrowing, has_cache: Bools) -> None:
    """Refuse caches of full precision, whose rows averaging would miss: those of the workload, and those that the
    policy gives [T]."""
    model = narrowing.model
    if model.replicas is None:
        return
    stated = np.array([table.precision_cache is not None for table in model.workload.tables], dtype=bool)
    cached = np.flatnonzero((stated | has_cache) & _copied(model))
    if len(cached):
        message = "averaging copies misses what a precision cache has not written back; leave the cache out, of"
        narrowing.fault(("replicas",), f"{message} {narrowing.names[int(cached[0])]!r} and any other, or replicas")
