"""What the dense part keeps of a sample between its passes, block by block: all that its layers read and write or,
where blocks are checkpointed, what these read alone.

A checkpointed block goes forward once more when the backward pass comes to it. Then it is there as a whole, beside what
the blocks before it keep and the gradients of what it gave; the blocks after it are gone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from cost_models.dense_size import dense_size
from cost_models.workload.checkpoints import in_words, is_checkpointed
from cost_models.workload.layer_graph import SizedLayer
from cost_models.workload.layers import NUMERICAL
from cost_models.workload.models import Workload
from topologies.errors import InputError


@dataclass(frozen=True)
class KeptBlock:
    """A block of layers, in numbers of one sample."""

    name: str
    whole: float
    """What its layers read and write."""
    kept: float
    """What is there of it when its forward pass has ended."""
    returned: float
    """What it gives to layers after it, whose gradients it waits for."""

    is_checkpointed: bool
    """Whether it is computed again."""


def kept_elements(workload: Workload) -> float:
    """The most numbers of one sample that are kept for the backward pass at any moment. Raises InputError as
    `expect_checkpointable`."""
    expect_checkpointable(workload)
    dense = workload.dense
    if dense.activations_per_sample is not None:
        return float(dense.activations_per_sample)
    if not are_any_checkpointed(workload):
        return dense_size(workload).activation_elements
    return max(course_of(kept_blocks(workload)))


def are_any_checkpointed(workload: Workload) -> bool:
    """Whether anything is computed again."""
    return workload.dense.checkpointing not in (None, "none")


def expect_checkpointable(workload: Workload) -> None:
    """Raise InputError for a dense part that cannot be checkpointed as the workload says, by the reason."""
    if not are_any_checkpointed(workload):
        return
    checkpointing = workload.dense.checkpointing
    if (reason := why_kept(workload)) is not None:
        raise InputError.at("dense", f"{in_words(checkpointing)}: {reason}", path="checkpointing")
    if isinstance(checkpointing, str) or checkpointing is None:
        return
    layers = [layer for layer in workload.layers if layer.kind != "embeddings"]
    for pattern in checkpointing:
        if not any(is_checkpointed((pattern,), layer.stated, layer.block) for layer in layers):
            known = ", ".join(dict.fromkeys(layer.stated for layer in layers))
            message = f"no layer is called {pattern!r}; known here: {known}"
            raise InputError.at("dense", message, path="checkpointing")


def why_kept(workload: Workload) -> str | None:
    """Why nothing of the dense part of a workload is computed again; None where something may be."""
    refusals = {
        f"{workload.name} answers and does not train: nothing is kept for a backward pass": workload.mode != "training",
        f"{workload.software} computes no layer again; use torchrec": workload.software == "hugectr",
        "what is computed again depends on the layers; give them instead of totals": not workload.layers,
        "activations_per_sample is what is kept, whatever is checkpointed; leave one of them out": (
            workload.dense.activations_per_sample is not None
        ),
    }
    return next((words for words, is_refused in refusals.items() if is_refused), None)


def is_checkpointable(workload: Workload) -> bool:
    """Whether a dense part can be checkpointed as the workload says."""
    try:
        expect_checkpointable(workload)
    except InputError:
        return False
    return True


def kept_blocks(workload: Workload) -> tuple[KeptBlock, ...]:
    """The blocks in the order of the forward pass."""
    order = dict.fromkeys(layer.block for layer in workload.layers if layer.kind != "embeddings")
    return tuple(_kept_block(workload, block) for block in order)


def _kept_block(workload: Workload, block: str) -> KeptBlock:
    layers = [layer for layer in workload.layers if layer.block == block and layer.kind != "embeddings"]
    numbers = {layer.name: layer.output.numbers for layer in workload.layers}
    numbers[NUMERICAL] = workload.dense.numerical_features
    whole = sum(layer.activation_elements for layer in layers)
    names = {layer.name for layer in layers}
    read = {name for layer in layers for name in layer.inputs} - names
    kept = sum(numbers[name] for name in sorted(read))
    again = is_checkpointed(workload.dense.checkpointing, layers[0].stated, block)
    return KeptBlock(block, whole, kept if again else whole, _returned(workload.layers, names), again)


def _returned(layers: Sequence[SizedLayer], names: set[str]) -> float:
    """Numbers of a sample that layers of these names give to others, or to nobody."""
    inside = {name for layer in layers if layer.name in names for name in layer.inputs}
    outside = {name for layer in layers if layer.name not in names for name in layer.inputs}
    return sum(layer.output.numbers for layer in layers if layer.name in names - inside | names & outside)


def course_of(blocks: Sequence[KeptBlock]) -> tuple[float, ...]:
    """Numbers of a sample that are there when the forward pass ends, then in the backward pass of each block, from the
    last to the first."""
    there = [sum(block.kept for block in blocks)]
    for number in range(len(blocks) - 1, -1, -1):
        block, before = blocks[number], sum(each.kept for each in blocks[:number])
        more = max(block.kept, block.whole) + block.returned if block.is_checkpointed else block.kept
        there.append(before + more)
    return tuple(there)
