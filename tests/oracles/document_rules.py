"""What a plan document may say of each table: the words of the policy, the runtimes and the cost model, read anew.

Written from docs/reference/policy.md and docs/reference/memories.md alone: nothing is taken from the planner but the
record that a policy is parsed into. T tables, W ranks.
"""

import fnmatch
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cost_models.model import CostModel
from cost_models.shards import MEMORY_TIERS, PLACEMENT_TIERS, SHARDINGS, TIERS, Floats, Ints
from planner.formulation.policy import Policy

COLUMN_UNIT = 4
COARSE_FRACTIONS: dict[str, tuple[float, ...]] = {
    "hbm": (0.0,),
    "ddr": (0.0,),
    "scm": (0.0,),
    "ddr_cached": (0.02, 0.1, 0.3),
    "ddr_split": (0.02, 0.1, 0.3),
    "scm_cached": (0.02, 0.1, 0.3),
    "ssd_cached": (0.05, 0.2),
    "remote_cached": (0.05, 0.2),
}
"""Cache sizes of every table, beside those that a plan lists."""
WHOLE_NODES = ("table_row_wise", "grid_shard")
EVERYWHERE = ("data_parallel", "row_wise")
POOLED_ONLY = ("table_row_wise", "table_column_wise", "grid_shard")
RUNTIME_TIERS = {"torchrec": ("hbm", "ddr_cached", "ddr"), "hugectr": ("hbm",)}
PRECISE_TIERS = {"torchrec": {"ddr_cached"}, "hugectr": set[str]()}
"""Where a runtime's kernels keep rows of a stated precision cache: TorchRec's in FBGEMM's cache; HugeCTR has none."""
RUNTIME_DTYPES = {"torchrec": ("fp32", "fp16", "bf16", "fp8", "int8"), "hugectr": ("fp32",)}
ROWS_CUT = ("row_wise", "table_row_wise", "multi_node_row_wise", "multi_rank_row_wise")
RUNTIME_SHARDINGS = {"hugectr": ("data_parallel", "table_wise", *ROWS_CUT)}


@dataclass(frozen=True)
class TableRules:
    """What one table may be."""

    name: str
    rows: int
    dim: int
    shardings: tuple[str, ...]
    variants: tuple[tuple[str, float, str, str], ...]
    """(tier, cache fraction, dtype, place of the optimizer state)."""
    ranks: tuple[int, ...]
    """On which its shards may be."""
    max_shards: float
    step: int
    """Columns of which the widths of several blocks are multiples; 0 where it may not be cut by columns."""


@dataclass(frozen=True)
class GroupRules:
    """Tables that are on one zone, or no two on the same."""

    tables: tuple[int, ...]
    zone_of_rank: tuple[int, ...]
    together: bool


@dataclass(frozen=True)
class Rules:
    """Of all tables, their groups and the memory that the policy leaves."""

    tables: tuple[TableRules, ...]
    groups: tuple[GroupRules, ...]
    capacity: tuple[Floats, ...]
    """Per memory of the cost model, bytes of each pool."""
    plain: bool = False
    """Whether cuts are left out that the planner may leave out, if it says so: blocks tied to a node of unlike widths
    where column_wise is not allowed, and blocks of at most 1/(N + 1) of the width where N parts are allowed."""


def rules_of(model: CostModel, policy: Policy, listed: dict[str, dict[str, Sequence[float]]] | None = None) -> Rules:
    """What the document may say; `listed` are the cache fractions of its provenance, by tier and table."""
    tables = tuple(_table(model, policy, number, listed or {}) for number in range(len(model.workload.tables)))
    return Rules(tables, tuple(_groups(model, policy)), _capacity(model, policy))


def _has_rows_over_nodes(model: CostModel, policy: Policy) -> bool:
    """Whether a policy that leaves the shardings open lets HugeCTR cut rows over several nodes."""
    ranks = np.bincount(model.host_of_rank).tolist()
    is_open = policy.runtime == "hugectr" and "shardings" not in policy.model_fields_set
    return is_open and model.name == "physical" and len(ranks) > 2 and len(set(ranks)) == 1


def _names(model: CostModel, patterns: Sequence[str]) -> set[str]:
    every = [table.name for table in model.workload.tables]
    return {name for name in every for pattern in patterns if name == pattern or fnmatch.fnmatchcase(name, pattern)}


def _table(model: CostModel, policy: Policy, number: int, listed: dict[str, dict[str, Sequence[float]]]) -> TableRules:
    profile = model.workload.tables[number]
    rules = [rule for rule in policy.tables if profile.name in _names(model, rule.match)]
    limits = [policy, *(rule for rule in rules if profile.name not in _names(model, rule.unless or ()))]
    runtime = policy.runtime
    tiers = set(RUNTIME_TIERS.get(runtime, PLACEMENT_TIERS))
    shardings = set(RUNTIME_SHARDINGS.get(runtime, SHARDINGS))
    if runtime == "hugectr" and model.name == "hugectr":
        shardings.add("column_wise")
    if runtime == "torchrec":
        shardings -= set() if len(set(np.bincount(model.host_of_rank).tolist())) == 1 else set(WHOLE_NODES)
        shardings -= set() if profile.pooled else set(POOLED_ONLY)
    if profile.precision_cache is not None:
        tiers &= PRECISE_TIERS.get(runtime, tiers)
    ranks = set(range(len(model.kind_of_rank)))
    multiple, most, dtypes, states = 1, math.inf, None, None
    for limit in limits:
        tiers &= set(PLACEMENT_TIERS if limit.tiers is None else limit.tiers)
        tiers -= set(limit.forbid_tiers or ())
        is_open = limit.shardings is None or (limit is policy and _has_rows_over_nodes(model, policy))
        shardings &= set(SHARDINGS if is_open else limit.shardings or ())
        ranks &= ranks if limit.ranks is None else set(limit.ranks)
        ranks &= ranks if limit.nodes is None else {r for r in ranks if model.host_of_rank[r] in limit.nodes}
        ranks -= set(limit.forbid_ranks or ())
        most = min(most, limit.max_shards or math.inf)
        multiple = math.lcm(multiple, limit.column_multiple or 1)
        dtypes = _both(dtypes, limit.dtypes)
        states = _both(states, limit.optimizer_state)
    for group in policy.colocate:
        if profile.name in _names(model, group.tables) and group.on == "rank" and len(model.kind_of_rank) > 1:
            shardings &= {"table_wise"}  # "all on one rank, so whole tables"
    step = math.lcm(COLUMN_UNIT, multiple)
    return TableRules(
        name=profile.name,
        rows=profile.rows,
        dim=profile.dim,
        shardings=tuple(sharding for sharding in SHARDINGS if sharding in shardings),
        variants=tuple(_variants(model, number, tiers, dtypes, states, runtime, listed)),
        ranks=tuple(sorted(ranks)),
        max_shards=most,
        step=step if profile.dim % step == 0 else 0,
    )


def _both(one: Sequence[str] | None, other: Sequence[str] | None) -> Sequence[str] | None:
    if one is None or other is None:
        return other if one is None else one
    return tuple(word for word in one if word in other)


def _variants(
    model: CostModel,
    number: int,
    tiers: set[str],
    dtypes: Sequence[str] | None,
    states: Sequence[str] | None,
    runtime: str,
    listed: dict[str, dict[str, Sequence[float]]],
) -> list[tuple[str, float, str, str]]:
    """Tiers with their cache sizes, formats, and places of the optimizer state."""
    profile = model.workload.tables[number]
    named = dtypes if dtypes is not None else (model.workload.dtype_of(profile),)
    if dtypes is not None:
        named = [dtype for dtype in named if dtype in RUNTIME_DTYPES.get(runtime, named)]
    of_row = model.tables.row_state_bytes(np.array([number]), np.array([profile.dim]))[0]
    if states is not None and runtime != "any":
        states = [place for place in states if place == "with_table"]
    found = []
    for tier in (tier for tier in PLACEMENT_TIERS if tier in tiers):
        own = model.cache_fractions.get(tier, COARSE_FRACTIONS[tier])
        fractions = sorted({*own, *listed.get(tier, {}).get(profile.name, ())})
        found += [(tier, f, d, s) for f in fractions for d in named for s in _states(tier, states, has=of_row > 0)]
    return found


def _states(tier: str, named: Sequence[str] | None, *, has: bool) -> list[str]:
    """With the rows, unless the policy names places; state that is where the rows are at home is with them."""
    if named is None or not has:
        return ["with_table"]
    form = TIERS[tier]
    found = ["with_table"] if "with_table" in named or (form.home in named and form.how != "split") else []
    return found + [place for place in named if place not in ("with_table", form.home)]


def _groups(model: CostModel, policy: Policy) -> list[GroupRules]:
    names = [table.name for table in model.workload.tables]
    found = []
    for groups, together in ((policy.colocate, True), (policy.separate, False)):
        for group in groups:
            tables = tuple(names.index(name) for name in names if name in _names(model, group.tables))
            zones = range(len(model.kind_of_rank)) if group.on == "rank" else model.host_of_rank.tolist()
            found.append(GroupRules(tables, tuple(zones), together))
    return found


def _capacity(model: CostModel, policy: Policy) -> tuple[Floats, ...]:
    """What the topology leaves, less the policy's reserve: a share of it, or bytes per rank (HBM), per node, or of all
    remote hosts of a group. Where a cost model deals a node's memory out to its ranks, each part keeps its part free.
    """
    found = []
    for memory, capacity, pool in zip(model.memories, model.memory_capacity, model.memory_pool_of_rank, strict=True):
        kept = getattr(policy.reserve, memory)
        size = np.array([_reserved(model, memory, kept.size, pool, k) for k in range(len(capacity))])
        found.append(np.maximum(np.asarray(capacity, dtype=float) * (1 - kept.share) - size, 0.0))
    assert set(model.memories) <= set(MEMORY_TIERS)
    return tuple(found)


def _reserved(model: CostModel, memory: str, size: int, pool: Ints, number: int) -> float:
    if memory == "hbm":
        return float(size)
    of_pool = int((pool == number).sum())
    of_host = int((model.host_of_rank == model.host_of_rank[np.argmax(pool == number)]).sum())
    return size * min(of_pool / of_host, 1.0)
