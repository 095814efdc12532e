"""Statistics, hashes of inputs and stored plans: who uses them of `EmbeddingShardingPlanner` may of `ShardPlanner`."""

import logging
import re
from typing import Any

import pytest
from torch import nn
from torchrec.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints, Topology
from torchrec.distributed.planner import types as planner_types
from torchrec.distributed.planner.stats import EmbeddingStats, NoopEmbeddingStats
from torchrec.distributed.planner.types import (
    PlannerError,
    PlannerErrorType,
    Stats,
)
from torchrec.distributed.sharding_plan import get_default_sharders

from planner.integrations.torchrec_planner import ShardPlanner
from tests.torchrec_package.drop_in_cases import GPUS, Loader, Sharder, model


class Heard(Stats):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []

    def log(self, **told: Any) -> None:
        """What planners call."""
        self.told.append(told)


def test_stats_are_told_what_theirs_are() -> None:
    """The same names, several objects or one, options with the times and bytes of TorchRec's estimators."""
    of_ours, of_theirs = Heard(), Heard()
    planner = ShardPlanner(GPUS, stats=[of_ours, NoopEmbeddingStats()], debug=False, timeout_seconds=9)
    plan = planner.plan(model(), [Sharder("table_wise")])
    EmbeddingShardingPlanner(GPUS, stats=of_theirs, debug=False, timeout_seconds=9).plan(
        model(), [Sharder("table_wise")]
    )
    (ours,), (theirs,) = of_ours.told, of_theirs.told
    assert set(ours) == set(theirs)
    assert ours["sharding_plan"] is plan
    for same in ("batch_size", "debug", "constraints"):
        assert ours[same] == theirs[same]
    assert ours["debug_stats"].timeout_seconds == 9
    sizes = [[[shard.storage for shard in each.shards] for each in told["best_plan"]] for told in (ours, theirs)]
    assert sizes[0] == sizes[1]
    assert all(shard.perf.total > 0 for option in ours["best_plan"] for shard in option.shards)
    report = EmbeddingStats()
    ShardPlanner(GPUS, stats=report).plan(model(), [Sharder("table_wise")])
    of_tables = [line for line in report._stats_table if "bags." in line]
    assert [re.search(r"bags\.(\w)", line)[1] for line in of_tables] == list("abcd")
    assert all("TW" in line for line in of_tables)


def test_nothing_is_proposed_where_the_reservation_leaves_no_memory() -> None:
    """As by TorchRec's planner: the dense part alone is more than the memory, and neither stats nor counts tell of a
    proposal."""
    tiny = Topology(world_size=2, hbm_cap=2**21, compute_device="cuda")
    of_ours, of_theirs = Heard(), Heard()
    for maker, heard in ((ShardPlanner, of_ours), (EmbeddingShardingPlanner, of_theirs)):
        planner = maker(topology=tiny, stats=heard)
        module = nn.ModuleList([nn.Linear(10**4, 10**4, device="meta"), model("a", rows=10**12)])
        with pytest.raises(PlannerError) as raised:
            planner.plan(module, [Sharder("table_wise")])
        assert raised.value.error_type == PlannerErrorType.INSUFFICIENT_STORAGE
        assert planner._num_proposals == 0
        assert heard.told == []


@pytest.mark.parametrize("rows", [2 * 10**8, 10**10])
def test_stats_hear_of_a_search_without_a_plan(rows: int) -> None:
    """Before the error is raised, as of TorchRec's planner: an empty plan, and no plans among the proposals; its own
    report can be made of it."""
    of_ours, of_theirs = Heard(), Heard()
    sharders = [Sharder("table_wise")]
    for planner in (
        ShardPlanner(GPUS, stats=[of_ours, EmbeddingStats()]),
        EmbeddingShardingPlanner(GPUS, stats=of_theirs),
    ):
        with pytest.raises(PlannerError):
            planner.plan(model("a", rows=rows), sharders)
    (ours,), (theirs,) = of_ours.told, of_theirs.told
    for told in (ours, theirs):
        assert told["sharding_plan"].plan == {}
        assert told["num_plans"] == 0
        assert told["num_proposals"] > 0
    assert set(ours) >= set(theirs)
    assert ours["best_plan"] == []


def test_the_default_report_is_theirs() -> None:
    """EmbeddingStats, where nothing is said; none for an empty list."""
    (default,) = ShardPlanner(GPUS)._stats
    assert type(default) is EmbeddingStats
    assert ShardPlanner(GPUS, stats=[])._stats == []


def test_hashes_say_whether_inputs_are_the_same() -> None:
    """Equal for equal inputs, those of TorchRec's planner among them, and not for others."""

    def hashes(kind: type, **told: Any) -> tuple[int, str]:
        planner = kind(topology=GPUS, stats=[], **told)
        planner.plan(model(), [Sharder("table_wise")])
        return planner.hash_planner_context_inputs(), planner.hash_planner_context_inputs_str()

    own = hashes(ShardPlanner)
    assert own == hashes(ShardPlanner) == hashes(EmbeddingShardingPlanner)
    for other in ({"batch_size": 64}, {"constraints": {"a": ParameterConstraints(pooling_factors=[7.0])}}):
        assert hashes(ShardPlanner, **other)[1] != own[1]


@pytest.mark.parametrize("maker", [ShardPlanner, EmbeddingShardingPlanner])
def test_a_stored_plan_is_used_as_it_is(maker: type) -> None:
    """Whoever made it: the same shards on the same ranks, without a search and so without a document."""
    first = maker(topology=GPUS, stats=[])
    plan = first.plan(model(), get_default_sharders())
    stored = Loader(first._best_plan, first.hash_planner_context_inputs_str())
    planner = ShardPlanner(GPUS, plan_loader=stored)
    again = planner.plan(model(), get_default_sharders())
    assert again._serialize() == plan._serialize()
    assert planner.document is None
    assert planner._num_proposals == 0


def test_a_stored_plan_for_other_inputs_is_refused() -> None:
    """Other inputs, or other tables; one that is not there is made anew."""
    first = ShardPlanner(GPUS)
    plan = first.plan(model(), get_default_sharders())
    context = first.hash_planner_context_inputs_str()
    with pytest.raises(PlannerError, match="planner input mismatch: yesterday's was made for other inputs") as error:
        ShardPlanner(GPUS, plan_loader=Loader(first._best_plan, "other")).plan(model(), get_default_sharders())
    assert error.value.error_type == PlannerErrorType.PLANNER_INPUT_CONTEXT_MISMATCH
    with pytest.raises(PlannerError, match=r"the stored plan has no bags.e") as error:
        ShardPlanner(GPUS, plan_loader=Loader(first._best_plan)).plan(model("abcde"), get_default_sharders())
    assert error.value.error_type == PlannerErrorType.PLAN_LOADING_FAILED
    anew = ShardPlanner(GPUS, plan_loader=Loader(None, context)).plan(model(), get_default_sharders())
    assert anew._serialize() == plan._serialize()


def test_a_stored_plan_that_nothing_vouches_for_is_made_anew(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where TorchRec has no lasting hash of the inputs, as of its statistics of caches: with a warning."""
    error = getattr(planner_types, "PlannerContextFingerprintError", None)
    if error is None:  # TorchRec 1.8 hashes everything
        return

    def refuse(self: ShardPlanner) -> str:
        raise error("no fingerprint")

    first = ShardPlanner(GPUS)
    first.plan(model(), get_default_sharders())
    monkeypatch.setattr(ShardPlanner, "hash_planner_context_inputs_str", refuse)
    planner = ShardPlanner(GPUS, plan_loader=Loader(first._best_plan, "whichever"))
    with caplog.at_level(logging.WARNING, "planner"):
        planner.plan(model(), get_default_sharders())
    assert planner.document is not None
    assert "planned again: nothing says whether the stored plan is for these inputs (no fingerprint)" in caplog.text
