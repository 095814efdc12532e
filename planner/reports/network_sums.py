"""What switches that sum (SHARP) save of a plan."""

from dataclasses import asdict
from typing import TYPE_CHECKING

from cost_models.model import CostModel
from planner.diagnosis.network_sums import NetworkSums
from planner.reports.words import amount

if TYPE_CHECKING:
    from rich.console import Console


def render_network_sums(sums: NetworkSums | None, model: CostModel, console: "Console") -> None:
    """Print what the stages with sums take, what they would without, and how that is known."""
    from rich.padding import Padding

    if sums is None:
        return
    name = sums.how.upper()
    words = f"Switches sum what all-reduces send between domains ({name})"
    if not sums.stages:
        console.print(f"{words}: the step would take as long without.")
    else:
        own, other = amount(sums.step_s, model), amount(sums.without_s, model)
        console.print(f"{words}: placed like this, the step takes {own}, and would take {other} without.")
    for each in sums.stages:
        console.print(f"  {each.stage}: {amount(each.seconds, model)}, without {amount(each.without_s, model)}")
    known = ", ".join(f"{of} {each.value:g} ({each.kind})" for of, each in sums.coefficients.items())
    console.print(
        Padding(f"{name} was not measured: it is costed with what sums without it have, {known}.", (0, 0, 0, 2))
    )
    console.print()


def network_sums_document(sums: NetworkSums | None) -> dict[str, object]:
    """The same as plain data; nothing where no switches sum."""
    if sums is None:
        return {}
    coefficients = [
        {"name": name, **each.model_dump(mode="json", include={"value", "unit", "kind", "source", "residual_90"})}
        for name, each in sums.coefficients.items()
    ]
    stages = [asdict(each) for each in sums.stages]
    seconds = {"step_s": sums.step_s, "without_s": sums.without_s}
    return {"network_sums": {"how": sums.how, **seconds, "stages": stages, "coefficients": coefficients}}
