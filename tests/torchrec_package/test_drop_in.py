"""What `EmbeddingShardingPlanner` promises to who calls it, of `ShardPlanner` in its place."""

import inspect
import pickle
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from torch import nn
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints, Topology
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
from torchrec.distributed.planner.storage_reservations import (
    FixedPercentageStorageReservation,
)
from torchrec.distributed.planner.types import (
    PlannerError,
    PlannerErrorType,
    ShardingOption,
)
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.distributed.types import ShardingPlan, ShardingPlanner

from benchmarks.gloo.processes import Processes
from planner.integrations.torchrec_planner import ShardPlanner
from tests.torchrec_package.drop_in_cases import GIB, GPUS, Loader, Sharder, model, ranks
from topologies.errors import InputError


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
