"""Plans in scenarios, for people: the quantile that was asked for, and what it costs on the mean."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from planner.diagnosis.reasons import TailStage
from planner.document.robustness import JudgedPlans, Robustness
from planner.reports.tables import TextGrid
from topologies.sentences import counted
from topologies.units import format_seconds

if TYPE_CHECKING:
    from rich.console import Console

WORDS = {
    "pooling_drift": "ids of a table vary by {:.3g} %",
    "skew_drift": "skew of its accesses by {:.3g} %",
    "slow_rank": "one rank is slow ({:.4g} x)",
}
"""The sources of variance, besides what profiles state."""


def render_robustness(robust: Robustness, console: "Console") -> None:
    """Print both plans in the scenarios that were sampled, in others and as simulated; what was assumed; and what the
    bound is about."""
    name = f"p{robust.quantile:g}"
    sampled = robust.sampled
    console.print(f"Robust: the least {name} of {counted(sampled.scenarios, 'scenario')} that was found.")
    console.print(f"In each, {_sources(robust)}.")
    if robust.assumed:
        keys = ", ".join(f"robust.{key}" for key in robust.assumed)
        console.print(f"Assumed, as nobody stated it: {keys} (keys of the policy).")
    console.print()
    table = TextGrid(
        ("scenarios", "left"), ("", "left"), ("nominal plan", "right"), ("this plan", "right"), ("", "right")
    )
    for words, judged in (("sampled", sampled), ("held back", robust.held_back), ("  simulated", robust.simulated)):
        if judged is not None:
            _add(table, words, name, judged)
    console.print(table)
    console.print()
    console.print(
        f"At the profiles' means the nominal plan takes {format_seconds(robust.nominal_step_s)}. Step, bound and gap"
        f" above are of these means: no bound on {name} is proven."
    )
    if sampled.planned == sampled.nominal:
        console.print(f"No plan with a smaller {name} than the nominal one was found: it is the plan.")
    if sampled.planned.overfull or robust.held_back.planned.overfull:
        where = f"{sampled.planned.overfull} sampled and {robust.held_back.planned.overfull} held-back scenarios"
        console.print(f"In {where} some memory would hold more than it can: keep some free (--reserve hbm=10%).")
    console.print()


def render_tail(robust: Robustness | None, stages: Sequence[TailStage], console: "Console") -> None:
    """Print the same, and which stages make the longest scenarios as long as they are; nothing of other plans."""
    if robust is None:
        return
    render_robustness(robust, console)
    table = TextGrid(("stage", "left"), ("at the means", "right"), ("longest scenarios", "right"), ("", "right"))
    for stage in stages:
        if stage.seconds or stage.tail_s:
            change = "" if not stage.seconds else f"{stage.tail_s / stage.seconds - 1:+.1%}"
            table.add_row(stage.name, format_seconds(stage.seconds), format_seconds(stage.tail_s), change)
    console.print(table)
    console.print()


def robust_document(robust: Robustness | None, stages: Sequence[TailStage]) -> dict[str, object]:
    """The same as plain data; nothing of other plans."""
    if robust is None:
        return {}
    return {"robust": robust.model_dump(mode="json"), "longest_scenarios": [asdict(stage) for stage in stages]}


def _add(table: TextGrid, words: str, name: str, judged: JudgedPlans) -> None:
    """Two lines: the mean and the quantile of both plans, with the difference."""
    nominal, planned = judged.nominal, judged.planned
    of = f"{words}, {judged.scenarios:,} of these" if words.startswith(" ") else f"{words}, seed {judged.seed}"
    pairs = (("mean", nominal.mean_s, planned.mean_s), (name, nominal.quantile_s, planned.quantile_s))
    for number, (label, before, after) in enumerate(pairs):
        change = f"{after / before - 1:+.2%}"
        table.add_row(of if number == 0 else "", label, format_seconds(before), format_seconds(after), change)


def _sources(robust: Robustness) -> str:
    """How much scenarios vary."""
    percents = {"pooling_drift": 100 * robust.pooling_drift, "skew_drift": 100 * robust.skew_drift}
    values = percents | {"slow_rank": robust.slow_rank}
    return ", ".join(words.format(values[key]) for key, words in WORDS.items())


def scenario_words(before: Robustness | None, after: Robustness | None) -> str | None:
    """What two plans take in their scenarios, in one line; None where neither says so."""
    if before is None and after is None:
        return None
    shown = [
        "of no scenarios"
        if each is None
        else f"p{each.quantile:g} {format_seconds(each.held_back.planned.quantile_s)} (held back, seed"
        f" {each.held_back.seed})"
        for each in (before, after)
    ]
    return f"scenarios: {shown[0]} before, {shown[1]} after"
