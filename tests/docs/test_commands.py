"""Every command and snippet of the documentation, page by page, run one after the other as a reader would paste them.

In the order of the page, in an empty folder with what the page supposes (`GIVEN`); searches are short.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import yaml
from pyarrow import parquet
from typer.testing import CliRunner

from planner.cli.app import app
from tests.cli.test_import_workloads import FILES
from tests.docs.pages import PAGES, ROOT, RUN, blocks_of, name_of, run_page

ELSEWHERE = {
    "tutorials/from-logs-to-a-plan": "tests/cli/test_tutorial.py",
    "how-to/clusters": "tests/cli/test_topology.py",
    "how-to/ci": "tests/cli/test_ci.py",
    "how-to/training-runs": "tests/cli/test_run.py",
    "how-to/what-if-studies": "tests/planner/studies/test_shipped.py",
}
"""Pages whose commands another test runs, with more than that they end well."""
FAST = ("tutorials/torchrec-from-nothing", "how-to/torcheasyrec", "explanation/simulator")
"""The sample among the ordinary tests; all other pages are among the slow ones."""
SECONDS = {"README": 20, "how-to/size-a-cluster": 10}
"""Of the longest pages, which begin first."""


def planned(file: str, *words: str) -> None:
    """A quick plan, made as a file that a page supposes."""
    done = CliRunner().invoke(app, ["plan", *words, "--effort", "0", "-q", "-o", file])
    assert done.exit_code == 0, done.stderr


def logs() -> None:
    """Three features of some samples."""
    Path("logs").mkdir()
    lists = [[[(7 * k * k + j) % 5_000 for j in range(k % 4)] for k in range(9_000)] for _ in range(3)]
    parquet.write_table(pa.table(dict(zip(("items", "history", "users"), lists, strict=True))), "logs/0.parquet")


def theirs(rows_over: int = 0) -> None:
    """A plan of another planner, for TorchRec and for TorchEasyRec: whole tables on eight ranks, or rows over many."""
    entry = {"sharding_type": "row_wise" if rows_over else "table_wise", "compute_kernel": "fused"}
    ranks = [list(range(rows_over)) or [number % 8] for number in range(26)]
    tables = {f"cat_{number}": entry | {"ranks": each} for number, each in enumerate(ranks)}
    text = json.dumps({"plan": {"sparse.ebc": tables}})
    Path("theirs.json").write_text(text)
    Path("workload.yaml").write_text("name: mine\nbase: dlrm-dcnv2\n")
    for name in ("model.ckpt-0", "model.ckpt-1000"):
        folder = Path("experiments/my_model") / name
        folder.mkdir(parents=True)
        (folder / "plan").write_text(text)


def trainers() -> None:
    """What trainers write."""
    for kind, folder in (("tbe-config", "reports"), ("torcheasyrec-config", "."), ("hugectr-config", ".")):
        name, text = FILES[kind]
        Path(folder).mkdir(exist_ok=True)
        (Path(folder) / ("tbe-a-config-estimation-1.json" if folder == "reports" else name)).write_text(text)


def counted() -> None:
    """A cluster whose HBM is too small for two tables, and how often their rows were read."""
    Path("cluster.yaml").write_text("name: small\nbase: dgx-a100-40\nset: {nodes.0.accelerators.hbm.capacity: 64MB}\n")
    tables = [{"name": f"t{k}", "rows": 200_000, "dim": 64, "pooling_factor": 2, "zipf_alpha": 1.05} for k in range(12)]
    Path("workload.yaml").write_text(json.dumps({"name": "w", "global_batch": 256, "tables": tables}))
    Path("counts").mkdir()
    for table in tables:
        np.save(f"counts/{table['name']}.npy", np.arange(table["rows"])[::-1].astype(np.int64))


def changed() -> None:
    """The files of the snippet of the page, whose plan is another one than that of its commands."""
    Path("cluster.yaml").write_text("name: mine\nbase: zionex-16\nset: {nodes.0.count: 15}\n")
    Path("model.yaml").write_text("name: mine\nbase: dlrm-dcnv2\n")


def compared() -> None:
    """Two plans, one more, and the results of a study."""
    for name in ("a.json", "b.json", "plan.json"):
        planned(name, "-t", "dgx-h100", "-w", "synthetic:20@seed=0", "--nodes", "1")
    Path("two.yaml").write_text(
        "name: two\ntopology: dgx-h100\nworkload: synthetic:20@seed=0\naxes: {topology.nodes.0.count: [1, 2]}\n"
    )
    assert CliRunner().invoke(app, ["study", "two.yaml", "-q", "--no-cache", "-o", "results.parquet"]).exit_code == 0


def first_visit() -> None:
    """What the list of commands of the README supposes."""
    logs()
    theirs(rows_over=128)
    planned("plan.json", "-t", "zionex-16", "-w", "dlrm-dcnv2")  # by the quick start
    Path("candidates.csv").write_text("name,*.pooling_factor\nlean,1\n")
    Path("rules.yaml").write_text("kind: policy\n")
    for name in ("a.json", "b.json"):
        planned(name, "-t", "dgx-h100", "-w", "dlrm-dcnv2", "--nodes", "1")


GIVEN: dict[str, Callable[[], object]] = {
    "README": first_visit,
    "how-to/torchrec": theirs,
    "how-to/torcheasyrec": theirs,
    "how-to/profiles": logs,
    "how-to/workloads-from-trainers": trainers,
    "how-to/robust-plans": lambda: Path("robust.yaml").write_text(
        "kind: policy\nrobust: {quantile: p95, scenarios: 20, simulated: 2}\n"
    ),
    "how-to/dense-strategies": lambda: Path("model.yaml").write_text("name: mine\nbase: dlrm-dcnv2\n"),
    "how-to/split-tables": counted,
    "how-to/re-plan": changed,
    "how-to/reports-and-comparisons": compared,
}
"""What pages suppose in the folder."""


def pages() -> Iterator[object]:
    """Those with something to run that no other test has."""
    for page in PAGES:
        name = name_of(page)
        if name not in ELSEWHERE and any(block.is_run for block in blocks_of(page)):
            yield pytest.param(
                page, id=name, marks=() if name in FAST else pytest.mark.slow(seconds=SECONDS.get(name, 0))
            )


@pytest.mark.parametrize("page", list(pages()))
def test_every_command_ends_well(tmp_path, monkeypatch, page):
    """And every snippet of Python."""
    monkeypatch.setattr("planner.planning.planning.DEFAULT_EFFORT", 0)
    monkeypatch.setattr("planner.solvers.lower_bound.BRANCH_WORK", 0)  # none, which is most of a short search
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    GIVEN.get(name_of(page), lambda: None)()
    run_page(page)


def test_what_is_not_run_says_why():
    """A file that is named as the place of a test is there, and has something to do with the page or its commands."""
    named = [(page, block.words) for page in PAGES for block in blocks_of(page) if block.mark == "run by"]
    for page, file in [*named, *((ROOT / "docs" / f"{name}.md", file) for name, file in ELSEWHERE.items())]:
        assert page.exists()
        assert (ROOT / file).exists(), (page, file)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_is_written_in_its_language(page):
    """YAML and JSON can be read, Python compiles."""
    for block in blocks_of(page):
        assert block.mark in (None, "file") or block.language in RUN, block
        if block.language == "yaml":
            yaml.safe_load(block.text)
        elif block.language == "json":
            json.loads(block.text)
        elif block.language == "python":
            compile(block.text, f"{page}:{block.line}", "exec")
