"""What holds for every text file of a checkout."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SIDES = {"<": "ours", "|": "the base", ">": "theirs"}


def conflicted(folder: Path) -> list[str]:
    """The lines of its text files by which git marks two sides of a conflict, as `FILE:LINE:TEXT`; what .gitignore
    names is left out, and no repository is needed."""
    markers = ["-e", r"^<{7} ", "-e", r"^\|{7} ", "-e", r"^>{7} "]
    command = ["git", "grep", "--no-index", "--exclude-standard", "-nIE", *markers]
    found = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert found.returncode in (0, 1), found.stderr
    return found.stdout.splitlines()


def test_no_file_has_the_markers_of_a_conflict() -> None:
    """A merge that was committed half done."""
    assert conflicted(ROOT) == []


@pytest.mark.parametrize(("mark", "side"), SIDES.items())
def test_each_marker_is_found(tmp_path: Path, mark: str, side: str) -> None:
    """By file and line; not underlines of titles, nor a marker within a line."""
    (tmp_path / "page.md").write_text(f"Title\n=======\n\n{7 * mark} {side}\n")
    (tmp_path / "said.md").write_text(f"a line with {7 * mark} {side} in it\n{8 * mark} {side}\n")
    assert conflicted(tmp_path) == [f"page.md:4:{7 * mark} {side}"]
