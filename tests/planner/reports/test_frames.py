"""Plans as data frames: what they add up to is what the document says."""

import pytest

from cost_models.shards import MEMORY_TIERS
from planner import Plan, plan, plan_frame
from topologies.errors import InputError


@pytest.fixture(scope="module")
def planned() -> Plan:
    return plan("dgx-a100-80", "criteo-kaggle", effort=0, simulate=False)


def test_tables_and_their_shards_have_the_same_bytes(planned: Plan) -> None:
    """In each memory, and as many shards."""
    tables, shards = plan_frame(planned), plan_frame(planned, "shards")
    assert tables.table.tolist() == [table.name for table in planned.tables]
    for tier in MEMORY_TIERS:
        assert tables[f"{tier}_bytes"].tolist() == shards.groupby("table", sort=False)[f"{tier}_bytes"].sum().tolist()
    assert tables.shards.tolist() == shards.groupby("table", sort=False).size().tolist()


def test_tiers_are_sums_of_tables(planned: Plan) -> None:
    tables, tiers = plan_frame(planned), plan_frame(planned, "tiers")
    assert set(tiers.tier) == {table.tier for table in planned.tables}
    assert tiers.tables.sum() == len(tables)
    assert tiers.hbm_bytes.sum() == tables.hbm_bytes.sum()


def test_ranks_and_stages_are_those_of_the_document(planned: Plan) -> None:
    ranks, stages = plan_frame(planned, "ranks"), plan_frame(planned, "stages")
    assert ranks["rank"].tolist() == list(range(8))
    assert ranks.hbm_bytes.tolist() == [rank.bytes["hbm"] for rank in planned.ranks]
    assert (ranks.hbm_bytes <= ranks.hbm_usable_bytes).all()
    assert stages.stage.tolist() == [stage.name for stage in planned.stages]
    assert ranks.lookup_forward_s.max() == pytest.approx(stages.seconds[stages.stage == "lookup_forward"].item())


def test_a_plan_that_places_nothing_has_no_rows() -> None:
    nothing = plan("dgx-a100-80", "model-f", effort=0, simulate=False, tiers=["hbm"])
    assert nothing.status == "infeasible"
    for of in ("tables", "shards", "tiers", "stages"):
        assert plan_frame(nothing, of).empty


def test_another_word_is_refused(planned: Plan) -> None:
    with pytest.raises(InputError, match="none of tables, shards, ranks, tiers, stages; did you mean 'ranks'"):
        plan_frame(planned, "rank")
