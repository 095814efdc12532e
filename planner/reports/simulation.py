"""What a simulation shows: the step, its critical path, how busy everything is, what conditions cost; 80 columns."""

from typing import TYPE_CHECKING, Any

import numpy as np

from cost_models.resources import FRONT_END
from planner.document.plan import Plan
from planner.document.planned import planned_model
from planner.reports.tables import TextGrid
from planner.reports.words import remainder_words, resource_words
from planner.verification.simulation import SimulationOutcome, simulated
from topologies.units import format_seconds

if TYPE_CHECKING:
    from rich.console import Console

SHOWN_TASKS = 12
FULL = 0.999


def render(plan: Plan, outcome: SimulationOutcome, console: "Console") -> None:
    """Print what a simulation shows."""
    assert plan.objective is not None
    simulation = outcome.simulation
    steps = simulation.step_seconds
    lines = TextGrid(("", "left"), ("", "right"), ("", "left"))
    lines.show_header = False
    lines.add_row("simulated step", format_seconds(simulation.step_s), f"{simulation.samples_per_s:,.0f} samples/s")
    if len(steps) > 1:
        p50, p99 = (format_seconds(float(np.quantile(steps, share))) for share in (0.5, 0.99))
        lines.add_row("", "", f"{len(steps)} steps: p50 {p50}, p99 {p99}")
    if plan.provenance.cost_model == "physical":
        shown = format_seconds(plan.objective.step_s)
        lines.add_row("estimate", shown, f"simulated {simulation.step_s / plan.objective.step_s - 1:+.1%}")
    exposed = float(simulation.exposed_comm.mean())
    whole = f"of the step, mean over ranks; {simulation.exposed_share_of_comm:.1%} of communication"
    lines.add_row("exposed communication", f"{exposed:.1%}", whole)
    console.print(lines)
    console.print()

    path = TextGrid(("critical path", "left"), ("time", "right"), ("share", "right"), ("rank", "right"))
    for share in simulation.critical_path()[:SHOWN_TASKS]:
        rank = "all" if share.rank is None else str(share.rank)
        path.add_row(share.task, format_seconds(share.seconds), f"{share.seconds / simulation.step_s:.1%}", rank)
    console.print(path)
    model = planned_model(plan)
    for name in model.hidden:
        console.print(f"{name} is hidden; {remainder_words(model, name)}.")
    console.print()

    busy = TextGrid(("in use", "left"), ("mean", "right"), ("most", "right"), ("number", "right"))
    for resource, use in simulation.busy().items():
        words = resource_words(resource, simulation.network.topology)
        busy.add_row(words, f"{use.mean():.1%}", f"{use.max():.1%}", str(int(use.argmax())))
    console.print(busy)
    if late := _late_data(outcome):
        console.print()
        console.print(late)
    if len(outcome.effects) > 1:
        console.print()
        costs = TextGrid(("condition", "left"), ("step", "right"), ("costs", "right"))
        for effect in outcome.effects:
            costs.add_row(effect.condition, format_seconds(effect.step_s), f"{effect.cost:+.2%}" if effect.cost else "")
        console.print(costs)


def hidden_stages(plan: Plan) -> dict[str, str]:
    """The stage in which the remainder of each hidden stage is counted, by the name of the hidden one."""
    model = planned_model(plan)
    return dict(model.hidden)


def _late_data(outcome: SimulationOutcome) -> str | None:
    """A warning where the front end cannot keep up."""
    use = outcome.simulation.busy().get(FRONT_END)
    if use is None or use.max() < FULL:
        return None
    return (
        "The front-end cards are busy all the time: training data would not arrive in time. --data-loading shows"
        " the step that waits for it."
    )


def as_document(plan: Plan, outcome: SimulationOutcome) -> dict[str, Any]:
    """What a simulation shows as plain data: seconds, and shares of 1."""
    assert plan.objective is not None
    simulation = outcome.simulation
    steps = simulation.step_seconds
    return {
        **simulated(simulation).model_dump(),
        "steps": len(steps),
        "p50_s": float(np.quantile(steps, 0.5)),
        "p99_s": float(np.quantile(steps, 0.99)),
        "estimate_s": plan.objective.step_s if plan.provenance.cost_model == "physical" else None,
        "critical_path": critical_path_records(outcome),
        "hidden": hidden_stages(plan),
        "in_use": {
            str(resource): {"mean": float(use.mean()), "most": float(use.max()), "number": int(use.argmax())}
            for resource, use in simulation.busy().items()
        },
        "effects": [
            {"condition": effect.condition, "step_s": effect.step_s, "cost": effect.cost} for effect in outcome.effects
        ],
    }


def critical_path_records(outcome: SimulationOutcome) -> list[dict[str, Any]]:
    """One record per task on the critical path, the longest first."""
    return [
        {"task": share.task, "seconds": share.seconds, "rank": share.rank}
        for share in outcome.simulation.critical_path()
    ]
