"""`planner catalog` shows what is shipped, and all that is shipped is valid."""

import csv
import io
import json

import pytest
import yaml

from planner.cli import flags


@pytest.mark.parametrize(("shelf", "kind"), [("topologies", "topology"), ("workloads", "workload")])
def test_every_entry_is_listed_with_its_figures(run, shelf, kind):
    """Listing loads every entry, so that all are valid; each has a description."""
    records = json.loads(run("catalog", "list", shelf, "--format", "json").stdout)
    assert [record["name"] for record in records] == flags.catalog_names(kind)
    assert all(record["description"] for record in records)


def test_key_figures(run):
    """Ranks and HBM of a cluster; tables and size of a model (MLPerf DLRM-DCNv2 is 97.36 GiB in fp32)."""
    topologies = json.loads(run("catalog", "list", "topologies", "--format", "json").stdout)
    zionex = next(record for record in topologies if record["name"] == "zionex-16")
    assert (zionex["nodes"], zionex["ranks"]) == (16, 128)
    assert 128 * 40e9 <= zionex["hbm_bytes"] <= 128 * 40 * 2**30
    workloads = json.loads(run("catalog", "list", "workloads", "--format", "json").stdout)
    dcnv2 = next(record for record in workloads if record["name"] == "dlrm-dcnv2")
    assert dcnv2["tables"] == 26
    assert round(dcnv2["weight_bytes"] / 2**30, 2) == 97.36


def test_all_shelves_in_one_list(run):
    """Unasked, all are shown; in a machine format as one list with the kind."""
    table = run("catalog", "list").stdout
    assert "zionex-16" in table
    assert "dlrm-dcnv2" in table
    assert max(map(len, table.splitlines())) <= 80
    records = list(csv.DictReader(io.StringIO(run("catalog", "list", "--format", "csv").stdout)))
    assert {record["kind"] for record in records} == {"topology", "workload", "study", "run", "price sheet"}


def test_an_entry_is_shown_as_shipped(run, tmp_path):
    """stdout can be saved and used as a file of one's own."""
    result = run("catalog", "show", "zionex-16")
    assert result.exit_code == 0
    assert yaml.safe_load(result.stdout)["name"] == "zionex-16"
    (tmp_path / "mine.yaml").write_text(result.stdout)
    assert run("check", tmp_path / "mine.yaml").exit_code == 0


def test_an_instance_is_shown_with_its_entry_and_sources(run, tmp_path):
    """What is shown is a file that means the same cluster."""
    shown = run("catalog", "show", "p5.48xlarge").stdout
    assert yaml.safe_load(shown)["base"] == "dgx-h100"
    assert "# AWS: EFAv2, 3,200 Gb/s over 32 cards" in shown
    (tmp_path / "mine.yaml").write_text(shown)
    assert run("check", tmp_path / "mine.yaml").exit_code == 0
    planned = [
        run("memory", "-t", topology, "-w", "dlrm-v1", "--format", "json").stdout
        for topology in ("p5.48xlarge", tmp_path / "mine.yaml")
    ]
    assert planned[0] == planned[1] != ""


def test_plans_for_instances_of_unmeasured_devices_say_so(run):
    """Their costs rest on the data sheet, and the error bars name them."""
    shown = run("plan", "-t", "p5en.48xlarge", "-w", "criteo-kaggle", "--effort", "0", "--gap", "50%", "-q").stdout
    assert "data sheet only: device H200-SXM-141GB" in " ".join(shown.split())


def test_an_unknown_entry_is_named_with_the_nearest(run):
    """A misspelt name is a wrong command line."""
    result = run("catalog", "show", "zionex-61")
    assert result.exit_code == 2
    assert "did you mean 'zionex-16'?" in " ".join(result.stderr.split())


def test_a_name_on_both_shelves_must_be_told_apart(run, monkeypatch):
    """The message says how."""
    monkeypatch.setattr(flags, "catalog_names", lambda *_kinds: ["twin"])
    result = run("catalog", "show", "twin")
    assert result.exit_code == 2
    assert "--kind topology" in " ".join(result.stderr.split())


def test_coefficients_say_what_they_are(run):
    """All of them: unit, kind, residual, source; bands of collectives, ranges, whole steps."""
    records = json.loads(run("catalog", "coefficients", "--format", "json").stdout)
    assert {"H100-SXM5-80GB", "roce", "hugectr", "h100_sxm"} <= {record["file"] for record in records}
    assert all(record["unit"] and record["kind"] and record["source"] for record in records)
    law = next(record for record in records if record["file"] == "h100_sxm")
    assert law["residual_90"] > 0
    assert law["valid"].startswith("buffer_bytes 512 to ")
    assert any(record["coefficient"] == "steps" and record["file"] == "hugectr" for record in records)


def test_coefficients_of_a_device(run):
    """Its own with its collectives; of an unknown one what its data sheet is multiplied by, and said so."""
    own = json.loads(run("catalog", "coefficients", "A100-SXM4-80GB", "--format", "json").stdout)
    assert {record["file"] for record in own} == {"A100-SXM4-80GB", "a100_sxm"}
    of = {record["coefficient"]: record for record in own}
    assert of["lookup_efficiency"]["kind"] == "measured"
    assert of["pcie_efficiency"]["residual_90"] == 0.25
    unknown = json.loads(run("catalog", "coefficients", "NEW-1", "--format", "json").stdout)
    assert {record["kind"] for record in unknown if "efficiency" in record["coefficient"]} == {"data sheet only"}
    assert "sheet" in run("catalog", "coefficients", "NEW-1").stdout  # broken between words
    assert max(map(len, run("catalog", "coefficients").stdout.splitlines())) <= 80
