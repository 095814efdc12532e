"""Explanations add up: to the stage times of the plan, and to its bound."""

import io
import math
from functools import cache

import numpy as np
import pytest
from rich.console import Console

from cost_models.coefficients import software_coefficients
from cost_models.shards import PLACEMENT_TIERS, SHARDINGS
from planner import plan
from planner.diagnosis.explanation import Explainer
from planner.document.plan import Plan
from planner.formulation.policy import Policy
from planner.reports.explanation import render_plan, render_table, why
from planner.reports.explanation_records import plan_document
from planner.reports.rank import document
from planner.reports.stage import document as stage_document
from tests.oracles.instances import node_group, tiny_instance, topology, workload
from tests.seeds import seeds


@cache
def tiny_plan(seed: int) -> Plan:
    """Of any cluster, with all that the tiny instance of a seed may use."""
    instance = tiny_instance(seed)
    return plan(instance.model.topology, instance.model.workload, tiers=instance.policy.tiers, effort=0)


def check_sums(found: Plan) -> None:
    explainer = Explainer(found)
    reasons = explainer.plan()
    assert found.objective is not None
    assert found.proof is not None
    for each in reasons.stages:
        total = each.constant_s + sum(part.seconds for part in each.contributors) - each.hidden_s
        assert total == pytest.approx(each.stage.seconds, rel=1e-9)
    bounds = [each.bound_s for each in reasons.stages]
    proven = sum(bound for bound in bounds if bound is not None) + (reasons.memory_bound_s or 0.0)
    proven = min(proven, found.proof.threshold_s or proven)
    proven += (reasons.branching_bound_s or 0.0) + (reasons.other_protocols_s or 0.0)
    assert min(proven, found.objective.step_s) == pytest.approx(found.objective.lower_bound_s, rel=1e-6)
    paid = dict.fromkeys((stage.name for stage in found.stages), 0.0)
    for planned in found.tables:
        table = explainer.table(planned.name)
        for name, seconds in table.stage_seconds.items():
            paid[name] += seconds
            assert seconds <= table.own_seconds[name] * (1 + 1e-9)
        assert table.chosen is not None
        possible = {(option.sharding, option.tier) for option in (table.chosen, *table.others)}
        forbidden = [(way.sharding, way.tier) for way in table.forbidden]
        assert len(forbidden) + len(possible) == len(possible.union(forbidden)) == len(SHARDINGS) * len(PLACEMENT_TIERS)
        assert table.chosen.seconds == pytest.approx(sum(table.chosen.by_stage.values()))
        assert table.chosen.bytes["hbm"] == pytest.approx(planned.shards.bytes[:, 0].sum(), abs=len(planned.shards))
    check_ranks(found, explainer)
    check_stages(found, explainer)
    for each in reasons.stages:
        of_tables = sum(part.seconds for part in each.contributors if part.table is not None)
        assert of_tables == pytest.approx(paid[each.stage.name], rel=1e-9, abs=1e-15)


def check_ranks(found: Plan, explainer: Explainer) -> None:
    """Every rank's parts add up to its seconds, of which the longest are the plan's, and its memory to its bytes."""
    ranks = [explainer.rank(rank) for rank in range(len(explainer.model.kind_of_rank))]
    for s, stage in enumerate(found.stages):
        assert max(each.stages[s].seconds for each in ranks) == pytest.approx(stage.seconds, rel=1e-9)
    for each in ranks:
        for of_stage in each.stages:
            total = of_stage.constant_s + sum(part.seconds for part in of_stage.contributors) - of_stage.hidden_s
            assert total == pytest.approx(of_stage.seconds, rel=1e-9, abs=1e-15)
        said = document(each)
        memory = {str(record["part"]): record for record in said["memory"]}  # type: ignore[attr-defined]
        for m, tier in enumerate(explainer.model.memories):
            key = f"{tier}_bytes"
            assert memory["total"][key] == pytest.approx(each.rank_bytes[each.rank, m], rel=1e-9, abs=1)
            usable = explainer.model.memory_capacity[m][explainer.model.memory_pool_of_rank[m][each.rank]]
            taken = memory["total"][key] + memory["other ranks"][key] + memory["free"][key]
            assert taken == pytest.approx(usable, rel=1e-9, abs=2)
            assert memory["reserve"][key] >= -1
    assert sum(len(each.shards) for each in ranks) == sum(len(table.shards) for table in found.tables)


def check_stages(found: Plan, explainer: Explainer) -> None:
    """The longest of a stage's resources is its time, and every coefficient of it has a source."""
    for stage in found.stages:
        detail = explainer.stage(stage.name)
        if detail.resources:
            assert detail.resources[0].seconds == pytest.approx(stage.seconds, rel=1e-9, abs=1e-15)
        said = stage_document(detail, stage.name)
        assert all(each["source"] for each in said["coefficients"])  # type: ignore[attr-defined]
        assert bool(said["coefficients"]) == (explainer.model.quantity == "step" and stage.seconds > 0)


@pytest.mark.parametrize("seed", seeds(range(0, 45, 9), range(0, 45, 3)))
def test_tiny_instances_add_up(seed: int) -> None:
    """Mixed clusters, shared resources, all tiers and shardings."""
    found = tiny_plan(seed)
    if found.objective is not None:
        check_sums(found)


def test_what_other_stages_hide_is_told() -> None:
    """The exchange of the next ids outlasts the update: what is hidden of it is taken off, everywhere."""
    tables = [{"rows": 10**6, "dim": 32, "pooling_factor": 200} for _ in range(8)]
    model = workload(tables, global_batch=65_536, software="hugectr")
    found = plan(topology(node_group("a", nodes=4, ranks=2, nic_bytes_per_s=5e9)), model, effort=0)
    check_sums(found)
    reasons = Explainer(found).plan()
    (update,) = (each for each in reasons.stages if each.hidden_s)
    assert update.stage.name == "lookup_backward"
    console = Console(width=80, file=io.StringIO())
    render_plan(found, reasons, console)
    assert "(hidden behind other stages)" in console.file.getvalue()
    assert sum(stage["hidden_s"] > 0 for stage in plan_document(found, reasons)["stages"]) == 1


@pytest.mark.parametrize("software", ["torchrec", "hugectr"])
def test_the_fixed_cost_says_where_it_comes_from(software: str) -> None:
    """Its coefficient with value, kind and source, and that nothing changes it; in the tables and as data."""
    model = workload([{"rows": 10_000, "dim": 64}], software=software)
    found = plan(topology(node_group("a")), model, effort=0)
    reasons = Explainer(found).plan()
    evidence = software_coefficients(software).step_overhead_s
    (cost,) = reasons.fixed
    assert (cost.stage, cost.seconds, cost.of) == ("overhead", evidence.value, software)
    console = Console(width=80, record=True, file=io.StringIO())
    render_plan(found, reasons, console)
    said = " ".join(console.export_text().split())
    assert f"the step_overhead_s of {software} ({evidence.kind}) {evidence.source}" in said
    assert "one number for any device, batch, tables and placement" in said
    (written,) = plan_document(found, reasons)["fixed"]  # type: ignore[misc]
    assert written["seconds"] == evidence.value
    assert (written["source"], written["depends_on"]) == (evidence.source, [])


@pytest.mark.parametrize("name", ["physical", "torchrec", "hugectr"])
def test_every_cost_model_is_explained(name: str) -> None:
    """Ratings too, which have one stage."""
    check_sums(plan("zionex", "nv-tiny", cost_model=name, tiers=["hbm"], effort=0))


def test_an_option_is_priced_alike_from_its_shards_and_from_the_problem() -> None:
    """On equal ranks it does not matter where a block is: the plan's own whole tables cost what the options say."""
    cluster = topology(node_group("a", nodes=2))
    model = workload([{"rows": 10_000 * (i + 1), "dim": 64} for i in range(4)])
    whole = Explainer(plan(cluster, model, tiers=["hbm"], shardings=["table_wise"], effort=0))
    priced = whole._options
    assert priced is not None
    values = priced._fluid.choice_values(priced._multipliers)
    for table in range(4):
        assert whole.table(f"t{table}").others == ()
        chosen = whole.table(f"t{table}").chosen
        assert chosen is not None
        assert chosen.seconds == pytest.approx(values[priced.formulation.problem.table_block_start[table]])


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_lone_large_table_is_priced_with_what_its_stages_wait_for_anyway(ranks: int) -> None:
    """A weight on a table and a stage counts launches beside its block, for the plan's own option as for others."""
    tables = [{"rows": 10_000, "dim": 64, "pooling_factor": 400 // (i + 1) ** 3} for i in range(3)]
    cluster = topology(node_group("a", nodes=2, ranks=ranks))
    explainer = Explainer(plan(cluster, workload(tables), tiers=["hbm"], shardings=["table_wise"], effort=0))
    priced = explainer._options
    assert priced is not None
    weighted = priced._multipliers.of_table
    base = explainer.model.base_loads.max(axis=0)
    stages = [column.stage for column in explainer.model.columns]
    assert any(base[c] > 0 and (0, stage) in weighted for c, stage in enumerate(stages))
    values = priced._fluid.choice_values(priced._multipliers)
    chosen = explainer.table("t0").chosen
    assert chosen is not None
    first = priced.formulation.problem.table_block_start[0]
    assert chosen.seconds == pytest.approx(values[first], rel=1e-9)


@pytest.mark.parametrize("seed", seeds((7, 16, 18), range(12)))
def test_a_plan_costs_no_less_than_its_options(seed: int) -> None:
    """Where its shards are, a table costs at least what the cheapest option of its sharding and tier does.

    Not of its number of blocks: a plan may cut 64 columns into 16, 16 and 32, where options cut evenly.
    """
    found = tiny_plan(seed)
    if found.objective is None:
        return
    explainer = Explainer(found)
    priced = explainer._options
    assert priced is not None
    problem, values = priced.formulation.problem, priced._fluid.choice_values(priced._multipliers)
    for table, planned in enumerate(found.tables):
        chosen = explainer.table(planned.name).chosen
        assert chosen is not None
        choices = np.arange(*problem.table_block_start[table : table + 2])
        choices = choices[np.isfinite(values[choices])]
        totals = priced._fluid.choice_totals(choices, priced._multipliers)
        alike = [
            option.seconds
            for option in (priced._option(int(c), total) for c, total in zip(choices, totals, strict=True))
            if (option.sharding, option.tier) == (chosen.sharding, chosen.tier)
        ]
        assert not alike or chosen.seconds >= min(alike) * (1 - 1e-9) - 1e-15


def test_scarce_memory_has_a_price_and_dearer_options_say_where() -> None:
    """Too little HBM for all: it has a value, and the options that lose are dearer in a stage or in bytes."""
    cluster = topology(node_group("a", hbm_bytes=0.3e9))
    found = plan(cluster, workload([{"rows": 700_000, "dim": 64}] * 6, global_batch=256), effort=0)
    explainer = Explainer(found)
    reasons = explainer.plan()
    assert {memory.tier for memory in reasons.memory} == {"hbm"}
    assert all(memory.seconds_per_gib > 0 for memory in reasons.memory)
    in_ddr = next(table.name for table in found.tables if table.tier != "hbm")
    table = explainer.table(in_ddr)
    assert table.chosen is not None
    seconds = [option.seconds for option in table.others]
    assert seconds == sorted(seconds)
    for option in table.others:
        words = why(option, table.chosen, explainer.model)
        dearer = option.seconds > table.chosen.seconds * 1.001
        assert words.startswith("+") == (dearer and not option.is_too_long)
        assert not words.startswith("+") or words.rsplit(" ", 1)[1] in option.by_stage
        assert math.isfinite(option.seconds)


def test_sorting_of_ids_is_told_apart() -> None:
    """What sorting a table's ids takes of its update is told, and is part of it: 132 bytes for each id."""
    tables = [{"rows": 10**6, "dim": 16, "pooling_factor": 3000}, {"rows": 10**6, "dim": 16, "pooling_factor": 1}]
    cluster, sharded = topology(node_group("a", ranks=2)), {"shardings": ["table_wise", "column_wise", "row_wise"]}
    found = plan(cluster, workload(tables, global_batch=4096), policy=Policy.model_validate(sharded), effort=0)
    explainer = Explainer(found)
    for index, pooling in enumerate((3000, 1)):
        reasons = explainer.table(found.tables[index].name)
        shards = found.tables[index].shards
        most = np.bincount(shards.rank, weights=shards.rows / 10**6).max()
        sorted_bytes = 132 * 4096 * pooling * most
        assert reasons.id_sort_s == pytest.approx(sorted_bytes / explainer.model.kinds[0].lookup_bytes_per_s)
        assert reasons.id_sort_s < reasons.own_seconds["lookup_backward"]
    text = io.StringIO()
    render_table(found, reasons, Console(file=text, width=100))
    assert "of it, sorting its ids" in text.getvalue()


@pytest.mark.parametrize("factor", [1.0, 4.0])
def test_ids_and_distinct_rows_of_a_step(factor: float) -> None:
    """Deduplication leaves fewer ids, and the distinct ones that were measured: a tenth of all of the batch."""
    table = {"rows": 10**7, "dim": 16, "pooling_factor": 20, "unique_fraction": 0.1, "dedup_factor": factor}
    found = plan(topology(node_group("a", ranks=2)), workload([table], global_batch=65_536), effort=0)
    reasons = Explainer(found).table(found.tables[0].name)
    assert reasons.ids == pytest.approx(65_536 * 20 / factor)
    assert reasons.distinct_rows == pytest.approx(131_072, rel=1e-3)
    text = io.StringIO()
    render_table(found, reasons, Console(file=text, width=100))
    assert f"A step looks up {reasons.ids:,.0f} ids over all ranks, of 131,07" in text.getvalue()


def test_a_table_that_there_is_not() -> None:
    """A KeyError with its name."""
    found = plan(topology(node_group("a")), workload([{"rows": 1000, "dim": 64}]), effort=0)
    with pytest.raises(KeyError, match="t9"):
        Explainer(found).table("t9")
