"""A run in one call: from its file to what it takes."""

from collections.abc import Callable, Sequence
from pathlib import Path

from planner.capacity.prices import notes as price_notes
from planner.document.plan import Plan
from planner.runs.account import Account, Costed, plans_of
from planner.runs.axes import Variant, variants
from planner.runs.choices import Manner, RunChoices
from planner.runs.inputs import RunInputs
from planner.runs.paths import Way, takes
from planner.runs.plans import RunPlans
from planner.runs.results import RunGrid, RunPoint
from planner.runs.run import FIGURES, Run, read_run
from planner.runs.schedule import Schedule, scheduled
from topologies.errors import Fault, InputError


def cost_run(
    source: str | Path, *, tell: Callable[[str], None] | None = None, stop: Callable[[], bool] | None = None
) -> Costed:
    """What a run takes: a file without axes, or a catalog name.

    `tell` hears of every plan that is made; `stop` is asked now and then whether to end each search with what is known.
    Raises InputError for inputs that are wrong.
    """
    run, document = read_run(source)
    if run.axes:
        raise InputError([document.fault(("axes",), "makes several runs; take cost_runs, or leave axes out")])
    return costed(RunInputs(run, document), tell=tell, stop=stop)


def cost_runs(
    source: str | Path, *, tell: Callable[[str], None] | None = None, stop: Callable[[], bool] | None = None
) -> RunGrid:
    """What the runs of a file with axes take, as `cost_run` says it of one."""
    run, document = read_run(source)
    return costed_variants(run, variants(run, document), tell=tell, stop=stop)


def costed_variants(
    run: Run,
    made: Sequence[Variant],
    *,
    tell: Callable[[str], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> RunGrid:
    """What each of several runs takes; they share the plans that they have in common."""
    plans: dict[object, Plan] = {}
    points = []
    for variant in made:
        try:
            if isinstance(variant.inputs, InputError):
                raise variant.inputs
            result = costed(variant.inputs, tell=tell, stop=stop, made=plans).result
            points.append(RunPoint(at=variant.cells, result=result))
        except InputError as error:
            points.append(RunPoint(at=variant.cells, result=None, reason=str(error.faults[0])))
    return RunGrid(name=run.name, description=run.description, objective=run.objective, points=tuple(points))


def costed(
    inputs: RunInputs,
    *,
    tell: Callable[[str], None] | None = None,
    stop: Callable[[], bool] | None = None,
    made: dict[object, Plan] | None = None,
) -> Costed:
    """What a run of these inputs takes, see `cost_run`; `made` are plans of other runs, and takes new ones."""
    schedule = scheduled(inputs.run, inputs.document, inputs.own_batch, inputs.own_nodes)
    _expect_inputs(inputs, schedule)
    plans = RunPlans(inputs, tell or (lambda _: None), stop, {} if made is None else made)
    choices = RunChoices(plans, schedule)
    ways: dict[Manner, Way | None] = {manner: choices.best(manner) for manner in _manners(inputs)}
    taken: Manner = inputs.run.plans
    if taken == "best":
        ways["best"] = _least(choices, ways)
    return Account(inputs, schedule, choices, ways, ways[taken]).costed


def _manners(inputs: RunInputs) -> tuple[Manner, ...]:
    """Ways that are worth a comparison: all, unless one plan is given."""
    return ("best",) if inputs.plan is not None else ("one", "each", "best")


def _least(choices: RunChoices, ways: dict[Manner, Way | None]) -> Way | None:
    """The best of all ways; of equal ones that with the fewest plans."""
    objective = choices.plans.inputs.run.objective
    known = [way for way in ways.values() if way is not None]

    def key(way: Way) -> tuple[float, int]:
        return takes(way, choices.rates).named(objective) or 0.0, len(plans_of(way))

    return min(known, key=key, default=None)


def _expect_inputs(inputs: RunInputs, schedule: Schedule) -> None:
    """Raise InputError for every stage whose batch or nodes cannot be, and for figures that count and are unknown."""
    faults: list[Fault] = []
    plans = RunPlans(inputs)
    for stage in schedule.stages:
        for nodes in stage.node_choices:
            try:
                inputs.topology(nodes, stage.where)
                plans.setting(stage, nodes)
            except InputError as error:
                faults += error.faults
    if faults:
        raise InputError(dict.fromkeys(faults))
    run, rates = inputs.run, RunChoices(plans, schedule).rates
    nodes_used = sorted({nodes for stage in schedule.stages for nodes in stage.node_choices})
    for name in FIGURES:
        if name != run.objective and name not in run.limits.stated:
            continue
        if any(rates(nodes)[name] is None for nodes in nodes_used):
            where = ("objective",) if name == run.objective else ("limits", name)
            remedy = "; ".join(price_notes(inputs.topology(nodes_used[0]), inputs.prices)) if name == "usd" else ""
            remedy = remedy or "give a price sheet (prices) that says it"
            faults.append(inputs.document.fault(where, f"{name} of this cluster is unknown: {remedy}"))
    if faults:
        raise InputError(faults)
