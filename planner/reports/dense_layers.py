"""The layers of the dense part, in a table of 80 columns and as records."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from planner.diagnosis.dense_layers import BlockReasons, LayerReasons
from planner.reports.explanation_records import Cell
from planner.reports.tables import TextGrid
from topologies.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from rich.console import Console


AGAIN = " *"
"""What marks a layer that is computed again."""


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
        table.add_row(f"{each.layer.name}{AGAIN * each.is_checkpointed}", shape, *_amounts([each]))
    if len(layers) > 1:
        table.add_row("all", "", *_amounts(layers))
    console.print(table)
    console.print()
    console.print("FLOPs and outputs of a sample; activations and seconds of a rank's samples in a step.")
    if any(each.is_checkpointed for each in layers):
        console.print(f"{AGAIN.strip()} computed again (checkpointing): in its FLOPs, and with its backward pass.")
    _render_ways(layers, console)
    _render_blocks(layers, console)


def _render_ways(layers: Sequence[LayerReasons], console: "Console") -> None:
    """Print how layers are held, where rules say so, and whose exchanges are not among the seconds."""
    ways = {each.held: [one.layer.name for one in layers if one.held == each.held] for each in layers if each.held}
    if not ways:
        return
    waited_s = dict.fromkeys(ways, 0.0)
    for each in (layer for layer in layers if layer.held):
        waited_s[str(each.held)] += each.exchange_s
    table = TextGrid(("held", "left"), ("layers", "right"), ("exchanges", "right"), ("", "left"))
    for held, names in ways.items():
        shown = format_seconds(waited_s[held]) if waited_s[held] else "-"
        table.add_row(held, f"{len(names):,}", shown, ", ".join(names[:3]) + ", …" * (len(names) > 3))
    console.print()
    console.print(table)
    console.print()
    console.print("Of a layer that is cut: what one rank computes of it; both passes wait for exchanges between ranks.")


def _render_blocks(layers: Sequence[LayerReasons], console: "Console") -> None:
    """Print what Shampoo makes of the layers that it trains."""
    trained = [(each.layer.name, each.blocks) for each in layers if each.blocks is not None]
    if not trained:
        return
    table = TextGrid(
        ("Shampoo", "left"), ("blocks", "right"), ("state", "right"), ("each step", "right"), ("roots", "right")
    )
    for name, blocks in trained:
        table.add_row(name, *_of_blocks([blocks]))
    if len(trained) > 1:
        table.add_row("all", *_of_blocks([blocks for _, blocks in trained]))
    console.print()
    console.print(table)
    console.print()
    console.print("Blocks with their state and seconds, added up over the ranks of a group, which share them.")


def _of_blocks(blocks: Sequence[BlockReasons]) -> tuple[str, ...]:
    """Number, state and seconds of the blocks of some layers."""
    return (
        f"{sum(each.count for each in blocks):,}",
        format_bytes(sum(each.state_bytes for each in blocks)),
        format_seconds(sum(each.each_step_s for each in blocks)),
        format_seconds(sum(each.roots_s for each in blocks)),
    )


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
    in_blocks, says_how = any(each.blocks is not None for each in layers), any(each.held for each in layers)
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
            **({"held": each.held, "exchange_s": each.exchange_s} if says_how else {}),
            **(_block_record(each.blocks or BlockReasons(0, 0.0, 0.0, 0.0)) if in_blocks else {}),
        }
        for each in layers
    ]


def _block_record(blocks: BlockReasons) -> dict[str, Cell]:
    return {
        "blocks": blocks.count,
        "state_bytes": blocks.state_bytes,
        "update_s": blocks.each_step_s,
        "roots_s": blocks.roots_s,
    }
