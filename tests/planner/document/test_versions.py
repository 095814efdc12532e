"""Plan documents of older versions are read as if they had been written today."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from planner import Plan, plan, read_plan, verify
from planner.document.versions import RENAMED_IN_2, REWORDED_IN_2
from planner.exporters.torchrec import torchrec_plan
from planner.formulation.policy import Policy
from tests.oracles.instances import node_group, topology, workload
from tests.oracles.version_1 import version_1, version_2
from topologies.errors import InputError

ROOT = Path(__file__).resolve().parents[3]
FILES = ROOT / "tests" / "golden" / "plans" / "version-1"


def _two_groups() -> Plan:
    cluster = topology(node_group("a", ranks=4), node_group("b", ranks=2, hbm_bytes=0.5e9))
    tables = [{"rows": 20_000 * (1 + i * i % 7), "dim": 64, "pooling_factor": 1 + 3 * i % 8} for i in range(11)]
    return plan(cluster, workload(tables), policy=Policy(runtime="torchrec"), gap=0.0, effort=1)


def _whole() -> Plan:
    tables = [{"rows": 1000 * (i + 1), "dim": 32} for i in range(7)]
    whole = {"tiers": ["hbm"], "shardings": ["table_wise"]}
    return plan(topology(node_group("a", ranks=3)), workload(tables), gap=0.0, effort=1, **whole)  # type: ignore[arg-type]


def _nothing_packs() -> Plan:
    trained = workload([{"rows": 2_300_000, "dim": 64}] * 3, global_batch=64)
    return plan(topology(node_group("a", hbm_bytes=1e9)), trained, tiers=["hbm"], shardings=["table_wise"], effort=1)


def _too_large() -> Plan:
    cluster = topology(node_group("a", ranks=2, hbm_bytes=0.1e9, ddr_bytes=0.2e9))
    return plan(cluster, workload([{"rows": 1_000_000, "dim": 64}] * 3), effort=1)


def _drives() -> Plan:
    memories = node_group("a", hbm_bytes=0.1e9, ddr_bytes=0.1e9, ssd_bytes=2e9, remote_bytes=2e9)
    cluster = topology({**memories, "remote": {**memories["remote"], "bandwidth": "0.5GB/s"}})  # type: ignore[dict-item]
    rules = [
        {"match": f"t{i}", "tiers": [tier], "ranks": [0]} for i, tier in enumerate(["ssd_cached", "remote_cached"])
    ]
    tables = [{"rows": 1_000_000, "dim": 64, "zipf_alpha": 1.05}] * 2
    return plan(cluster, workload(tables), policy=Policy.model_validate({"tables": rules}), effort=0)


QUESTIONS: dict[str, Callable[[], Plan]] = {
    "two-groups": _two_groups,
    "whole": _whole,
    "nothing-packs": _nothing_packs,
    "too-large": _too_large,
    "drives": _drives,
}
"""A branch tree, an exhaustive search, one that fits nothing, multipliers of memory that nothing
satisfies, and error bars that name drives and remote hosts."""


@pytest.mark.parametrize("name", QUESTIONS)
def test_files_of_version_1_are_read_verified_and_exported(name: str) -> None:
    """They hold what is planned today. UPDATE_GOLDEN=1 after an intended change of plans; then look at the diff."""
    file, now = FILES / f"{name}.json", QUESTIONS[name]()
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(json.dumps(version_1(now)) + "\n")
    old = json.loads(file.read_text())
    assert old["schema_version"] == 1
    found = read_plan(file)
    assert found == now
    assert verify(found) == []
    if found.objective is not None and {table.tier for table in found.tables} <= {"hbm", "ddr_cached", "ddr"}:
        assert torchrec_plan(found) == torchrec_plan(now)


def test_every_renamed_field_stands_in_a_file() -> None:
    """So that none of them is left untried; a packing is renamed like the proof around it."""
    texts = [file.read_text() for file in FILES.glob("*.json")]
    for field in RENAMED_IN_2:
        assert any(f'"{field.old}"' in text for text in texts), field


def test_every_reworded_text_stands_in_a_file() -> None:
    """Error bars of the step and of a stage that name drives and remote hosts."""
    document = json.loads((FILES / "drives.json").read_text())
    bars = {"objective.error_bar": [document["objective"]], "stages.*.error_bar": document["stages"]}
    for text in REWORDED_IN_2:
        words = [each for of in bars[text.where.removesuffix(".spec_only.*")] for each in of["error_bar"]["spec_only"]]
        assert any(each.startswith(text.old) for each in words), text


def test_a_packing_is_renamed_too() -> None:
    """A proof with a packing, of which version 1 is written and read."""
    document = json.loads(_whole().to_json())
    packing = {"threshold_s": 0.001, "weights": [], "functions": [], "memory_multipliers": []}
    document["proof"]["packing"] = packing
    new = Plan.model_validate(document)
    old = version_1(new)
    assert "byte_prices" in old["proof"]["packing"]
    assert _read(old) == new


def _read(document: dict[str, Any], path: Path | None = None) -> Plan:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        file = path or Path(folder) / "plan.json"
        file.write_text(json.dumps(document))
        return read_plan(file)


def _replicated() -> Plan:
    """Two tables on all of 6 ranks, and one on a single rank."""
    shardings = ["data_parallel", "data_parallel", "table_wise"]
    rules = [{"match": f"t{i}", "shardings": [sharding]} for i, sharding in enumerate(shardings)]
    trained = workload([{"rows": 1000 * (i + 1), "dim": 32} for i in range(3)])
    return plan(topology(node_group("a", ranks=6)), trained, policy=Policy.model_validate({"tables": rules}), effort=0)


def test_what_ranks_hold_alike_is_written_once() -> None:
    """Replicated tables are one shard with its `replicas`; read again, every rank has its own. Version 2 wrote each of
    them, and is read as the same plan, verified and exported."""
    new = _replicated()
    document = json.loads(new.to_json())
    assert [[shard.get("replicas") for shard in table["shards"]] for table in document["tables"]] == [[6], [6], [None]]
    assert [table.shards.rank.tolist() for table in new.tables[:2]] == [list(range(6))] * 2
    old = version_2(new)
    assert [len(table["shards"]) for table in old["tables"]] == [6, 6, 1]
    for read in (_read(document), _read(old)):
        assert read == new
        assert verify(read) == []
        assert torchrec_plan(read) == torchrec_plan(new)
        assert read.to_json() == new.to_json()


def test_replicas_are_no_field_of_version_2() -> None:
    """So that nobody takes a document of the new form for an old one with tables on too few ranks."""
    document = json.loads(_replicated().to_json()) | {"schema_version": 2}
    with pytest.raises(InputError, match="'replicas' is a field of version 3, and the document has version 2"):
        _read(document)


@pytest.mark.parametrize("replicas", [0, 1, -1, 2.0, True, None, "6", 2**40])
def test_replicas_are_a_number_of_ranks(replicas: object) -> None:
    """From 2, whole, and no more than there could be."""
    document = json.loads(_replicated().to_json())
    document["tables"][0]["shards"][0]["replicas"] = replicas
    with pytest.raises(InputError, match="shard 0"):
        _read(document)


@pytest.mark.parametrize("replicas", [2, 5, 7])
def test_replicas_that_the_plan_does_not_have_are_found(replicas: int) -> None:
    """Too few leave ranks without the table, too many name ranks that there are not."""
    document = json.loads(_replicated().to_json())
    document["tables"][0]["shards"][0]["replicas"] = replicas
    assert verify(_read(document)) != []


@pytest.mark.parametrize(("version", "name"), [(1, "memory_multipliers"), (3, "byte_prices")])
def test_fields_of_another_version_are_refused(version: int, name: str) -> None:
    """A document has the fields of its version and no others; the place is named."""
    document = version_1(_whole()) if version == 1 else json.loads(_whole().to_json())
    document["proof"][name] = []
    with pytest.raises(InputError, match=name):
        _read(document)


@pytest.mark.parametrize("proof", [[], "no", {"branching": []}, {"branching": {"cases": 3}}, {"byte_prices": {}}])
def test_what_is_no_proof_in_an_old_document_is_a_fault_and_no_failure(proof: object) -> None:
    """Renaming takes any JSON; what is wrong is said by the checks of the present version."""
    document = version_1(_whole()) | {"proof": proof}
    with pytest.raises(InputError, match="proof"):
        _read(document)


def test_the_table_of_changes_is_that_of_the_reader() -> None:
    """Row by row: where, the old name and the new one."""
    rows = re.findall(
        r"^\| (.+?) \| `(.+?)` \| `(.+?)` \|", (ROOT / "docs/reference/plan-versions.md").read_text(), re.M
    )
    listed = {(where, old, new) for places, old, new in rows for where in re.findall(r"`(.+?)`", places)}
    assert listed == {(field.where, field.old, field.new) for field in RENAMED_IN_2}
