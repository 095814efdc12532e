"""Profiles of batches that PyTorch saved."""

from pathlib import Path

import pytest
import torch
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor
from typer.testing import CliRunner

from cost_models.workload.profiles import read_profiles
from planner.cli.app import app
from planner.profiling import kinds
from topologies.errors import InputError

LENGTHS = torch.tensor([[2, 0, 1], [1, 1, 3]])
INDICES = torch.tensor([5, 5, 7, 1, 2, 3, 3, 9])


def written(path: Path, what: object) -> Path:
    torch.save(what, path)
    return path


def profile(*words: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["profile", *map(str, words)], prog_name="planner")
    return done.exit_code, done.stderr


def test_batches_of_fbgemm(tmp_path: Path) -> None:
    offsets = torch.cat((torch.zeros(1, dtype=torch.int64), LENGTHS.flatten().cumsum(0)))
    files = [written(tmp_path / f"b{k}.pt", (INDICES, offsets, LENGTHS)) for k in range(2)]
    code, said = profile(*files, "--dim", 8, "-o", tmp_path / "t.csv", "-q")
    assert code == 0, said
    first, second = read_profiles(tmp_path / "t.csv").data
    assert (first["name"], first["rows"], float(first["pooling_factor"])) == ("t_0", "8", 1.0)
    assert float(first["unique_fraction"]) == pytest.approx(2 / 3, rel=1e-5)
    assert (second["name"], second["rows"], float(second["pooling_factor"])) == (
        "t_1",
        "10",
        pytest.approx(5 / 3, rel=1e-5),
    )
    assert float(second["unique_fraction"]) == pytest.approx(4 / 5, rel=1e-5)


def test_a_keyed_jagged_tensor_by_its_parts(tmp_path: Path) -> None:
    kjt = KeyedJaggedTensor(keys=["user", "item"], values=INDICES, lengths=LENGTHS.flatten())
    by_lengths = {"keys": kjt.keys(), "values": kjt.values(), "lengths": kjt.lengths()}
    by_offsets = {"keys": kjt.keys(), "values": kjt.values(), "offsets": kjt.offsets()}
    tables = []
    for parts in (by_lengths, by_offsets):
        file = written(tmp_path / "kjt.pt", parts)
        assert profile(file, "--dim", 8, "-o", tmp_path / "t.csv", "-q")[0] == 0
        tables.append(read_profiles(tmp_path / "t.csv").data)
    assert [table["name"] for table in tables[0]] == ["user", "item"]
    assert tables[0] == tables[1]


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (
            KeyedJaggedTensor(keys=["a"], values=INDICES, lengths=torch.tensor([8])),
            "save keys, values and lengths as a dict",
        ),
        ((INDICES, INDICES), "has no lengths"),
        ((INDICES, torch.arange(7), LENGTHS), "do not fit"),
        ({"keys": ["a"], "values": INDICES.float(), "lengths": torch.tensor([8])}, "other than whole numbers"),
        ({"keys": ["a"], "values": INDICES, "lengths": torch.tensor([7])}, "do not fit"),
        ([INDICES], "holds neither"),
    ],
)
def test_other_tensors_are_refused(tmp_path: Path, what: object, words: str) -> None:
    file = written(tmp_path / "a.pt", what)
    with pytest.raises(InputError, match=words):
        _ = kinds.opened([file], "torch", None, (), None).features
    (tmp_path / "a.pt").write_bytes(b"garbage")
    code, said = profile(file, "--dim", 8, "-o", tmp_path / "t.csv")
    assert (code, "a.pt" in said) == (3, True)
