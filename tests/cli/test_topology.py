"""`planner topology`: import, show and export."""

import json
import re
import shlex
from pathlib import Path
from xml.etree import ElementTree

import pytest

from planner.cli.doctor import CLUSTER
from planner.cli.topology import KINDS
from tests.topologies.importers.dumps import ASTRA, HGX, HWLOC, SLURM_TREE, fabric, query
from topologies.importers.kinds import FORMATS


@pytest.fixture
def dumps(tmp_path, monkeypatch):
    """Three outputs in the working directory."""
    monkeypatch.chdir(tmp_path)
    Path("topo.txt").write_text(HGX)
    Path("gpus.csv").write_text(query("NVIDIA H200", 143771, 8))
    Path("topology.conf").write_text(SLURM_TREE)


def test_dumps_become_a_topology_that_checks(run, dumps):
    """What is assumed is said on stderr; every command takes the file."""
    done = run("topology", "import", "topo.txt", "gpus.csv", "topology.conf", "-o", "cluster.yaml")
    assert done.exit_code == 0, done.stderr
    assert done.stdout == ""
    assert "assumed: accelerators.hbm.bandwidth" in done.stderr
    assert "cluster.yaml: 8 nodes, 64 accelerators" in done.stderr
    assert run("check", "cluster.yaml").exit_code == 0
    assert "8 x H200-SXM-141GB" in run("topology", "show", "cluster.yaml").stdout


def test_without_a_file_it_goes_to_stdout(run, dumps):
    """YAML alone."""
    done = run("topology", "import", "topo.txt", "gpus.csv")
    assert done.exit_code == 0
    assert done.stdout.startswith("# Imported from topo.txt, gpus.csv")
    Path("again.yaml").write_text(done.stdout)
    assert run("check", "again.yaml").exit_code == 0


def test_what_is_missing_ends_with_3(run, dumps):
    """File, line, field and remedy."""
    done = run("topology", "import", "topology.conf", "-o", "cluster.yaml")
    assert done.exit_code == 3
    assert done.stderr.startswith("topology.conf:2:1: accelerators.device: no file says")
    assert not Path("cluster.yaml").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("topo.txt", "-o", "topo.txt"), "is an input of FILE"),
        (("topo.txt", "--kind", "nvidea-smi"), "did you mean 'nvidia-smi'"),
        (("topo.txt", "gpus.csv", "--kind", "nccl"), "say of which file: topo.txt=nccl"),
        (("topo.txt", "--kind", "other.txt=nccl"), "is none of the files"),
    ],
)
def test_wrong_command_lines(run, dumps, words, said):
    """Exit 2, before anything is read."""
    done = run("topology", "import", *words)
    assert done.exit_code == 2
    assert said in " ".join(done.stderr.replace("│", " ").split())


def test_a_format_can_be_forced(run, dumps):
    """And is then held to."""
    assert tuple(sorted(KINDS)) == tuple(sorted(FORMATS))
    done = run("topology", "import", "topo.txt", "--kind", "nccl")
    assert done.exit_code == 3
    assert "is not valid XML" in done.stderr


def test_show_fits_80_columns_and_draws(run, tmp_path):
    """Any topology of the catalog; the same bytes each time."""
    for name in ("gb200-nvl72", "zionex-16-scm", "cpu"):
        pictures = []
        for number in range(2):
            file = tmp_path / f"{name}-{number}.svg"
            done = run("topology", "show", name, "-o", file)
            assert done.exit_code == 0, done.stderr
            assert max(map(len, done.stdout.splitlines())) <= 80
            pictures.append(file.read_bytes())
        assert pictures[0] == pictures[1]
        assert ElementTree.fromstring(pictures[0]).tag.endswith("svg")
    assert run("topology", "show", "cpu", "-o", tmp_path / "cluster.png").exit_code == 2


@pytest.mark.parametrize("columns", [40, 60, 100])
def test_show_is_as_wide_as_the_terminal(run, monkeypatch, columns):
    """All words stay: lines are folded below what they speak of."""
    wide = run("topology", "show", "dgx-h100").stdout
    monkeypatch.setenv("COLUMNS", str(columns))
    shown = run("topology", "show", "dgx-h100").stdout
    assert max(map(len, shown.splitlines())) <= columns
    words, whole = ([word for word in text.split() if word[0] not in "├└│"] for text in (shown, wide))
    assert words == whole


def test_show_is_as_reviewed(run):
    """Fabric, nodes, accelerators, links, memories."""
    lines = [
        "gb200-nvl72: 18 nodes, 72 accelerators",
        "One NVIDIA GB200 NVL72 rack (18 nodes of 4 accelerators in one NVLink domain)",
        "├─ network",
        "│  └─ core          joins all nodes at full speed",
        "└─ compute-tray: 18 nodes of 4 accelerators",
        "   ├─ accelerators  4 x GB200, 2,500 TFLOP/s bf16 each",
        "   ├─ hbm           173.23 GiB at 8 TB/s each",
        "   ├─ scale-up      nvlink5, 900 GB/s each, 72 together, 1 us",
        "   ├─ pcie          225 GB/s each, 1 us",
        "   ├─ scale-out     4 x infiniband, 50 GB/s each, 2 us",
        "   ├─ front-end     2 x ethernet, 25 GB/s each, 2 us",
        "   └─ ddr           894.07 GiB at 1.024 TB/s",
    ]
    assert run("topology", "show", "gb200-nvl72").stdout.splitlines() == lines


def test_export_and_back(run, tmp_path, monkeypatch):
    """By the command line; several node groups are refused for ASTRA-sim."""
    monkeypatch.chdir(tmp_path)
    for form in ("astra-sim", "infragraph"):
        assert run("topology", "export", "dgx-h100", "--nodes", 4, "--to", form, "-o", "there.yaml").exit_code == 0
        done = run("topology", "import", "there.yaml", "--like", "dgx-h100", "-o", "back.yaml")
        assert done.exit_code == 0, done.stderr
        assert "4 nodes, 32 accelerators" in done.stderr
    assert run("topology", "export", "dgx-h100", "--to", "astra-sim").stdout.startswith("# dgx-h100: 8 accelerators")
    Path("astra.yml").write_text(ASTRA)
    assert run("topology", "import", "astra.yml", "--like", "dgx-h100", "-o", "a.yaml").exit_code == 0


def test_a_cluster_that_cannot_be_said_ends_with_3(run, tmp_path):
    """With the file."""
    links = {
        "pcie": {"bandwidth": "1GB/s"},
        "scale_out": {"kind": "roce", "count": 8, "bandwidth": "1GB/s"},
    }
    hbm = {"capacity": "1GB", "bandwidth": "1GB/s"}
    accelerators = {"count": 8, "device": "x", "hbm": hbm, "flops": {"fp32": "1TFLOP/s"}}
    groups = [{"name": name, "accelerators": accelerators, "links": links} for name in "ab"]
    file = tmp_path / "two.yaml"
    file.write_text(json.dumps({"name": "two", "nodes": groups}))
    done = run("topology", "export", file, "--to", "astra-sim")
    assert done.exit_code == 3
    assert "2 node groups" in done.stderr


@pytest.mark.slow
def test_every_command_of_the_page_ends_well(run, dumps):
    """From dumps to a plan, as a reader would paste them; those that machines run are not of the planner."""
    Path("hwloc.xml").write_text(HWLOC.replace("0302 [10de:20b0]", "0880 [8086:2034]"))
    Path("ibnetdiscover.out").write_text(fabric(pods=2, hosts=4, rails=4, uplinks=4))
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "clusters.md").read_text()
    ran = []
    for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL):
        for line in block.splitlines():
            name, *words = shlex.split(line)
            assert name == "planner"
            done = run(*words, *(("--effort", 0, "--gap", "50%", "--nodes", 1, "-q") if words[0] == "plan" else ()))
            assert done.exit_code == 0, (line, done.stderr)
            ran.append(" ".join(words[:2]))
    assert {"doctor --cluster", "topology import", "topology show", "topology export", "plan --topology"} == set(ran)


def test_doctor_says_what_to_run(run):
    """The commands, and the one that takes their outputs."""
    done = run("doctor", "--cluster")
    assert done.exit_code == 0
    assert done.stdout.rstrip("\n") == CLUSTER
    for words in ("nvidia-smi topo -m", "--query-gpu=name,memory.total", "NCCL_TOPO_DUMP_FILE", "lstopo", "scontrol"):
        assert words in done.stdout
    assert run("doctor", "--cluster", "--format", "json").exit_code == 2
