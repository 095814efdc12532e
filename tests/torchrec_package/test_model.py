"""`planner init --from-model`: the workload of a model that a function builds."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cost_models.workload.loading import load_workload
from planner.cli.app import app
from planner.integrations.torchrec_model import read_model
from topologies.errors import InputError

MODEL = """
import torch
from beside import DIM
from torchrec import EmbeddingBagCollection, EmbeddingCollection
from torchrec.modules.embedding_configs import DataType, EmbeddingBagConfig, EmbeddingConfig


class Model(torch.nn.Module):
    def __init__(self, rows=10**12):
        super().__init__()
        self.bags = EmbeddingBagCollection(tables=[
            EmbeddingBagConfig(num_embeddings=rows, embedding_dim=DIM, name="user", feature_names=["u", "friend"]),
            EmbeddingBagConfig(num_embeddings=7, embedding_dim=8, name="t", feature_names=["a"],
                               data_type=DataType.FP16),
        ])
        self.weighted = EmbeddingBagCollection(is_weighted=True, tables=[
            EmbeddingBagConfig(num_embeddings=9, embedding_dim=8, name="w", feature_names=["b"])])
        self.sequences = EmbeddingCollection(tables=[
            EmbeddingConfig(num_embeddings=5, embedding_dim=16, name="t", feature_names=["c"])])
        self.mlp = torch.nn.Sequential(torch.nn.Linear(13, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1))
        self.norm = torch.nn.LayerNorm(512)


def build():
    print("built")
    return Model()


def applied():
    from torchrec.optim import RowWiseAdagrad
    from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward

    found = Model()
    apply_optimizer_in_backward(RowWiseAdagrad, found.bags.parameters(), {"lr": 0.1})
    apply_optimizer_in_backward(torch.optim.Adam, found.sequences.parameters(), {"lr": 0.1})
    apply_optimizer_in_backward(torch.optim.SGD, found.mlp.parameters(), {"lr": 0.1})
    apply_optimizer_in_backward(torch.optim.SGD, found.norm.parameters(), {"lr": 0.1})
    found.register_buffer("steps", torch.zeros(3, dtype=torch.int64))
    return found


def no_tables():
    return torch.nn.Linear(2, 2)


def needs(rows, path):
    return Model()


def fails():
    raise RuntimeError("no data here")


def a_number():
    return 3


ready = no_tables()
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "model_file.py").write_text(MODEL)
    (tmp_path / "beside.py").write_text("DIM = 32\n")
    return tmp_path / "model_file.py"


def test_a_model_is_read_with_nothing_typed_by_hand(model: Path, tmp_path: Path) -> None:
    """Rows, widths, types, features, weights and bags of every table, and the size of the rest; the file loads."""
    done = CliRunner().invoke(app, ["init", str(tmp_path / "out"), "--from-model", f"{model}:build"])
    assert done.exit_code == 0, done.output
    file = tmp_path / "out" / "workload.yaml"
    assert done.stdout.split() == [str(file), str(file.parent / "schemas" / "workload.schema.json")]
    assert "4 tables" in done.stderr
    assert "no layers were read: its forward pass without numbers ended with NotImplementedError" in done.stderr
    assert "nothing of LayerNorm" in done.stderr
    found = load_workload(file)
    assert [
        (t.name, t.rows, t.dim, t.features, found.dtype_of(t), t.weighted, t.pooled, t.pooling_factor)
        for t in found.tables
    ] == [
        ("user", 10**12, 32, ("u", "friend"), "fp32", False, True, 2.0),
        ("bags.t", 7, 8, ("a",), "fp16", False, True, 1.0),
        ("w", 9, 8, ("b",), "fp32", True, True, 1.0),
        ("sequences.t", 5, 16, ("c",), "fp32", False, False, 1.0),
    ]
    assert found.batch_per_rank == 512
    assert found.dense.macs_per_sample == 13 * 512 + 512
    assert found.dense.parameters == 13 * 512 + 512 + 512 + 1 + 2 * 512


def test_optimizers_are_read(model: Path, tmp_path: Path) -> None:
    """Of each table and of the rest, where the model applies them in the backward pass; of which it does not, is said.
    What the rest keeps beside its parameters is counted."""
    done = CliRunner().invoke(app, ["init", str(tmp_path / "out"), "--from-model", f"{model}:applied"])
    assert done.exit_code == 0, done.output
    found = load_workload(tmp_path / "out" / "workload.yaml")
    assert [table.optimizer for table in found.tables] == ["rowwise_adagrad", "rowwise_adagrad", None, "adam"]
    assert "applies no optimizer to w in its backward pass" in done.stderr
    assert found.dense.optimizer == "sgd"
    assert found.dense.extra_bytes == 3 * 8
    assert read_model(f"{model}:build", 512).dense["optimizer"] == "adam"


def test_a_module_path_names_a_model_too(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Python imports it from the working directory."""
    monkeypatch.chdir(model.parent)
    assert read_model("model_file:Model", 512).tables[0]["name"] == "user"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("biuld", "there is no 'biuld' in it; did you mean 'build'?"),
        ("no_tables", "builds a Linear without tables"),
        ("ready", "builds a Linear without tables"),
        ("needs", "needs the arguments rows, path; name a function that needs none"),
        ("fails", "cannot build the model: RuntimeError: no data here"),
        ("a_number", "returns int, which is no torch.nn.Module"),
    ],
)
def test_what_is_no_model_is_said(model: Path, name: str, said: str) -> None:
    """With the name that was meant, or what the function raised."""
    with pytest.raises(InputError) as error:
        read_model(f"{model}:{name}", 512)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("nowhere.py:build", "there is no file nowhere.py"),
        ("nowhere_at_all:build", "there is no module 'nowhere_at_all'"),
        ("model.py", "is not FILE:CALLABLE"),
    ],
)
def test_a_place_that_is_none_is_said(target: str, said: str) -> None:
    """Of files and of packages."""
    with pytest.raises(InputError) as error:
        read_model(target, 512)
    assert said in str(error.value)


def test_a_file_in_the_way_is_kept(model: Path, tmp_path: Path) -> None:
    """The workload file alone is looked at; --force overwrites it."""
    (tmp_path / "workload.yaml").write_text("mine")
    words = ["init", str(tmp_path), "--from-model", f"{model}:build", "--batch-per-rank", "8"]
    assert CliRunner().invoke(app, words).exit_code == 3
    assert (tmp_path / "workload.yaml").read_text() == "mine"
    assert CliRunner().invoke(app, [*words, "--force"]).exit_code == 0
    assert load_workload(tmp_path / "workload.yaml").batch_per_rank == 8
