"""`planner plan --from`, `planner verify --from` and `planner diff`."""

import json
import shutil
from pathlib import Path

import pytest

from planner.cli.exits import ExitCode


@pytest.fixture
def plan(run, starter, tmp_path):
    """`plan(file, *flags, nodes=3)`: plan the starter and write the document."""
    return lambda file, *words, nodes=3: run(
        "plan",
        "-t",
        starter / "topology.yaml",
        "-o",
        tmp_path / file,
        "--nodes",
        nodes,
        "--effort",
        0,
        "--gap",
        "50%",
        *words,
    )


@pytest.fixture
def old(plan_of_nodes, tmp_path) -> Path:
    """A plan for three nodes."""
    return Path(shutil.copy(plan_of_nodes(3), tmp_path / "old.json"))


def test_a_plan_that_follows_another_says_what_moves(run, plan, old, tmp_path):
    """Within 80 columns, in the document, and `verify --from` recounts it."""
    result = plan("new.json", "--from", old, "--max-move", "100GB", nodes=2)
    assert result.exit_code == 0, result.stderr
    assert "moved between ranks" in result.stdout
    assert "come from a checkpoint" in " ".join(result.stdout.split())
    assert "The bound covers all plans" in " ".join(result.stdout.split())
    assert max(map(len, result.stdout.splitlines())) <= 80
    moves = json.loads((tmp_path / "new.json").read_text())["moves"]
    assert 0 < moves["least_bytes"] <= sum(moves["moved"].values()) <= moves["limit_bytes"] == 100 * 10**9
    checked = run("verify", tmp_path / "new.json", "--from", old)
    assert (checked.exit_code, checked.stdout) == (0, "")
    assert "moves (give the former plan with --from)" in run("verify", tmp_path / "new.json").stderr


def test_nothing_changed_nothing_moves(plan, old, tmp_path):
    """The tables of the new document are those of the old one."""
    assert plan("new.json", "--from", old, "--max-move", "0B").exit_code == 0
    documents = [json.loads((tmp_path / name).read_text()) for name in ("old.json", "new.json")]
    assert documents[0]["tables"] == documents[1]["tables"]
    assert documents[0]["objective"]["step_s"] == documents[1]["objective"]["step_s"]


@pytest.mark.parametrize("output", ["table", "json", "csv"])
def test_a_limit_that_is_too_small_exits_with_4(run, plan, old, tmp_path, output):
    """With the bytes that must move, in a document that verifies."""
    result = plan("new.json", "--from", old, "--max-move", "1kB", "--format", output, nodes=2)
    assert result.exit_code == ExitCode.INFEASIBLE
    said = result.stdout if output == "table" else result.stderr
    assert "There is no plan: at least" in said
    assert "must move, and the limit is 1000 B" in said
    assert run("verify", tmp_path / "new.json", "--from", old).exit_code == 0


def test_false_moves_are_found(run, plan, old, tmp_path):
    """A figure that is wrong, a limit that is not kept, another former plan, and none."""
    new = tmp_path / "new.json"
    assert plan("new.json", "--from", old, nodes=2).exit_code == 0
    document = json.loads(new.read_text())

    def violations(change, *words):
        changed = json.loads(json.dumps(document))
        change(changed["moves"])
        (tmp_path / "false.json").write_text(json.dumps(changed))
        result = run("verify", tmp_path / "false.json", *words)
        return result.stdout if result.exit_code == ExitCode.GATE_FAILED else ""

    assert "moves: lost_bytes is" in violations(lambda moves: moves.update(lost_bytes=7), "--from", old)
    assert "the limit is 1" in violations(lambda moves: moves.update(limit_bytes=1))
    assert "no plan is said to move less" in violations(lambda moves: moves.update(least_bytes=10**15))
    assert "is not the one that this plan follows" in violations(dict, "--from", new)
    assert "does not say that it follows" in run("verify", old, "--from", old).stdout


def test_bad_plans_and_flags_are_refused(run, plan, old, tmp_path):
    """With what is wrong and what to do."""
    other = tmp_path / "other.yaml"
    other.write_text("[]")
    cases = [
        (["--from", other], 3, "is not JSON"),
        (["--from", tmp_path / "none.json"], 3, "cannot be read"),
        (["--from", old, "--lost-nodes", "9"], 3, "there is no node 9 in it, only 0 to 2"),
        (["--from", old, "--lost-nodes", "x"], 2, "write for example 3,7"),
        (["--from", old, "--max-move", "500"], 2, "500GB"),
        (["--from", old, "--max-move", "-1GB"], 2, "is below 0"),
        (["--from", old, "--pay-back", "9", "--cost-model", "hugectr"], 2, "has no effect on the ratings"),
        (["--max-move", "1GB"], 2, "has no effect without --from"),
        (["--pay-back", "9"], 2, "has no effect without --from"),
        (["--lost-nodes", "1"], 2, "has no effect without --from"),
        (["--from", old, "-w", "nv-tiny"], 3, "plan without --from"),
    ]
    other.write_text("not json")
    for words, code, said in cases:
        result = plan("new.json", *words)
        assert result.exit_code == code, (words, result.stderr)
        assert said in " ".join(result.stderr.split()), words
        assert not (tmp_path / "new.json").exists()


def test_a_rating_is_followed_too(run, plan, old, tmp_path):
    """Moves have no price then, but a limit holds."""
    assert plan("rated.json", "--cost-model", "torchrec").exit_code == 0
    result = plan("new.json", "--cost-model", "torchrec", "--from", tmp_path / "rated.json", "--max-move", "1GB")
    assert result.exit_code == 0, result.stderr
    assert run("verify", tmp_path / "new.json", "--from", tmp_path / "rated.json").exit_code == 0


def test_diff_names_the_tables_that_differ(run, plan, old, tmp_path):
    """And exits with 7 where it is asked to; a plan does not differ from itself."""
    assert plan("new.json", "--from", old, nodes=2).exit_code == 0
    new = tmp_path / "new.json"
    result = run("diff", old, new, "--format", "json")
    assert result.exit_code == 0
    told = json.loads(result.stdout)
    document = json.loads(new.read_text())
    assert told["moved_bytes"] == pytest.approx(sum(document["moves"]["moved"].values()), abs=len(told["tables"]))
    assert run("diff", old, new, "--exit-code").exit_code == ExitCode.PLANS_DIFFER == 7
    same = run("diff", old, old, "--exit-code")
    assert same.exit_code == 0
    assert "place all tables alike" in same.stderr
