"""What `planner size` says: the smallest cluster of each case and choice of tiers, and why it is no smaller."""

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from planner.capacity.candidates import Candidate
from planner.capacity.clusters import ClusterChoice, ClusterQuestion, ranked
from planner.capacity.prices import notes
from planner.reports.tables import TextGrid
from topologies.sentences import counted
from topologies.units import format_seconds

if TYPE_CHECKING:
    from rich.console import Console

Record = dict[str, str | int | float | None]

JUDGED = {
    "plan": "a plan",
    "bound": "the bound (proven)",
    "memory": "memory (proven)",
    "search": "a search (not proven)",
    "input": "the inputs",
}
ALL_TIERS = "all tiers"
UNKNOWN = "unknown"


def records(choices: Sequence[ClusterChoice]) -> list[Record]:
    """A record for each size that was judged, in the order of the cases; see `as_document`."""
    return [
        {**_head(choice), "tiers": ",".join(choice.sizing.tiers), "place": place, **_record(candidate, choice)}
        for choice, place in zip(choices, _places(choices), strict=True)
        for candidate in choice.sizing.candidates
    ]


def as_document(choices: Sequence[ClusterChoice]) -> dict[str, object]:
    """The same as plain data, with the answers apart. `place` numbers the choices that do; the best is 1."""
    question, sheet = choices[0].question, choices[0].sheet
    return {
        "kind": "size",
        "target_samples_per_s": question.target_samples_per_s,
        "max_step_s": question.max_step_s,
        "max_usd_per_hour": question.max_usd_per_hour,
        "max_kilowatts": question.max_kilowatts,
        "max_nodes": question.max_nodes,
        "by": question.by,
        "prices": None if sheet is None else sheet.stated,
        "sizes": [
            {
                **_head(choice),
                "tiers": list(choice.sizing.tiers),
                "finished": choice.sizing.finished,
                "place": place,
                "answer": _record(choice.sizing.answer, choice) if choice.sizing.answer else None,
                "broken_constraints": list(choice.broken),
                "notes": list(choice.sizing.notes),
                "candidates": [_record(candidate, choice) for candidate in choice.sizing.candidates],
            }
            for choice, place in zip(choices, _places(choices), strict=True)
        ],
    }


def _places(choices: Sequence[ClusterChoice]) -> list[int | None]:
    order = {id(choice): place for place, choice in enumerate(ranked(choices), start=1)}
    return [order[id(choice)] if choice.does else None for choice in choices]


def _head(choice: ClusterChoice) -> Record:
    return {
        "case": choice.case.label,
        "cluster": choice.case.topology.name,
        "workload": choice.case.workload.name,
        "allowed": choice.sizing.label,
    }


def _record(candidate: Candidate, choice: ClusterChoice) -> Record:
    is_answer = candidate == choice.sizing.answer
    simulated = choice.sizing.plan.simulated if is_answer and choice.sizing.plan is not None else None
    cost, broken = choice.bill_of(candidate), _broken(candidate, choice)
    return {
        "nodes": candidate.nodes,
        "ranks": candidate.ranks,
        "verdict": "rejected" if broken or not candidate.suffices else "smallest" if is_answer else "enough",
        "judged_by": candidate.judged_by,
        "status": candidate.status,
        "step_s": candidate.step_s,
        "samples_per_s": candidate.samples_per_s,
        "simulated_samples_per_s": None if simulated is None else simulated.samples_per_s,
        "lower_bound_s": candidate.lower_bound_s,
        "target_s": candidate.target_s,
        "most_samples_per_s": candidate.most_samples_per_s,
        "gap": candidate.gap,
        **cost.figures(candidate.samples_per_s),
        "reason": broken or candidate.reason,
    }


def _broken(candidate: Candidate, choice: ClusterChoice) -> str:
    """Which constraints a size breaks that reaches the target, and that of the answer holds for all larger ones."""
    broken = choice.question.broken(choice.bill_of(candidate)) if candidate.suffices else []
    if not broken:
        return ""
    larger = "; more nodes cost and draw no less" if candidate == choice.sizing.answer else ""
    return f"{', and '.join(broken)}{larger}"


def _render_labelled(table: TextGrid, labels: Sequence[str], console: "Console") -> None:
    """Print the rows, each below its label."""
    head, rows = table.lines(console.width)
    for line in head:
        console.print(line, style="bold", soft_wrap=True)
    for label, lines in zip(labels, rows, strict=True):
        _print_folded(label, console)
        for line in lines:
            console.print(line, soft_wrap=True)


def render(choices: Sequence[ClusterChoice], console: "Console") -> None:
    """Print which is best, a line for each choice, then what was judged: all of one case, the neighbours of several."""
    order = ranked(choices)
    cases = {id(choice.case): choice.case for choice in choices}
    wants_prices = _wants_prices(choices)
    _print_folded(_finding(choices), console)
    console.print()
    verdict, *figures = _titles(wants_prices=wants_prices)
    table = TextGrid((verdict, "left"), *((figure, "right") for figure in figures))
    for number, choice in enumerate(order):
        table.add_row(*_cells(choice, is_best=not number, wants_prices=wants_prices))
    labels = [choice.sizing.label if len(cases) == 1 else _label(choice) for choice in order]
    for number, part in enumerate(table.parts(console.width)):
        if number:
            console.print()
        _render_labelled(part, labels, console)
    for choice in choices if len(cases) == 1 else order:
        console.print()
        if len(cases) == 1:
            _render_judged(choice, choices, console)
        else:
            _render_neighbour(choice, console)
    if wants_prices:
        for note in dict.fromkeys(note for case in cases.values() for note in notes(case.topology, choices[0].sheet)):
            console.print()
            _print_folded(f"Note: {note}.", console)


def _finding(choices: Sequence[ClusterChoice]) -> str:
    """Sentences: which is best and by how much, and what would be without constraints; or that none does."""
    question, order = choices[0].question, ranked(choices)
    best, free = order[0], ranked(choices, constrained=False)[0]
    wanted = _wanted(question)
    if best.does:
        finding = f"The {_best(best)} cluster {wanted}: {_who(best)}. {_lead(order)}"
    elif all(choice.sizing.finished for choice in choices):
        finding = f"No cluster of up to {_nodes(question.max_nodes)} {wanted}."
    else:
        finding = f"No cluster {wanted} was found before the end."
    if free.broken:
        finding += f" Without constraints: {_who(free)}, but {', and '.join(free.broken)}."
    return finding.strip()


def _best(choice: ClusterChoice) -> str:
    """What the first of all is; the cheapest only where its price is known."""
    return "cheapest" if choice.question.by == "price" and choice.bill.usd_per_hour is not None else "smallest"


def _wanted(question: ClusterQuestion) -> str:
    wants = []
    if question.target_samples_per_s is not None:
        wants.append(f"{question.target_samples_per_s:,.0f} samples/s")
    if question.max_step_s is not None:
        wants.append(f"a step of at most {format_seconds(question.max_step_s)}")
    limits = []
    if question.max_usd_per_hour is not None:
        limits.append(f"{question.max_usd_per_hour:,.10g} USD/h")
    if question.max_kilowatts is not None:
        limits.append(f"{question.max_kilowatts:,.10g} kW")
    wanted = f"for {_and(wants)} by the estimate" if wants else "that holds the tables"
    return wanted + (f", within {_and(limits)}" if limits else "")


def _who(choice: ClusterChoice) -> str:
    answer = choice.sizing.answer
    assert answer is not None
    price = choice.bill.usd_per_hour
    cost = "" if price is None else f" at {price:,.2f} USD/h"
    of_group = f" of {choice.case.group}" if len(choice.case.topology.nodes) > 1 else ""
    ranks = counted(answer.ranks, "rank") + (" in all" if of_group else "")
    return f"{_label(choice)} with {_nodes(answer.nodes)}{of_group} ({ranks}){cost}"


def _label(choice: ClusterChoice) -> str:
    return choice.case.label + ("" if choice.sizing.label == ALL_TIERS else f" {choice.sizing.label}")


def _lead(order: Sequence[ClusterChoice]) -> str:
    """How far the next case is behind the best."""
    best = order[0]
    others = [choice for choice in order if choice.case is not best.case]
    if not others:
        return ""
    following = others[0]
    if not following.does:
        return "No other case does."
    assert best.sizing.answer is not None
    assert following.sizing.answer is not None
    more = following.sizing.answer.ranks - best.sizing.answer.ranks
    words = [f"has {counted(abs(more), 'rank')} {'more' if more > 0 else 'fewer'}" if more else "has as many ranks"]
    least, price = best.bill.usd_per_hour, following.bill.usd_per_hour
    if least is not None and price is not None:
        dearer = price - least
        is_same = math.isclose(price, least)
        words.append(
            "costs the same" if is_same else f"costs {abs(dearer):,.2f} USD/h {'more' if dearer > 0 else 'less'}"
        )
    elif least is not None:
        words.append("is of unknown price")
    return f"The next, {_label(following)}, {_and(words)}."


def _titles(*, wants_prices: bool) -> list[str]:
    speeds = ["samples/s", "simulated", "gap"]
    return ["", "nodes", "ranks", *([*speeds, "USD/h", "USD/10^9"] if wants_prices else ["step", *speeds])]


def _cells(choice: ClusterChoice, *, is_best: bool, wants_prices: bool) -> list[str]:
    """The line of a choice, under `_titles`."""
    answer = choice.sizing.answer
    if answer is None:
        none = f"none up to {choice.question.max_nodes:,}" if choice.sizing.finished else "not found yet"
        return [none, *[""] * (7 if wants_prices else 6)]
    best = _best(choice) if is_best else "enough"
    simulated = choice.sizing.plan.simulated if choice.sizing.plan is not None else None
    speeds = [
        _count(answer.samples_per_s),
        _count(None if simulated is None else simulated.samples_per_s),
        "" if answer.gap is None else f"{answer.gap:.1%}",
    ]
    price, per_billion = choice.bill.usd_per_hour, choice.bill.usd_per_billion_samples(answer.samples_per_s)
    prices = [
        UNKNOWN if price is None else f"{price:,.2f}",
        UNKNOWN if per_billion is None else f"{per_billion:,.4g}",
    ]
    step = "" if answer.step_s is None else format_seconds(answer.step_s)
    rest = [*speeds, *prices] if wants_prices else [step, *speeds]
    return ["rejected" if choice.broken else best, f"{answer.nodes:,}", f"{answer.ranks:,}", *rest]


def _wants_prices(choices: Sequence[ClusterChoice]) -> bool:
    """Whether prices were asked for, or are known."""
    question, sheet = choices[0].question, choices[0].sheet
    is_asked = sheet is not None or question.is_constrained or question.by == "price"
    return is_asked or any(choice.bill.usd_per_hour is not None for choice in choices)


def _render_judged(choice: ClusterChoice, choices: Sequence[ClusterChoice], console: "Console") -> None:
    """Every size that was judged, with the reasons; once where another choice of tiers has the same."""
    sizing = choice.sizing
    title = f"{sizing.label} ({', '.join(sizing.tiers)}):"
    first = next(other.sizing for other in choices if _verdicts(other) == _verdicts(choice))
    if first is not sizing:
        _print_folded(f"{title} as {first.label}", console)
        return
    _print_folded(title, console)
    if sizing.candidates:
        console.print(_judged_table(choice))
    reasons: dict[str, list[str]] = {}
    for candidate in sizing.candidates:
        if reason := _broken(candidate, choice) or candidate.reason:
            reasons.setdefault(reason, []).append(f"{candidate.nodes:,}")
    for reason, nodes in reasons.items():
        _print_folded(f"{', '.join(nodes)}: {reason}", console)
    _print_notes(choice, console)


def _verdicts(choice: ClusterChoice) -> object:
    sizing = choice.sizing
    return [(candidate.nodes, candidate.judged_by, candidate.reason) for candidate in sizing.candidates], sizing.notes


def _judged_table(choice: ClusterChoice) -> TextGrid:
    table = TextGrid(
        ("nodes", "right"),
        ("verdict", "left"),
        ("judged by", "left"),
        ("samples/s", "right"),
        ("at most", "right"),
        ("gap", "right"),
    )
    for candidate in choice.sizing.candidates:
        is_broken = bool(_broken(candidate, choice))
        table.add_row(
            f"{candidate.nodes:,}",
            "enough" if candidate.suffices and not is_broken else "rejected",
            "a constraint" if is_broken else JUDGED[candidate.judged_by],
            _count(candidate.samples_per_s),
            _count(candidate.most_samples_per_s),
            "" if candidate.gap is None else f"{candidate.gap:.1%}",
        )
    return table


def _render_neighbour(choice: ClusterChoice, console: "Console") -> None:
    """Why a case is no smaller: its largest rejected size below the answer; without one, the size that came nearest."""
    answer, candidates = choice.sizing.answer, choice.sizing.candidates
    rejected = [
        candidate
        for candidate in candidates
        if not candidate.suffices and (answer is None or candidate.nodes < answer.nodes)
    ]
    if answer is None:
        rejected.sort(
            key=lambda candidate: (candidate.samples_per_s or candidate.most_samples_per_s or 0.0, candidate.nodes)
        )
    parts = [f"{_nodes(candidate.nodes)} rejected: {candidate.reason}" for candidate in rejected[-1:]]
    if answer is not None:
        broken = _broken(answer, choice)
        parts = [
            *(parts or ["there is no smaller size"]),
            *([f"{_nodes(answer.nodes)} rejected: {broken}"] * bool(broken)),
        ]
    _print_folded(f"{_label(choice)}:", console)
    for part in parts:
        _print_folded(f"  {part}", console)
    _print_notes(choice, console)


def _print_notes(choice: ClusterChoice, console: "Console") -> None:
    for note in choice.sizing.notes:
        _print_folded(f"Note: {note}.", console)


def _print_folded(text: str, console: "Console") -> None:
    console.print(textwrap.fill(text, console.width, subsequent_indent="  ", break_on_hyphens=False))


def _nodes(count: int) -> str:
    return counted(count, "node")


def _count(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _and(words: Sequence[str]) -> str:
    return " and ".join(words)
