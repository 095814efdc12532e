"""What `planner size` says: the smallest cluster for each choice of tiers, and why it is no smaller."""

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from planner.reports.words import grid
from planner.sizing import Candidate, Sizing
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


def records(sizings: Sequence[Sizing]) -> list[Record]:
    """A record for each size that was judged; times in seconds."""
    return [
        {"allowed": sizing.label, "tiers": ",".join(sizing.tiers), **_record(one, sizing)}
        for sizing in sizings
        for one in sizing.candidates
    ]


def as_document(sizings: Sequence[Sizing], target_samples_per_s: float | None) -> dict[str, object]:
    """The same as plain data, with the answers apart."""
    return {
        "kind": "size",
        "target_samples_per_s": target_samples_per_s,
        "sizes": [
            {
                "allowed": sizing.label,
                "tiers": list(sizing.tiers),
                "finished": sizing.finished,
                "answer": None if sizing.answer is None else _record(sizing.answer, sizing),
                "notes": list(sizing.notes),
                "candidates": [_record(one, sizing) for one in sizing.candidates],
            }
            for sizing in sizings
        ],
    }


def _record(one: Candidate, sizing: Sizing) -> Record:
    is_answer = one == sizing.answer
    played = sizing.plan.simulated if is_answer and sizing.plan is not None else None
    return {
        "nodes": one.nodes,
        "ranks": one.ranks,
        "verdict": "smallest" if is_answer else "enough" if one.suffices else "rejected",
        "judged_by": one.judged_by,
        "status": one.status,
        "step_s": one.step_s,
        "samples_per_s": one.samples_per_s,
        "simulated_samples_per_s": None if played is None else played.samples_per_s,
        "lower_bound_s": one.lower_bound_s,
        "most_samples_per_s": one.most_samples_per_s,
        "gap": one.gap,
        "reason": one.reason,
    }


def render(sizings: Sequence[Sizing], target_samples_per_s: float | None, max_nodes: int, console: "Console") -> None:
    """Print the answers, then what was judged for each of them."""
    wanted = "whose memory suffices"
    if target_samples_per_s is not None:
        wanted = f"for {target_samples_per_s:,.0f} samples/s by the estimate"
    console.print(f"The smallest cluster {wanted}:")
    console.print()
    table = grid(
        ("tiers", "left"),
        ("nodes", "right"),
        ("ranks", "right"),
        ("step", "right"),
        ("samples/s", "right"),
        ("simulated", "right"),
        ("gap", "right"),
    )
    for sizing in sizings:
        table.add_row(sizing.label, *_answer_cells(sizing, max_nodes))
    console.print(table)
    shown: dict[object, str] = {}
    for sizing in sizings:
        console.print()
        title = f"{sizing.label} ({', '.join(sizing.tiers)}):"
        verdicts = (tuple((one.nodes, one.judged_by, one.reason) for one in sizing.candidates), sizing.notes)
        if verdicts in shown:
            console.print(f"{title} as {shown[verdicts]}")
            continue
        shown[verdicts] = sizing.label
        console.print(title)
        console.print(_judged_table(sizing.candidates))
        reasons: dict[str, list[str]] = {}
        for one in sizing.candidates:
            if one.reason:
                reasons.setdefault(one.reason, []).append(f"{one.nodes:,}")
        for reason, nodes in reasons.items():
            _print_folded(f"{', '.join(nodes)}: {reason}", console)
        for note in sizing.notes:
            _print_folded(f"Note: {note}.", console)


def _answer_cells(sizing: Sizing, max_nodes: int) -> tuple[str, ...]:
    one = sizing.answer
    if one is None:
        none = f"none up to {max_nodes:,}" if sizing.finished else "not found yet"
        return (none, "", "", "", "", "")
    played = sizing.plan.simulated if sizing.plan is not None else None
    return (
        f"{one.nodes:,}",
        f"{one.ranks:,}",
        "" if one.step_s is None else format_seconds(one.step_s),
        _count(one.samples_per_s),
        _count(None if played is None else played.samples_per_s),
        "" if one.gap is None else f"{one.gap:.1%}",
    )


def _judged_table(candidates: Sequence[Candidate]) -> object:
    table = grid(
        ("nodes", "right"),
        ("verdict", "left"),
        ("judged by", "left"),
        ("samples/s", "right"),
        ("at most", "right"),
        ("gap", "right"),
    )
    for one in candidates:
        table.add_row(
            f"{one.nodes:,}",
            "enough" if one.suffices else "rejected",
            JUDGED[one.judged_by],
            _count(one.samples_per_s),
            _count(one.most_samples_per_s),
            "" if one.gap is None else f"{one.gap:.1%}",
        )
    return table


def _print_folded(text: str, console: "Console") -> None:
    console.print(textwrap.fill(text, console.width, subsequent_indent="  ", break_on_hyphens=False))


def _count(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"
