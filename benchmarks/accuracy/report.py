"""The accuracy figures as a table and as the page of the documentation."""

from collections.abc import Sequence

import pandas as pd

from benchmarks import torchrec_runs
from benchmarks.accuracy import new_systems, ranking
from benchmarks.accuracy.new_systems import PartError
from benchmarks.accuracy.ranking import DataSetOrder
from benchmarks.accuracy.rows import DataSet, Summary

HEADER = (
    "data",
    "rows",
    "numbers fitted",
    "mean",
    "median",
    "worst",
    "in 90 % band",
    "held out by",
    "mean",
    "median",
    "worst",
    "in 90 % band",
    "line rate",
    "TorchRec",
)


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f} %"


def cells(summary: Summary) -> list[str]:
    """One line of the table."""
    own = [summary.mean, summary.median, summary.worst, summary.inside_90]
    held = [summary.held_out_mean, summary.held_out_median, summary.held_out_worst, summary.held_out_inside_90]
    return [
        summary.dataset,
        str(summary.rows),
        str(summary.coefficients),
        *map(_percent, own),
        summary.grouping,
        *map(_percent, held),
        _percent(summary.naive_mean),
        _percent(summary.torchrec_mean),
    ]


def table(summaries: Sequence[Summary]) -> str:
    """A Markdown table."""
    lines = [HEADER, ["---"] * len(HEADER), *map(cells, summaries)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


ORIGINS = {"sibling": "another device on the same generation of NVLink", "generation": "another generation"}
LINKS = """## Links without data

A link without measurements of its device takes another device's laws, scaled by the data sheet's bandwidth.
"""
INTRODUCTION = """# Accuracy

Written by `python -m benchmarks.accuracy --docs`, in a checkout with the extra `test` (SciPy). Errors are absolute
relative errors of predicted seconds against published measurements. The first four figures are of the shipped
coefficients; the next four leave a group of rows out, fit the rest, and predict the group. *Line rate* is the mean
error of bytes over the data sheet's bandwidth (and 10 us for a collective); *TorchRec* that of the constants of
TorchRec 1.8.0's planner. The 90 % band is the error bar that each prediction carries: of new measurements, nine in ten
should fall inside.
"""


PICKING = """## Picking the faster plan or system

Of every two measured rows that differ in plan or system only, how often the prediction tells which one is faster: all
pairs, and those whose times are 5 % apart or more (repeated runs and releases of NCCL differ by about as much). Best
published claim of a planner: 85 %. Two rows that line rates or TorchRec's constants take for equal count as wrong.
"""
NEW_SYSTEMS = """## New systems

MLPerf's steps, with each part of a system left out in turn: all rows of a combination (device, link, network, nodes,
ranks), of a device, of a kind of link, of a network, of a number of ranks. Rows of one system err alike, so that groups
are counted. From nine groups on the band is conformal: whatever the distribution, a new group's rows stay inside nine
times in ten. Two to six groups give no such guarantee, whatever is computed from them; their band takes the errors
between and within groups as normal, and the error bar of a step on such a system says how few they were. *Inside* is
the share of rows within the band that the *other* groups give, with what a row's own coefficients are unsure of where
the groups are few: a link takes all devices with it that have no other, and nothing but a prior tells their share of
the peak then, as a plan's error bar has the terms of hardware that nothing was measured on beside the band. Where rows
are outside, the groups that have them are named. What no row tells of is not in this table: other models than
DLRM-DCNv2, other software, tables below HBM; there the error bar is that of the terms.
"""


RATIOS = """## Ratios between TorchRec's own runs

*{verdict}.* TorchRec publishes run times of its train pipeline on two GPUs that it rarely names. Ratios between the
configurations of one commit, each predicted with the system of the catalog on which a batch of the *other* runs takes
the time that is nearest to the measured one (`python -m benchmarks.torchrec_runs`), were to be met within {aim} at the
median: of {rows} ratios it is {median}, the worst {worst}; {within} are within the aim
([why](../decisions/0023-what-the-host-does.md)). The stand-in of those that name no machine is {stand_ins}, by which
{batches} measured batches are {batch_median} off at the median, the worst {batch_worst}.
"""
NOT_PREDICTED = """## Data that is not predicted

- SimAI's table of bus efficiencies: no device, no link and no origin is stated, so no time follows from it.
- Collective kernels of HTA's traces: the traces record neither the data type nor when the last rank arrived, so that
  bytes and waiting are not known.
- Embedding kernels of HTA's traces: the widths of the rows are not recorded, without which a kernel's bytes are not
  known; `planner calibrate` refuses them for that reason.
- SOK's and TorchRec's coarse end-to-end rows: dense part, plan and hotness are not stated.
- dynamicemb's rows: a hash table of its own, which no profile plans for.
- DeepEP inside a node: kernels of NVLink with experts instead of tables, which no profile plans for.
"""


def ratio_section(ratios: pd.DataFrame) -> str:
    """What the page says of the ratios between TorchRec's own runs, as `torchrec_runs.errors` gives them."""
    off, aim = ratios.error.abs(), torchrec_runs.AIM
    times = torchrec_runs.batch_times().dropna()
    stand_ins = ratios.stand_in[ratios.system.isna()]
    batches = (times[stand_ins.mode()[0]] / times.measured - 1).abs()
    return RATIOS.format(
        verdict="Missed" if off.median() > aim else "Met",
        aim=_percent(aim),
        rows=len(off),
        median=_percent(off.median()),
        worst=_percent(off.max()),
        within=int((off <= aim).sum()),
        stand_ins=" or ".join(f"`{name}`" for name in stand_ins.unique()),
        batches=len(batches),
        batch_median=_percent(float(batches.median())),
        batch_worst=_percent(float(batches.max())),
    )


def page(
    found: Sequence[tuple[DataSet, Summary]],
    transfer: pd.DataFrame,
    orders: Sequence[DataSetOrder],
    parts: Sequence[PartError],
    ratios: pd.DataFrame,
) -> str:
    """The page of the documentation; `transfer` has a row per system and other system, with `origin`, `mean_error`;
    `ratios` are those of TorchRec's own runs."""
    notes = "\n".join(f"- `{dataset.name}`: {dataset.note}." for dataset, _ in found)
    ends = transfer.groupby("origin").mean_error.agg(["min", "max"])
    lines = [
        ["laws of", "mean error, smallest and largest of all pairs"],
        ["---", "---"],
        *([ORIGINS[str(name)], f"{_percent(row['min'])} to {_percent(row['max'])}"] for name, row in ends.iterrows()),
    ]
    links = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return "\n".join(
        [
            f"{INTRODUCTION}\n{table([summary for _, summary in found])}\n\n{notes}\n",
            f"{PICKING}\n{ranking.table(orders)}\n",
            f"{NEW_SYSTEMS}\n{new_systems.table(parts)}\n",
            f"{LINKS}\n{links}\n\n{ratio_section(ratios)}\n{NOT_PREDICTED}",
        ]
    )
