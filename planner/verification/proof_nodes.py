"""The branch tree of a proof, as the document carries it."""

import numpy as np

from cost_models.model import CostModel
from planner.certificates.branch_trees import BranchNode, BranchTree
from planner.certificates.node_weights import NodeMultipliers
from planner.certificates.parts import PartDecision
from planner.document.certificates import BranchedTable, NodeDecision, ProofNode, ProofTree
from planner.formulation.variants import memory_names
from planner.problem.arrays import Problem
from planner.problem.numbers import Floats


def written_tree(model: CostModel, tree: BranchTree) -> ProofTree:
    """A solver's tree in the document's words."""
    names = [table.name for table in model.workload.tables]
    nodes = []
    for node in tree.nodes:
        weights = memory_multipliers = branches_on = None
        if node.divides is not None:
            branches_on = BranchedTable(table=names[node.divides[0]], part=node.divides[1])
        if node.multipliers is not None:
            names_of = memory_names(model, len(node.multipliers.byte))
            weights = tuple(
                (model.stages[column.stage], str(column.resource), rank, value)
                for column, row in zip(model.columns, node.multipliers.weight, strict=True)
                for rank, value in _runs(row)
            )
            memory_multipliers = tuple(
                (tier, rank, value)
                for tier, row in zip(names_of, node.multipliers.byte, strict=True)
                for rank, value in _runs(row)
            )
        nodes.append(
            ProofNode(
                parent=None if node.parent < 0 else node.parent,
                decision=None if node.part is None else NodeDecision(**node.part._asdict()),
                branches_on=branches_on,
                weights=weights,
                memory_multipliers=memory_multipliers,
            )
        )
    return ProofTree(threshold_s=tree.threshold_s, nodes=tuple(nodes))


def read_tree(proof: ProofTree, model: CostModel, problem: Problem) -> BranchTree:
    """The tree of a document. Raises ValueError for what does not exist in the plan's inputs."""
    tables = {table.name: number for number, table in enumerate(model.workload.tables)}
    column_of = {(model.stages[column.stage], str(column.resource)): c for c, column in enumerate(model.columns)}
    tier_of = {tier: m for m, tier in enumerate(memory_names(model, len(problem.pool_capacity)))}
    world, blocks = problem.world, len(problem.block_option)
    nodes = []
    for number, entry in enumerate(proof.nodes):
        multipliers = None
        if entry.weights is not None:
            weight, byte = np.full((len(column_of), world), np.nan), np.full((len(tier_of), world), np.nan)
            for stage, resource, rank, value in entry.weights:
                if (stage, resource) not in column_of or not 0 <= rank < world:
                    raise ValueError(
                        f"branch node {number}: weight on {resource} of {stage}, rank {rank}: does not exist"
                    )
                weight[column_of[stage, resource], rank] = value
            for tier, rank, value in entry.memory_multipliers or ():
                if tier not in tier_of or not 0 <= rank < world:
                    raise ValueError(f"branch node {number}: memory multiplier of {tier}, rank {rank}: does not exist")
                byte[tier_of[tier], rank] = value
            multipliers = NodeMultipliers(_filled(weight), _filled(byte))
        part, places = None, max(world, len(problem.node_start) - 1)
        if entry.decision is not None:
            part = PartDecision(entry.decision.first, entry.decision.last, entry.decision.place)
            if not 0 <= part.first <= part.last < blocks or not -1 <= (part.place or 0) < places:
                raise ValueError(f"branch node {number}: a block type or place that does not exist")
        divides = None
        if entry.branches_on is not None:
            if entry.branches_on.table not in tables:
                raise ValueError(f"branch node {number}: branches on a table that does not exist")
            divides = tables[entry.branches_on.table], entry.branches_on.part
        nodes.append(BranchNode(-1 if entry.parent is None else entry.parent, part, divides, multipliers))
    if not nodes:
        raise ValueError("there are no nodes")
    return BranchTree(proof.threshold_s, tuple(nodes))


def _runs(row: Floats) -> list[tuple[int, float]]:
    """(first rank, value) of each run of equal values."""
    opens = np.flatnonzero(np.concatenate([[True], row[1:] != row[:-1]]))
    return [(int(rank), float(row[rank])) for rank in opens]


def _filled(table: Floats) -> Floats:
    """The values of `_runs` at every rank; 0 before the first one."""
    known = np.where(np.isnan(table), 0, np.arange(table.shape[1]))
    values = np.take_along_axis(table, np.maximum.accumulate(known, axis=1), axis=1)
    return np.nan_to_num(values)
