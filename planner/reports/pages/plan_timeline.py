"""A simulated step in a plan's page: what every rank does over the time, and the streams of the critical rank."""

from collections.abc import Sequence

import numpy as np

from cost_models.shards import Ints
from cost_models.simulator.program import COMPUTE, HOST, Task
from cost_models.simulator.simulation import Simulation
from planner.reports.pages.charts import Chart, Json, View, axis, escaped, hover, layout, legend_px, named_axis
from planner.reports.pages.palette import EMPTY, SERIES, STAGE_COLOURS
from planner.reports.timeline.slices import critical_rank, slices, streams
from planner.studies.scales import Scale, scale_of, significant
from topologies.sentences import counted

MOST_TICKS = 17
"""Rows that have their name beside them."""
MOST_ROWS, MOMENTS = 128, 320
"""Rows of ranks, and the moments of the step at which each is looked at."""
WAITS = "waits"
COLOURS = {
    "overhead": STAGE_COLOURS["overhead"],
    "lookup": STAGE_COLOURS["lookup_forward"],
    "update": STAGE_COLOURS["lookup_backward"],
    "permute": STAGE_COLOURS["output_intra_host"],
    "dense forward": STAGE_COLOURS["dense"],
    "dense backward": STAGE_COLOURS["tower_forward"],
    "dense optimizer": STAGE_COLOURS["tower_backward"],
    "input dist": STAGE_COLOURS["input_dist"],
    "output dist": STAGE_COLOURS["output_dist"],
    "gradient dist": STAGE_COLOURS["gradient_dist"],
    "all-reduce": STAGE_COLOURS["all_reduce"],
    "other exchange": STAGE_COLOURS["gradient_intra_host"],
    "copy or fetch": STAGE_COLOURS["cache_fetch"],
    WAITS: EMPTY,
}
"""What ranks do, as stages of the step are called, in the order of the legend."""
PARTS = list(COLOURS)


def timeline(simulation: Simulation) -> Chart:
    """The first counted step: all ranks, then the critical one stream by stream."""
    step_s = float(simulation.step_seconds[0])
    scale = scale_of([step_s], "s")
    rank = critical_rank(simulation)
    rows = _rows(simulation, rank)
    world = simulation.network.world
    views = (_every_rank(simulation, rows, step_s, scale), _one_rank(simulation, rank, step_s, scale))
    note = "As simulated. A rank has the colour of what it computes, else of what it waits for: host, then exchange."
    if len(rows) < world:
        note += f" {len(rows)} of {counted(world, 'rank')}: of each {world // len(rows)} or so in a row the busiest."
    shares = [share for share in simulation.critical_path() if share.seconds > 0][:4]
    path = ", ".join(f"{share.task} {share.seconds / simulation.step_s:.0%}" for share in shares)
    words = f"One step lasts {scale.text(step_s)}. Its critical path, mostly on rank {rank:,}: {path}."
    return Chart("timeline", "One step over time", views, note, words)


def _rows(simulation: Simulation, critical: int) -> Ints:
    """Ranks that are drawn: all, or of each run of consecutive ones the busiest, the critical one in any case."""
    world = simulation.network.world
    if world <= MOST_ROWS:
        return np.arange(world)
    compute = [task for task in simulation.program.tasks if task.stream == COMPUTE]
    low, high = simulation.window
    clipped = np.clip(simulation.intervals(compute), low, high)
    busy = (clipped[:, :, 1] - clipped[:, :, 0]).sum(axis=1)
    busy[critical] = np.inf
    return np.array([run[np.argmax(busy[run])] for run in np.array_split(np.arange(world), MOST_ROWS)])


def _part(task: Task) -> str:
    """What a task is called in the legend."""
    if task.is_exchange:
        name = task.name.partition(" (")[0]
        return name if name in COLOURS else "other exchange"
    return "copy or fetch" if task.kind == "transfer" else task.kind


def _every_rank(simulation: Simulation, rows: Ints, step_s: float, scale: Scale) -> View:
    """A row for each rank, coloured moment by moment."""
    low = simulation.window[0]
    moments = (np.arange(MOMENTS) + 0.5) * step_s / MOMENTS
    does = np.full((len(rows), MOMENTS), PARTS.index(WAITS))
    ordered = sorted(simulation.program.tasks, key=lambda task: (task.stream == COMPUTE, task.stream == HOST))
    for task in ordered:  # what comes later covers what goes on beside it
        if task.stream == HOST or task.stream == COMPUTE or task.is_exchange:
            place = np.searchsorted(task.ranks, rows)
            is_of = (place < len(task.ranks)) & (task.ranks[np.minimum(place, len(task.ranks) - 1)] == rows)
            place = np.where(is_of, place, 0)
            start, end = simulation.run.start[task.first[place]] - low, simulation.run.end[task.last[place]] - low
            within = is_of[:, None] & (start[:, None] <= moments) & (moments < end[:, None])
            does[within] = PARTS.index(_part(task))
    used = [part for part in PARTS if (does == PARTS.index(part)).any()]
    number = {PARTS.index(part): n for n, part in enumerate(used)}
    shown = np.vectorize(number.get)(does).astype(int)
    names = [f"rank {rank:,}" for rank in rows.tolist()]
    trace: Json = {
        "type": "heatmap",
        "x": (moments / scale.divisor).round(6).tolist(),
        "y": list(range(len(rows))),
        "z": shown.tolist(),
        "text": [[f"{name}: {used[part]}" for part in row] for name, row in zip(names, shown.tolist(), strict=True)],
        "hovertemplate": f"%{{x:.4g}} {escaped(scale.unit)}<br>%{{text}}<extra></extra>",
        "colorscale": _steps(used),
        "zmin": -0.5,
        "zmax": len(used) - 0.5,
        "showscale": False,
        "ygap": 1 if len(rows) <= 64 else 0,
    }
    ticks = list(range(0, len(rows), -(-len(rows) // MOST_TICKS)))
    drawn = layout(
        int(np.clip(140 + 24 * len(rows), 260, 640)) + legend_px(used),
        showlegend=True,
        xaxis=axis(f"time ({scale.unit})", range=[0, step_s / scale.divisor], showgrid=False),
        yaxis=named_axis(names, range=[len(rows) - 0.5, -0.5], ticks="")
        | {"tickvals": ticks, "ticktext": [names[tick] for tick in ticks]},
    )
    seconds = np.stack([(shown == part).mean(axis=1) * step_s / scale.divisor for part in range(len(used))], axis=1)
    head = ["rank", *(f"{part} ({scale.unit})" for part in used)]
    table = [
        [f"{rank:,}", *(significant(value) for value in of)]
        for rank, of in zip(rows.tolist(), seconds.tolist(), strict=True)
    ]
    return View("all ranks", [trace, *_legend(used)], drawn, rows=[head, *table])


def _steps(used: Sequence[str]) -> list[list[object]]:
    """A scale with a step for each part."""
    count = len(used)
    return [[edge, COLOURS[part]] for n, part in enumerate(used) for edge in (n / count, (n + 1) / count)]


def _legend(used: Sequence[str]) -> list[Json]:
    """Marks without a place, which a legend names."""
    marks: Json = {"type": "scatter", "mode": "markers", "x": [None], "y": [None], "hoverinfo": "skip"}
    return [marks | {"name": part, "marker": {"color": COLOURS[part], "symbol": "square", "size": 10}} for part in used]


def _one_rank(simulation: Simulation, rank: int, step_s: float, scale: Scale) -> View:
    """The streams of one rank below each other."""
    shown = [work for work in slices(simulation, rank) if work.start < step_s]
    lanes = [name for name in streams(simulation) if any(work.task.stream == name for work in shown)]
    lanes.sort(key=lambda name: (name != HOST, name != COMPUTE))
    data = []
    used = [part for part in PARTS if any(_part(work.task) == part for work in shown)]
    for part in used:
        own = [work for work in shown if _part(work.task) == part]
        lasts = [min(work.end, step_s) - work.start for work in own]
        data.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": part,
                "base": [work.start / scale.divisor for work in own],
                "x": [seconds / scale.divisor for seconds in lasts],
                "y": [lanes.index(work.task.stream) for work in own],
                "width": 0.8,
                "marker": {"color": COLOURS.get(part, SERIES[0]), "line": {"width": 0}},
                "hovertext": [
                    hover(work.task.name, {"begins at": scale.text(work.start), "lasts": scale.text(seconds)})
                    for work, seconds in zip(own, lasts, strict=True)
                ],
                "hoverinfo": "text",
            }
        )
    drawn = layout(
        140 + 34 * len(lanes) + legend_px(used),
        barmode="overlay",
        showlegend=True,
        xaxis=axis(f"time ({scale.unit})", range=[0, step_s / scale.divisor]),
        yaxis=named_axis(lanes, range=[len(lanes) - 0.5, -0.5], ticks=""),
    )
    table = [
        [work.task.name, work.task.stream, scale.number(work.start), scale.number(min(work.end, step_s) - work.start)]
        for work in shown
    ]
    head = ["task", "stream", f"begins ({scale.unit})", f"lasts ({scale.unit})"]
    return View(f"rank {rank:,}, on the critical path", data, drawn, rows=[head, *table])
