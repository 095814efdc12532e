"""Pairwise repartition of node-wide blocks: paired nodes divide theirs anew."""

import numpy as np

from planner.problem.numbers import Bools, Floats, Ints
from planner.solvers.improve.repartition import Bins, repartitioned
from planner.solvers.improve.smoothing import Smoothing
from planner.solvers.improve.state import SearchState


def repartition_nodes(state: SearchState, smoothing: Smoothing) -> int:
    """Divide node-wide blocks between paired nodes of one kind anew; return how many changed their node."""
    problem = state.problem
    sizes = np.diff(problem.node_start)
    changed = 0
    for k in range(problem.kinds):
        nodes = np.flatnonzero(problem.kind_of_rank[problem.node_start[:-1]] == k)
        mine = np.flatnonzero(np.isin(state.node, nodes))
        if len(nodes) < 2 or not len(mine):
            continue
        ranks = int(sizes[nodes[0]])
        of_nodes = np.concatenate([np.arange(problem.node_start[n], problem.node_start[n + 1]) for n in nodes])
        fullness = smoothing.fullness(state.loads.load)[of_nodes].reshape(len(nodes), ranks).sum(axis=1)
        left, right = state.pairs(fullness, np.zeros(len(nodes), dtype=np.int64))
        order = mine[np.argsort(state.node[mine], kind="stable")]
        partner = nodes[state.partners(left, right, len(nodes))[np.searchsorted(nodes, state.node[order])]]
        order = order[_may_be_on_node(state, state.node_block[order], partner)]
        if not len(order):
            continue
        load, size = _node_amounts(state, state.node_block[order], k, ranks)
        shape = (len(nodes), ranks, -1)
        bins = Bins(
            state.loads.load.T[of_nodes].reshape(shape),
            state.room(of_nodes).T[of_nodes].reshape(shape),
            np.searchsorted(nodes, state.node[order]),
            load,
            size,
        )
        moved, target = repartitioned(bins, left, right, smoothing, state.random)
        if len(moved):
            state.charge_nodes(order[moved], -1.0)
            state.node[order[moved]] = nodes[target]
            state.charge_nodes(order[moved], 1.0)
            changed += len(moved)
    return changed


def _may_be_on_node(state: SearchState, blocks: Ints, nodes: Ints) -> Bools:
    """Return whether [n] each block's table may use all ranks of the node at its position."""
    problem = state.problem
    return np.asarray(problem.node_sets[problem.table_rank_set[problem.table_of_block[blocks]], nodes])


def _node_amounts(state: SearchState, blocks: Ints, kind: int, ranks: int) -> tuple[Floats, Floats]:
    """Return the loads [n, ranks, C] and bytes [n, ranks, M] of node-wide blocks."""
    problem = state.problem
    share = np.stack([problem.node_share(block, ranks) for block in blocks.tolist()])[..., None]
    load = problem.fixed[kind, blocks][:, None] + problem.by_rows[kind, blocks][:, None] * share
    size = problem.bytes_fixed[kind, blocks][:, None] + problem.bytes_by_rows[kind, blocks][:, None] * share
    return load, size
