"""Plans by laws that bend: found at straight lines, stated at their own, bounded at all."""

from dataclasses import replace

import numpy as np
import pytest

from cost_models.kinds import rank_kinds
from cost_models.model import CostModel
from cost_models.registry import cost_model
from planner import plan, verify
from planner.certificates.multipliers import Bound, ProtocolBound
from planner.document.plan import Plan
from planner.document.planned import placed_shards, planned_model
from planner.formulation.formulation import Formulation
from planner.formulation.policy import Policy
from planner.importers.adoption import AdoptedTable, AdoptionInputs, adopted
from planner.planning.known_bounds import Elsewhere, KnownBounds
from planner.planning.pipeline import Pipeline
from planner.planning.protocols import (
    ProtocolSearches,
    at_lowest_protocols,
    at_own_protocols,
    bounds_elsewhere,
    searched,
    shards_of,
    with_least_raised,
)
from planner.problem.load_state import load_state
from planner.problem.placement import Placement
from planner.solvers.incumbent import Outcome
from planner.solvers.limits import SearchLimits
from planner.solvers.lower_bound import Relaxation
from planner.solvers.search import relaxed, solve
from planner.verification.protocol_proofs import faults_of_proofs, proven_s
from tests.oracles.brute_force import optimum
from tests.oracles.instances import node_group, tiny_instance, topology, workload
from tests.oracles.placements import random_placement
from tests.oracles.simulated_steps import law_s
from tests.seeds import seeds

CLUSTER = topology(node_group("a", ranks=4))
TABLES = [{"rows": 200_000, "dim": 64, "pooling_factor": 4} for _ in range(3)]
"""Whole tables, spread evenly, exchange 0.6 MB over each port, tables cut by rows four times as much."""


@pytest.fixture(scope="module")
def by_rows() -> Plan:
    return plan(CLUSTER, workload(TABLES, pipeline="none"), shardings=["row_wise"], effort=1)


def test_a_plan_takes_the_protocols_of_its_own_loads(by_rows: Plan) -> None:
    """Not those of whole tables, where a search begins: each exchange takes as long as the fastest for its bytes."""
    model = planned_model(by_rows)
    own = model.linearised_at(placed_shards(by_rows))
    assert own.protocols != model.protocols
    assert verify(by_rows) == []
    (kind,) = rank_kinds(CLUSTER, model.workload)
    seconds = {stage.name: stage.seconds for stage in by_rows.stages}
    sums = 4096 * 64 * 4 * 3 * 3 / 4
    assert seconds["output_dist"] == pytest.approx(law_s(kind.exchange_protocols, sums))


def load_state_of(model: CostModel, planned: Plan) -> float:
    """The step of a plan of whole rows over all ranks, at the lines of a model."""
    formulation = Formulation.of(model, Policy(shardings=("row_wise",)))
    option = formulation.problem.option_start[:-1]
    blocks = formulation.problem.block_start[option]
    assert len(blocks) == len(planned.tables)
    return load_state(formulation.problem, Placement(blocks, np.full(len(blocks), -1))).step_s()


def test_a_step_at_other_lines_is_found_out(by_rows: Plan) -> None:
    """What the placement costs where its search began is not what it takes."""
    model, placed = planned_model(by_rows), placed_shards(by_rows)
    began = load_state_of(model, by_rows)
    assert began > model.evaluate(placed).step_s
    assert by_rows.objective is not None
    longer = by_rows.objective.model_copy(update={"step_s": began, "gap": began / by_rows.objective.lower_bound_s - 1})
    assert verify(by_rows.model_copy(update={"objective": longer})) != []


@pytest.mark.parametrize("seed", range(24))
def test_no_placement_takes_longer_at_its_own_lines(seed: int) -> None:
    """At the lines of others it costs at least what it takes, on one kind of rank and on two."""
    instance = tiny_instance(seed)
    random = np.random.default_rng(seed)
    for _ in range(4):
        placed = random_placement(instance.problem, random)
        formulation = Formulation.of_options(instance.model, instance.options)
        shards = shards_of(formulation, placed)
        own = instance.model.linearised_at(shards)
        step_s = instance.model.evaluate(shards).step_s
        at_start = load_state(formulation.problem, placed).step_s()
        at_own = load_state(Formulation.of_options(own, instance.options).problem, placed).step_s()
        assert step_s == pytest.approx(at_own, rel=1e-12)
        assert at_own <= at_start * (1 + 1e-12)


@pytest.mark.parametrize("seed", seeds(range(0, 90, 12), range(0, 90, 3)))
def test_the_bound_holds_for_placements_at_all_protocols(seed: int) -> None:
    """The fastest placement of all, by brute force at each protocol, is between the bound and the plan."""
    instance = tiny_instance(seed)
    formulation = Formulation(instance.model, instance.options, instance.problem)
    fastest = [optimum(formulation.at_protocols(each).problem) for each in instance.model.all_protocols]
    if None in fastest:
        return
    pipeline = Pipeline(instance.policy, SearchLimits(gap=0.0))
    found = pipeline.assembled(pipeline.solved(formulation))
    assert found.objective is not None
    assert found.proof is not None
    least_s = instance.model.whole_step_s(min(each.step_s for each in fastest if each is not None))
    assert found.objective.lower_bound_s <= least_s * (1 + 1e-9)
    assert least_s <= found.objective.step_s * (1 + 1e-9)
    assert found.objective.step_s <= least_s * 1.05
    assert list(faults_of_proofs(found.proof, formulation)) == []
    proven = instance.model.whole_step_s(proven_s(found.proof, formulation))
    assert proven >= found.objective.lower_bound_s * (1 - 1e-9)


def test_costs_at_each_protocol_are_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often a search asks for them; they are those of the formulation at that protocol."""
    formulation = Formulation.of(cost_model("physical", CLUSTER, workload(TABLES)), Policy())
    everywhere = formulation.model.all_protocols
    expected = {each: formulation.at_protocols(each).problem for each in everywhere}
    made: list[tuple[int, ...]] = []
    real = Formulation.at_protocols
    monkeypatch.setattr(Formulation, "at_protocols", lambda self, each: made.append(each) or real(self, each))
    lowest, known = at_lowest_protocols(formulation)
    bound = relaxed(lowest.problem)
    assert isinstance(bound, Bound)
    for _ in range(2):
        proven = bounds_elsewhere(lowest, bound, known)
    assert {each.protocols for each in proven} == {*everywhere} - {lowest.model.protocols}
    assert len(everywhere) > 2
    assert sorted(made) == sorted({*everywhere} - {formulation.model.protocols})
    for each in everywhere:
        kept = known.at.formulation(each).problem
        for name in ("fixed", "by_rows", "everywhere", "stage_constants"):
            np.testing.assert_array_equal(getattr(kept, name), getattr(expected[each], name))


def test_of_a_large_formulation_its_own_protocols_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that begins there begins with their relaxation; bounds are those that come of keeping all."""
    formulation = Formulation.of(cost_model("physical", CLUSTER, workload(TABLES)), Policy())
    bound = relaxed(formulation.problem)
    assert isinstance(bound, Bound)
    of_all = bounds_elsewhere(formulation, bound, KnownBounds(formulation))
    monkeypatch.setattr("planner.planning.known_bounds.MOST_KEPT", 0)
    known = KnownBounds(formulation)
    assert known.at.bound(formulation.model.protocols) is not None
    assert known.at.relaxation(formulation) is not None
    proven = bounds_elsewhere(formulation, bound, known)
    assert [(each.protocols, each.bound.seconds) for each in proven] == [
        (each.protocols, each.bound.seconds) for each in of_all
    ]
    others = [each.protocols for each in proven]
    assert known.at.formulation(others[0]) is not known.at.formulation(others[0])
    assert not any(map(known.at.is_solved, others))


@pytest.mark.parametrize("seed", [18, 20, 26, 51, 78, 85])
def test_no_bound_that_is_told_is_above_a_plan(seed: int) -> None:
    """Of these, a search at one protocol proves more than a plan takes at others."""
    instance = tiny_instance(seed)
    formulation = Formulation(instance.model, instance.options, instance.problem)
    told: list[float] = []
    pipeline = Pipeline(instance.policy, SearchLimits(gap=0.0), progress=lambda *news: told.append(news[2] or 0.0))
    outcome = pipeline.solved(formulation).outcome
    assert outcome.step_s is not None
    assert outcome.bound_s is not None
    assert 0 < max(told) <= outcome.bound_s <= outcome.step_s


def test_a_bound_counts_plans_at_other_protocols(by_rows: Plan) -> None:
    """Without the proofs beside it, or with one twice, a proof is none of what the document says."""
    assert by_rows.proof is not None
    twice = (by_rows.proof, *by_rows.proof.at_other_protocols)
    said = verify(by_rows.model_copy(update={"proof": by_rows.proof.model_copy(update={"at_other_protocols": twice})}))
    assert any("those of another proof" in fault for fault in said)
    unknown = by_rows.proof.model_copy(update={"protocols": {"output_dist": 9}})
    said = verify(by_rows.model_copy(update={"proof": unknown}))
    assert any("there are none such" in fault for fault in said)


def test_searching_again_at_the_lines_of_a_plan_never_lengthens_it() -> None:
    """From a plan found at lines that are not its own."""
    model = cost_model("physical", CLUSTER, workload(TABLES, pipeline="none"))
    formulation = Formulation.of(model, Policy(shardings=("row_wise", "table_row_wise")))
    limits = SearchLimits(gap=0.0)
    first = solve(formulation.problem, limits)
    assert first.placement is not None
    own = at_own_protocols(formulation, first.placement)
    assert own is not formulation
    known_s = load_state(own.problem, first.placement).step_s()
    assert first.step_s is not None
    assert known_s <= first.step_s

    def search(
        formulation: Formulation, elsewhere: Elsewhere, start: Placement | None, _: Relaxation | None
    ) -> Outcome:
        assert elsewhere.least_s == 0.0
        return solve(formulation.problem, limits)

    last, outcome = ProtocolSearches(search, KnownBounds(formulation), 0.0).settled(formulation, first)
    assert outcome.placement is not None
    assert outcome.step_s is not None
    assert outcome.step_s <= known_s
    assert at_own_protocols(last, outcome.placement) is last


def test_more_passes_do_not_lose_what_fewer_would_have_gone_on_to() -> None:
    """A pass whose plan takes the protocols of the search does not keep it from those of the plan before the pass."""
    model = cost_model("physical", CLUSTER, workload(TABLES, pipeline="none"))
    start = Formulation.of(model, Policy(shardings=("row_wise", "table_row_wise")))
    first = solve(start.problem, SearchLimits(gap=0.0))
    assert first.placement is not None
    assert first.bound is not None
    earlier = at_own_protocols(start, first.placement)
    assert earlier is not start
    least_s = load_state(earlier.problem, first.placement).step_s()
    searched_at: list[tuple[int, ...]] = []

    def search(formulation: Formulation, elsewhere_s: float, begun: Placement | None, _: Relaxation | None) -> Outcome:
        searched_at.append(formulation.model.protocols)
        return replace(first, placement=None, step_s=None, status="timeout", earlier=())

    def settled(outcome: Outcome) -> Outcome:
        return ProtocolSearches(search, KnownBounds(start), 0.0).settled(start, outcome)[1]

    longer = replace(first, placement=None, step_s=2 * least_s)
    found = settled(replace(longer, earlier=(first.placement,)))
    assert searched_at == [earlier.model.protocols]
    assert found.step_s == pytest.approx(least_s)
    assert settled(longer).step_s == 2 * least_s
    assert searched_at == [earlier.model.protocols]


@pytest.mark.parametrize("seed", seeds(range(0, 90, 12), range(0, 90, 3)))
def test_few_plans_are_tried_at_all_protocols_after_one_search(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """From any placement, and the bound of the relaxation, with work enough: the fastest placement of all, which brute
    force finds too, proven at every protocol."""
    monkeypatch.setattr("planner.planning.protocols.TRIED_WORK", 1e10)
    monkeypatch.setattr("planner.planning.protocols.TRIALS_WORK", 1e11)
    instance = tiny_instance(seed)
    formulation = Formulation(instance.model, instance.options, instance.problem)
    everywhere = {each: formulation.at_protocols(each) for each in instance.model.all_protocols}
    fastest = [optimum(each.problem) for each in everywhere.values()]
    if None in fastest or len(everywhere) == 1:
        return
    searched_at: list[tuple[int, ...]] = []

    def search(
        formulation: Formulation, elsewhere: Elsewhere, start: Placement | None, _: Relaxation | None
    ) -> Outcome:
        searched_at.append(formulation.model.protocols)
        placed = solve(formulation.problem, SearchLimits(gap=0.2, effort=0)).placement if start is None else start
        bound = relaxed(formulation.problem)
        assert placed is not None
        assert isinstance(bound, Bound)
        return Outcome("feasible", placed, load_state(formulation.problem, placed).step_s(), bound, None)

    last, outcome = searched(formulation, search, 0.0)
    least_s = min(each.step_s for each in fastest if each is not None)
    assert outcome.step_s == pytest.approx(least_s, rel=1e-9)
    assert outcome.bound_s == pytest.approx(least_s, rel=1e-6)
    assert outcome.bound_s is not None
    assert outcome.bound_s <= least_s * (1 + 1e-12)
    assert {last.model.protocols, *(each.protocols for each in outcome.elsewhere)} == {*everywhere}
    assert len(searched_at) <= 2


def test_trying_that_takes_too_much_work_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where time is over, it says so."""
    model = cost_model("physical", CLUSTER, workload(TABLES, pipeline="none"))
    formulation = Formulation.of(model, Policy(shardings=("table_wise", "row_wise"), tiers=("hbm",)))
    crowded = Placement(formulation.problem.block_start[formulation.problem.option_start[:-1]], np.zeros(3, np.int64))
    bound = relaxed(formulation.problem)
    assert isinstance(bound, Bound)
    loose = Outcome("feasible", crowded, load_state(formulation.problem, crowded).step_s(), bound, None)

    def tried(*, is_over: bool = False) -> Outcome:
        searches = ProtocolSearches(lambda *_: loose, KnownBounds(formulation), 0.0, lambda: is_over)
        return searches.tried(formulation, loose)[1]

    assert tried(is_over=True) == replace(loose, ran_out_of_time=True)
    assert tried() is not loose
    monkeypatch.setattr("planner.planning.protocols.TRIED_WORK", 10.0)
    assert tried() is loose


def test_the_least_bound_is_raised_then_the_next() -> None:
    """Until it is near the plan: never below what the protocols proved, nor above a placement."""
    sizes = ((900_001, 16, 60), (40_000, 4, 1), (40_000, 8, 2))
    tables: list[dict[str, object]] = [{"rows": rows, "dim": dim, "pooling_factor": ids} for rows, dim, ids in sizes]
    model = cost_model("physical", topology(node_group("a", nodes=4, ranks=2)), workload(tables, global_batch=8192))
    shardings = ("column_wise", "table_row_wise", "grid_shard", "row_wise")
    formulation = Formulation.of(model, Policy(shardings=shardings, tiers=("hbm",)))
    at = {each: formulation.at_protocols(each) for each in model.all_protocols}
    found = {each: relaxed(other.problem) for each, other in at.items()}
    weak = {each: bound for each, bound in found.items() if isinstance(bound, Bound)}
    own, *others = sorted(weak, key=lambda each: weak[each].seconds, reverse=True)
    elsewhere = tuple(ProtocolBound(each, weak[each]) for each in others)
    random = np.random.default_rng(3)
    placements = [random_placement(formulation.problem, random) for _ in range(200)]
    step_s = weak[own].seconds * 1.2
    outcome = Outcome("feasible", placements[0], step_s, weak[own], None, elsewhere=elsewhere)
    raised = with_least_raised(at[own], outcome, KnownBounds(formulation))
    assert outcome.bound_s is not None
    assert raised.bound_s is not None
    assert raised.bound_s > outcome.bound_s * 1.0002
    for each in raised.elsewhere:
        assert each.bound.seconds >= weak[each.protocols].seconds
        problem = at[each.protocols].problem
        assert each.bound.seconds <= min(load_state(problem, placed).step_s() for placed in placements)


def test_a_search_begins_where_the_relaxation_is_least() -> None:
    """Tables that all ranks hold a part of send more than whole ones: by a protocol with a higher rate."""
    model = cost_model("physical", CLUSTER, workload(TABLES, pipeline="none"))
    formulation = Formulation.of(model, Policy(shardings=("row_wise",)))
    lowest, known = at_lowest_protocols(formulation)
    bounds = {}
    for protocols in model.all_protocols:
        bound = relaxed(formulation.at_protocols(protocols).problem)
        assert isinstance(bound, Bound)
        bounds[protocols] = bound.seconds
    assert lowest.model.protocols != model.protocols
    assert bounds[lowest.model.protocols] == pytest.approx(min(bounds.values()))
    others = [seconds for protocols, seconds in bounds.items() if protocols != lowest.model.protocols]
    assert 0 < known.elsewhere_s(lowest.model.protocols) <= min(others) * (1 + 1e-9)


def test_a_plan_that_follows_another_states_its_own_lines(by_rows: Plan) -> None:
    """Also where the former plan was made for half the batch."""
    larger = workload(TABLES, pipeline="none", global_batch=16_384)
    after = plan(CLUSTER, larger, shardings=["row_wise"], previous=by_rows, effort=1)
    assert verify(after, former=by_rows) == []


def test_an_imported_placement_has_a_bound_at_all_protocols(by_rows: Plan) -> None:
    """Also where our own plan, whose bound it is, takes other protocols."""
    inputs = AdoptionInputs(CLUSTER, workload(TABLES, pipeline="none"), "physical", Policy())
    tables = [
        AdoptedTable(
            table.sharding,
            table.tier,
            None,
            table.shards.rank,
            table.shards.row_start,
            table.shards.rows,
            table.shards.column_start,
            table.shards.columns,
        )
        for table in by_rows.tables
    ]
    ours = plan(CLUSTER, inputs.given_workload, effort=1)
    lines = [planned_model(each).linearised_at(placed_shards(each)).protocols for each in (ours, by_rows)]
    assert lines[0] != lines[1]
    imported = adopted(tables, inputs, "somebody", "a file", effort=1)
    assert verify(imported) == []
    assert imported.objective is not None
    assert by_rows.objective is not None
    assert imported.objective.step_s == pytest.approx(by_rows.objective.step_s)
