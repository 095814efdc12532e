"""The layers of the dense part, in a table of 80 columns and as records."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from planner.diagnosis.dense_layers import LayerReasons
from planner.reports.explanation_records import Cell
from planner.reports.tables import TextGrid
from topologies.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from rich.console import Console


def render(layers: Sequence[LayerReasons], console: "Console") -> None:
    """Print what each layer that computes something takes of a step, and the sum."""
    table = TextGrid(
        ("layer", "left"),
        ("output", "right"),
        ("MFLOP", "right"),
        ("parameters", "right"),
        ("activations", "right"),
        ("forward", "right"),
        ("backward", "right"),
    )
    for each in (layer for layer in layers if layer.activation_bytes):
        output = each.layer.output
        shape = f"{output.tokens:,.4g} x {output.width:,}" if output.tokens != 1 else f"{output.width:,}"
        table.add_row(each.layer.name, shape, *_amounts([each]))
    if len(layers) > 1:
        table.add_row("all", "", *_amounts(layers))
    console.print(table)
    console.print()
    console.print("FLOPs and outputs of a sample; activations and seconds of a rank's samples in a step.")


def _amounts(layers: Sequence[LayerReasons]) -> tuple[str, ...]:
    """FLOPs, parameters, activations and seconds of some layers together."""
    return (
        f"{sum(each.flops_per_sample for each in layers) / 1e6:,.2f}",
        f"{sum(each.layer.parameters for each in layers):,}",
        format_bytes(sum(each.activation_bytes for each in layers)),
        format_seconds(sum(each.forward_s for each in layers)),
        format_seconds(sum(each.backward_s for each in layers)),
    )


def records(layers: Sequence[LayerReasons]) -> list[dict[str, Cell]]:
    """One record for each layer."""
    return [
        {
            "layer": each.layer.name,
            "kind": each.layer.kind,
            "inputs": " ".join(each.layer.inputs),
            "tokens": each.layer.output.tokens,
            "width": each.layer.output.width,
            "flops_per_sample": each.flops_per_sample,
            "parameters": each.layer.parameters,
            "activation_bytes": each.activation_bytes,
            "forward_s": each.forward_s,
            "backward_s": each.backward_s,
        }
        for each in layers
    ]
