"""The quantized exchanges that a plan's step assumes, as TorchRec takes them."""

from collections.abc import Mapping

from cost_models.workload.models import Workload
from cost_models.workload.words import Dtype
from planner.document.plan import Plan
from planner.document.planned import planned_inputs
from topologies.errors import Fault, InputError

COMM_TYPES: dict[Dtype, str] = {
    "fp32": "fp32",
    "fp16": "fp16",
    "bf16": "bf16",
    "fp8": "fp8",
    "int8": "int8",
    "mxfp4": "mx4",
}
"""Our words and the values of torchrec.distributed.fbgemm_qcomm_codec.CommType."""


def qcomms(workload: Workload) -> dict[str, str] | None:
    """The arguments of the QCommsConfig that turns on the exchanges which a plan's step assumes; None for fp32 ones.

    Raises InputError for a format that TorchRec's codecs do not have.
    """
    precisions = {
        "forward_precision": workload.communication.forward,
        "backward_precision": workload.communication.backward,
    }
    if set(precisions.values()) == {"fp32"}:
        return None
    faults = [
        Fault("plan", 0, 0, f"communication.{key.partition('_')[0]}", f"torchrec's codecs have no {word}")
        for key, word in precisions.items()
        if word not in COMM_TYPES
    ]
    if faults:
        raise InputError(faults)
    return {key: COMM_TYPES[word] for key, word in precisions.items()}


def qcomms_words(precisions: Mapping[str, str]) -> str:
    """The call that makes the config."""
    given = ", ".join(f"{key}=CommType.{value.upper()}" for key, value in precisions.items())
    return f"QCommsConfig({given})"


def qcomms_notes(plan: Plan) -> tuple[str, ...]:
    """What to configure in the trainer, where a plan's step assumes quantized exchanges."""
    quantized = qcomms(planned_inputs(plan)[1])
    if quantized is None:
        return ()
    config = qcomms_words(quantized)
    return (f"The step assumes quantized exchanges: sharders need {config}; sharders_of(plan) makes them",)
