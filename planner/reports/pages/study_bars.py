"""Bars for each point of a study: stages, memory, measurements, what more of each resource would save."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from cost_models.shards import Floats
from planner.reports.pages.charts import BAR_PX, Bars, Chart, LeftOut, View, bars, heat_map, hover, layout, named_axis
from planner.reports.pages.palette import MEMORY_COLOURS, PALE, SERIES, STAGE_COLOURS, colours
from planner.reports.pages.points import Points
from planner.studies.results import SAVES_PREFIX, SAVES_SUFFIX, SECONDS_SUFFIX, STAGE_PREFIX
from planner.studies.scales import scale_of

MOST_BARS = 40
ROOM_FOR_TEXT = 1.12
"""An axis is so many times as long as its longest bar, where text follows the bars."""
RESOURCES = {
    "hbm": "HBM",
    "ddr": "DDR",
    "ssd": "SSD",
    "nic": "NIC",
    "pcie": "PCIe",
    "flops": "FLOP/s",
    "nvlink": "NVLink",
    "iops": "IOPS",
}


def measured(points: Points) -> Chart | None:
    """Predicted throughput beside what was measured."""
    if not points.has("measured_samples_per_s"):
        return None
    known = (points.frame["measured_samples_per_s"].notna() & points.frame["samples_per_s"].notna()).to_numpy()
    ranked = points.ranked(known)
    if not ranked:
        return None
    chosen = sorted(ranked[:MOST_BARS])
    columns = [
        "samples_per_s",
        *(["simulated_samples_per_s"] if points.has("simulated_samples_per_s") else []),
        "measured_samples_per_s",
    ]
    scale = scale_of([value for column in columns for value in points.frame[column].iloc[chosen]], "samples/s")
    actual = points.frame["measured_samples_per_s"]
    colours = {"samples_per_s": SERIES[0], "simulated_samples_per_s": SERIES[4], "measured_samples_per_s": SERIES[7]}
    words = {"samples_per_s": "predicted", "simulated_samples_per_s": "simulated", "measured_samples_per_s": "measured"}
    series = []
    for column in columns:
        values = points.frame[column].iloc[chosen]
        ratio = (values / actual.iloc[chosen] - 1).tolist()
        texts = [f"{part:+.0%}" if column != "measured_samples_per_s" and not pd.isna(part) else "" for part in ratio]
        hovers = [
            hover(
                points.names[p],
                {words[column]: "unknown" if pd.isna(v) else scale.text(v)} | ({"against measured": t} if t else {}),
            )
            for p, v, t in zip(chosen, values, texts, strict=True)
        ]
        series.append(
            Bars(
                words[column],
                [None if pd.isna(v) else v / scale.divisor for v in values],
                colours[column],
                hovers,
                texts,
            )
        )
    data, drawn = bars([points.names[p] for p in chosen], series, scale.unit, stacked=False)
    drawn |= {"height": 110 + 20 * len(series) * len(chosen), "bargap": 0.25}
    note = f"Points: {points.name_words}. At the bars: the prediction against what was measured."
    if len(ranked) > MOST_BARS:
        note += f" The best {MOST_BARS} of {len(ranked):,} points with a measurement."
    return Chart("measured", "Predicted and measured", (View("", data, drawn),), note)


def stages(points: Points) -> Chart | LeftOut:
    """The step of each point, stage by stage."""
    title = "Where the step goes"
    columns = [column for column in points.results.stages if points.has(column) and points.frame[column].max() > 0]
    chosen, note = points.shown(MOST_BARS)
    if not columns or not chosen:
        return LeftOut(title, "no point has a plan with stages")
    steps = points.frame["step_s"].iloc[chosen]
    scale = scale_of(steps, "s")
    names = [column.removeprefix(STAGE_PREFIX).removesuffix(SECONDS_SUFFIX) for column in columns]
    series = []
    for column, name, colour in zip(columns, names, colours(names, STAGE_COLOURS), strict=True):
        values = [0.0 if pd.isna(value) else float(value) for value in points.frame[column].iloc[chosen]]
        hovers = [
            hover(points.names[p], {name.replace("_", " "): f"{scale.text(v)} ({v / step:.0%} of {scale.text(step)})"})
            for p, v, step in zip(chosen, values, steps, strict=True)
        ]
        series.append(Bars(name.replace("_", " "), [value / scale.divisor for value in values], colour, hovers))
    labels = [points.names[p] for p in chosen]
    views = [View(f"time ({scale.unit})", *bars(labels, series, f"step ({scale.unit})"))]
    whole = [step / scale.divisor for step in steps]
    shares = [
        replace(drawn, values=[100 * float(value or 0) / step for value, step in zip(drawn.values, whole, strict=True)])
        for drawn in series
    ]
    views.append(View("share of the step (%)", *bars(labels, shares, "share of the step (%)")))
    words = f"Points: {points.name_words}." if points.axes else ""
    best = points.ranked()[0]
    parts = {name: float(points.frame[column].iloc[best] or 0.0) for column, name in zip(columns, names, strict=True)}
    longest = max(parts, key=parts.__getitem__).replace("_", " ")
    said = f"Longest stage of the best point, {points.full_name(best)}: {longest}."
    return Chart("stages", title, tuple(views), " ".join(filter(None, (words, note))), said)


def memories(points: Points) -> Chart | LeftOut:
    """The bytes that plans take of each memory, against what there is."""
    title = "Memory"
    chosen, note = points.shown(MOST_BARS)
    shown = [name for name in points.results.memories if _is_there(points, name)]
    if not shown or not chosen:
        return LeftOut(title, "no point has a plan with its bytes")
    views = [_memory(points, name, chosen) for name in shown]
    words = f"Points: {points.name_words}." if points.axes else ""
    return Chart("memory", title, tuple(views), " ".join(filter(None, ("Pale: capacity.", words, note))))


def _is_there(points: Points, name: str) -> bool:
    return points.has(f"{name}_capacity_bytes") and points.frame[f"{name}_capacity_bytes"].max() > 0


def _memory(points: Points, name: str, chosen: list[int]) -> View:
    used = points.frame[f"{name}_used_bytes"].iloc[chosen].fillna(0.0).astype(float).tolist()
    room = points.frame[f"{name}_capacity_bytes"].iloc[chosen].fillna(0.0).astype(float).tolist()
    scale = scale_of(room, "B")
    shares = [f"{taken / of:.0%}" if of else "" for taken, of in zip(used, room, strict=True)]
    hovers = [
        hover(points.names[p], {"used": f"{scale.text(taken)} of {scale.text(of)}{f' ({share})' if share else ''}"})
        for p, taken, of, share in zip(chosen, used, room, shares, strict=True)
    ]
    colour = MEMORY_COLOURS.get(name, SERIES[0])
    series = [
        Bars("capacity", [of / scale.divisor for of in room], PALE, hovers, shares, 0.8),
        Bars("used", [taken / scale.divisor for taken in used], colour, hovers, (), 0.44),
    ]
    data, drawn = bars([points.names[p] for p in chosen], series, f"{name.upper()} ({scale.unit})")
    data[0] |= {"textposition": "outside", "textfont": {"size": 12}}
    drawn["xaxis"] |= {"range": [0, ROOM_FOR_TEXT * max(max(room), max(used)) / scale.divisor]}
    return View(name.upper(), data, drawn | {"barmode": "overlay"})


def gains(points: Points) -> Chart | LeftOut | None:
    """What 10 % more of each resource would save, of the best point and of all."""
    title = "What 10% more would save"
    columns = [column for column in points.results.gains if points.has(column)]
    if not columns:
        return None
    keys = [column.removeprefix(SAVES_PREFIX).removesuffix(SAVES_SUFFIX).split("_") for column in columns]
    names = [" ".join(RESOURCES.get(word, word) for word in words) for words in keys]
    ranked = points.ranked(points.frame[columns].notna().any(axis=1).to_numpy())
    if not ranked:
        return None
    shares: Floats = points.frame[columns].to_numpy(dtype=float)
    chosen = sorted(ranked[:MOST_BARS])
    helps = np.nan_to_num(shares[chosen]).max(axis=0) > 0
    if not helps.any():
        return LeftOut(title, "10% more of any one resource would save nothing")
    nothing = [name for name, share in zip(names, shares[ranked[0]], strict=True) if share == 0]
    views = [] if len(nothing) == len(names) else [_of_best(points, ranked[0], names, shares[ranked[0]])]
    if len(ranked) > 1:
        label = "all points" if len(ranked) <= MOST_BARS else f"the best {MOST_BARS} points"
        helpful = [name for name, any_ in zip(names, helps, strict=True) if any_]
        views.append(_of_all(points, chosen, helpful, shares[chosen][:, helps], label))
    note = "With the placement as it is; a new plan may gain more."
    if points.axes:
        note += f" Best point, by {points.objective_words}: {points.full_name(ranked[0])}."
    if nothing:
        note += f" There, more {', '.join(nothing)} would save nothing."
    return Chart("gains", title, tuple(views), note)


def _of_best(points: Points, best: int, names: Sequence[str], shares: Floats) -> View:
    own = [(name, float(share)) for name, share in zip(names, shares, strict=True) if share > 0]
    own.sort(key=lambda pair: -pair[1])
    texts = [f"{share:.1%}" for _, share in own]
    hovers = [
        hover(points.names[best], {f"10% more {name}": f"{text} of the step"})
        for (name, _), text in zip(own, texts, strict=True)
    ]
    series = Bars("saves", [100 * share for _, share in own], SERIES[0], hovers, texts)
    return View("best point", *bars([name for name, _ in own], [series], "share of the step (%)"))


def _of_all(points: Points, chosen: list[int], names: Sequence[str], shares: Floats, label: str) -> View:
    """A heat map [points, resources]."""
    values = [[None if np.isnan(share) else 100 * float(share) for share in row] for row in shares]
    texts = [["" if value is None else f"{value:.1f}" for value in row] for row in values]
    words = [["unknown" if value is None else f"{value:.2f}% of the step" for value in row] for row in values]
    labels = [points.names[p] for p in chosen]
    hovers = [
        [hover(point, {f"10% more {name}": text}) for name, text in zip(names, row, strict=True)]
        for point, row in zip(labels, words, strict=True)
    ]
    drawn = layout(
        140 + BAR_PX * len(chosen),
        xaxis=named_axis(names, tickangle=-35),
        yaxis=named_axis(labels, range=[len(chosen) - 0.5, -0.5]),
    )
    return View(label, [heat_map(names, labels, values, texts, hovers, "%")], drawn)
