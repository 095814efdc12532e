"""Quantized exchanges that sharders are told of are those of the estimate."""

from typing import Any

import pytest
import torch
from torch import nn
from torchrec import EmbeddingBagCollection, EmbeddingCollection
from torchrec.distributed.embedding import EmbeddingCollectionSharder
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.fbgemm_qcomm_codec import CommType, QCommsConfig, get_qcomm_codecs_registry
from torchrec.distributed.planner import Topology
from torchrec.distributed.types import CommOp
from torchrec.modules.embedding_configs import EmbeddingBagConfig, EmbeddingConfig

from cost_models.workload.models import Workload
from planner.integrations.torchrec_planner import ShardPlanner
from planner.integrations.torchrec_runtime import qcomms_config, sharders_of
from topologies.errors import InputError

CLUSTER = Topology(world_size=4, local_world_size=2, compute_device="cuda", hbm_cap=2**34)
META = torch.device("meta")


def model() -> nn.Module:
    """Bags and sequences."""
    bags = [EmbeddingBagConfig(num_embeddings=10**6, embedding_dim=64, name="a", feature_names=["f"])]
    rows = [EmbeddingConfig(num_embeddings=10**6, embedding_dim=64, name="b", feature_names=["g"])]
    parts = {"bags": EmbeddingBagCollection(bags, device=META), "rows": EmbeddingCollection(rows, device=META)}
    return nn.ModuleDict(parts)


def codecs(forward: str, backward: str, ops: list[CommOp] | None = None) -> Any:
    config = QCommsConfig(forward_precision=CommType(forward), backward_precision=CommType(backward))
    return get_qcomm_codecs_registry(config, ops, torch.device("cuda"))


def sharders(of_bags: Any, of_rows: Any) -> list[Any]:
    return [
        EmbeddingBagCollectionSharder(qcomm_codecs_registry=of_bags),
        EmbeddingCollectionSharder(qcomm_codecs_registry=of_rows),
    ]


def planned(sharders: list[Any], **more: Any) -> ShardPlanner:
    planner = ShardPlanner(CLUSTER, batch_size=4096, stats=[], **more)
    planner.plan(model(), sharders)
    return planner


def communication(planner: ShardPlanner) -> Any:
    return planner.document.provenance.workload.content.get("communication")


@pytest.mark.parametrize("cost_model", ["physical", "torchrec"])
@pytest.mark.parametrize(("forward", "backward"), [("fp16", "bf16"), ("fp8", "fp8"), ("int8", "fp16"), ("mx4", "mx4")])
def test_exchanges_of_sharders_are_estimated(forward: str, backward: str, cost_model: str) -> None:
    """In both directions, and the plan says which QCommsConfig has them; without them the step is another."""
    told = codecs(forward, backward)
    planner = planned(sharders(told, told), cost_model=cost_model)
    ours = {"mx4": "mxfp4"}
    assert communication(planner) == {
        "forward": ours.get(forward, forward),
        "backward": ours.get(backward, backward),
    }
    config = qcomms_config(planner.document)
    assert (config.forward_precision.value, config.backward_precision.value) == (forward, backward)
    plain = planned(sharders(None, None), cost_model=cost_model)
    assert communication(plain) is None
    assert planner.document.objective.step_s < plain.document.objective.step_s


def test_sharders_of_a_plan_give_the_same_plan() -> None:
    """What `sharders_of` makes of a plan with quantized exchanges is read as these."""
    told = codecs("fp16", "fp16")
    first = planned(sharders(told, told))
    again = planned(sharders_of(first.document))
    assert communication(again) == {"forward": "fp16", "backward": "fp16"}
    assert again.document.tables == first.document.tables


@pytest.mark.parametrize(
    ("of_bags", "of_rows", "named"),
    [
        (codecs("fp16", "fp16"), None, "bags"),
        (codecs("fp16", "fp16"), codecs("fp8", "fp8"), "bags, rows"),
        (codecs("fp16", "fp16", [CommOp.POOLED_EMBEDDINGS_ALL_TO_ALL]), codecs("fp16", "fp16"), "bags"),
    ],
)
def test_what_a_plan_has_no_word_for_is_said(
    of_bags: Any, of_rows: Any, named: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Exchanges of some modules alone, of several precisions, of all-to-alls alone: the estimate is with fp32."""
    with caplog.at_level("WARNING", "planner"):
        found = planned(sharders(of_bags, of_rows))
    assert communication(found) is None
    assert "exchanges in fp32 forward and fp32 backward" in caplog.text
    assert f"the sharders of {named} have others (qcomm_codecs_registry)" in caplog.text


def test_two_statements_that_differ_are_refused() -> None:
    """A workload's `communication` and a sharder's codecs: every module by name; equal ones are one."""
    base = {"name": "w", "batch_per_rank": 1, "tables": [{"name": "t", "rows": 4, "dim": 4, "pooling_factor": 1}]}
    stated = Workload.model_validate(base | {"communication": {"forward": "fp16", "backward": "fp16"}})
    same, other = codecs("fp16", "fp16"), codecs("fp8", "fp16")
    assert communication(planned(sharders(same, same), workload=stated)) == {"forward": "fp16", "backward": "fp16"}
    with pytest.raises(InputError) as error:
        planned(sharders(other, other), workload=stated)
    for path in ("bags", "rows"):
        assert f"{path}: its sharder exchanges in fp8 and fp16 (qcomm_codecs_registry)" in str(error.value)
