"""What a step takes beyond its own passes: tried lengths, products with the Hessian, the two loops of L-BFGS.

A forward pass is one more of the whole model over the step's batch, whose ids are there: lookup, exchange of vectors,
the dense part forward. A product of the dense part's Hessian with a vector takes twice the arithmetic of a gradient
(six products of matrices for each of a layer's three; Pearlmutter, Fast exact multiplication by the Hessian, 1994),
leaves the tables alone, and sums its n numbers over all ranks as gradients are summed. L-BFGS with m pairs keeps 8 m n
bytes on every rank and takes 4 m n FLOP (Nocedal and Wright, Numerical Optimization, algorithm 7.4), which read each
pair twice.
"""

from collections.abc import Mapping

from cost_models.collective_calls import CollectiveCall, Members
from cost_models.dense import dense_seconds
from cost_models.dense_sharding import sharding_of
from cost_models.dense_size import dense_size
from cost_models.evaluation import Evaluation
from cost_models.group_laws import GroupLaws
from cost_models.step_costs import StepCosts
from cost_models.workload.formats import wire_bytes
from cost_models.workload.models import Workload
from planner.runs.schedule import Passes
from topologies.errors import InputError

FORWARD_STAGES = ("lookup_forward", "output_intra_host", "tower_forward", "output_dist")
"""Stages of a step that a forward pass has before the dense part."""
GRADIENTS_OF_A_PRODUCT = 2.0
"""Arithmetic of a product with the Hessian over that of a gradient."""
PAIR_BYTES, PAIR_FLOP = 8, 4
"""Of each parameter and pair of L-BFGS: two numbers in fp32; multiplications and additions as usually counted."""
LOOPS = 2
"""How often the two-loop recursion reads a pair."""
CONJUGATE_GRADIENT_BYTES = 16
"""Of each parameter: four vectors in fp32 that conjugate gradients keep beside a product."""


def state_bytes(workload: Workload, passes: Passes) -> int:
    """Bytes on every rank that these passes keep from step to step, or all through one."""
    numbers = dense_size(workload).parameters
    vectors = CONJUGATE_GRADIENT_BYTES if passes.hessian_products else 0
    return (PAIR_BYTES * passes.pairs + vectors) * numbers


def lbfgs_flop(workload: Workload, pairs: int) -> int:
    """Arithmetic of the two loops on every rank in each step."""
    return PAIR_FLOP * pairs * dense_size(workload).parameters


def why_unknown(workload: Workload, passes: Passes, *, evaluates: bool) -> str | None:
    """Why the time of these passes, or of evaluations by forward passes, is unknown; None where it is known."""
    if (passes.pairs or passes.hessian_products) and not dense_size(workload).parameters:
        return "the dense part, which second-order passes are over, has no parameters; describe its layers"
    if (passes.are_any or evaluates) and sharding_of(workload).is_sharded:
        return f"passes beyond the step are known of a replicated dense part: this one is {sharding_of(workload).words}"
    return None


def extra_seconds(model: StepCosts, evaluation: Evaluation, passes: Passes) -> dict[str, float]:
    """Seconds of each step beyond its own, by what they are for. Raises InputError as `reduction_s` does."""
    seconds: dict[str, float] = {}
    if passes.forward_passes:
        seconds["line_search"] = passes.forward_passes * forward_s(model, evaluation)
    if passes.pairs:
        gradients_s = LOOPS * reduction_s(model) if passes.compares_gradients else 0.0
        seconds["lbfgs"] = _two_loops_s(model, passes.pairs) + gradients_s
    if passes.hessian_products:
        product_s = GRADIENTS_OF_A_PRODUCT * _gradient_s(model) + reduction_s(model)
        seconds["hessian_products"] = passes.hessian_products * product_s
    return seconds


def forward_s(model: StepCosts, evaluation: Evaluation) -> float:
    """A forward pass over a batch whose ids are with the holders of the rows already."""
    stages: Mapping[str, float] = dict(zip(model.stages, evaluation.stage_seconds.tolist(), strict=True))
    dense_s = max(
        dense_seconds(model.workload, model.batching.samples_per_rank, kind, _activation_passes(model)).rest_forward_s
        for kind in model.kinds
    )
    return sum(stages.get(name, 0.0) for name in FORWARD_STAGES) + dense_s


def reduction_s(model: StepCosts) -> float:
    """The sum over all ranks of one number for each dense parameter, with nothing beside it.

    Raises InputError for clusters whose ranks do not make one even group.
    """
    numbers = dense_size(model.workload).parameters
    size = float(numbers * wire_bytes(model.workload.dense.gradient_format))
    call = CollectiveCall("all_reduce", "backward", size, Members(model.topology.world_size))
    try:
        return GroupLaws(model.topology, model.workload).seconds(call)
    except ValueError as error:
        raise InputError.at(model.topology.name, f"second-order passes need nodes that are alike: {error}") from None


def _gradient_s(model: StepCosts) -> float:
    """Forward and backward pass of the dense part."""
    samples, passes = model.batching.samples_per_rank, _activation_passes(model)
    return max(dense_seconds(model.workload, samples, kind, passes).total_s for kind in model.kinds)


def _two_loops_s(model: StepCosts, pairs: int) -> float:
    """Each pair through device memory twice; its arithmetic is far below what a device does meanwhile."""
    read_bytes = LOOPS * PAIR_BYTES * pairs * dense_size(model.workload).parameters
    return max(read_bytes / kind.hbm_bytes_per_s for kind in model.kinds)


def _activation_passes(model: StepCosts) -> float:
    return model.coefficients.software.activation_passes.value
