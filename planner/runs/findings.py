"""What a run's figures say, in sentences."""

from collections.abc import Iterable, Iterator
from itertools import groupby

from planner.runs.results import NodeChoice, RunFigures, RunResult, StageCosts
from planner.runs.run import Figure
from planner.runs.words import duration, figure_text, figures_text
from topologies.sentences import counted
from topologies.units import format_bytes


def findings(result: RunResult) -> Iterator[str]:
    """From the whole to its parts."""
    if result.takes is None:
        yield f"There is no way to run it: {result.reason}."
        return
    band = "" if result.low_s is None or result.high_s is None else _band(result.low_s, result.high_s)
    yield f"The run takes {figures_text(result.takes)}{band}."
    yield from _bound(result)
    yield _steps(result)
    yield from _growth_of_nodes(result)
    yield from _moves(result)
    yield from _alternatives(result)
    yield from _next_size(result)


def _band(low_s: float, high_s: float) -> str:
    return f"; from {duration(low_s)} to {duration(high_s)}, where steps err as their bands say"


def _bound(result: RunResult) -> Iterator[str]:
    if result.lower_bound_s and result.takes is not None:
        above = result.takes.seconds / result.lower_bound_s - 1
        least = duration(result.lower_bound_s)
        yield f"No plans make this schedule shorter than {least}; the run is {above:.1%} above."


def _steps(result: RunResult) -> str:
    words = f"{counted(result.steps, 'step')} over {counted(result.samples, 'sample')}"
    if result.samples_read >= 1.005 * result.samples:
        words += f", which are read {result.samples_read / result.samples:.3g} times"
    passes = sum(stage.steps * sum(stage.passes_s.values()) for stage in result.stages)
    parts = [f"{duration(result.steps_s or 0.0)} of steps"]
    if passes:
        parts[0] += f" ({duration(passes)} of it in passes beyond the training step)"
    if result.evaluations_s:
        parts.append(f"{duration(result.evaluations_s)} of evaluations")
    if result.migrations_s:
        parts.append(f"{duration(result.migrations_s)} of migrations")
    return f"{words}: {', '.join(parts)}."


def _growth_of_nodes(result: RunResult) -> Iterator[str]:
    """On how many nodes it runs, and since when."""
    if len({stage.nodes for stage in result.stages}) < 2:
        return
    before, parts = 0, []
    for nodes, legs in groupby(result.stages, key=lambda stage: stage.nodes):
        stages = list(legs)
        since = f" after {before:,} samples" if before else ""
        parts.append(f"{nodes:,} from {stages[0].name}{since}")
        before += sum(stage.samples for stage in stages)
    yield f"Nodes: {', '.join(parts)}."


def _moves(result: RunResult) -> Iterator[str]:
    changes = [stage for stage in result.stages if stage.migration is not None]
    if changes:
        moved = format_bytes(result.moved_bytes or 0)
        verb = "moves" if len(changes) == 1 else "move"
        yield f"{counted(len(changes), 'change')} of plan or nodes {verb} {moved}: before {_names(changes)}."


def _names(stages: Iterable[StageCosts]) -> str:
    names = [stage.name for stage in stages]
    return ", ".join(names[:4]) + (f" and {len(names) - 4:,} more" if len(names) > 4 else "")


def _alternatives(result: RunResult) -> Iterator[str]:
    """What the run would take in other ways."""
    assert result.takes is not None
    for other in result.alternatives:
        if other.takes is None:
            yield f"With {other.label}: {other.reason}."
        elif _differs(result.takes, other.takes, result.objective):
            change = _change(result.takes, other.takes, result.objective)
            reason = f", {other.reason}" if other.reason else ""
            yield f"With {other.label}: {figures_text(other.takes)} ({change}){reason}."
        else:
            yield f"With {other.label} it takes as much."


def _differs(taken: RunFigures, other: RunFigures, objective: Figure) -> bool:
    before, after = taken.named(objective) or 0.0, other.named(objective) or 0.0
    return abs(after - before) > 1e-6 * max(before, after)


def _change(taken: RunFigures, other: RunFigures, objective: Figure) -> str:
    before, after = taken.named(objective) or 0.0, other.named(objective) or 0.0
    return f"{after / before - 1:+.1%} {objective.replace('_', ' ')}"


def _next_size(result: RunResult) -> Iterator[str]:
    """What each choice of nodes says by itself: which is the fastest, which costs least."""
    for name, group in groupby(result.choices, key=lambda choice: choice.stage):
        known = [choice for choice in group if choice.takes is not None]
        if len(known) < 2:
            continue
        fastest = min(known, key=lambda choice: choice.takes.seconds if choice.takes else 0.0)
        words = f"{name} by itself is fastest on {counted(fastest.nodes, 'node')} ({_of(fastest, 'seconds')})"
        priced = [choice for choice in known if choice.takes is not None and choice.takes.usd is not None]
        if len(priced) == len(known):
            cheapest = min(priced, key=lambda choice: (choice.takes and choice.takes.usd) or 0.0)
            words += f" and costs least on {cheapest.nodes:,} ({_of(cheapest, 'usd')})"
        yield f"{words}."


def _of(choice: NodeChoice, name: Figure) -> str:
    return "" if choice.takes is None else figure_text(name, choice.takes.named(name))
