"""The examples of the page on continuous integration, run as a pipeline would run them."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "ci.md").read_text()
WORKFLOW, HOOKS = (yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL))
MAKING, SAME = (block.splitlines() for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL))
OTHERS = ("pip", "gh")
"""Commands that need a network."""


@pytest.fixture
def shell(run, tmp_path, monkeypatch):
    """`shell(line)`: the exit code of a line of commands, of which each runs where those before end well."""
    monkeypatch.chdir(tmp_path)

    def of_line(line):
        for part in line.split(" && "):
            name, *words = shlex.split(part)
            assert name == "planner", line
            target, mode = None, "w"
            if words[-2] in (">", ">>"):
                *words, mode, target = words
            done = run(*words)
            if target is not None:
                with Path(target).open("a" if mode == ">>" else "w") as file:
                    file.write(done.stdout)
            if done.exit_code:
                return done.exit_code
        return 0

    return of_line


def test_the_pipeline_of_the_page(run, shell, tmp_path):
    """Its workflow, hooks and lines end well on the starter; a limit that the plan passes stops the job."""
    for line in MAKING:
        assert shell(line) == 0, line
    steps = [step["run"] for step in WORKFLOW["jobs"]["plan"]["steps"] if "run" in step]
    own = [line for line in steps if line.split()[0] not in OTHERS]
    assert len(own) == len(steps) - 2
    for line in own:
        assert shell(line) == 0, line
    comment = (tmp_path / "comment.md").read_text()
    assert "the plans place all tables alike" in comment
    assert comment.count("| passed |") == 3
    assert shell(own[-1].replace("90ms", "1us")) == 6
    assert "| failed | step" in (tmp_path / "comment.md").read_text()
    for line in SAME:
        assert shell(line) == 0, line
    files = [path.name for path in tmp_path.iterdir()]
    for hook in HOOKS["repos"][0]["hooks"]:
        chosen = [name for name in files if re.search(hook["files"], name)]
        assert len(chosen) == (3 if hook["id"] == "planner-inputs" else 1)
        assert shell(shlex.join([*shlex.split(hook["entry"]), *chosen])) == 0
    (tmp_path / "topology.yaml").write_text("name: none\n")
    assert shell(own[0]) == 3
