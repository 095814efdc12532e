"""What `EmbeddingShardingPlanner` promises to who calls it, of `ShardPlanner` in its place."""

import inspect
import logging
import pickle
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import nn
from torchrec import EmbeddingBagCollection
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints, Topology, storage_reservations
from torchrec.distributed.planner import types as planner_types
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.partitioners import GreedyPerfPartitioner, MemoryBalancedPartitioner
from torchrec.distributed.planner.perf_models import NoopPerfModel, NoopStorageModel
from torchrec.distributed.planner.planners import (
    validate_compute_kernels,
    validate_modules_inclusion_in_sharding_plan,
    validate_rank_assignment,
)
from torchrec.distributed.planner.proposers import (
    EmbeddingOffloadScaleupProposer,
    GreedyProposer,
    GridSearchProposer,
    UniformProposer,
)
from torchrec.distributed.planner.shard_estimators import EmbeddingPerfEstimator
from torchrec.distributed.planner.stats import EmbeddingStats, NoopEmbeddingStats
from torchrec.distributed.planner.storage_reservations import (
    FixedPercentageStorageReservation,
    HeuristicalStorageReservation,
)
from torchrec.distributed.planner.types import (
    PlanLoader,
    PlannerError,
    PlannerErrorType,
    ShardingOption,
    Stats,
    StorageReservation,
)
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.distributed.types import ShardingPlan, ShardingPlanner
from torchrec.modules.embedding_configs import EmbeddingBagConfig

from benchmarks.gloo.processes import Processes
from planner.integrations.torchrec_planner import ShardPlanner
from topologies.errors import InputError

GIB = 2**30
DIM, ROWS = 64, 10**6
GPUS = Topology(world_size=2, local_world_size=2, compute_device="cuda", hbm_cap=40 * GIB)
META = torch.device("meta")


class Sharder(EmbeddingBagCollectionSharder):
    """Whole tables, or tables cut by rows, in HBM."""

    def __init__(self, *shardings: str) -> None:
        super().__init__()
        self.shardings = shardings

    def sharding_types(self, compute_device_type: str) -> list[str]:  # noqa: ARG002 - called by name
        return list(self.shardings)

    def compute_kernels(self, sharding_type: str, compute_device_type: str) -> list[str]:  # noqa: ARG002
        return ["fused"]


def model(names: str = "abcd", rows: int = ROWS, dense: int = 0) -> nn.Module:
    """Tables, and a layer of so many outputs."""
    configs = [
        EmbeddingBagConfig(num_embeddings=rows, embedding_dim=DIM, name=name, feature_names=[f"f_{name}"])
        for name in names
    ]
    parts: dict[str, nn.Module] = {"bags": EmbeddingBagCollection(tables=configs, device=META)}
    if dense:
        parts["over"] = nn.Linear(1024, dense, bias=False, device=META)
    return nn.ModuleDict(parts)


def ranks(plan: ShardingPlan) -> dict[str, tuple[int, ...]]:
    return {name: tuple(sharding.ranks) for name, sharding in plan.plan["bags"].items()}


def arguments(method: Callable[..., Any]) -> list[inspect.Parameter]:
    found = list(inspect.signature(method).parameters.values())
    return [each for each in found if each.kind is not inspect.Parameter.KEYWORD_ONLY]


def test_the_signature_is_theirs() -> None:
    """Names, order and defaults of every argument; what is ours alone can only be named."""
    for method in ("__init__", "plan", "collective_plan"):
        ours, theirs = (arguments(getattr(kind, method)) for kind in (ShardPlanner, EmbeddingShardingPlanner))
        assert [each.name for each in ours] == [each.name for each in theirs]
        for own, other in zip(ours, theirs, strict=True):
            assert own.default == other.default or (method, own.name) == ("plan", "sharders")
    assert issubclass(ShardPlanner, ShardingPlanner)
    assert isinstance(ShardPlanner(GPUS), ShardingPlanner)


def test_every_argument_by_its_place() -> None:
    """What a caller passes by position, defaults of TorchRec's search among it, makes the plan of the names."""
    heard: list[list[str]] = []

    def hear(options: list[ShardingOption]) -> list[ShardingOption]:
        heard.append([option.name for option in options])
        return options

    constraints = {"a": ParameterConstraints(sharding_types=["row_wise"])}
    enumerator = EmbeddingEnumerator(topology=GPUS, batch_size=256, constraints=constraints)
    proposers = [GreedyProposer(), GreedyProposer(use_depth=False), UniformProposer(), GridSearchProposer()]
    search = proposers, GreedyPerfPartitioner(), NoopPerfModel(topology=GPUS)
    kept = FixedPercentageStorageReservation(0.2)
    planner = ShardPlanner(GPUS, 256, enumerator, kept, *search, [], constraints, False, [hear], 20, Loader())
    found = planner.plan(model(), get_default_sharders())
    assert heard == [list("abcd")]
    assert found.plan["bags"]["a"].sharding_type == "row_wise"
    named = ShardPlanner(topology=GPUS, batch_size=256, storage_reservation=kept, stats=[], constraints=constraints)
    assert found._serialize() == named.plan(model())._serialize()
    assert planner.document.provenance.workload.content["batch_per_rank"] == 256
    assert {rank.capacity.hbm for rank in planner.document.ranks} == {int(0.8 * 40 * GIB)}


def test_what_is_left_out_is_that_of_torchrec() -> None:
    """512 samples of a rank, 15 % of HBM kept free; an enumerator's batch and constraints where only it has them."""
    planner = ShardPlanner(topology=GPUS, batch_size=None)
    planner.plan(model())
    assert planner.document.provenance.workload.content["batch_per_rank"] == 512
    assert {rank.capacity.hbm for rank in planner.document.ranks} == {int(0.85 * 40 * GIB)}
    constraints = {"a": ParameterConstraints(sharding_types=["row_wise"])}
    told = ShardPlanner(GPUS, enumerator=EmbeddingEnumerator(GPUS, batch_size=64, constraints=constraints))
    assert told.plan(model()).plan["bags"]["a"].sharding_type == "row_wise"
    assert told.document.provenance.workload.content["batch_per_rank"] == 64


def _without_topology() -> tuple[int, dict[str, tuple[int, ...]], PlannerErrorType]:
    planner = ShardPlanner()
    found = planner.collective_plan(model(rows=1000), [EmbeddingBagCollectionSharder()])
    with pytest.raises(PlannerError) as error:
        planner.collective_plan(model(rows=10**12), [EmbeddingBagCollectionSharder()])
    return planner.topology.world_size, ranks(found), error.value.error_type


def test_without_a_topology_that_of_the_process_group_is_planned(two_ranks: Processes) -> None:
    """And TorchRec's error reaches every rank as such."""
    for world_size, held, error_type in two_ranks.run(_without_topology):
        assert world_size == 2
        assert all(max(own) < 2 for own in held.values())
        assert error_type == PlannerErrorType.INSUFFICIENT_STORAGE


def test_no_sharders_no_plan() -> None:
    """An empty one, for a model without tables too."""
    assert ShardPlanner(GPUS).plan(model(), []) == ShardingPlan({})
    assert ShardPlanner(GPUS).plan(nn.Linear(2, 2)) == ShardingPlan({})


@pytest.mark.parametrize(
    ("argument", "part", "said"),
    [
        (
            "proposer",
            EmbeddingOffloadScaleupProposer(),
            "is an EmbeddingOffloadScaleupProposer.*searches by itself, siz",
        ),
        (
            "proposer",
            [GreedyProposer(), GridSearchProposer(max_proposals=7)],
            "GridSearchProposer with max_proposals of",
        ),
        ("partitioner", MemoryBalancedPartitioner(), "is a MemoryBalancedPartitioner.*policies keep tables together"),
        (
            "partitioner",
            GreedyPerfPartitioner(balance_modules=True),
            "GreedyPerfPartitioner with balance_modules of its",
        ),
        ("performance_model", NoopStorageModel(topology=GPUS), 'NoopStorageModel.*cost_model="torchrec"'),
        (
            "enumerator",
            EmbeddingEnumerator(GPUS, 512, estimator=EmbeddingPerfEstimator(topology=GPUS)),
            "EmbeddingEnumerator with estimators of its own; leave it out: say what may be used by constraints",
        ),
    ],
)
def test_parts_of_another_search_are_refused(argument: str, part: Any, said: str) -> None:
    """By the name of the argument, with what to do instead; nothing of them is ignored."""
    with pytest.raises(PlannerError, match=f"{argument}: .*{said}") as error:
        ShardPlanner(GPUS, **{argument: part})
    assert error.value.error_type == PlannerErrorType.INPUT_VALIDATION


@pytest.mark.parametrize(
    ("differing", "word"),
    [
        ({"batch_size": 64}, "batch_size"),
        ({"topology": Topology(world_size=4, local_world_size=2, compute_device="cuda")}, "topology"),
        ({"constraints": {"b": ParameterConstraints(sharding_types=["table_wise"])}}, "constraints"),
    ],
)
def test_an_enumerator_that_was_told_otherwise_is_refused(differing: Mapping[str, Any], word: str) -> None:
    """Its topology, batch and constraints must be those of the planner."""
    told: dict[str, Any] = {"topology": GPUS, "batch_size": 512, "constraints": {"a": ParameterConstraints()}}
    planner = ShardPlanner(**told, enumerator=EmbeddingEnumerator(**(told | differing)))
    with pytest.raises(InputError, match=f"enumerator: has another {word} than the planner"):
        planner.plan(model())


def test_equal_tables_are_spread_evenly() -> None:
    """Two of four on each of two ranks."""
    held = ranks(ShardPlanner(GPUS).plan(model(), [Sharder("table_wise")]))
    assert sorted(held.values()) == [(0,), (0,), (1,), (1,)]


def test_a_table_too_large_for_a_rank_is_cut_where_it_may_be() -> None:
    """Whole tables only: an error that blames the constraints; cut by rows: a plan by the same planner."""
    planner = ShardPlanner(GPUS)
    large = model("a", rows=200_000_000)  # 47.7 GiB on ranks of 40
    with pytest.raises(PlannerError) as error:
        planner.plan(large, [Sharder("table_wise")])
    assert error.value.error_type == PlannerErrorType.STRICT_CONSTRAINTS
    assert planner.document is None
    found = planner.plan(large, [Sharder("table_wise", "row_wise")])
    assert ranks(found) == {"a": (0, 1)}


def test_what_fits_nowhere_is_too_little_storage() -> None:
    """TorchRec's error type, and our explanation with what would help: of tables, and of a dense part."""
    for needs in (model("a", rows=10**10), model("ab", rows=10**9), model(dense=2**22)):
        with pytest.raises(PlannerError, match="no plan") as error:
            ShardPlanner(GPUS).plan(needs, [Sharder("table_wise", "row_wise")])
        assert error.value.error_type == PlannerErrorType.INSUFFICIENT_STORAGE
        assert isinstance(error.value, InputError)
    with pytest.raises(
        PlannerError, match=r"what would help, each alone: .* of HBM per accelerator instead of 40.00 GiB"
    ):
        ShardPlanner(GPUS).plan(model("ab", rows=2 * 10**8), [Sharder("table_wise", "row_wise")])


def test_the_dense_part_is_never_left_out_to_make_a_plan(caplog: pytest.LogCaptureFixture) -> None:
    """16 GiB of a layer with gradients and state on 40 GiB: no plan; without the layer there is one, and where the
    caller estimates it at less."""
    for reservation in (None, FixedPercentageStorageReservation(0.15)):
        planner = ShardPlanner(GPUS, storage_reservation=reservation)
        with pytest.raises(PlannerError):
            planner.plan(model(dense=2**22, rows=10**7), [Sharder("table_wise", "row_wise")])
        planner.plan(model(rows=10**7), [Sharder("table_wise", "row_wise")])
    told = HeuristicalStorageReservation(0.15, dense_tensor_estimate=GIB)
    ShardPlanner(GPUS, storage_reservation=told).plan(model(dense=2**22, rows=10**7), [Sharder("table_wise")])
    assert "may run out of memory" not in caplog.text


def test_a_plan_by_torchrecs_count_alone_is_said_to_be_one(caplog: pytest.LogCaptureFixture) -> None:
    """Where outputs and gradients in flight do not fit by ours: as TorchRec would plan, with a warning."""
    tiny = Topology(world_size=2, compute_device="cuda", hbm_cap=2 * 2**20)
    with caplog.at_level(logging.WARNING, "planner"):
        found = ShardPlanner(tiny).plan(model(rows=100), [Sharder("table_wise", "row_wise")])
    assert set(ranks(found)) == set("abcd")
    assert "by TorchRec's count of memory and rating alone, and may run out of memory; by ours" in caplog.text


def absolute(gigabytes: float) -> StorageReservation:
    return storage_reservations.FixedAbsoluteStorageReservation.from_gb(gigabytes)


@pytest.mark.parametrize(
    ("reservation", "left_gib", "dense_gib"),
    [
        (FixedPercentageStorageReservation(0.5), 20, 0),
        (absolute(10), 30, 0),
        (HeuristicalStorageReservation(0.25, dense_tensor_estimate=4 * GIB), 26, 4),
    ],
)
def test_a_storage_reservation_is_kept_free(reservation: StorageReservation, left_gib: int, dense_gib: int) -> None:
    """In percent, in bytes, and by heuristics, whose dense part we count ourselves; tables that do not fit beside it
    are not planned."""
    planner = ShardPlanner(GPUS, storage_reservation=reservation)
    planner.plan(model(), [Sharder("table_wise")])
    for rank in planner.document.ranks:
        assert rank.capacity.hbm == pytest.approx((left_gib + dense_gib) * GIB, rel=1e-3)
    held = (left_gib + 1) * GIB // (DIM * 4)
    with pytest.raises(PlannerError) as error:
        ShardPlanner(GPUS, storage_reservation=reservation).plan(model("ab", rows=held), [Sharder("table_wise")])
    assert "reserved: " in str(error.value)
    ShardPlanner(GPUS, storage_reservation=FixedPercentageStorageReservation(0)).plan(
        model("ab", rows=held), [Sharder("table_wise")]
    )


def test_a_reservation_of_everything_is_too_little_storage() -> None:
    """Each in its own words: gigabytes per device where it was told so, else a share."""
    tables = model("ab", rows=10**9), [Sharder("table_wise", "row_wise")]
    said = {
        "0.5 GB per device": absolute(0.5),
        "FixedPercentageStorageReservation (30% of HBM)": FixedPercentageStorageReservation(0.3),
    }
    sku_aware = getattr(storage_reservations, "SKUAwareStorageReservation", None)  # of TorchRec 1.9
    if sku_aware is not None:
        said["SKUAwareStorageReservation (2.00 GiB for a margin"] = sku_aware(margin_bytes=2 * GIB)
    for words, reservation in said.items():
        with pytest.raises(PlannerError) as error:
            ShardPlanner(GPUS, storage_reservation=reservation).plan(*tables)
        assert error.value.error_type == PlannerErrorType.INSUFFICIENT_STORAGE
        assert words in str(error.value)
    for reservation in (absolute(40), FixedPercentageStorageReservation(1.0)):
        with pytest.raises(
            InputError, match=r"storage_reservation: nothing is left for tables: .* reserved of 40.00 GiB"
        ):
            ShardPlanner(GPUS, storage_reservation=reservation).plan(model())
    with pytest.raises(InputError, match="storage_reservation: The reserved topology"):
        ShardPlanner(GPUS, storage_reservation=HeuristicalStorageReservation(0.15)).plan(model(dense=2**22))


def test_parameters_of_constraints_reach_the_plan_and_the_options() -> None:
    """Of the table that they are of, and of no other."""
    constraints = {
        "a": ParameterConstraints(enforce_hbm=True, feature_names=["f_a"]),
        "b": ParameterConstraints(stochastic_rounding=True),
        "c": ParameterConstraints(bounds_check_mode=planner_types.BoundsCheckMode.FATAL),
    }
    planner = ShardPlanner(GPUS, constraints=constraints)
    found = planner.plan(model()).plan["bags"]
    assert planner.get_selected_options() is planner._best_plan
    assert [option.name for option in planner.get_selected_options()] == list("abcd")
    for option in planner.get_selected_options():
        told = constraints.get(option.name, ParameterConstraints())
        for field in ("enforce_hbm", "stochastic_rounding", "bounds_check_mode", "cache_params"):
            assert getattr(option, field) == getattr(found[option.name], field) == getattr(told, field)
        assert option.feature_names == told.feature_names


def test_callbacks_have_the_last_word() -> None:
    """One after the other, on options whose ranks are the plan's; a changed plan has no document of ours."""

    def swapped(options: list[ShardingOption]) -> list[ShardingOption]:
        for option in options:
            for shard in option.shards:
                shard.rank = 1 - shard.rank
        return options

    plain = ShardPlanner(GPUS, callbacks=[list])
    own = ranks(plain.plan(model(), [Sharder("table_wise")]))
    assert plain.document is not None
    once = ShardPlanner(GPUS, callbacks=[swapped])
    assert ranks(once.plan(model(), [Sharder("table_wise")])) == {name: (1 - of[0],) for name, of in own.items()}
    assert once.document is None
    twice = ShardPlanner(GPUS, callbacks=[swapped, swapped])
    assert ranks(twice.plan(model(), [Sharder("table_wise")])) == own


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


class Loader(PlanLoader):
    """Has a plan, or none."""

    def __init__(self, options: Sequence[ShardingOption] | None = None, context: str | None = None) -> None:
        self.options, self.context = options, context

    def load(self) -> dict[int, ShardingOption] | None:
        return None if self.options is None else {option.storage_hash(): option for option in self.options}

    def plan_context_hash(self) -> str | None:
        return self.context

    def get_plan_id(self) -> str:
        return "yesterday's"


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
    assert "planned anew: nothing says whether the stored plan is for these inputs (no fingerprint)" in caplog.text


def test_a_plan_passes_the_checks_of_their_planner() -> None:
    """Every module, every rank, every kernel: with default sharders, and with constraints of every kernel."""
    kernels = ("fused", "fused_uvm", "fused_uvm_caching")
    constraints = {
        name: ParameterConstraints(compute_kernels=[kernel]) for name, kernel in zip("abc", kernels, strict=True)
    }
    planner = ShardPlanner(GPUS, constraints=constraints)
    known = get_default_sharders()
    found = planner.plan(model(), known)
    assert tuple(found.plan["bags"][name].compute_kernel for name in "abc") == kernels
    assert 0 < found.plan["bags"]["c"].cache_params.load_factor < 1  # a row less than all, as they want it
    validate_modules_inclusion_in_sharding_plan(found, model(), known)
    validate_rank_assignment(found, GPUS)
    validate_compute_kernels(planner.get_selected_options())


def test_the_search_space_is_theirs() -> None:
    """For who looks at it: the options that TorchRec lists."""
    ours, theirs = (kind(topology=GPUS, stats=[]) for kind in (ShardPlanner, EmbeddingShardingPlanner))
    ours.plan(model(), [Sharder("table_wise", "row_wise")])
    theirs.plan(model(), [Sharder("table_wise", "row_wise")])
    spaces = [
        [(each.fqn, each.sharding_type) for each in space]
        for space in (ours.get_search_space(), theirs._enumerator.last_stored_search_space)
    ]
    assert spaces[0] == spaces[1]


def test_a_time_limit_is_kept() -> None:
    """`timeout_seconds` is that of the search, as is the smaller of the two; nought is refused as there."""
    assert ShardPlanner(GPUS, timeout_seconds=7)._search["time_limit_s"] == 7
    assert ShardPlanner(GPUS, timeout_seconds=7, time_limit_s=3)._search["time_limit_s"] == 3
    with pytest.raises(AssertionError, match="Timeout must be positive"):
        ShardPlanner(GPUS, timeout_seconds=0)


def test_errors_reach_other_processes_whole() -> None:
    """Pickled: type, message and error type."""
    with pytest.raises(PlannerError) as error:
        ShardPlanner(GPUS).plan(model("a", rows=10**10))
    again = pickle.loads(pickle.dumps(error.value))
    assert (type(again), str(again), again.error_type) == (type(error.value), str(error.value), error.value.error_type)


def test_nothing_is_said_that_their_planner_does_not_say() -> None:
    """No warnings of ours on an ordinary job."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message="HeuristicalStorageReservation is known", category=FutureWarning)
        ShardPlanner(GPUS).plan(model())
