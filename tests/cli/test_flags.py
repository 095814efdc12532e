"""Flags are read the same way by every command."""

import pytest
import typer

from planner.cli import flags, inputs, values


def test_overrides_are_split_by_their_prefix():
    """`--set topology.…` goes to the cluster, `--set workload.…` to the model; values may hold any sign."""
    split = values.split_overrides(["topology.nodes.0.count=4", "workload.name=a=b.c", "workload.mode=inference"])
    assert split == {"topology": ["nodes.0.count=4"], "workload": ["name=a=b.c", "mode=inference"]}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("topolgy.name=x", "did you mean 'topology'?"),
        ("name=x", "write for example"),
        ("topology.name", "write for example"),
        ("cluster.name=x", "must begin with topology. or workload."),
    ],
)
def test_an_override_without_a_known_prefix_is_refused(text, said):
    """The message holds the remedy."""
    with pytest.raises(typer.BadParameter) as raised:
        values.split_overrides([text])
    assert said in raised.value.message


def test_the_workload_beside_the_topology_is_the_default(tmp_path):
    """A topology file takes workload.yaml of its own directory; a catalog name has none."""
    topology = tmp_path / "t.yaml"
    topology.touch()
    with pytest.raises(typer.BadParameter, match=r"there is no .*workload\.yaml"):
        inputs.default_workload(str(topology))
    (tmp_path / "workload.yaml").touch()
    assert inputs.default_workload(str(topology)) == str(tmp_path / "workload.yaml")
    with pytest.raises(typer.BadParameter, match="dlrm-dcnv2"):
        inputs.default_workload("zionex-16")


def test_times_and_shares_carry_units():
    """A time needs its unit, a share may be a percentage; else the message shows how to write it."""
    assert values.seconds("--time-limit", "2min") == 120
    assert values.share("--gap", "1%") == values.share("--gap", "0.01") == 0.01
    with pytest.raises(typer.BadParameter, match="30s"):
        values.seconds("--time-limit", "30")
    with pytest.raises(typer.BadParameter, match="between 0 and 100%"):
        values.share("--gap", "200%")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--nodes", "0"), "must be at least 1, not '0'"),
        (("--nodes", "-2"), "must be at least 1, not '-2'"),
        (("--nodes", "1.5"), "must be a whole number, not '1.5'"),
        (("--nodes", "1k"), "must be a whole number, not '1k'; write 1000"),
        (("--effort", "nan"), "must be a whole number, not 'nan'"),
        (("--seed", "9" * 5000), "must be a whole number of usual size"),
        (("--format", "xml"), "'xml' is not one of 'table'"),
    ],
)
def test_a_value_that_a_flag_cannot_take_is_refused_as_one_of_a_file_is(run, words, said):
    """What was typed stands in the message, and nothing of how it is read."""
    result = run("plan", "-t", "cpu", "-w", "nv-tiny", *words)
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())
    assert "nput" not in result.stderr


def test_words_are_checked_against_what_is_known():
    """A list may hold spaces and comes back in the known order; a misspelt word is named."""
    known = ("hbm", "ddr_cached", "ddr")
    assert values.words("--tiers", "ddr, hbm", known) == ("hbm", "ddr")
    assert values.words("--tiers", None, known) is None
    with pytest.raises(typer.BadParameter, match="did you mean 'ddr_cached'"):
        values.words("--tiers", "hbm,ddr_cache", known)


def test_catalog_names_are_completed(monkeypatch, run):
    """The tab key offers the catalog's names after --topology, --workload and `catalog show`."""
    assert "zionex-16" in flags.catalog_names("topology")
    assert "dlrm-dcnv2" in flags.catalog_names("workload")
    for line, offered in [
        ("planner plan --topology zion", "zionex-16"),
        ("planner memory --workload dlrm-dc", "dlrm-dcnv2"),
        ("planner catalog show zion", "zionex-16"),
        ("planner check dlrm-dc", "dlrm-dcnv2"),
    ]:
        monkeypatch.setenv("_PLANNER_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(line.split()) - 1))
        assert offered in run().stdout.split()
