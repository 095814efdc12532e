"""What options and blocks are called in a written programme, so that a name alone says what is held where.

A count is called `count:TABLE:OPTION:BLOCK:SITE`. The option is `TIER/DTYPE/STATE/KIND`, the tier with `@SHARE` where
a share of the rows is cached; KIND is `cut` where the columns are cut as one likes, else the blocks, each as often as
it occurs, and `~VARIANT` where the table may have several. A block is `SHARDING.COLUMNS.ROWS`, a site the number of a
rank, or of a group of ranks, or `all`.
"""

from dataclasses import dataclass
from urllib.parse import quote

from cost_models.shards import (
    PARTLY_IN_HBM,
    PLACEMENT_TIERS,
    SHARDINGS,
    STATE_PLACES,
    PlacementTier,
    Sharding,
    StatePlace,
)
from cost_models.workload.dense_part import Dtype
from cost_models.workload.formats import DTYPES
from planner.formulation.formulation import Formulation
from planner.formulation.variants import memory_names
from planner.problem.sites import NOWHERE
from planner.solvers.integer.variables import COUNT, EVERYWHERE, Labels

MOST_LETTERS = 100
"""Of a table's name: beyond it the table goes by its number, as `@7`. Solvers take names of up to 255 letters."""


def labels_of(formulation: Formulation) -> Labels:
    """The labels of a formulation's programme."""
    model, options, problem = formulation.model, formulation.options, formulation.problem
    blocks = [
        f"{SHARDINGS[sharding]}.{columns}.{rows}"
        for sharding, columns, rows in zip(
            options.block_sharding.tolist(), options.block_columns.tolist(), options.block_rows.tolist(), strict=True
        )
    ]
    names = []
    for option, (tier, share) in enumerate(zip(options.tier.tolist(), options.cache_fraction.tolist(), strict=True)):
        own = range(*problem.block_start[option : option + 2].tolist())
        kind = "cut" if options.units[option] else "+".join(f"{problem.block_count[b]}x{blocks[b]}" for b in own)
        held = PLACEMENT_TIERS[tier] + (f"@{share!r}" if PLACEMENT_TIERS[tier] in PARTLY_IN_HBM else "")
        if (variants := options.choices.variants) is not None:
            kind += f"~{quote(variants.words[options.profile[option]], safe='')}"
        names.append(f"{held}/{DTYPES[options.dtype[option]]}/{STATE_PLACES[options.state[option]]}/{kind}")
    tables = [table_label(number, table.name) for number, table in enumerate(model.workload.tables)]
    columns = [f"{model.stages[at.stage]}.{at.resource.kind}.{c}" for c, at in enumerate(model.columns)]
    return Labels(tables, names, blocks, model.stages, columns, memory_names(model, len(problem.pool_capacity)))


def table_label(number: int, name: str) -> str:
    """A table's name with letters that a file does not take escaped as in an address; if it is long, its number."""
    escaped = quote(name, safe="")
    return escaped if len(escaped) <= MOST_LETTERS else f"@{number}"


@dataclass(frozen=True)
class NamedCount:
    """What the name of a count says."""

    table: str
    """Its label; see `table_label`."""
    tier: PlacementTier
    cache_fraction: float | None
    dtype: Dtype
    optimizer_state: StatePlace
    option: str
    """The option's whole name: a table has blocks of one option only."""
    sharding: Sharding
    columns: int
    rows: int
    site: int

    @classmethod
    def read(cls, name: str) -> "NamedCount | None":
        """The parts of a name; None of what is no count. Raises ValueError for one that is not as counts are named."""
        kind, *fields = name.split(":")
        if kind != COUNT:
            return None
        table, option, block, site = fields
        held, dtype, state, _ = option.split("/")
        tier, _, share = held.partition("@")
        sharding, columns, rows = block.split(".")
        fraction = float(share) if share else None
        if fraction is not None and not 0 < fraction <= 1:
            raise ValueError(name)
        return cls(
            table,
            PLACEMENT_TIERS[PLACEMENT_TIERS.index(tier)],
            fraction,
            DTYPES[DTYPES.index(dtype)],
            STATE_PLACES[STATE_PLACES.index(state)],
            option,
            SHARDINGS[SHARDINGS.index(sharding)],
            int(columns),
            int(rows),
            NOWHERE if site == EVERYWHERE else int(site),
        )
