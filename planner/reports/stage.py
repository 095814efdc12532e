"""One stage of a plan: what binds it, what it asks of each resource, and where its seconds come from."""

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from cost_models.coefficients import collective_files
from cost_models.error_bars import Cause
from cost_models.floor import HOST
from planner.diagnosis.reasons import StageDetail
from planner.reports.coefficients import shown
from planner.reports.explanation import KEPT, render_contributors, render_host_beside
from planner.reports.network_sums import network_sums_document, render_network_sums
from planner.reports.tables import TextGrid
from planner.reports.words import amount, resource_words

if TYPE_CHECKING:
    from rich.console import Console

Cell = str | int | float | None
TOPOLOGY = "the rate that the topology says"


def render(detail: StageDetail, console: "Console", asked: str) -> None:
    """Print what binds the stage, and that a hidden stage that was `asked` for shows in it; then its resources, parts
    and coefficients."""
    for line in _words(detail, asked):
        console.print(line)
    console.print()
    _render_resources(detail, console)
    if detail.reasons.contributors:
        render_contributors(detail.reasons, detail.model, console)
    if detail.fixed:
        console.print("Independent of placement:")
        table = TextGrid(("", "left"), ("", "right"))
        table.show_header = False
        for part in detail.fixed:
            table.add_row(f"  {part.what}", f"{'-' * (part.seconds < 0)}{amount(abs(part.seconds), detail.model)}")
        console.print(table)
        console.print()
    if detail.reasons.stage.name == HOST:
        render_host_beside(detail.model, console)
        console.print()
    render_network_sums(detail.network_sums, detail.model, console)
    _render_causes(detail, console)


def _words(detail: StageDetail, asked: str) -> list[str]:
    model, each = detail.model, detail.reasons
    name, lines = each.stage.name, []
    if asked != name:
        lines.append(f"{asked} runs beside {name}, which hides it: what of it shows is in {name}.")
    words = f"{name} takes {amount(each.stage.seconds, model)}"
    if each.resource is None or each.stage.critical_rank is None:
        lines.append(f"{words}, a fixed cost that waits for no resource.")
    else:
        group = model.topology.nodes[int(model.kind_of_rank[each.stage.critical_rank])].name
        where = f"of rank {each.stage.critical_rank} ({group})"
        lines.append(
            f"{words}: everybody waits for {resource_words(each.resource, model.topology, model.workload)}, {where}."
        )
    if each.bound_s is not None:
        lines.append(f"Its part of the bound is {amount(each.bound_s, model)}.")
    if detail.hidden:
        lines.append(f"Hidden behind it, and with a part in it where they outlast it: {', '.join(detail.hidden)}.")
    constant_s = float(model.constants[model.stages.index(name)])
    if constant_s < 0:
        early = amount(-constant_s, model)
        lines.append(f"Work with hidden seconds below may begin {early} before it, behind the stages around it.")
    return lines


def _render_resources(detail: StageDetail, console: "Console") -> None:
    if not detail.resources:
        return
    model, several = detail.model, len(detail.model.topology.nodes) > 1
    table = TextGrid(
        ("resource", "left"),
        *((("nodes", "left"),) if several else ()),
        ("rank", "right"),
        ("fixed", "right"),
        ("tables", "right"),
        ("hidden", "right"),
        ("shows", "right"),
    )
    for each in detail.resources:
        group = (each.group,) if several else ()
        hidden = f"-{amount(each.hidden_s, model)}" if each.hidden_s else ""
        parts = amount(each.fixed_s, model), amount(each.tables_s, model), hidden, amount(each.seconds, model)
        table.add_row(resource_words(each.resource, model.topology, model.workload), *group, str(each.rank), *parts)
    console.print(table)
    console.print()


def _render_causes(detail: StageDetail, console: "Console") -> None:
    """Each coefficient with its value and source."""
    from rich.padding import Padding

    if not detail.causes:
        return
    console.print("Where its seconds come from, each with the error that nine in ten stay within:")
    for cause in _by_name(detail):
        value = _value(cause)
        governs = f"{cause.share:.0%} of it" if cause.share < 1 else "all of it"
        console.print()
        console.print(Padding(f"{cause.name}: {governs}, ±{cause.error_90:.0%} ({cause.kind})", (0, 0, 0, 2)))
        console.print(Padding(f"{value}{'; ' * bool(value)}{_source(cause)}", (0, 0, 0, 4)))


def _by_name(detail: StageDetail) -> list[Cause]:
    """The causes, those of one name together, the largest share first."""
    by_name: dict[str, Cause] = {}
    for cause in detail.causes:
        known = by_name.get(cause.name)
        by_name[cause.name] = cause if known is None else replace(known, share=known.share + cause.share)
    return sorted(by_name.values(), key=lambda cause: -cause.share)


def _value(cause: Cause) -> str:
    if cause.evidence is None:
        return ""
    return " ".join(filter(None, (shown(cause.evidence), cause.evidence.unit)))


def _source(cause: Cause) -> str:
    if cause.evidence is not None:
        return cause.evidence.source
    return next((file.source for file in collective_files() if file.name == cause.source), TOPOLOGY)


def records(detail: StageDetail) -> list[dict[str, Cell]]:
    """One record for each resource and node group."""
    return [
        {**asdict(each), "resource": str(each.resource), "seconds": each.seconds, "stage": detail.reasons.stage.name}
        for each in detail.resources
    ]


def document(detail: StageDetail, asked: str) -> dict[str, object]:
    """The stage as plain data; `asked` is the hidden one that shows in it, or its own name."""
    each = detail.reasons
    return {
        **each.stage.model_dump(mode="json"),
        "asked": asked,
        "resource": None if each.resource is None else str(each.resource),
        "constant_s": each.constant_s,
        "hidden_s": each.hidden_s,
        "bound_s": each.bound_s,
        "hidden": list(detail.hidden),
        **network_sums_document(detail.network_sums),
        "contributors": [{"table": part.table, "seconds": part.seconds} for part in each.contributors[:KEPT]],
        "resources": records(detail),
        "fixed_seconds": [asdict(part) for part in detail.fixed],
        "coefficients": [
            {
                "name": cause.name,
                "file": cause.source,
                "share": cause.share,
                "error_90": cause.error_90,
                "kind": cause.kind,
                "value": _value(cause),
                "source": _source(cause),
            }
            for cause in _by_name(detail)
        ],
    }
