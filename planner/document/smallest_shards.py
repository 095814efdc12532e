"""The smallest shards that tables can be cut into, in words: why one fits nowhere, or does not pack."""

from dataclasses import replace

import numpy as np

from cost_models.memory_model import MemoryModel
from cost_models.shards import PLACEMENT_TIERS, SHARDINGS, SHARED_BY
from planner.document.reasons import Remedy, TableDemand, Unplaced
from planner.formulation.formulation import Formulation
from planner.formulation.options import uncapped_problem
from planner.problem.block_sizes import block_shares, choice_shares, smallest_shares
from planner.problem.numbers import Floats
from topologies.units import format_bytes

NAMED = 5
"""Tables that are named at most."""


class SmallestShards:
    """The smallest shards into which the options cut each table, on empty hardware."""

    def __init__(self, formulation: Formulation) -> None:
        model, options, problem = formulation.model, formulation.options, formulation.problem
        self.model, self._options = model, options
        memory = MemoryModel(model)
        self._problem = replace(problem, allowed=uncapped_problem(memory, options).allowed)
        self.share = block_shares(self._problem)
        self._of_choice = choice_shares(self._problem, self.share)
        self.smallest = smallest_shares(self._problem, self.share)

    def words(self, table: int) -> str:
        """What the smallest shard of the table takes: of a rank's memory or a node's, how many of how many bytes."""
        problem, options = self._problem, self._options
        blocks = np.arange(*problem.table_block_start[table : table + 2])
        if not problem.allowed[:, blocks].any():
            return "no allowed sharding and tier can hold it"
        if not problem.pool_capacity[0].any():
            return "the reserves leave no HBM"
        if (self._dense_room() <= 0).all():
            return "the dense part of the model alone fills the accelerators"
        choice = int(blocks[self._of_choice[blocks].argmin()])
        kind, m = divmod(self._worst(choice), len(problem.pool_capacity))
        memory = "hbm" if m >= len(self.model.memories) else self.model.memories[m]  # once everything is back
        room = self._room(kind)[m]
        taken = float(problem.extremes.pool_demand[kind, choice, m]) * room
        option = int(problem.block_option[choice])
        how = f"{SHARDINGS[options.block_sharding[choice]]} in {PLACEMENT_TIERS[options.tier[option]]}"
        of = "each rank has" if self._has_own_pool(m) else f"each {SHARED_BY[memory]} has"
        sizes = f"{format_bytes(taken)} of {memory}, where {of} {format_bytes(room)}"
        return f"its smallest piece, {how}, takes {sizes}"

    def _worst(self, block: int) -> int:
        """Where a block takes the largest share, on the kind of rank where that is least: kind x M + tier."""
        demand = np.where(self._problem.allowed[:, block, None], self._problem.extremes.pool_demand[:, block], np.inf)
        kind = int(demand.max(axis=1).argmin())
        return int(kind * demand.shape[1] + demand[kind].argmax())

    def _room(self, kind: int) -> Floats:
        """[M] bytes that tables may use of one pool of the kind, 0 at least."""
        problem = self._problem
        first = int(np.flatnonzero(problem.kind_of_rank == kind)[0])
        pools = zip(problem.pool_of_rank, problem.pool_capacity, problem.base_bytes, strict=True)
        rooms = [capacity[of[first]] - (of == of[first]).sum() * base for of, capacity, base in pools]
        return np.asarray(np.maximum(np.array(rooms), 0.0))

    def _dense_room(self) -> Floats:
        """[K] bytes of HBM that the dense part leaves on a rank of each kind."""
        return np.array([self._room(kind)[0] for kind in range(self._problem.kinds)])

    def _has_own_pool(self, m: int) -> bool:
        return len(self._problem.pool_capacity[m]) == self._problem.world


def explain_unplaced(shards: SmallestShards, remedies: tuple[Remedy, ...] = ()) -> Unplaced:
    """Why a search ended with nothing, though the tables fit as a whole."""
    tables, of = shards.model.workload.tables, shards.model.tables
    blamed = np.argsort(-shards.smallest, kind="stable")[:NAMED]
    sizes = of.rows[blamed] * (of.row_bytes(blamed, of.dim[blamed]) + of.row_state_bytes(blamed, of.dim[blamed]))
    demand = tuple(
        TableDemand(name=tables[i].name, bytes=size, reason=shards.words(i))
        for i, size in zip(blamed.tolist(), sizes.tolist(), strict=True)
    )
    summary = "the memory suffices for the tables as a whole, but no placement of their pieces was found"
    return Unplaced(summary=summary, tables=demand, remedies=remedies)
