"""The commands of the how-to pages of other tools, run one after the other as a reader would paste them."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.cli.test_import_workloads import FILES

PAGES = Path(__file__).parents[2] / "docs" / "how-to"
OTHERS = ("torchrun", "source", "pip")
"""Commands of the trainers, and those that install what they need."""

WITH_TORCH = ("torchrec-pickle", "--from-model")


def commands(page: str) -> list[list[str]]:
    """The words of every command in the shell blocks of a page; what needs torch has tests of its own."""
    blocks = re.findall(r"```sh\n(.*?)```", (PAGES / f"{page}.md").read_text(), re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if not any(word in line for word in WITH_TORCH)]
    parts = [part for line in lines for part in re.split(r"\s&&\s", line)]
    return [words for part in parts if (words := shlex.split(part, comments=True)) and words[0] not in OTHERS]


def log_of_ids(folder):
    """Three features of some samples."""
    folder.mkdir()
    lists = [[[(7 * k * k + j) % 5_000 for j in range(k % 4)] for k in range(9_000)] for _ in range(3)]
    parquet.write_table(pa.table(dict(zip(("items", "history", "users"), lists, strict=True))), folder / "0.parquet")


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("torchrec", {"plan", "export", "import"}),
        ("hugectr", {"plan", "export", "import"}),
        ("torcheasyrec", {"plan", "export", "import"}),
        ("profiles", {"profile", "plan", "verify"}),
        ("astra-sim", {"plan", "simulate"}),
        ("workloads-from-trainers", {"import", "plan"}),
        ("robust-plans", {"plan", "verify", "explain"}),
        ("beyond-512-accelerators", {"plan", "explain", "catalog", "check", "export"}),
    ],
)
def test_every_command_ends_well(run, tmp_path, monkeypatch, page, expected):
    """With a workload and plans of other planners in the files that the page supposes; searches are short."""
    monkeypatch.setattr("planner.planning.planning.DEFAULT_EFFORT", 0)
    monkeypatch.chdir(tmp_path)
    Path("workload.yaml").write_text("name: mine\nbase: dlrm-dcnv2\n")
    Path("robust.yaml").write_text("kind: policy\nrobust: {quantile: p95, scenarios: 20, simulated: 2}\n")
    entry = {"sharding_type": "table_wise", "compute_kernel": "fused"}
    log_of_ids(Path("logs"))
    theirs = {"sparse.ebc": {f"cat_{i}": entry | {"ranks": [i % 8]} for i in range(26)}}
    Path("theirs.json").write_text(json.dumps({"plan": theirs}))
    for name in ("model.ckpt-0", "model.ckpt-1000"):
        folder = Path("experiments/my_model") / name
        folder.mkdir(parents=True)
        (folder / "plan").write_text(json.dumps(theirs))
    for kind, folder in (("tbe-config", "reports"), ("torcheasyrec-config", "."), ("hugectr-config", ".")):
        name, text = FILES[kind]
        Path(folder).mkdir(exist_ok=True)
        (Path(folder) / ("tbe-a-config-estimation-1.json" if folder == "reports" else name)).write_text(text)
    ran = []
    for name, *words in commands(page):
        if name == "cp":
            shutil.copy(*words)
        elif name == "printf":
            Path(words[2]).write_text(words[0].encode().decode("unicode_escape"))
        elif name == "echo":
            Path(words[2]).write_text(words[0])
        else:
            assert name == "planner"
            words, file = (words[:-2], words[-1]) if ">" in words else (words, None)
            done = run(*words)
            assert done.exit_code == 0, (words, done.stderr)
            if file is not None:
                Path(file).write_text(done.stdout)
            ran.append(words[0])
    assert expected <= set(ran)
