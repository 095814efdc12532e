"""From a plan with split tables and counts of reads to remap tables that hold what the plan promised."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

import planner
from cost_models.access import AccessCurves
from cost_models.workload.models import Workload
from cost_models.workload.table_profile import TableProfile
from planner import read_plan, verify, write_plan
from planner.document.migration import plan_fingerprint
from planner.document.plan import Plan, Remap
from planner.document.remaps import is_split
from planner.document.table_differences import table_differences
from planner.exporters.remap import LONGEST_NAME, MANIFEST, PLAN, TOLERANCE, Remapped, file_name, write_remaps
from planner.formulation.policy import Policy
from planner.importers.counts import CountSource
from tests.oracles.instances import node_group, topology, workload
from topologies.errors import InputError

ALPHA = 1.05
TABLES = [{"rows": 40_000 * (i + 1), "dim": 64, "zipf_alpha": ALPHA, "pooling_factor": 20} for i in range(5)]
CLUSTER = topology(node_group("a", nodes=2, ranks=2, hbm_bytes=2.5e7, ddr_bytes=2e11))
READS_PER_ROW = 400
HOW_TO = Path(__file__).parents[3] / "docs" / "how-to" / "split-tables.md"
WITHIN = 0.003
"""Difference of the counted and the promised hot share: the noise of so many reads, and the hot rows chosen by it."""


def split_plan(**limits: object) -> Plan:
    cramped = workload([*TABLES, {"rows": 10_000, "dim": 64}], global_batch=1024)
    return planner.plan(CLUSTER, cramped, simulate=False, **limits)


@pytest.fixture(scope="module", params=["table_wise", "column_wise", "row_wise", "grid_shard"])
def split(request: pytest.FixtureRequest) -> Plan:
    found = split_plan(tiers=["ddr_split"], shardings=[request.param])
    assert {table.sharding for table in found.tables if is_split(table)} == {request.param}
    return found


def trained(plan: Plan) -> Workload:
    return Workload.model_validate(plan.provenance.workload.content)


def write_counts(plan: Plan, folder: Path, alpha: float = ALPHA) -> Path:
    """Reads drawn from a power law over ids in random order, of the tables with a curve; even ones of the others."""
    folder.mkdir()
    random = np.random.default_rng(5)
    for profile in trained(plan).tables:
        law = np.arange(1, profile.rows + 1) ** -(alpha if profile.zipf_alpha else 0.0)
        drawn = random.poisson(law / law.sum() * READS_PER_ROW * profile.rows)
        np.save(folder / f"{profile.name}.npy", drawn[random.permutation(profile.rows)])
    return folder


def test_hot_rows_take_what_the_curve_promised(split: Plan, tmp_path: Path) -> None:
    """From plan to files: verified, and the hot share of the reads, by row number alone, is the model's."""
    counts = write_counts(split, tmp_path / "counts")
    found = write_remaps(split, CountSource(counts), tmp_path / "remap")
    written = read_plan(tmp_path / "remap" / PLAN)
    assert verify(written, folder=tmp_path / "remap") == []
    assert [one.name for one in found] == [table.name for table in split.tables if is_split(table)]
    curves = AccessCurves.of(trained(split), CLUSTER.world_size)
    for number, table in enumerate(written.tables):
        assert table.remap is not None
        row_of = np.load(tmp_path / "remap" / str(table.remap.path))
        reads = np.zeros(len(row_of))
        reads[row_of] = np.load(counts / f"{table.name}.npy")
        in_hbm = np.zeros(len(row_of), dtype=bool)
        assert table.shards.hot_rows is not None
        for start, hot in zip(table.shards.row_start.tolist(), table.shards.hot_rows.tolist(), strict=True):
            in_hbm[start : start + hot] = True
        assert in_hbm.sum() == table.remap.hot_rows
        promised = curves.hit_rate(np.array([number]), np.array([table.cache_fraction]))[0]
        counted = reads[in_hbm].sum() / reads.sum()
        if trained(split).tables[number].zipf_alpha:
            assert counted == pytest.approx(promised, abs=WITHIN)
        one = found[number]
        assert (one.hot_share, one.planned_hot_share) == pytest.approx((counted, promised))
        assert one.hot_rows == table.remap.hot_rows
        assert reads[in_hbm].min() >= reads[~in_hbm].max(initial=0)


def test_counts_of_another_curve_are_noticed(tmp_path: Path) -> None:
    """Reads that are less skewed than the workload says: the hot share is off."""
    plan = split_plan(tiers=["ddr_split"], shardings=["table_wise"])
    found = write_remaps(plan, CountSource(write_counts(plan, tmp_path / "counts", alpha=0.7)), tmp_path / "remap")
    partly = [one for one in found[: len(TABLES)] if one.hot_rows < 0.5 * one.rows]
    assert len(partly) >= 2
    for one in partly:
        assert one.is_off
        assert one.hot_share < one.planned_hot_share - TOLERANCE


def test_same_counts_same_bytes(tmp_path: Path) -> None:
    """Also from the plan that names the files of an earlier export."""
    plan = split_plan(tiers=["ddr_split"])
    counts = CountSource(write_counts(plan, tmp_path / "counts"))
    write_remaps(plan, counts, tmp_path / "one")
    write_remaps(read_plan(tmp_path / "one" / PLAN), counts, tmp_path / "two")
    one, two = ({file.name: file.read_bytes() for file in (tmp_path / name).iterdir()} for name in ("one", "two"))
    assert {PLAN, MANIFEST, "t0.npy"} <= set(one)
    assert one == two


def test_a_remapped_plan_holds_the_same(tmp_path: Path) -> None:
    """Tables are where they were: the plans do not differ, and one follows the other as it would the plan itself."""
    plan = split_plan(tiers=["ddr_split"])
    write_remaps(plan, CountSource(write_counts(plan, tmp_path / "counts")), tmp_path / "remap")
    written = read_plan(tmp_path / "remap" / PLAN)
    assert written != plan
    assert table_differences(plan, written, "plan") == []
    assert plan_fingerprint(written) == plan_fingerprint(plan)


def test_the_manifest_lists_the_files(tmp_path: Path) -> None:
    """With what the plan says of them, and only the split tables."""
    whole = {"match": ["t5"], "tiers": ["hbm"]}
    plan = split_plan(policy=Policy.model_validate({"tiers": ["hbm", "ddr_split"], "tables": [whole]}))
    names = [table.name for table in plan.tables if is_split(table)]
    assert 0 < len(names) < len(plan.tables)
    found = write_remaps(plan, CountSource(write_counts(plan, tmp_path / "counts")), tmp_path / "remap")
    manifest = json.loads((tmp_path / "remap" / MANIFEST).read_text())
    assert manifest["tables"] == json.loads(json.dumps([vars(one) for one in found]))
    assert [one["name"] for one in manifest["tables"]] == names
    planned = {table.name: table.remap for table in read_plan(tmp_path / "remap" / PLAN).tables}
    for one in manifest["tables"]:
        remap = planned[one["name"]]
        assert remap == Remap(hot_rows=one["hot_rows"], ids="mapped", path=one["path"], sha256=one["sha256"])


def test_everything_wrong_is_said_at_once_and_nothing_written(tmp_path: Path) -> None:
    """By file and table."""
    plan = split_plan(tiers=["ddr_split"])
    counts = write_counts(plan, tmp_path / "counts")
    np.save(counts / "t0.npy", np.load(counts / "t0.npy")[1:])
    np.save(counts / "t1.npy", -np.load(counts / "t1.npy"))
    (counts / "t2.npy").unlink()
    np.save(counts / "t77.npy", np.arange(4))
    with pytest.raises(InputError) as caught:
        write_remaps(plan, CountSource(counts), tmp_path / "remap")
    assert [(Path(fault.source).name, fault.path) for fault in caught.value.faults] == [
        ("counts", "t2"),
        ("counts", "t77"),
        ("t0.npy", "t0"),
        ("t1.npy", "t1"),
    ]
    assert not (tmp_path / "remap").exists()


def test_plans_and_folders_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    """Without split tables, changed by hand, remaps or counts where the other belongs."""
    whole = split_plan(tiers=["hbm", "ddr"])
    counts = CountSource(write_counts(whole, tmp_path / "counts"))
    with pytest.raises(InputError, match="has no split table; plan with --tiers hbm,ddr,ddr_split"):
        write_remaps(whole, counts, tmp_path / "remap")
    plan = split_plan(tiers=["ddr_split"])
    first = plan.tables[0]
    fewer = replace(first.shards, rows=first.shards.rows - 1)
    for change, said in (({"remap": None}, "go with split tables"), ({"shards": fewer}, "its row blocks are not")):
        tables = (first.model_copy(update=change), *plan.tables[1:])
        with pytest.raises(InputError, match=f"tables.0: t0: .*{said}.*make the plan again"):
            write_remaps(plan.model_copy(update={"tables": tables}), counts, tmp_path / "remap")
    with pytest.raises(InputError, match="are not those of the plan's workload"):
        write_remaps(plan.model_copy(update={"tables": plan.tables[1:]}), counts, tmp_path / "remap")
    with pytest.raises(InputError, match="holds the counts; write"):
        write_remaps(plan, counts, tmp_path / "counts")
    write_remaps(plan, counts, tmp_path / "remap")
    with pytest.raises(InputError, match="holds remap tables"):
        write_remaps(plan, CountSource(tmp_path / "remap"), tmp_path / "again")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be made"):
        write_remaps(plan, counts, tmp_path / "file" / "remap")


def test_names_of_tables_become_names_of_files() -> None:
    """Each its own, and none leaves the folder."""
    names = ["a", "a b", "a/b", "a%2Fb", "../x", "ü" * 200, "ü" * 199 + "v"]
    files = [file_name(name) for name in names]
    assert len(set(files)) == len(names)
    assert files[:4] == ["a", "a b", "a%2Fb", "a%252Fb"]
    assert not any("/" in file for file in files)
    assert max(map(len, files)) <= LONGEST_NAME + 17


def test_a_share_within_the_tolerance_is_not_off() -> None:
    one = Remapped("t", "t.npy", "", "int32", 10, 5, 100, hot_share=0.9, planned_hot_share=0.9 + 0.9 * TOLERANCE)
    assert not one.is_off
    assert replace(one, planned_hot_share=0.9 - 1.1 * TOLERANCE).is_off


def test_the_loader_of_the_how_to_works(split: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pasted and run: each shard's two halves give every id the weights that it had."""
    counts = CountSource(write_counts(split, tmp_path / "counts"))
    write_remaps(split, counts, tmp_path / "remap")
    (code,) = re.findall(r"```python\n(# load\.py.*?)```", HOW_TO.read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    loader: dict[str, object] = {}
    exec(compile(code, "load.py", "exec"), loader)
    random = np.random.default_rng(1)
    for table, profile in zip(split.tables, trained(split).tables, strict=True):
        weights = random.random((profile.rows, profile.dim), dtype=np.float32)
        by_row = loader["reordered"](table.name, weights)
        ids = random.integers(0, profile.rows, 1000)
        rows = loader["rows_of"](table.name, ids)
        found = np.zeros((len(ids), profile.dim), dtype=np.float32)
        for shard in json.loads((tmp_path / "remap" / PLAN).read_text())["tables"][split.tables.index(table)]["shards"]:
            hot, cold = loader["halves"](shard, by_row)
            local = rows - shard["row_start"]
            mine = (local >= 0) & (local < shard["rows"])
            both = np.concatenate([hot, cold])
            assert len(hot) == shard["hot_rows"]
            columns = slice(shard["column_start"], shard["column_start"] + shard["columns"])
            found[mine, columns] = both[local[mine]]
        assert np.array_equal(found, weights[ids])
    assert loader["rows_of"]("no split table", 3) == 3


@pytest.mark.parametrize("rows", [1, 7, 1234])
@pytest.mark.parametrize("alpha", [0.0, 1.1])
def test_the_counted_curve_of_the_how_to_is_one(
    rows: int, alpha: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pasted and run, also for small tables: a profile takes it, and its hit rate is the counted one."""
    (code,) = re.findall(r"```python\n(# access_cdf\.py.*?)```", HOW_TO.read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "counts").mkdir()
    counts = np.round(1e6 * np.arange(1, rows + 1) ** -alpha).astype(np.int64)[::-1]
    np.save("counts/user.npy", counts)
    exec(compile(code, "access_cdf.py", "exec"), {})
    found = yaml.safe_load(capsys.readouterr().out)
    table = {"name": "user", "rows": rows, "dim": 8, "pooling_factor": 1, **found}
    curves = AccessCurves.from_tables([TableProfile.model_validate(table)], batch=10)
    hot = round(0.1 * rows)
    if hot:
        share = curves.hit_rate(np.array([0]), np.array([hot / rows]))[0]
        assert share == pytest.approx(np.sort(counts)[-hot:].sum() / counts.sum())


def test_verify_needs_the_folder_to_check_files(tmp_path: Path) -> None:
    """Without it the files are not looked for; with it each that is gone is named."""
    plan = split_plan(tiers=["ddr_split"])
    write_remaps(plan, CountSource(write_counts(plan, tmp_path / "counts")), tmp_path / "remap")
    written = read_plan(tmp_path / "remap" / PLAN)
    write_plan(written, tmp_path / "moved.json")
    assert verify(written) == []
    found = verify(written, folder=tmp_path)
    assert len(found) == sum(map(is_split, written.tables))
    assert found[0] == "table t0: its remap t0.npy cannot be read: No such file or directory"
