"""`planner export`: files for runtimes, and what it refuses."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from planner.exporters.formats import FORMATS

GOLDEN = Path(__file__).parents[1] / "golden" / "export-remap.txt"
ROWS = (3_000_000, 1_000_000, 400_000)


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory):
    """A plan that TorchRec and HugeCTR both execute."""
    from planner.document.plan import write_plan
    from planner.formulation.policy import Policy
    from planner.planning.planning import plan

    file = tmp_path_factory.mktemp("plans") / "plan.json"
    policy = Policy(runtime="hugectr", shardings=("data_parallel", "table_wise", "row_wise"))
    write_plan(plan("dgx-a100-80", "dlrm-dcnv2", policy=policy, effort=0, simulate=False), file)
    return file


@pytest.mark.parametrize("to", ["torchrec", "torchrec-constraints", "hugectr"])
def test_writes_json_to_a_file_or_stdout(run, plan_file, tmp_path, to):
    """The same document both ways."""
    shown = run("export", plan_file, "--to", to)
    assert shown.exit_code == 0
    assert run("export", plan_file, "--to", to, "-o", tmp_path / "out.json").exit_code == 0
    assert json.loads((tmp_path / "out.json").read_text()) == json.loads(shown.stdout)


@pytest.fixture
def moving(tmp_path):
    """Makes plans of two tables: the ways and ranks of the first are given."""
    from cost_models.workload.models import Workload
    from planner.document.plan import write_plan
    from planner.formulation.policy import Policy
    from planner.planning.planning import plan

    tables = [
        {"name": name, "rows": 10_000, "dim": 64, "features": [name], "pooling_factor": 3, "optimizer": "sgd"}
        for name in ("moving", "other")
    ]
    workload = Workload.model_validate({"name": "two", "batch_per_rank": 64, "tables": tables})

    def made(sharding, rank=None):
        rule = {"match": "moving", "shardings": [sharding]} | ({} if rank is None else {"ranks": [rank]})
        other = {"match": "other", "shardings": ["table_wise"], "ranks": [0]}
        policy = Policy.model_validate({"runtime": "torchrec", "tiers": ["hbm"], "tables": [rule, other]})
        file = tmp_path / f"{sharding}-{rank}.json"
        write_plan(plan("dgx-a100-80", workload, policy=policy, effort=0, simulate=False), file)
        return file

    return made


def test_what_reshards_is_to_be_applied_by_our_reshard(run, moving, tmp_path):
    """The line that names it, with a file and without: TorchRec's own may leave features in their old order."""
    before, after = moving("table_wise", 1), moving("table_wise", 2)
    words = ("export", after, "--to", "torchrec-reshard", "--from", before, "--module", "tables")
    for more in ((), ("-o", tmp_path / "delta.json")):
        done = run(*words, *more)
        assert done.exit_code == 0
        assert "call planner.integrations.torchrec_runtime.reshard with both plans" in done.stderr
    assert list(json.loads((tmp_path / "delta.json").read_text())["plan"]["tables"]) == ["moving"]
    assert "torchrec_runtime.reshard" not in run("export", after, "--to", "torchrec").stderr


def test_diff_warns_where_checkpoints_do_not_resume(run, moving):
    """Of a table between data_parallel and sharded, either way; of one that changes its rank, nothing."""
    copied, held, elsewhere = moving("data_parallel"), moving("table_wise", 1), moving("table_wise", 2)
    for pair in ((copied, held), (held, copied)):
        found = run("diff", *pair)
        assert "warning: moving: between data_parallel and sharded" in found.stderr
        assert "do not resume across the change" in found.stderr
    found = run("diff", held, elsewhere)
    assert "1 table differs" in found.stderr
    assert "warning" not in found.stderr


def test_torcheasyrec_writes_two_files(run, plan_file, tmp_path):
    """Its plan, and the variables of its environment."""
    done = run("export", plan_file, "--to", "torcheasyrec", "--module", "m.ebc", "-o", tmp_path / "plan")
    assert done.exit_code == 0
    assert list(json.loads((tmp_path / "plan").read_text())) == ["m.ebc"]
    assert "export INTRA_NODE_BANDWIDTH=300000000\n" in (tmp_path / "plan.env").read_text()


def test_inputs_of_a_plan_make_the_same_plan(run, tmp_path, monkeypatch):
    """Byte for byte, by the command that it prints; overrides, policy and cost model are in the files."""
    words = ("-t", "dgx-a100-80", "-w", "dlrm-dcnv2", "--set", "workload.global_batch=8192", "--runtime", "torchrec")
    first = tmp_path / "plan.json"
    assert (
        run("plan", *words, "--cost-model", "torchrec", "--effort", 0, "--gap", "50%", "-q", "-o", first).exit_code == 0
    )
    done = run("export", first, "--to", "inputs", "-o", tmp_path / "deep" / "inputs")
    assert done.exit_code == 0
    monkeypatch.chdir(tmp_path / "deep" / "inputs")
    _, _, command = done.stderr.partition("plan there with planner ")
    assert run(*command.split(), "--effort", 0, "--gap", "50%", "-q", "-o", "again.json").exit_code == 0
    assert Path("again.json").read_bytes() == first.read_bytes()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--to", "inputs"), "is needed: more than one file is written"),
        (("--to", "hugectr", "--module", "a"), "has no effect with --to hugectr"),
        (("--to", "torchrec", "--names", "index"), "has no effect with --to torchrec"),
        (("--to", "torcheasyrec"), "is needed"),
        (("--to", "torchrec", "--counts", "counts"), "has no effect with --to torchrec"),
        (("--to", "remap", "-o", "remap"), "is needed: rows are numbered by it"),
        (("--to", "remap", "--counts", "counts"), "is needed: more than one file is written"),
        (("--to", "remap", "--counts", "counts", "--device", "cpu"), "has no effect with --to remap"),
        (("--to", "remap", "--counts", "counts", "-o", __file__), "is not a folder"),
        (("--to", "torch"), "'torch' is not known"),
    ],
)
def test_flags_that_do_not_fit_are_refused(run, plan_file, words, said):
    """With 2, before anything is written."""
    result = run("export", plan_file, *words)
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())


def test_what_cannot_run_ends_with_3(run, plan_file, tmp_path):
    """Every table is named."""
    document = json.loads(plan_file.read_text())
    for table in document["tables"][:2]:
        table["tier"], table["cache_fraction"] = "ssd_cached", 0.1
    bad = tmp_path / "bad.json"
    bad.write_text(json.dumps(document))
    result = run("export", bad, "--to", "torchrec")
    assert result.exit_code == 3
    assert result.stderr.count("cannot execute table") == 2


@pytest.fixture(scope="module")
def split_plan_file(tmp_path_factory):
    """A plan of three tables in ddr_split, one of them cut by rows."""
    from planner import plan, write_plan
    from planner.formulation.policy import Policy
    from tests.oracles.instances import node_group, topology, workload

    cluster = topology(node_group("a", nodes=1, ranks=4, hbm_bytes=8e7, ddr_bytes=1e11))
    tables = [{"rows": rows, "dim": 64, "zipf_alpha": 1.05} for rows in ROWS]
    rules = [{"match": "t0", "shardings": ["row_wise"]}, {"match": "t1", "shardings": ["table_wise"]}]
    policy = Policy.model_validate({"tiers": ["ddr_split"], "tables": rules})
    file = tmp_path_factory.mktemp("plans") / "split.json"
    write_plan(plan(cluster, workload(tables), policy=policy, effort=0, simulate=False), file)
    return file


@pytest.fixture(scope="module")
def counts(tmp_path_factory):
    """Reads as expected of a power law in a shuffled order; those of the last table are less skewed than it says."""
    folder = tmp_path_factory.mktemp("counts")
    for number, (rows, alpha) in enumerate(zip(ROWS, (1.05, 1.05, 0.8), strict=True)):
        law = np.arange(1, rows + 1) ** -alpha
        reads = np.round(law / law.sum() * 100 * rows).astype(np.int64)
        np.save(folder / f"t{number}.npy", reads[np.random.default_rng(number).permutation(rows)])
    return folder


def test_remap_shows_what_the_counts_say(run, split_plan_file, counts, tmp_path, monkeypatch):
    """UPDATE_GOLDEN=1 after an intended change, then look at the diff."""
    monkeypatch.chdir(tmp_path)
    Path("plan.json").write_bytes(split_plan_file.read_bytes())
    result = run("export", "plan.json", "--to", "remap", "--counts", counts, "-o", "remap")
    assert result.exit_code == 0
    text = f"{result.stdout}---\n{result.stderr}"
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")
    assert len(json.loads(Path("remap/remap.json").read_text())["tables"]) == 3


def test_remaps_are_verified(run, split_plan_file, counts, tmp_path):
    """Relative to the plan, wherever that is; what does not hold ends with 6."""
    assert run("export", split_plan_file, "--to", "remap", "--counts", counts, "-o", tmp_path / "remap").exit_code == 0
    (tmp_path / "remap").rename(tmp_path / "elsewhere")
    plan = tmp_path / "elsewhere" / "plan.json"
    assert run("verify", plan).exit_code == 0
    rows = np.load(plan.with_name("t1.npy"))
    np.save(plan.with_name("t1.npy"), rows[::-1])
    plan.with_name("t2.npy").unlink()
    result = run("verify", plan, "--format", "json")
    assert result.exit_code == 6
    digest, gone = json.loads(result.stdout)["violations"]
    assert digest.startswith("table t1: its remap t1.npy has the digest")
    assert gone == "table t2: its remap t2.npy cannot be read: No such file or directory"


def test_wrong_counts_end_with_3(run, split_plan_file, plan_file, counts, tmp_path):
    """All at once, and nothing is written; a plan without split tables, too."""
    bad = tmp_path / "bad"
    bad.mkdir()
    np.save(bad / "t0.npy", np.load(counts / "t0.npy")[:-1])
    np.save(bad / "t1.npy", -np.load(counts / "t1.npy"))
    result = run("export", split_plan_file, "--to", "remap", "--counts", bad, "-o", tmp_path / "remap")
    assert result.exit_code == 3
    assert [line.partition(": holds")[0].partition(": has")[0] for line in result.stderr.splitlines()] == [
        f"{bad}: t2",
        f"{bad / 't0.npy'}: t0",
        f"{bad / 't1.npy'}: t1",
    ]
    assert not (tmp_path / "remap").exists()
    assert run("export", plan_file, "--to", "remap", "--counts", counts, "-o", tmp_path / "remap").exit_code == 3


def test_a_split_table_is_explained(run, split_plan_file):
    """By its hot rows, not as a cache."""
    result = run("explain", split_plan_file, "--table", "t1")
    assert "hot rows (" in result.stdout
    assert "rows cached" not in result.stdout


def test_help_lists_every_format(run):
    """The help of the command names each format with its summary and each setting with the formats that use it."""
    text = " ".join(run("export", "--help").stdout.split())
    for name, row in FORMATS.items():
        assert f"{name}: {row.summary}" in text


def test_a_setting_without_effect_is_refused_by_its_flag(run, tmp_path):
    """Every format refuses the flags that it does not use, by name, before it reads the plan."""
    flags = {"module": "ebc", "from": "old.json", "device": "cpu", "names": "index", "counts": "counts"}
    for name, row in FORMATS.items():
        for setting, value in flags.items():
            if setting not in row.uses:
                result = run("export", "none.json", "--to", name, f"--{setting}", value, "-o", str(tmp_path / "out"))
                assert result.exit_code == 2
                words = " ".join(result.stderr.split())
                assert f"--{setting}" in words
                assert "has no effect" in words
