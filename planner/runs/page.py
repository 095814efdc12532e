"""The page of a run: the schedule over time, what each stage takes, and the choices there were."""

from collections.abc import Sequence
from itertools import accumulate, groupby, pairwise

import pandas as pd

from planner.reports.pages.charts import Bars, Chart, Json, LeftOut, View, axis, bars, hover, layout, legend_px, line
from planner.reports.pages.page import Page, PageColumn, Table
from planner.reports.pages.palette import SERIES
from planner.runs.results import RunGrid, RunPoint, RunResult, StageCosts
from planner.runs.run import FIGURES
from planner.runs.summary import grid_records, records
from planner.runs.words import duration, figures_text
from planner.studies.scales import scale_of
from topologies.units import format_seconds

PARTS = ("training steps", "line_search", "lbfgs", "hessian_products", "evaluations", "migration")
"""What the time of a stage is divided into."""
UNITS = {"seconds": "s", "usd": "USD", "kwh": "kWh", "kg_co2e": "kg CO2e"}
MOST_BARS = 60


def run_page(result: RunResult | RunGrid) -> Page:
    """What a run takes, or several, as a page."""
    return _grid_page(result) if isinstance(result, RunGrid) else _page(result)


def _page(result: RunResult) -> Page:
    charts = [chart for chart in (schedule(result), parts(result), sizes(result)) if chart is not None]
    return Page(result.name, result.description, _facts(result), result.findings, charts, _tables(result))


def _facts(result: RunResult) -> list[str]:
    facts = [f"{len(result.stages):,} stages, {result.steps:,} steps, least {result.objective.replace('_', ' ')}."]
    if result.prices is not None:
        said = ", ".join(f"{key} {value}" for key, value in result.prices.items() if value)
        facts.append(f"Prices: {said}.")
    return [*facts, *(f"Note: {note}." for note in result.notes)]


def schedule(result: RunResult) -> Chart | LeftOut:
    """Batch and nodes over the time of the run."""
    title = "Schedule"
    if not result.stages:
        return LeftOut(title, "there is no way to run it")
    ends = list(accumulate(stage.takes.seconds for stage in result.stages))
    scale = scale_of(ends, "s") if ends[-1] < 7200 else scale_of([1.0], "")
    divisor, unit = (scale.divisor, scale.unit) if ends[-1] < 7200 else (3600.0, "h")
    times = [0.0, *(each / divisor for each in ends)]
    hovers = [hover(stage.name, _hover_facts(stage)) for stage in result.stages]

    def stairs(name: str, values: Sequence[float], colour: str, **more: object) -> Json:
        """Each value from the beginning of its stage to its end."""
        x = [time for pair in pairwise(times) for time in pair]
        y = [value for value in values for _ in range(2)]
        texts = [text for text in hovers for _ in range(2)]
        return line(name, x, y, colour, texts, **more) | {"mode": "lines"}

    data = [
        stairs("global batch", [stage.global_batch for stage in result.stages], SERIES[0]),
        stairs("nodes", [stage.nodes for stage in result.stages], SERIES[1], yaxis="y2"),
    ]
    drawn = layout(
        420,
        xaxis=axis(f"time ({unit})", anchor="y2", rangemode="tozero"),
        yaxis=axis("global batch", domain=[0.42, 1], rangemode="tozero"),
        yaxis2=axis("nodes", domain=[0, 0.3], rangemode="tozero", nticks=5),
    )
    return Chart("schedule", title, (View("", data, drawn),), "Each stage from its beginning to its end.")


def _hover_facts(stage: StageCosts) -> dict[str, str]:
    facts = {
        "batch": f"{stage.global_batch:,}",
        "nodes": f"{stage.nodes:,}",
        "steps": f"{stage.steps:,} of {format_seconds(stage.step_s)}",
        "takes": figures_text(stage.takes),
    }
    if stage.migration is not None:
        facts["before it"] = f"{duration(stage.migration.seconds)} of migration"
    return facts


def parts(result: RunResult) -> Chart | LeftOut | None:
    """What the time of each stage is made of."""
    stages = result.stages[:MOST_BARS]
    if not stages:
        return None
    scale = scale_of([stage.takes.seconds for stage in stages], "s")
    names = [stage.name for stage in stages]
    series = []
    for name, colour in zip(PARTS, SERIES, strict=False):
        seconds = [_part(stage, name) for stage in stages]
        if any(seconds):
            words = name.replace("_", " ").replace("lbfgs", "L-BFGS").replace("hessian", "Hessian")
            texts = [hover(stage.name, {words: duration(each)}) for stage, each in zip(stages, seconds, strict=True)]
            series.append(Bars(words, [each / scale.divisor for each in seconds], colour, texts))
    more = len(result.stages) - len(stages)
    note = f"{more:,} more stages are in the table." if more else ""
    return Chart("stages", "Where the time goes", (View("", *bars(names, series, f"time ({scale.unit})")),), note)


def _part(stage: StageCosts, name: str) -> float:
    if name == "training steps":
        return stage.steps * stage.step_s
    if name == "evaluations":
        return stage.evaluations_s
    if name == "migration":
        return 0.0 if stage.migration is None else stage.migration.seconds
    return stage.steps * stage.passes_s.get(name, 0.0)


def sizes(result: RunResult) -> Chart | None:
    """What each stage would take on each of its numbers of nodes."""
    if not any(choice.takes is not None for choice in result.choices):
        return None
    curves = {
        name: [choice for choice in group if choice.takes is not None]
        for name, group in groupby(result.choices, key=lambda choice: choice.stage)
    }
    curves = dict(list({name: found for name, found in curves.items() if found}.items())[: len(SERIES)])
    views = []
    for figure in FIGURES:
        values = {
            name: [None if each.takes is None else each.takes.named(figure) for each in found]
            for name, found in curves.items()
        }
        if any(value is None for own in values.values() for value in own):
            continue
        data = [
            line(
                name,
                [each.nodes for each in found],
                values[name],
                colour,
                [
                    hover(f"{name}, {each.nodes:,} nodes", {"takes": figures_text(each.takes)})
                    for each in found
                    if each.takes
                ],
            )
            for (name, found), colour in zip(curves.items(), SERIES, strict=False)
        ]
        drawn = layout(
            420 + legend_px(list(curves)),
            showlegend=len(curves) > 1,
            xaxis=axis("nodes", rangemode="tozero"),
            yaxis=axis(UNITS[figure], rangemode="tozero"),
        )
        views.append(View(figure.replace("_", " "), data, drawn))
    note = "Each stage under its own plan, without what changes before it."
    more = len({choice.stage for choice in result.choices}) - len(curves)
    note += f" {more:,} more stages are in the table." if more > 0 else ""
    return Chart("sizes", "When to add nodes", tuple(views), note) if views else None


def _tables(result: RunResult) -> list[Table]:
    made = []
    if result.stages:
        made.append(_table("stages", "Stages", pd.DataFrame(records(result))))
    if result.choices:
        rows = [
            {"stage": each.stage, "nodes": each.nodes, "step_s": each.step_s}
            | (dict.fromkeys(FIGURES) if each.takes is None else each.takes.model_dump())
            | {"reason": each.reason}
            for each in result.choices
        ]
        made.append(_table("choices", "Numbers of nodes", pd.DataFrame(rows)))
    if result.alternatives:
        rows = [
            {"way": each.label, "plans": each.plans}
            | (dict.fromkeys(FIGURES) if each.takes is None else each.takes.model_dump())
            | {"reason": each.reason}
            for each in result.alternatives
        ]
        made.append(_table("ways", "Other ways", pd.DataFrame(rows)))
    return made


def _table(name: str, title: str, frame: pd.DataFrame) -> Table:
    """All columns that say something; what they end in is their unit."""
    units = {"_s": "s", "seconds": "s", "usd": "USD", "kwh": "kWh", "_bytes": "B"}
    columns = [
        PageColumn(
            column,
            column.removesuffix("_s").removesuffix("_bytes").replace("_", " "),
            next((unit for end, unit in units.items() if column.endswith(end)), ""),
        )
        for column in map(str, frame.columns)
        if frame[column].notna().any() and frame[column].astype(bool).any()
    ]
    return Table(name, title, frame, columns, "A click on a heading sorts.")


def _grid_page(grid: RunGrid) -> Page:
    best = grid.best
    facts = [f"{len(grid.points):,} runs, least {grid.objective.replace('_', ' ')}."]
    if best is not None and best.result is not None and best.result.takes is not None:
        facts.append(f"Best: {_name(best)}: {figures_text(best.result.takes)}.")
    frame = pd.DataFrame(grid_records(grid))
    return Page(grid.name, grid.description, facts, (), [_objectives(grid)], [_table("runs", "All runs", frame)])


def _objectives(grid: RunGrid) -> Chart | LeftOut:
    title = "Runs"
    known = [
        (_name(point), point.result.takes)
        for point in grid.points
        if point.result is not None and point.result.takes is not None
    ][:MOST_BARS]
    if not known:
        return LeftOut(title, "no run of all can be")
    views = []
    for number, figure in enumerate(FIGURES):
        values = [takes.named(figure) for _, takes in known]
        if any(value is None for value in values):
            continue
        texts = [hover(name, {"takes": figures_text(takes)}) for name, takes in known]
        series = [Bars(figure, values, SERIES[number], texts)]
        views.append(View(figure.replace("_", " "), *bars([name for name, _ in known], series, UNITS[figure])))
    return Chart("runs", title, tuple(views))


def _name(point: RunPoint) -> str:
    return ", ".join(f"{name.split('.')[-1].replace('_', ' ')} {value}" for name, value in point.at.items())
