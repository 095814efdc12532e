"""What runs take, against the parts that they are made of."""

import math
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from cost_models.workload.loading import load_workload
from planner import plan, verify
from planner.document.migration import migration_from
from planner.document.plan import Plan, write_plan
from planner.document.planned import planned_model
from planner.document.traffic import moves_of
from planner.formulation.policy import Policy
from planner.runs.account import MANNERS
from planner.runs.passes import lbfgs_flop
from planner.runs.run import RUNS
from planner.runs.running import cost_run, cost_runs
from topologies.errors import InputError
from topologies.loading import load_topology


def planned(folder, nodes: int, batch: int) -> Plan:
    """A plan of the tests' model, made without a run."""
    workload = load_workload(folder / "small.yaml", global_batch=batch)
    return plan(load_topology("dgx-a100-80", nodes=nodes), workload, tiers=["hbm"], effort=0, gap=0.5, simulate=False)


def without_search(file: Path) -> None:
    """Leave out how plans are searched for."""
    data = yaml.safe_load(file.read_text())
    del data["search"]
    file.write_text(yaml.safe_dump(data))


def test_a_constant_batch_takes_steps_times_step(run_file):
    """To the last digit: seconds, dollars, energy."""
    file = run_file(stages=[{"global_batch": 4096, "samples": 10**8, "nodes": 1}], prices="sheet.yaml@region=north")
    costed = cost_run(file)
    own = planned(file.parent, 1, 4096)
    assert own.objective is not None
    steps = math.ceil(10**8 / 4096)
    takes = costed.result.takes
    assert takes is not None
    assert takes.seconds == costed.result.steps_s == steps * own.objective.step_s
    assert takes.usd == pytest.approx(steps * own.objective.step_s * 16 / 3600, rel=1e-15)
    assert takes.kwh == pytest.approx(steps * own.objective.step_s * 6.4 / 3600, rel=1e-15)
    assert takes.kg_co2e == pytest.approx((takes.kwh or 0.0) * 1.25 * 0.1, rel=1e-14)
    assert own.objective.error_bar is not None
    assert costed.result.low_s == pytest.approx(steps * own.objective.error_bar.low_s)
    assert costed.result.lower_bound_s == pytest.approx(steps * own.objective.lower_bound_s)


def test_a_schedule_that_was_made_by_hand(run_file):
    """Two batches on one node, then two nodes: each step, evaluation and moved byte, added up apart from the run."""
    stages = [
        {"global_batch": 4096, "steps": 1000, "nodes": 1},
        {"global_batch": 16384, "samples": 10**7, "nodes": 1},
        {"global_batch": 16384, "samples": 2 * 10**7, "nodes": 2},
    ]
    file = run_file(stages=stages, plans="each", evaluation={"every": 10**7, "seconds": "2s"}, restart="30s")
    result = cost_run(file).result
    plans = [planned(file.parent, nodes, batch) for nodes, batch in ((1, 4096), (1, 16384), (2, 16384))]
    steps = (1000, -(-(10**7) // 16384), -(-2 * 10**7 // 16384))
    evaluations = (4096000 // 10**7, 14096000 // 10**7, 34096000 // 10**7 - 14096000 // 10**7)
    seconds = sum((n * Fraction(made.objective.step_s) for n, made in zip(steps, plans, strict=True)), Fraction(0))  # type: ignore[union-attr]
    moved = 0
    for before, after in pairwise(plans):
        migration = migration_from(before, planned_model(after), ())
        moves = moves_of(migration, after.tables, 0.0, None, None)
        is_same = moves.moved_bytes == 0 and len(before.ranks) == len(after.ranks)
        seconds += 0 if is_same else Fraction(moves.moved_bytes * migration.seconds_per_byte() + 30.0)
        moved += moves.moved_bytes
    seconds += 2 * sum(evaluations)
    assert [stage.steps for stage in result.stages] == list(steps)
    assert [stage.evaluations for stage in result.stages] == list(evaluations)
    assert result.moved_bytes == moved > 0
    assert result.takes is not None
    assert result.takes.seconds == float(seconds)
    assert result.takes.usd is None


def test_a_stage_in_two_parts_changes_nothing(run_file):
    """Nor does a part that ends within a batch: every figure of the run is the same to the last digit."""
    one = {"global_batch": 8192, "nodes": 2, "line_search": {"forward_passes": 1.3}}
    other = {"global_batch": 4096, "nodes": 1, "samples": 12345}
    rest = {"prices": "sheet.yaml", "evaluation": {"every": 10**6, "samples": 10**5}}
    whole = cost_run(run_file(stages=[other, {**one, "samples": 10_000_019}], **rest)).result
    parts = [{**one, "samples": n} for n in (3_333_333, 1, 6_666_685)]
    cut = cost_run(run_file(stages=[other, *parts], **rest)).result
    for name in ("takes", "steps", "steps_s", "evaluations_s", "migrations_s", "low_s", "lower_bound_s", "moved_bytes"):
        assert getattr(cut, name) == getattr(whole, name), name


def test_passes_beyond_the_step(run_file):
    """A forward pass takes less than a step; a product with the Hessian of the dense part; L-BFGS's pairs
    are in memory, read twice, and take 4 m n FLOP; and all of them scale with their number."""
    (model,) = [load_workload(run_file(stages=[]).parent / "small.yaml")]
    assert lbfgs_flop(model, 10) == 4 * 10 * 10**6

    def passes(**more: object) -> tuple[dict[str, float], Plan, float]:
        costed = cost_run(run_file(stages=[{"steps": 100, "nodes": 2, **more}]))
        (stage,) = costed.result.stages
        assert stage.steps_s == 100 * (stage.step_s + sum(stage.passes_s.values()))
        return stage.passes_s, costed.plans[0], stage.step_s

    once, _, step_s = passes(line_search={"forward_passes": 1})
    twice, _, _ = passes(line_search={"forward_passes": 2})
    assert 0 < once["line_search"] < step_s
    assert twice["line_search"] == pytest.approx(2 * once["line_search"])
    few, of_few, _ = passes(lbfgs={"pairs": 10})
    many, of_many, _ = passes(lbfgs={"pairs": 20})
    assert many["lbfgs"] == pytest.approx(2 * few["lbfgs"])
    used = [made.ranks[0].bytes["hbm"] for made in (of_few, of_many)]
    assert used[1] - used[0] == 8 * 10 * 10**6
    hbm_bytes_per_s = 2.039e12  # data sheet of A100-SXM4-80GB
    assert few["lbfgs"] == pytest.approx(2 * 8 * 10 * 10**6 / hbm_bytes_per_s)
    product, _, _ = passes(hessian_products=3)
    assert product["hessian_products"] > 0
    overlapping, _, _ = passes(lbfgs={"pairs": 10, "overlap": "10%"})
    assert overlapping["lbfgs"] > few["lbfgs"]


def test_nodes_are_added_where_it_pays(run_file):
    """Among all numbers of nodes the least objective: no fixed number is better, and each choice is listed."""
    stages = [{"global_batch": batch, "samples": 4 * 10**7, "nodes": [1, 2]} for batch in (2048, 65536)]
    both = {"stages": stages, "prices": "sheet.yaml"}
    results = [point.result for point in cost_runs(run_file(**both, axes={"objective": ["seconds", "usd"]})).points]
    fast, cheap = (each.takes for each in results if each is not None and each.takes is not None)
    for result in results:
        assert result is not None
        assert result.takes is not None
        assert len(result.choices) == 4
        fixed = [other for other in result.alternatives if "throughout" in other.label]
        assert [other.nodes for other in fixed] == [(1, 1), (2, 2)]
        assert [other.label for other in result.alternatives][:2] == list(MANNERS.values())[:2]
        for other in result.alternatives:
            assert other.takes is not None
            assert not other.reason
            assert result.takes.named(result.objective) <= other.takes.named(result.objective)  # type: ignore[operator]
    assert fast.seconds < cheap.seconds
    assert (cheap.usd or 0.0) < (fast.usd or 0.0)
    between_s = (fast.seconds + cheap.seconds) / 2
    limits = {"limits.seconds": [f"{between_s}s", "1ms"]}
    limited, late = cost_runs(run_file(**both, objective="usd", axes=limits)).points
    assert limited.result is not None
    assert limited.result.takes is not None
    assert limited.result.takes.seconds <= between_s
    slow = [
        other for other in limited.result.alternatives if other.takes is not None and other.takes.seconds > between_s
    ]
    assert slow
    assert all(other.reason == "which does not keep the limits" for other in slow)
    assert late.result is not None
    assert (late.result.status, late.result.takes) == ("infeasible", None)
    assert "keeps the limits (seconds 0.001)" in late.result.reason


def test_a_run_under_a_given_plan(run_file):
    """No plan is made, and the step at other batches is that of the given placement."""
    file = run_file(stages=[])
    given = planned(file.parent, 1, 4096)
    write_plan(given, file.parent / "given.json")
    stages = [{"global_batch": batch, "steps": 10, "nodes": 1} for batch in (4096, 8192)]
    file = run_file(stages=stages, plan="given.json")
    with pytest.raises(InputError, match="search: no plan is searched for"):
        cost_run(file)
    without_search(file)
    costed = cost_run(file)
    first, second = costed.result.stages
    assert given.objective is not None
    assert first.step_s == given.objective.step_s
    assert first.step_s < second.step_s < 2 * first.step_s
    assert costed.result.migrations_s == 0
    file = run_file(stages=[{"steps": 10, "nodes": 2}], plan="given.json")
    without_search(file)
    with pytest.raises(InputError, match="plan: is no plan for 2 nodes"):
        cost_run(file)


def test_plans_of_a_run_are_plans(run_file):
    """Each passes `verify`, also one with the state of L-BFGS."""
    stages = [{"global_batch": 4096, "steps": 10, "nodes": 1, "lbfgs": {"pairs": 4}}, {"steps": 10, "nodes": 2}]
    for made in cost_run(run_file(stages=stages)).plans:
        assert not verify(made)


def test_a_run_that_does_not_fit_says_why(run_file):
    """The reason names the stage and its nodes."""
    stages = [{"name": "first", "steps": 10}, {"name": "huge", "global_batch": 10**10, "steps": 10, "nodes": 1}]
    result = cost_run(run_file(stages=stages)).result
    assert result.status == "infeasible"
    assert result.reason.startswith("huge: on 1 node there is no plan: ")


def test_axes_make_several_runs(run_file):
    """Every combination, the last axis changing fastest; a run that cannot be is a point with its reason."""
    axes = {"stages.*.nodes": [1, 2], "prices": ["sheet.yaml", "sheet.yaml@tariff=spot"]}
    grid = cost_runs(run_file(stages=[{"steps": 100}], axes=axes))
    usd = [point.result.takes.usd for point in grid.points if point.result and point.result.takes]
    assert [point.at["stages.*.nodes"] for point in grid.points] == [1, 1, 2, 2]
    assert usd[0] == pytest.approx(2 * usd[1])  # type: ignore[operator]
    assert usd[2] == pytest.approx(2 * usd[3])  # type: ignore[operator]
    rates = cost_runs(
        run_file(stages=[{"steps": 9}], axes={"topology.nodes.0.links.scale_up.bandwidth": ["100GB/s", "300GB/s"]})
    )
    slow, fast = (point.result.takes.seconds for point in rates.points if point.result and point.result.takes)
    assert slow > fast
    partly = cost_runs(run_file(stages=[{"steps": 9}], axes={"stages.0.global_batch": [4096, 10**10]}))
    assert partly.points[1].result is not None
    assert partly.points[1].result.status == "infeasible"


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"objective": "usd"}, "objective: usd of this cluster is unknown"),
        ({"limits": {"kg_co2e": 3}, "prices": "sheet.yaml"}, "limits.kg_co2e: kg_co2e of this cluster is unknown"),
        ({"topology": "no-such"}, "topology: 'no-such'"),
        ({"prices": "sheet.yaml@tariff=spto"}, "'spto' is not among"),
        ({"policy": "fsdp.yaml", "evaluation": {"every": 9, "samples": 9}}, "of a replicated dense part"),
        ({"policy": "auto.yaml"}, "dense.strategy: auto is for plans"),
        ({"group": "gpus"}, "group: 'gpus' is not a node group"),
        ({"plans": "one", "plan": "x.json"}, "all stages run under the plan that is given"),
        ({"axes": {"stage.0.nodes": [1]}}, "axes.stage.0.nodes"),
        ({"axes": {"workload.global_batch": [1]}}, "every stage says its own batch"),
        ({"axes": {"name": ["a", "b"]}}, "nothing that a run depends on"),
        ({"axes": {"stages.*.nodes": [1, 2, 1]}}, "axes.stages.*.nodes.2: is the same as value 0"),
        ({"stages": [{"steps": 5, "nodes": 0}]}, "stages.0.nodes"),
        ({"stages": [{"steps": 5, "batch": 9}]}, "stages.0.batch"),
    ],
)
def test_faults_name_file_line_and_key(run_file, keys, words):
    """What a run states is used or refused where it stands, with a remedy."""
    file = run_file(**{"stages": [{"global_batch": 8192, "steps": 5}], **keys})
    with pytest.raises(InputError) as raised:
        cost_runs(file) if "axes" in keys else cost_run(file)
    assert words in str(raised.value)
    assert all(fault.line for fault in raised.value.faults if fault.source == str(file))


@pytest.mark.parametrize("name", RUNS.names())
def test_shipped_runs_are_valid(name):
    """Each has a description, and names what there is."""
    data = yaml.safe_load(RUNS.find(name).read_text())
    assert data["name"] == name
    assert data["description"]


def test_each_stage_is_checkpointed_as_its_batch_asks(run_file):
    """Under `checkpointing: auto` each stage has the plan that `plan` makes of it, and its step counts."""
    file = run_file()
    blocks = [{"kind": "mlp", "name": f"b{number}", "sizes": [512, 512, 64]} for number in range(6)]
    layers = [{"kind": "embeddings", "tables": "*"}, *blocks, {"kind": "linear", "name": "head", "out": 1}]
    data = yaml.safe_load((file.parent / "small.yaml").read_text()) | {"dense": {"layers": layers}}
    (file.parent / "small.yaml").write_text(yaml.safe_dump(data))
    (file.parent / "open.yaml").write_text("{tiers: hbm, checkpointing: auto}")
    batches = (8192, 3 * 2**23)
    stages = [{"global_batch": batch, "steps": 100, "nodes": 1} for batch in batches]
    costed = cost_run(run_file(stages=stages, policy="open.yaml"))
    ways, steps_s = [], 0.0
    for batch in batches:
        workload = load_workload(file.parent / "small.yaml", global_batch=batch)
        policy = Policy(tiers=("hbm",), checkpointing="auto")
        own = plan(load_topology("dgx-a100-80", nodes=1), workload, policy=policy, effort=0, gap=0.5, simulate=False)
        assert own.objective is not None
        assert own.dense is not None
        ways.append(own.dense.checkpointing)
        steps_s += 100 * own.objective.step_s
    assert ways == [None, "full"]
    assert costed.result.steps_s == pytest.approx(steps_s, rel=1e-12)
