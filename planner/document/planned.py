"""What a plan document says, as the models and arrays that everything is computed from."""

from collections.abc import Iterable, Sequence

import numpy as np

from cost_models.costs_at_lines import CostsAtLines
from cost_models.model import CostModel
from cost_models.replicas import Replicas
from cost_models.shards import (
    PLACEMENT_TIERS,
    SHARDING_ROWS,
    SHARDINGS,
    STATE_PLACES,
    Blocks,
    Floats,
    Ints,
    PlacedShards,
    run_starts,
)
from cost_models.stages import VectorExchange
from cost_models.workload.formats import DTYPES
from cost_models.workload.models import Workload
from planner.document.plan import Plan, TablePlan
from planner.formulation.allowed_choices import model_of_replicas
from planner.formulation.variant_words import Variant
from topologies.cluster import Topology
from topologies.documents import Document, validate
from topologies.errors import InputError


def planned_inputs(plan: Plan) -> tuple[Topology, Workload]:
    """The cluster and the workload that the plan was computed for. Raises InputError if they are no longer valid."""
    workload = validate(Document(plan.provenance.workload.content, "provenance.workload.content"), Workload)
    return planned_topology(plan), workload


def held_workload(plan: Plan) -> Workload:
    """The workload with its tables as the plan holds them. Raises InputError as `planned_inputs` does."""
    return with_variants(planned_inputs(plan)[1], plan.tables)


def with_variants(workload: Workload, tables: Sequence[TablePlan]) -> Workload:
    """A workload whose tables are compressed as those of a plan are, where that says so."""
    if all(table.variant is None for table in tables):
        return workload
    compressors = []
    for number, (table, profile) in enumerate(zip(tables, workload.tables, strict=False)):
        try:
            own = None if table.variant is None else Variant.parse(table.variant).compressor
        except ValueError as error:
            raise InputError.at("tables", str(error), path=f"{number}.variant") from None
        compressors.append(workload.compressor_of(profile) if own is None else own)
    more = workload.compressors[len(compressors) :]
    return workload.with_compressors((*compressors, *more))


def held_model(model: CostModel, tables: Sequence[TablePlan]) -> CostModel:
    """The costs of tables as a plan holds them, of a model of those that its workload states."""
    if all(table.variant is None for table in tables) or not model.chooses_dtypes:
        return model
    return model.compressed_as(with_variants(model.stated_workload, tables))


def planned_topology(plan: Plan, source: str = "") -> Topology:
    """The cluster that the plan was computed for; `source` leads in messages. Raises InputError as `planned_inputs`."""
    return validate(Document(plan.provenance.topology.content, f"{source}provenance.topology.content"), Topology)


def planned_model(plan: Plan) -> CostModel:
    """The costs that the plan was computed under. Raises InputError as `planned_inputs` does, and for groups of ranks
    that cannot be."""
    return model_under(plan, plan.provenance.exchange)


def model_under(plan: Plan, exchange: VectorExchange) -> CostModel:
    """The same costs under this exchange of vectors."""
    origin = plan.provenance
    inputs = origin.cost_model, *planned_inputs(plan), origin.policy
    return held_model(model_of_replicas(*inputs, planned_replicas(plan), exchange), plan.tables)


def planned_replicas(plan: Plan) -> Replicas | None:
    """The groups of ranks that the plan is for; None for one world. Raises InputError for what cannot be."""
    try:
        return None if plan.replicas is None else plan.replicas.chosen
    except ValueError as error:
        raise InputError.at("replicas", str(error)) from None


def seconds_without_tables(plan: Plan, model: CostModel) -> Floats:
    """[W, S] what each stage of a plan takes on each rank if its tables take nothing, but are waited for where they are
    exchanged."""
    if isinstance(model, CostsAtLines):
        return model.without_tables(placed_shards(plan)).rank_stage_seconds
    return model.evaluate_nothing().rank_stage_seconds


def placed_shards(plan: Plan) -> PlacedShards:
    """The shards of all tables as one set of arrays."""
    return placed_tables(plan.tables)


def placed_tables(tables: Sequence[TablePlan]) -> PlacedShards:
    """`placed_shards` of tables that are in the order of their workload."""
    begins = [run_starts(table.shards.column_start, table.shards.columns) for table in tables]
    runs = [*map(len, begins)]
    number = np.repeat(np.arange(len(tables)), runs)
    columns, column_start = (_joined(tables, name, begins) for name in ("columns", "column_start"))
    lengths = [np.diff(begin, append=len(table.shards)) for begin, table in zip(begins, tables, strict=True)]
    count = np.concatenate(lengths)

    def spread(values: Iterable[float]) -> np.ndarray:
        return np.repeat(np.array(list(values)), runs)

    place = number * (int(column_start.max(initial=0)) + 1) + column_start
    opens = np.zeros(count.sum(), dtype=bool)
    opens[(np.cumsum(count) - count)[np.unique(place, return_index=True)[1]]] = True
    holders = [len(table.shards) * SHARDING_ROWS[table.sharding].cuts_into_sites for table in tables]
    blocks = Blocks(
        table=number,
        sharding=spread(SHARDINGS.index(table.sharding) for table in tables),
        tier=spread(PLACEMENT_TIERS.index(table.tier) for table in tables),
        columns=columns,
        cache_fraction=spread(float(table.cache_fraction or 0.0) for table in tables),
        dtype=spread(DTYPES.index(table.dtype) for table in tables),
        state=spread(STATE_PLACES.index(table.optimizer_state) for table in tables),
        holders=spread(holders) if any(SHARDING_ROWS[table.sharding].cuts_into_sites for table in tables) else None,
    )
    rank, rows = _joined(tables, "rank"), _joined(tables, "rows")
    return PlacedShards(blocks.repeated(count), rank, rows, opens_block=opens)


def _joined(tables: Sequence[TablePlan], field: str, at: Sequence[Ints] | None = None) -> Ints:
    """[n] the field of all shards of the tables, or of those `at` some positions of each."""
    every = [getattr(table.shards, field) for table in tables]
    return np.concatenate(every if at is None else [values[some] for values, some in zip(every, at, strict=True)])
