"""`planner init --from-model` reads the layers of dense parts of many forms: torch's own counts are the oracle."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from typer.testing import CliRunner

from cost_models.dense_size import dense_size
from cost_models.workload.loading import load_workload
from cost_models.workload.models import Workload
from planner.cli.app import app
from planner.integrations.torchrec_model import ReadModel, read_model
from planner.planning.planning import plan
from tests.torchrec_package import dense_models
from tests.torchrec_package.dense_models import MODELS, batch_of
from topologies.loading import load_topology

FILE = Path(dense_models.__file__)
SAMPLES = 4
NO_TOTALS = {"dlrm", "dlrm_dcn", "simple_deep_fm", "deep_fm", "batch_norm_and_dropout", "layer_norms", "transformer"}
NO_TOTALS |= {"branches_that_rejoin", "grouped_attention", "history", "half_precision", "cross_and_machine"}


def counted(build: Callable[[], nn.Module]) -> tuple[float, int]:
    """Forward multiply-accumulates of a sample, and parameters outside of tables that are trained, of a real model that
    computes."""
    built = build()
    model, batch = built if isinstance(built, tuple) else (built, batch_of(build.__name__, SAMPLES))
    with FlopCounterMode(display=False) as counter, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        model(**batch) if isinstance(batch, dict) else model(*batch)
    own = {
        id(weight): weight.numel()
        for path, weight in model.named_parameters()
        if weight.requires_grad and "embedding_bags" not in path and "embeddings" not in path
    }
    return counter.get_total_flops() / 2 / SAMPLES, sum(own.values())


def workload_of(read: ReadModel) -> Workload:
    return Workload.model_validate(read.workload("model", 512))


@pytest.mark.parametrize("build", MODELS, ids=lambda build: build.__name__)
def test_layers_are_what_torch_counts(build: Callable[[], nn.Module]) -> None:
    """Multiply-accumulates and parameters of the layers that are written are those of the model as it computes; only
    those of other forms are totals."""
    read = read_model(f"{FILE}:{build.__name__}", 512)
    assert "layers" in read.dense, read.notes
    size = dense_size(workload_of(read))
    assert (size.macs, size.parameters) == counted(build)
    totals = [each for each in read.dense["layers"] if each["kind"] == "other" and ({"macs", "parameters"} & set(each))]
    assert bool(totals) == (build.__name__ not in NO_TOTALS), totals


KINDS = {
    "dlrm": ["embeddings", "mlp", "dot", "mlp"],
    "dlrm_dcn": ["embeddings", "mlp", "cross", "mlp"],
    "simple_deep_fm": ["embeddings", "mlp", "linear", "other", "linear"],
    "batch_norm_and_dropout": ["embeddings", "linear", "norm", "linear"],
    "grouped_attention": ["embeddings", "attention", "add", "attention", "add", "attention", "add", "linear"],
    "transformer": ["embeddings", *["attention", "add", "norm", "mlp", "add", "norm"] * 2, "pool", "linear"],
    "history": ["embeddings", "embeddings", "other", "attention", "mlp"],
    "cross_and_machine": ["embeddings", "cross", "fm", "linear"],
    "convolution": ["embeddings", "other", "linear"],
}


@pytest.mark.parametrize("name", KINDS)
def test_layers_have_the_names_of_their_kinds(name: str) -> None:
    """Whatever modules they are made of."""
    assert [each["kind"] for each in read_model(f"{FILE}:{name}", 512).dense["layers"]] == KINDS[name]


def test_what_a_model_does_not_name_is_said(tmp_path: Path) -> None:
    """Totals by their names, on the terminal and in the file; of this file a plan is made."""
    done = CliRunner().invoke(app, ["init", str(tmp_path), "--from-model", f"{FILE}:two_inputs"])
    assert done.exit_code == 0, done.output
    text = (tmp_path / "workload.yaml").read_text()
    for said in ("frozen (linear with parameters that are frozen", "mul (mul)", "never.weight, never.bias"):
        assert said in done.stderr
        assert said in text
    workload = load_workload(tmp_path / "workload.yaml")
    assert workload.dense.extra_bytes == 4 * (8 * 8 + 8)
    found = plan(load_topology("dgx-a100-80"), workload, effort=1, simulate=True)
    assert found.status == "optimal"


def test_a_model_that_is_built_already_is_read_too() -> None:
    """Its weights are on the CPU, and stay out of the way."""
    assert read_model(f"{FILE}:ready", 512).dense == read_model(f"{FILE}:dlrm", 512).dense


def test_causal_attention_is_half() -> None:
    """torch counts all products of it; the file has those of a causal kernel, and says so."""
    read = read_model(f"{FILE}:causal", 512)
    attention = next(each for each in read.dense["layers"] if each["kind"] == "attention")
    assert attention["causal"]
    macs, parameters = counted(dense_models.causal)
    size = dense_size(workload_of(read))
    assert (size.macs, size.parameters) == (macs - 3 * 3 * 16, parameters)
    assert any("of causal attention half of the products" in note for note in read.notes)


def test_weights_of_16_bits_are_so_in_the_file() -> None:
    """With the state of their optimizer, which torch keeps in their type."""
    dense = workload_of(read_model(f"{FILE}:half_precision", 512)).dense
    assert (dense.dtype, dense.master_weights, dense.optimizer_state) == ("bf16", "bf16", "bf16")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no_forward", 'missing the required "forward" function'),
        ("numbers_decide", "its forward pass without numbers ended with"),
        ("takes_a_number", "takes more than tensors and a KeyedJaggedTensor; return (model, arguments"),
        ("of_two_types", "its weights have the types bfloat16, float32, and a graph of layers has one"),
    ],
)
def test_totals_stand_where_no_layers_can(name: str, said: str) -> None:
    """As many parameters and multiply-accumulates as the model has, and why."""
    read = read_model(f"{FILE}:{name}", 512)
    assert "layers" not in read.dense
    assert said in " ".join(read.notes)
    assert read.dense["parameters"] > 0
    assert read.dense["macs_per_sample"] > 0
