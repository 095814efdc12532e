"""A workload comes from the catalog, a file of any kind or the generator; all faults are said at once."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from cost_models.workload import WORKLOADS, Workload, load_workload
from cost_models.workload.loading import changed_workload
from topologies.documents import Document
from topologies.errors import InputError

WORKLOAD = "name: w\nglobal_batch: 64\ntables: tables.csv\n"
TABLES = "name,rows,dim,pooling_factor\na,10,8,1\nb,20,8,1\n"


@pytest.fixture
def workload_file(tmp_path: Path) -> Path:
    (tmp_path / "tables.csv").write_text(TABLES)
    path = tmp_path / "w.yaml"
    path.write_text(WORKLOAD)
    return path


def test_tables_stand_beside_the_workload(workload_file: Path) -> None:
    workload = load_workload(workload_file)
    assert [table.rows for table in workload.tables] == [10, 20]
    assert workload.name == "w"


def test_profiles_alone_are_a_workload_once_the_batch_is_given(workload_file: Path) -> None:
    profiles = workload_file.with_name("tables.csv")
    workload = load_workload(profiles, global_batch=65536)
    assert (workload.name, workload.global_batch) == ("tables", 65536)
    with pytest.raises(InputError, match="--global-batch N"):
        load_workload(profiles)


def test_profiles_without_batch_have_their_other_faults_said_too(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(TABLES.replace("20", "0"))
    with pytest.raises(InputError) as caught:
        load_workload(path)
    assert {fault.path for fault in caught.value.faults} == {"global_batch", "tables.1.rows"}


def test_a_batch_from_outside_takes_the_place_of_either(workload_file: Path) -> None:
    assert load_workload("fbgemm-050", global_batch=128).batch(8) == 128
    assert load_workload(workload_file, overrides=["batch_per_rank=16"]).batch(8) == 128
    assert load_workload(workload_file, global_batch=5, overrides=["global_batch=6"]).batch(8) == 6
    with pytest.raises(InputError, match="--global-batch 0: global_batch: must be at least 1"):
        load_workload(workload_file, global_batch=0)


def test_overrides_reach_tables_by_name(workload_file: Path) -> None:
    workload = load_workload(workload_file, overrides=["tables.b.rows=1e3", "dense.dtype=FP16", "embedding.dtype=half"])
    assert workload.tables[1].rows == 1000
    assert (workload.dense.dtype, workload.embedding.dtype) == ("fp16", "fp16")
    assert workload.dtype_of(workload.tables[0]) == "fp16"


def test_every_fault_of_every_source_at_once(workload_file: Path) -> None:
    workload_file.with_name("tables.csv").write_text(TABLES.replace("20", "0"))
    workload_file.write_text(f"{WORKLOAD}softwear: torchrec\n")
    overrides = ["tables.a.dim=6", "nothing", "embeding.dtype=fp16", "tables.c.rows=1"]
    with pytest.raises(InputError) as caught:
        load_workload(workload_file, overrides=overrides)
    said = [str(fault).replace(f"{workload_file.parent}/", "") for fault in caught.value.faults]
    assert said == [
        "--set workload.embeding.dtype=fp16: there is no 'embeding' at the top; did you mean 'embedding'?",
        "--set workload.nothing: is not path=value; write for example workload.embedding.dtype=fp16",
        "--set workload.tables.a.dim=6: tables.0.dim: 6 is not a multiple of 4; pad the table to 8 columns",
        "--set workload.tables.c.rows=1: tables has 2 elements and none is 'c'; known here: a, b",
        "tables.csv:3:3: tables.1.rows: must be at least 1, not 0",
        "w.yaml:4:1: softwear: unknown key; did you mean 'software'?",
    ]


def test_missing_and_broken_files_of_tables(workload_file: Path) -> None:
    workload_file.with_name("tables.csv").write_text("name\na\n")
    with pytest.raises(InputError) as caught:
        load_workload(workload_file)
    assert {fault.path for fault in caught.value.faults} == {"rows", "dim", "pooling_factor"}
    workload_file.with_name("tables.csv").unlink()
    with pytest.raises(InputError, match=r"w\.yaml:3:1: tables: there is no file"):
        load_workload(workload_file)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: w\nglobal_batch: 4\ntables: []\n", "w.yaml:3:1: tables: is empty"),
        ("name: w\nglobal_batch: 4\n", "tables: is missing"),
        ("just words\n", "must be a mapping"),
        (
            "name: w\nglobal_batch: 4\nbatch_per_rank: 4\ntables: [{name: a, rows: 1, dim: 4, hotness: 1}]\n",
            "exactly one",
        ),
    ],
)
def test_bad_workloads(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "w.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        load_workload(path)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("dlrm-dcn", "neither a file nor a workload of the catalog; did you mean 'dlrm-dcnv2'"),
        ("synthetic:0", "needs a count of tables from 1"),
        ("synthetic:", "needs a count of tables from 1"),
        ("synthetic:10@sed=1", "unknown knob 'sed'; did you mean 'seed'"),
        ("synthetic:10@seed=x", "seed needs a whole number, not 'x'"),
        ("synthetic:10@pooling=0", "pooling must be above 0"),
        ("synthetic:10@dim=6", "dim must be a multiple of 4"),
        ("synthetic:10@dim=0", "dim must be a multiple of 4"),
        ("synthetic:10@zipf_alpha=99", "zipf_alpha must be at most 10"),
    ],
)
def test_unknown_sources(source: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_workload(source)


@pytest.mark.parametrize("name", WORKLOADS.names())
def test_a_dumped_workload_can_be_read_again(name: str, tmp_path: Path) -> None:
    """Without loss, and with the same fingerprint."""
    workload = load_workload(name)
    path = tmp_path / "w.json"
    path.write_text(workload.model_dump_json(exclude_none=True))
    again = load_workload(path)
    assert again == workload
    assert again.fingerprint() == workload.fingerprint()


def test_the_fingerprint_changes_with_any_field() -> None:
    workload = load_workload("nv-tiny")
    changed = load_workload("nv-tiny", overrides=["tables.t3.pooling_factor=1.5"])
    assert workload.fingerprint() != changed.fingerprint()


def test_five_thousand_tables_with_one_bad_line(tmp_path: Path) -> None:
    """Said in under 5 seconds (on an idle machine in under 1)."""
    lines = [f"- {{name: t{i}, rows: {i + 9}, dim: 64, pooling_factor: 3, zipf_alpha: 1.1}}\n" for i in range(5000)]
    lines[4000] = lines[4000].replace("rows: ", "rows: -")
    path = tmp_path / "t.yaml"
    path.write_text("".join(lines))
    start = time.perf_counter()
    with pytest.raises(InputError, match=r"t\.yaml:4001:17: tables\.4000\.rows: must be at least 1") as caught:
        load_workload(path, global_batch=64)
    assert len(caught.value.faults) == 1
    assert time.perf_counter() - start < 5


def test_ten_thousand_tables_from_csv_are_quick(tmp_path: Path) -> None:
    """In a fresh process, imports included; a heavy library would show here."""
    path = tmp_path / "t.csv"
    rows = "".join(f"t{i},{i + 9},64,3.5,1.1\n" for i in range(10_000))
    path.write_text(f"name,rows,dim,pooling_factor,zipf_alpha\n{rows}")
    program = (
        "import sys; from cost_models.workload import load_workload;"
        f"assert len(load_workload({str(path)!r}, global_batch=1).tables) == 10000;"
        "heavy = {'pandas', 'pyarrow', 'pint', 'networkx'} & set(sys.modules); assert not heavy, heavy"
    )
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], check=True)
    assert time.perf_counter() - start < 5


def test_a_workload_is_valid_from_birth() -> None:
    table = {
        "name": "a",
        "rows": 10,
        "dim": 8,
        "pooling_factor": [1, 2.5],
        "features": [{"nnz": 1}, {"nnz": 2}],
    }
    workload = Workload.model_validate({"name": "w", "global_batch": 1, "tables": [table]})
    assert workload.tables[0].pooling_factor == 3.5
    assert workload.tables[0].feature_count == 2


def test_a_file_may_be_based_on_another_workload(workload_file: Path) -> None:
    """On a file, a catalog name, a file of profiles or the generator; its keys and its `set` win."""
    derived = workload_file.with_name("derived.yaml")
    derived.write_text("name: d\nbase: w.yaml\nset: {tables.b.rows: 1000, embedding.dtype: fp16}\n")
    workload = load_workload(derived)
    assert (workload.name, workload.embedding.dtype) == ("d", "fp16")
    assert [table.rows for table in workload.tables] == [10, 1000]
    assert load_workload(derived, overrides=["tables.b.rows=7"]).tables[1].rows == 7
    second = workload_file.with_name("second.yaml")
    second.write_text("base: derived.yaml\nbatch_per_rank: 8\n")
    assert load_workload(second).batch(4) == 32
    second.write_text("base: dlrm-dcnv2\ntables: tables.csv\n")
    assert [table.name for table in load_workload(second).tables] == ["a", "b"]
    second.write_text("base: tables.csv\nglobal_batch: 16\nname: from-profiles\n")
    assert load_workload(second).name == "from-profiles"
    second.write_text("base: synthetic:5@seed=2\nset: {embedding.optimizer: sgd}\n")
    assert len(load_workload(second).tables) == 5


def test_a_base_in_another_directory_finds_its_own_tables(workload_file: Path) -> None:
    """`tables` is a file beside the one that names it."""
    (workload_file.parent / "deep").mkdir()
    derived = workload_file.parent / "deep" / "derived.yaml"
    derived.write_text("name: d\nbase: ../w.yaml\n")
    assert len(load_workload(derived).tables) == 2


def test_faults_of_a_derived_workload_stand_where_they_were_written(workload_file: Path) -> None:
    """Each in its own file and line, all at once."""
    derived = workload_file.with_name("derived.yaml")
    derived.write_text(
        "name: d\nbase: w.yaml\nset:\n  tables.b.rows: -5\n  tables.c.rows: 5\n  embeding.dtype: fp16\nmodee: x\n"
    )
    with pytest.raises(InputError) as caught:
        load_workload(derived)
    assert [str(fault).removeprefix(str(derived)) for fault in caught.value.faults] == [
        ":4:3: tables.1.rows: must be at least 1, not -5",
        ":5:3: set.tables.c.rows: tables has 2 elements and none is 'c'; known here: a, b",
        ":6:3: set.embeding.dtype: there is no 'embeding' at the top; did you mean 'embedding'?",
        ":7:1: modee: unknown key; did you mean 'mode'?",
    ]
    workload_file.with_name("tables.csv").write_text(TABLES.replace("20", "0"))
    derived.write_text("name: d\nbase: w.yaml\n")
    with pytest.raises(InputError, match=r"tables\.csv:3:3: tables\.1\.rows"):
        load_workload(derived)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("base: dlrm-dcnv3\n", ":1:1: base: 'dlrm-dcnv3' is neither a file nor a workload of the catalog"),
        ("base: 5\n", ":1:1: base: must be a catalog name or the path of a file"),
        ("base: nv-tiny\nset: [1]\n", ":2:1: set: must be a mapping of dotted paths to values"),
        ("name: x\nset: {mode: inference}\n", ":2:1: set: needs a base: the workload that it changes"),
        ("name: x\nbase: self.yaml\n", ":2:1: base: 'self.yaml' is based on this file again; break the circle"),
    ],
)
def test_a_wrong_base_is_refused(tmp_path: Path, text: str, message: str) -> None:
    """Each misuse of `base` and `set` is named at its line."""
    path = tmp_path / "self.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        load_workload(path)
    assert str(caught.value).startswith(f"{path}{message}")


STATED = "name: w\nglobal_batch: 64\ntables: [{name: a, rows: 1000, dim: 64, pooling_factor: 3}]\n"


@pytest.mark.parametrize(
    "text",
    [
        "software: {name: torchrec, mode: graph}\n",
        "software: {mode: graph}\n",
        "software_mode: graph\n",
        "software: torchrec\nsoftware_mode: graph\n",
    ],
)
def test_software_may_be_a_mapping(text: str, tmp_path: Path) -> None:
    """Its keys are those of the workload, in a file of its own, one that is based on another, and as an override."""
    (tmp_path / "w.yaml").write_text(STATED + text)
    (tmp_path / "other.yaml").write_text(f"base: w.yaml\n{text}")
    (tmp_path / "set.yaml").write_text("base: plain.yaml\nset: {software.mode: graph}\n")
    (tmp_path / "plain.yaml").write_text(STATED)
    found = [load_workload(tmp_path / name) for name in ("w.yaml", "other.yaml", "set.yaml")]
    found.append(load_workload(tmp_path / "plain.yaml", overrides=["software.mode=graph"]))
    found.append(load_workload(tmp_path / "plain.yaml", overrides=["software={name: torchrec, mode: graph}"]))
    (tmp_path / "mapping.yaml").write_text("base: plain.yaml\nset: {software: {name: torchrec, mode: graph}}\n")
    found.append(load_workload(tmp_path / "mapping.yaml"))
    origin = (Document(None, "here"), ())
    found.append(changed_workload(tmp_path / "plain.yaml", [("software", {"mode": "graph"}, origin)]))
    assert {each.software_mode for each in found} == {"graph"}
    assert {each.software for each in found} == {"torchrec"}
    (tmp_path / "w.yaml").write_text(STATED + "software: {overhead: 3ms}\n")
    assert load_workload(tmp_path / "w.yaml").overhead == 3e-3
    assert load_workload(tmp_path / "plain.yaml", overrides=["software.overhead=3ms"]).overhead == 3e-3


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("software: {mod: graph}", ":4:12: software.mod: is not a known key; did you mean 'mode'?"),
        ("software: {mode: graf}", ":4:12: software_mode: must be 'eager', 'compiled' or 'graph', not 'graf'"),
        ("software_mode: graph\nsoftware: {mode: eager}", ":5:12: software.mode: is stated as software_mode, too"),
    ],
)
def test_faults_inside_software_are_told_where_they_stand(text: str, fault: str, tmp_path: Path) -> None:
    """By the line and column of the mapping."""
    (tmp_path / "w.yaml").write_text(f"{STATED}{text}\n")
    with pytest.raises(InputError) as caught:
        load_workload(tmp_path / "w.yaml")
    assert fault in str(caught.value)


def test_changes_take_files_and_spellings_that_workloads_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of files of tables and of affinities under `set` and in overrides, and misspelt keys of `software`."""
    table = "{name: %s, rows: 100, dim: 16, pooling_factor: 1}"
    (tmp_path / "plain.yaml").write_text(f"name: w\nglobal_batch: 64\ntables: [{table % 'a'}, {table % 'b'}]\n")
    (tmp_path / "other.yaml").write_text(f"- {table % 'b'}\n- {table % 'a'}\n- {table % 'c'}\n")
    (tmp_path / "pairs.csv").write_text("table,other,affinity\na,b,0.5\n")
    (tmp_path / "set.yaml").write_text(
        "base: plain.yaml\nset: {tables: other.yaml, "
        "towers.count: 2, towers.imbalance: 2.0, towers.affinity: pairs.csv}\n"
    )
    changed = load_workload(tmp_path / "set.yaml")
    monkeypatch.chdir(tmp_path)
    overrides = ["tables=other.yaml", "towers.count=2", "towers.imbalance=2.0", "towers.affinity=pairs.csv"]
    assert [each.name for each in changed.tables] == ["b", "a", "c"]
    assert changed.tables == load_workload("plain.yaml", overrides=overrides).tables
    assert changed.towers == load_workload("plain.yaml", overrides=overrides).towers
    (tmp_path / "wrong.yaml").write_text("base: plain.yaml\nset: {software: {mod: graph}}\n")
    with pytest.raises(InputError, match="mod: is not a known key; did you mean 'mode'"):
        load_workload(tmp_path / "wrong.yaml")
