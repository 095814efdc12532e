"""The precision of exchanges that sharders are told of (`qcomm_codecs_registry`), as a workload has it."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cost_models.workload.formats import sum_bytes, wire_bytes
from cost_models.workload.models import Workload
from cost_models.workload.words import Dtype
from planner.exporters.torchrec_qcomms import COMM_TYPES
from planner.integrations.torchrec_collections import Collection
from topologies.errors import Fault, InputError

UNQUANTIZED: tuple[Dtype, Dtype] = ("fp32", "fp32")
"""Forward, backward."""
_OURS: dict[str, Dtype] = {theirs: ours for ours, theirs in COMM_TYPES.items()}
_PLAIN: dict[str, Dtype] = {"torch.float32": "fp32", "torch.float16": "fp16", "torch.bfloat16": "bf16"}
_ALL_TO_ALL = {True: "POOLED_EMBEDDINGS_ALL_TO_ALL", False: "SEQUENCE_EMBEDDINGS_ALL_TO_ALL"}
"""Exchanges by whether the tables are pooled."""
_REDUCE_SCATTER = "POOLED_EMBEDDINGS_REDUCE_SCATTER"

_log = logging.getLogger(__name__)


def with_exchanges(workload: Workload, collections: Sequence[Collection], stated: Workload | None) -> Workload:
    """The workload with the exchanges that its sharders have, all alike; where a workload cannot say what they have, a
    warning names them and the stated ones stay, or fp32. Raises InputError where both state others."""
    told = {each.path or "module": each for each in collections if getattr(each.sharder, "qcomm_codecs_registry", None)}
    if not told:
        return workload
    exchanges = {path: _exchanges(each) for path, each in told.items()}
    odd = [path for path, each in exchanges.items() if each is None]
    ways = {each for each in exchanges.values() if each is not None}
    is_stated = stated is not None and "communication" in stated.model_fields_set
    own = workload.communication.forward, workload.communication.backward
    if odd or len(ways) > 1 or (len(told) < len(collections) and ways != {UNQUANTIZED}):
        _log.warning(
            "the step is estimated with exchanges in %s forward and %s backward: the sharders of %s have others"
            " (qcomm_codecs_registry), and a plan has one precision of each for all tables",
            *own,
            ", ".join(odd or told),
        )
        return workload
    (way,) = ways
    if is_stated and way != own:
        words = f"its sharder exchanges in {' and '.join(way)} (qcomm_codecs_registry), the workload in"
        words += f" {' and '.join(own)} (communication; forward and backward); say one"
        raise InputError(Fault(path, 0, 0, "", words) for path in told)
    communication = type(workload.communication)(forward=way[0], backward=way[1])
    return workload.model_copy(update={"communication": communication})


def _exchanges(collection: Collection) -> tuple[Dtype, Dtype] | None:
    """Forward and backward; None where a workload has no word for it: unknown codecs, sums in another precision than
    TorchRec falls back to."""
    registry: Mapping[str, Any] = collection.sharder.qcomm_codecs_registry
    forward, backward = _words(registry.get(_ALL_TO_ALL[collection.is_pooled]))
    if forward is None or backward is None:
        return None
    if collection.is_pooled:
        summed = list(_words(registry.get(_REDUCE_SCATTER)))
        for word, of_sum in zip((forward, backward), summed, strict=True):
            if of_sum is None or (of_sum != word and wire_bytes(of_sum) != sum_bytes(word)):
                return None
    return forward, backward


def _words(codecs: Any) -> Iterator[Dtype | None]:
    """Forward, backward: fp32 of an exchange without codecs, None of codecs that are unknown."""
    for codec in (None, None) if codecs is None else (codecs.forward, codecs.backward):
        precision = getattr(codec, "_comm_precision", None)
        if codec is None:
            yield "fp32"
        elif precision is not None:
            yield _OURS.get(str(precision.value))
        else:
            yield _PLAIN.get(str(codec.quantized_dtype))
