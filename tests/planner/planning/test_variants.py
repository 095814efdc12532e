"""A choice of variants within a budget: the best one, proven, and no more is lost than may be."""

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

import planner
from cost_models.workload.models import Workload
from planner.document.plan import Plan, write_plan
from planner.exporters.formats import ExportRequest
from planner.exporters.torchrec import export_plan
from planner.formulation.policy import Policy, load_policy
from planner.planning.caches import FEW
from planner.verification.loading import load_plan
from planner.verification.verify import verify
from tests.oracles.instances import node_group, topology, workload
from tests.oracles.variants import LIMITS, best_s, instance
from topologies.errors import InputError

CLUSTER = topology(node_group("a", ranks=2, hbm_bytes=3e8, ddr_bytes=None))


def _tables(count: int = 3) -> Workload:
    tables = [{"name": f"t{i}", "rows": 600_000, "dim": 64, "zipf_alpha": 1.05} for i in range(count)]
    return workload(tables, name="variants", embedding={"optimizer": "sgd"})


def _policy(losses: list[tuple[str, str, float]], budget: float, **limits: object) -> Policy:
    rows = [{"table": table, "variant": variant, "loss": loss} for table, variant, loss in losses]
    return Policy.model_validate({"variants": {"losses": rows, "budget": budget}, **limits})


def _expect_best(seeds: Iterable[int]) -> None:
    for seed in seeds:
        cluster, stated, losses, budget = instance(seed)
        rules = {**LIMITS, "variants": {"losses": losses, "budget": budget}}
        found = planner.plan(cluster, stated, policy=Policy.model_validate(rules), effort=1, gap=0, simulate=False)
        best = best_s(cluster, stated, losses, budget)
        assert (found.objective is None) == (best is None), seed
        if found.objective is not None:
            assert found.objective.step_s == pytest.approx(best, rel=1e-9), seed
            assert found.objective.lower_bound_s <= found.objective.step_s * (1 + 1e-12), seed
        assert verify(found) == [], seed


def test_the_choice_is_the_best_of_all() -> None:
    """As trying every choice within the budget shows, on small instances."""
    _expect_best([seed for seed in range(20) if len(instance(seed)[1].tables) == 2][:4])


@pytest.mark.slow(seconds=40)
def test_the_choice_is_the_best_of_all_on_two_hundred_instances() -> None:
    """The same of 200."""
    _expect_best(range(200))


def test_a_budget_makes_a_plan_fit() -> None:
    """Tables that do not fit as they are do with variants, and the least budget that suffices is all that is lost."""
    losses = [("t*", "hash:4", 0.5), ("t0", "qr:8", 0.2)]
    without = planner.plan(CLUSTER, _tables(4), policy=_policy(losses, 0.01), effort=1)
    assert without.status == "infeasible"
    assert without.infeasibility is not None
    assert "within the budget of losses" in without.infeasibility.summary
    assert verify(without) == []
    found = planner.plan(CLUSTER, _tables(4), policy=_policy(losses, 0.2), effort=1)
    assert [table.variant for table in found.tables] == ["qr:8:multiply", "none", "none", "none"]
    assert found.quality is not None
    assert found.quality.loss == 0.2
    assert verify(found) == []


def test_a_variant_that_is_beyond_the_budget_alone_changes_nothing() -> None:
    """Neither the plan nor its bound: a part of it within the budget is no variant."""
    losses = [("t0", "qr:8", 0.2), ("t1", "fp16", 0.1)]
    some, more = (
        planner.plan(CLUSTER, _tables(), policy=_policy(rows, 0.3), effort=0, simulate=False)
        for rows in (losses, [*losses, ("t2", "hash:8", 0.4)])
    )
    assert some.objective is not None
    assert more.objective is not None
    assert more.objective.step_s == some.objective.step_s
    assert more.objective.lower_bound_s == pytest.approx(some.objective.lower_bound_s, rel=1e-9)


CACHED = topology(node_group("a", ranks=2, hbm_bytes=3e8, ddr_bytes=5e9))


def test_a_budget_of_nothing_changes_nothing() -> None:
    """Where no variant but the stated tables can be paid, the plan is theirs, cache sizes and all."""
    losses = [("t0", "qr:8", 0.2), ("t*", "fp16", 0.1)]
    tables = [{"name": f"t{i}", "rows": 300_000 * (i + 2), "dim": 64, "zipf_alpha": 1.05} for i in range(3)]
    stated = workload(tables, name="variants", embedding={"optimizer": "sgd"})
    without, offered = (
        planner.plan(CACHED, stated, policy=policy, effort=1, simulate=False)
        for policy in (Policy(), _policy(losses, 0.0))
    )
    assert any(table.cache_fraction for table in without.tables)
    assert offered.objective == without.objective
    assert [t.model_copy(update={"variant": None}) for t in offered.tables] == list(without.tables)
    assert verify(offered) == []


def test_caches_beside_variants_have_any_size() -> None:
    """Once all is placed the memory is divided anew, and the plan is none the worse for what is offered."""
    tables = [{"name": f"t{i}", "rows": 300_000 * (i + 2), "dim": 64, "zipf_alpha": 1.05} for i in range(3)]
    stated = workload(tables, name="variants", embedding={"optimizer": "sgd"})
    policies = (Policy(), _policy([("t0", "hash:2", 0.2)], 0.2))
    without, offered = (planner.plan(CACHED, stated, policy=each, effort=1, simulate=False) for each in policies)
    sizes = {table.cache_fraction for table in offered.tables} - {None, *FEW, 0.3}
    assert sizes
    assert without.objective is not None
    assert offered.objective is not None
    assert offered.objective.step_s <= without.objective.step_s
    assert verify(offered) == []
    listed = offered.provenance.cache_fractions["ddr_cached"]
    assert set(listed) == {"t0/none", "t0/hash:2", "t1/none", "t2/none"}


def test_a_document_keeps_variants_and_their_loss(tmp_path: Path) -> None:
    """What was planned is read back, simulated and verified; other losses, variants and budgets are found out."""
    found = planner.plan(CLUSTER, _tables(), policy=_policy([("t*", "qr:8", 0.2), ("t*", "fp16", 0.1)], 0.3), effort=1)
    write_plan(found, tmp_path / "plan.json")
    again = load_plan(tmp_path / "plan.json")
    assert again == found
    assert verify(again) == []
    document = json.loads(found.model_dump_json())
    for change in (
        lambda data: data["quality"].update(loss=0.1),
        lambda data: data["quality"].update(budget=9.0),
        lambda data: data["provenance"]["policy"]["variants"].update(budget=0.05),
        lambda data: data["tables"][0].update(variant="hash:2"),
        lambda data: data["tables"][0].update(variant=None),
    ):
        other = json.loads(json.dumps(document))
        change(other)
        assert verify(Plan.model_validate(other))


def test_losses_come_from_a_file(tmp_path: Path) -> None:
    """CSV beside the policy; a fault is laid to its line and column."""
    (tmp_path / "losses.csv").write_text("table,variant,loss\nt0,qr:4,0.1\nt*,int4+cache:1%,0.2\n")
    (tmp_path / "policy.yaml").write_text("variants: {losses: losses.csv, budget: 0.3}\n")
    policy = load_policy(tmp_path / "policy.yaml")
    assert policy.variants is not None
    assert [str(row.variant) for row in policy.variants.losses] == ["qr:4:multiply", "int4+cache:0.01"]
    (tmp_path / "losses.csv").write_text("table,variant,loss\nt0,svd:4,0.1\n")
    with pytest.raises(InputError, match=r"losses.csv:2:4: .*none of a compressor"):
        load_policy(tmp_path / "policy.yaml")


@pytest.mark.parametrize(
    ("losses", "limits", "said"),
    [
        ([("nobody", "qr:4", 0.1)], {}, "no table is called 'nobody'"),
        ([("t0", "dim:64", 0.1)], {}, "'t0': dim:64 is no fewer than the 64 columns"),
        ([("t0", "int4", 0.1)], {}, "training cannot write int4 in place; add a cache"),
        ([("t0", "qr:4", 0.1), ("t*", "qr:4:multiply", 0.2)], {}, "stands twice"),
        ([("t0", "qr:4", 0.1)], {"runtime": "torchrec"}, "torchrec has no tables of two parts"),
        ([("t0", "fp16", 0.1)], {"dtypes": ["fp32", "fp16"]}, "variants name some, too"),
        ([("t*", "none", 1.0)], {}, "the least losses of all tables are 3 together"),
    ],
)
def test_what_cannot_be_chosen_is_refused_by_name(
    losses: list[tuple[str, str, float]], limits: dict[str, object], said: str
) -> None:
    """Each with what is wrong."""
    with pytest.raises(InputError, match=said):
        planner.plan(CLUSTER, _tables(), policy=_policy(losses, 0.5, **limits), effort=0)


def test_a_trainer_is_told_what_to_build() -> None:
    """Exported tables have their stored rows and columns, and a sentence says which ids and which matrix they need."""
    room = topology(node_group("a", ranks=2, hbm_bytes=5e9))
    losses = [("t0", "hash:4", 0.0), ("t0", "none", 1.0), ("t1", "dim:14", 0.0), ("t1", "none", 1.0)]
    found = planner.plan(room, _tables(), policy=_policy(losses, 0.5, runtime="torchrec"), effort=0)
    exported = export_plan(ExportRequest(found, "plan", modules=("m",)))
    assert exported.document is not None
    tables = exported.document["plan"]["m"]
    assert (tables["t0"]["num_embeddings"], tables["t1"]["embedding_dim"]) == (150_000, 16)
    said = " ".join(exported.notes)
    assert "t0 (hash:4): give it ids hashed into 150,000 rows" in said
    assert "t1 (dim:14): its vectors, the first 14 of its 16 columns, go through a Linear(14, 64, bias=False)" in said
