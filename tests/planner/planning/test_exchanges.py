"""Exchanges of vectors that a policy asks for: planned, chosen, written, verified, refused."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from planner import plan
from planner.diagnosis.exchanges import exchange_reasons
from planner.diagnosis.explanation import Explainer
from planner.document.plan import Plan
from planner.document.planned import model_under, placed_shards
from planner.exporters.hugectr import hugectr_sharding
from planner.formulation.policy import Policy
from planner.planning.exchanges import with_other
from planner.verification.unchecked import unchecked
from planner.verification.verify import verify
from tests.oracles.instances import node_group, topology, workload
from tests.oracles.violations import Document, violations, violations_after
from topologies.cluster import Topology, fingerprint
from topologies.errors import InputError

TABLES = [{"rows": 100_000 * (i + 1), "dim": 64, "pooling_factor": 5.0} for i in range(4)]


MANY = topology(node_group("a", nodes=16, ranks=2, nic_bytes_per_s=5e9))
FEW = topology(node_group("a", nodes=2, ranks=2))
"""Towers are the faster on many hosts with slow cards; where batches are small, the flat exchange is."""
BATCH = {"many": 2**18, "few": 1024}


def planned(exchange: str, at: Topology, batch: int = 65_536, **given: Any) -> Plan:
    """Without a pipeline, so that the tables' exchanges are most of the step."""
    trained = workload(TABLES, global_batch=batch, overhead="100us", pipeline="none")
    policy = Policy(exchange=exchange, shardings=("table_wise", "column_wise", "table_row_wise"))  # type: ignore[arg-type]
    return plan(at, trained, policy=policy, effort=0, gap=0.05, **{"simulate": False, **given})


@pytest.fixture(scope="module")
def chosen() -> dict[str, Plan]:
    """What `auto` makes of both clusters."""
    return {name: planned("auto", at, BATCH[name], simulate=True) for name, at in (("many", MANY), ("few", FEW))}


def _step_s(found: Plan) -> float:
    assert found.objective is not None
    return found.objective.step_s


@pytest.mark.parametrize(("name", "at"), [("many", MANY), ("few", FEW)])
def test_auto_takes_the_shorter_step(chosen: dict[str, Plan], name: str, at: Topology) -> None:
    """No longer than either asked for by name, and within a bound that is no higher than either's."""
    found = chosen[name]
    assert found.objective is not None
    assert found.other_exchange is not None
    for exchange in ("flat", "sptt"):
        named = planned(exchange, at, BATCH[name])
        assert named.objective is not None
        assert _step_s(found) <= named.objective.step_s * (1 + 1e-9)
        assert found.objective.lower_bound_s <= named.objective.lower_bound_s * (1 + 1e-9)
    assert found.other_exchange.step_s >= _step_s(found)
    assert found.provenance.policy.exchange == "auto"


def test_auto_takes_either(chosen: dict[str, Plan]) -> None:
    """Towers on many hosts, the flat exchange where batches are small."""
    assert {name: found.provenance.exchange for name, found in chosen.items()} == {"many": "sptt", "few": "flat"}


@pytest.mark.parametrize("name", ["many", "few"])
def test_what_is_chosen_verifies(chosen: dict[str, Plan], name: str) -> None:
    """From its text, too; what is not recomputed is said."""
    found = chosen[name]
    assert violations(json.loads(found.to_json())) == []
    assert "other_exchange.step_s" in {field.field for field in unchecked(found)}
    assert Plan.model_validate_json(found.to_json()) == found


def _other_exchange(document: Document) -> None:
    document["provenance"]["exchange"] = "flat"


def _without(document: Document) -> None:
    del document["provenance"]["exchange"]


def _bound_of_one_alone(document: Document) -> None:
    document["other_exchange"]["lower_bound_s"] = document["objective"]["lower_bound_s"] * 0.9


def _faster_other(document: Document) -> None:
    document["other_exchange"]["step_s"] = document["objective"]["step_s"] / 2


def _higher_other_bound(document: Document) -> None:
    document["other_exchange"]["step_s"] *= 2
    document["other_exchange"]["lower_bound_s"] *= 2


def _own_twice(document: Document) -> None:
    document["other_exchange"]["exchange"] = "sptt"


def _asked_for(document: Document) -> None:
    """The policy asks for flat, and its hash says so."""
    del document["provenance"]["policy"]["exchange"]
    document["provenance"]["policy_fingerprint"] = fingerprint(Policy())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_other_exchange, "stages"),
        (_without, "stages"),
        (_bound_of_one_alone, "is above that of flat"),
        (_faster_other, "less than the plan"),
        (_higher_other_bound, "its multipliers prove"),
        (_own_twice, "is none that the policy leaves beside sptt"),
        (_asked_for, "exchange is sptt, the policy leaves flat"),
    ],
)
def test_what_is_changed_is_found(chosen: dict[str, Plan], change: Callable[[Document], None], words: str) -> None:
    """Another exchange, a bound that is of one exchange alone, another plan that would be faster."""
    assert any(words in text for text in violations_after(change, chosen["many"].to_json()))


def test_the_flat_exchange_leaves_no_trace() -> None:
    """A plan of the default policy, and one of which the flat exchange is asked by name, are the same to the byte."""
    trained = workload(TABLES)
    usual, named = (plan(FEW, trained, policy=policy, effort=0) for policy in (Policy(), Policy(exchange="flat")))
    assert usual.to_json() == named.to_json()
    assert "exchange" not in usual.to_json()
    assert fingerprint(Policy(exchange="sptt")) != fingerprint(Policy())


def test_one_host_has_one_exchange() -> None:
    """SPTT is the flat exchange there: the same step; `auto` takes it, and says why."""
    one = topology(node_group("a", ranks=2))
    flat, sptt, auto = (planned(exchange, one) for exchange in ("flat", "sptt", "auto"))
    assert _step_s(sptt) == pytest.approx(_step_s(flat), rel=0.01)
    assert (sptt.provenance.exchange, auto.provenance.exchange) == ("sptt", "flat")
    assert auto.other_exchange is None
    assert [verify(found) for found in (flat, sptt, auto)] == [[], [], []]
    reasons = exchange_reasons(auto, model_under(auto, "flat"), placed_shards(auto))
    assert reasons is not None
    assert reasons.only == "there is one scale-up domain, or each rank has its own"


def test_towers_are_no_worse_than_the_flat_placement() -> None:
    """A search through towers begins with what was found for the flat exchange, too."""
    flat, sptt = (planned(exchange, MANY, BATCH["many"]) for exchange in ("flat", "sptt"))
    same = model_under(sptt, "sptt").evaluate(placed_shards(flat)).step_s
    assert _step_s(sptt) <= same * 1.002


def test_the_reasons_add_up(chosen: dict[str, Plan]) -> None:
    """The same placement under both, with fewer peers through towers, and what is rearranged on the way."""
    found = chosen["many"]
    reasons = Explainer(found).plan().exchange
    assert reasons is not None
    assert reasons.own is not None
    assert reasons.other is not None
    assert reasons.own.step_s == pytest.approx(_step_s(found))
    assert reasons.other.step_s > reasons.own.step_s
    assert (reasons.own.peers, reasons.other.peers) == (15, 30)
    assert reasons.own.card_bytes_per_s > reasons.other.card_bytes_per_s
    assert {part.term for part in reasons.rearranging if part.seconds > 0} >= {"permute", "transpose"}


def test_no_other_is_beside_where_options_differ(chosen: dict[str, Plan]) -> None:
    """Its bound would be of other plans: the plan keeps its own, and `verify` says that it covers one exchange."""
    alone = chosen["many"].model_copy(update={"other_exchange": None})
    origin = alone.provenance.model_copy(update={"cache_fractions": {"ddr_cached": {"t0": (0.5,)}}})
    assert with_other(alone, chosen["few"].model_copy(update={"provenance": origin})) == alone
    assert any("covers sptt alone" in field.why for field in unchecked(alone))


GROUPED = topology(node_group("a", nodes=16, ranks=4, nic_bytes_per_s=5e9))


def in_groups(**replicas: object) -> Plan:
    """Under either exchange."""
    trained = workload(TABLES[:2], global_batch=BATCH["many"], overhead="100us", pipeline="none")
    choices = {"sync_every": 10, **replicas}
    policy = Policy(exchange="auto", replicas=choices, shardings=("table_wise", "column_wise"))  # type: ignore[arg-type]
    return plan(GROUPED, trained, policy=policy, effort=0, gap=0.05)


@pytest.mark.parametrize("layout", ["intra", "inter"])
def test_groups_of_ranks_have_either_exchange(layout: str) -> None:
    """`auto` takes the shorter step in groups, too; what is chosen verifies, is played on all ranks within 3 %, and
    says why."""
    chosen = in_groups(factor=2, layout=layout)
    assert (chosen.provenance.exchange, chosen.replicas and chosen.replicas.factor) == ("sptt", 2)
    assert chosen.other_exchange is not None
    assert chosen.other_exchange.step_s > _step_s(chosen)
    assert violations(json.loads(chosen.to_json())) == []
    assert chosen.simulated is not None
    assert chosen.simulated.step_s == pytest.approx(_step_s(chosen), rel=0.03)
    reasons = Explainer(chosen).plan().exchange
    assert reasons is not None
    assert reasons.own is not None
    assert reasons.own.peers == (15 if layout == "intra" else 7)


def test_a_choice_of_groups_is_bounded_under_both_exchanges() -> None:
    """The bound by which one world is out is no higher than that of its shorter exchange."""
    found = in_groups(factor=[1, 2], layout="inter")
    assert verify(found) == []
    assert found.replicas is not None
    assert found.replicas.factor == 2
    (world,) = found.replicas.others
    alone = in_groups(factor=1)
    assert alone.objective is not None
    assert world.rejected == "bound"
    assert world.lower_bound_s is not None
    assert _step_s(found) < world.lower_bound_s <= alone.objective.lower_bound_s * (1 + 1e-9)


def test_runtimes_exchange_flat() -> None:
    """SPTT is refused by name beside one, `auto` means flat, and what is planned through towers is not exported."""
    for runtime in ("torchrec", "hugectr"):
        with pytest.raises(ValueError, match=f"sptt is no exchange of {runtime}; give flat"):
            Policy(runtime=runtime, exchange="sptt")  # type: ignore[arg-type]
    policy = Policy(runtime="hugectr", exchange="auto", shardings=("table_wise",))
    auto = plan(FEW, workload(TABLES), policy=policy, effort=0, simulate=False)
    assert auto.provenance.exchange == "flat"
    assert hugectr_sharding(auto)
    with pytest.raises(InputError, match=r"hugectr has no exchange sptt.*plan with --exchange flat"):
        hugectr_sharding(planned("sptt", FEW))


def test_what_has_no_towers_is_refused() -> None:
    """Unequal hosts, and ratings: SPTT is refused with the reason, `auto` plans flat."""
    mixed = topology(node_group("a", nodes=2, ranks=2), node_group("b", ranks=4))
    with pytest.raises(InputError, match="peers need as many in each; give flat"):
        planned("sptt", mixed)
    assert planned("auto", mixed).provenance.exchange == "flat"
    with pytest.raises(InputError, match="knows the flat exchange alone; give flat"):
        planned("sptt", FEW, cost_model="torchrec")
    assert planned("auto", FEW, cost_model="torchrec").provenance.exchange == "flat"


def test_a_plan_follows_another_through_towers() -> None:
    """Re-planned under either exchange, and under the one that is chosen."""
    former = planned("flat", FEW)
    for exchange in ("sptt", "auto"):
        found = planned(exchange, FEW, previous=former, max_move_bytes=10**12)
        assert found.moves is not None
        assert verify(found, former) == []
