"""What each layer of the dense part takes on a rank: FLOPs, parameters, activations, seconds."""

import fnmatch
from dataclasses import dataclass, replace

from cost_models.cut_layers import calls_of_units
from cost_models.dense import size_seconds
from cost_models.dense_sharding import held_units, ring_waits_s, sharding_of
from cost_models.dense_size import FORWARD_FLOPS_PER_MAC, TRAINING_FLOPS_PER_MAC, DenseSize, dense_size, layer_sizes
from cost_models.dense_units import dense_units
from cost_models.dense_update import BlockSeconds
from cost_models.group_laws import GroupLaws
from cost_models.shampoo import ShampooStep
from cost_models.shared_work import size_on_rank
from cost_models.step import StepModel
from cost_models.step_costs import StepCosts
from cost_models.workload.layer_graph import SizedLayer


@dataclass(frozen=True)
class BlockReasons:
    """The blocks of one layer, all of them, however many ranks share them."""

    count: int
    state_bytes: float
    each_step_s: float
    """What they take of the ranks that have them, in each step."""
    roots_s: float
    """Their inverse roots, in steps that take these."""


@dataclass(frozen=True)
class LayerReasons:
    """One layer, on the rank that takes longest."""

    layer: SizedLayer
    flops_per_sample: float
    """Of a step: forward, and in training backward, with what is computed again."""
    activation_bytes: float
    """What it reads and writes in its forward pass, for the samples of a rank."""
    forward_s: float
    backward_s: float
    blocks: BlockReasons | None = None
    """What Shampoo makes of it; None where it does not train it."""
    is_checkpointed: bool = False
    """Whether the backward pass computes it again, which its FLOPs and seconds have."""
    held: str | None = None
    """How its weights are held and its work is cut, in words; None where rules hold no layer otherwise than others."""
    exchange_s: float = 0.0
    """For which both passes wait for what ranks exchange that share its work, or the work of what it reads."""

    @property
    def seconds(self) -> float:
        """Seconds of a step."""
        return self.forward_s + self.backward_s


def layer_reasons(model: StepModel, pattern: str = "*") -> tuple[LayerReasons, ...]:
    """The layers whose names match, in the order of the forward pass; layers of no cost are among them. Of a layer that
    is cut over ranks, what one rank computes; its exchanges with the others are apart."""
    workload, samples = model.workload, model.batching.samples_per_rank
    passes, training = model.coefficients.software.activation_passes.value, workload.mode == "training"
    sharding, cut, exchanged_s = sharding_of(workload), _sizes_of_cut(model), _exchanged_s(model)
    found = []
    for layer, whole in zip(workload.layers, layer_sizes(workload), strict=True):
        size = cut.get(layer.name, whole)
        if not fnmatch.fnmatchcase(layer.name, pattern):
            continue
        seconds = [
            max(size_seconds(workload, size, samples, kind, passes, forward_only=only) for kind in model.kinds)
            for only in (True, not training)
        ]
        is_again = size.recomputed is not None
        flops = (TRAINING_FLOPS_PER_MAC if training else FORWARD_FLOPS_PER_MAC) * size.macs
        flops += FORWARD_FLOPS_PER_MAC * size.macs * is_again
        moved = size.activation_elements * workload.dense.activation_bytes * samples
        blocks = block_reasons(model, layer)
        way, own_s = sharding.of_layer(layer.name), exchanged_s.get(layer.name, 0.0)
        held = way.words if sharding.layers and (layer.parameters or own_s) else None
        back_s = seconds[1] - seconds[0]
        found.append(LayerReasons(layer, flops, moved, seconds[0], back_s, blocks, is_again, held, own_s))
    return tuple(found)


def _sizes_of_cut(model: StepModel) -> dict[str, DenseSize]:
    """What a rank computes of each layer that is cut, by its name."""
    if not sharding_of(model.workload).cuts:
        return {}
    cut = [each for each in held_units(model.topology, model.workload) if each.unit.held.cut is not None]
    return {layer.name: each.size for each in cut for layer in each.unit.layers}


def _exchanged_s(model: StepModel) -> dict[str, float]:
    """Seconds of `LayerReasons.exchange_s`, by the layer that reads; latencies and all, with nothing else on links."""
    if not sharding_of(model.workload).cuts:
        return {}
    topology, workload, laws = model.topology, model.workload, GroupLaws(model.topology, model.workload)
    samples, per_node = model.batching.samples_per_rank, topology.nodes[0].accelerators.count
    singles = [replace(unit, layers=(layer,)) for unit in dense_units(workload) for layer in unit.layers]
    found = {}
    for unit, calls in zip(singles, calls_of_units(workload, singles, topology.world_size, per_node), strict=True):
        found[unit.layers[0].name] = laws.total_seconds((*calls.enter, *calls.backward))
        if calls.ring is not None:
            size = size_on_rank(unit, per_node)
            waits = (ring_waits_s(workload, size, calls.ring, laws, samples, kind) for kind in model.kinds)
            found[unit.layers[0].name] += max(map(sum, waits))
    return found


def recomputed_s(model: StepCosts) -> float:
    """Seconds in which the slowest kind of rank computes layers again; 0 where none are."""
    again, samples = dense_size(model.workload).recomputed, model.batching.samples_per_rank
    if again is None:
        return 0.0
    passes = model.coefficients.software.activation_passes.value
    return max(size_seconds(model.workload, again, samples, kind, passes, forward_only=True) for kind in model.kinds)


def block_reasons(model: StepModel, layer: SizedLayer) -> BlockReasons | None:
    """What Shampoo makes of a layer; None where it does not train it, or there is nothing to train."""
    setup = model.workload.trained_by_shampoo
    if setup is None or not layer.parameters:
        return None
    own = ShampooStep(layer.weight_shapes, setup, model.workload.dense.state_number_bytes)
    seconds = BlockSeconds.of_kinds(own, model.topology, model.workload, model.kinds)
    return BlockReasons(
        len(own.blocks),
        own.state_bytes,
        max(sum(map(kind.each_step_s, own.blocks)) for kind in seconds),
        max(sum(map(kind.roots_s, own.blocks)) for kind in seconds),
    )
