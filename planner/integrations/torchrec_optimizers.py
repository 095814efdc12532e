"""The optimizer of each table: of what the model applies in its backward pass, else of the sharder's fused parameters.

What is told of a table stands above what is told to its sharder, as in TorchRec (`merge_fused_params`).
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from cost_models.workload.models import Workload
from cost_models.workload.optimizers import DenseOptimizer, Optimizer
from topologies.errors import InputError

if TYPE_CHECKING:
    from torch import nn

OF_FBGEMM: dict[str, Optimizer] = {
    "sgd": "sgd",
    "exact_sgd": "sgd",
    "exact_adagrad": "adagrad",
    "row_wise_adagrad": "rowwise_adagrad",
    "exact_row_wise_adagrad": "rowwise_adagrad",
    "adam": "adam",
    "lamb": "lamb",
    "lars_sgd": "lars_sgd",
    "partial_row_wise_adam": "partial_rowwise_adam",
    "partial_row_wise_lamb": "partial_rowwise_lamb",
}
"""Our names of optimizers, by the values of EmbOptimType."""
UNSTATED: Optimizer = "sgd"
"""What FBGEMM's kernels apply where nothing is said."""
MORE_STATE = ("optimizer_state_dtypes", "weight_decay_mode", "use_rowwise_bias_correction")
"""Arguments that may change what an optimizer keeps."""
COUNTERS = ("COUNTER", "COWCLIP")
"""Values of weight_decay_mode that keep counters of each row."""


def table_optimizer(
    name: str, parameter: "nn.Parameter | None", fused_params: Mapping[str, Any], workload: Workload | None
) -> Optimizer:
    """The optimizer of a table. Raises InputError for one that is unknown, or other than the workload's."""
    kind, arguments = _stated(name, parameter)
    together = {**fused_params, **arguments}
    for key in MORE_STATE:
        value = together.get(key)
        if value and (key != "weight_decay_mode" or getattr(value, "name", "") in COUNTERS):
            raise InputError.at(
                name, f"its optimizer has {key}={value!r}, and its state is not counted so; plan without it"
            )
    if kind is None and "optimizer" in together:
        kind = together["optimizer"]
    told = workload.embedding.optimizer if workload and "optimizer" in workload.embedding.model_fields_set else None
    if kind is None:
        return told or UNSTATED
    optimizer = OF_FBGEMM.get(str(getattr(kind, "value", kind)))
    if optimizer is None:
        known = ", ".join(OF_FBGEMM)
        raise InputError.at(name, f"its optimizer {kind} is none of {known}; apply one of them, and plan again")
    if told is not None and told != optimizer and workload is not None and workload.mode == "training":
        raise InputError.at(
            name, f"its optimizer is {optimizer} in the model and {told} in the workload (embedding.optimizer); say one"
        )
    return optimizer


def _stated(name: str, parameter: "nn.Parameter | None") -> tuple[Any, Mapping[str, Any]]:
    """An EmbOptimType, and arguments, of what is applied in the backward pass; None and no arguments where nothing
    is."""
    from torchrec.distributed.utils import optimizer_type_to_emb_opt_type

    classes = getattr(parameter, "_optimizer_classes", [])
    if not classes:
        return None, {}
    if len(classes) > 1:
        words = ", ".join(each.__name__ for each in classes)
        raise InputError.at(name, f"has {len(classes)} optimizers, {words}, and TorchRec takes one; apply one")
    arguments = getattr(parameter, "_optimizer_kwargs", [{}])[0]
    if "optimizer" in arguments:
        return arguments["optimizer"], arguments
    (kind,) = classes
    try:
        return optimizer_type_to_emb_opt_type(kind), arguments
    except ValueError:
        from torchrec.distributed import utils

        known = sorted({each.__name__ for each in getattr(utils, "_OPTIMIZER_CLASS_TO_EMB_OPT_TYPE", {})})
        words = f"its optimizer {kind.__module__}.{kind.__qualname__} is none that TorchRec's kernels apply"
        raise InputError.at(name, f"{words} ({', '.join(known)}); apply one of them, and plan again") from None


def dense_optimizer(parameters: "Iterable[nn.Parameter]", workload: Workload | None) -> DenseOptimizer:
    """The optimizer of the parameters outside of tables: that of the backward pass, else the workload's, else Adam,
    which keeps as much as any optimizer in use. A model does not know what its trainer makes of it later."""
    classes = {
        (each.__name__, bool(arguments.get("momentum")))
        for parameter in parameters
        for each, arguments in zip(
            getattr(parameter, "_optimizer_classes", ()), getattr(parameter, "_optimizer_kwargs", ()), strict=False
        )
    }
    if classes:
        if classes == {("SGD", False)}:
            return "sgd"
        return "adagrad" if classes <= {("SGD", False), ("SGD", True), ("Adagrad", False)} else "adam"
    if workload is not None and "optimizer" in workload.dense.model_fields_set:
        return workload.dense.optimizer
    return "adam"
