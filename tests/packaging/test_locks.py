"""Pins with hashes are those of what pyproject.toml asks for, and the licences of all of them are listed."""

import os
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCKS = ROOT / "locks"
PAGE = ROOT / "docs" / "reference" / "licences.md"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = ("calibrate", "dask", "plot", "profile", "report")
ASKED = {
    "core": PROJECT["dependencies"],
    "extras": [*PROJECT["dependencies"], *(each for name in EXTRAS for each in PROJECT["optional-dependencies"][name])],
}
PIN = re.compile(r"^(?P<name>[\w.-]+)==(?P<version>\S+)(?: ; (?P<marker>[^\\\n]+))? \\\n(?P<rest>(?: +.*\n?)+)", re.M)
ROW = re.compile(r"^\| `(.+?)` \| (.+?) \| (.+?) \|$", re.M)
NOT_WANTED = ("GPL", "SSPL", "Commons Clause", "Business Source", "not stated")
"""Licences under which somebody could not ship what they build with the planner."""


def pins(lock: str) -> dict[str, list[re.Match[str]]]:
    """The pins of a file, by name; a package may have one for each version of Python."""
    found = defaultdict(list)
    for pin in PIN.finditer((LOCKS / f"{lock}.txt").read_text()):
        found[canonicalize_name(pin["name"])].append(pin)
    return found


def licence(package: metadata.Distribution) -> str:
    """What its metadata says: an SPDX expression, or else classifiers, or else the first line of the text."""
    about = package.metadata
    classifiers = [each.split(" :: ")[-1] for each in about.get_all("Classifier") or () if each.startswith("License")]
    first = (about.get("License") or "").strip().split("\n")[0]
    return about.get("License-Expression") or ", ".join(classifiers) or first or "not stated"


def installed(names: Iterable[str]) -> dict[str, str]:
    """The licences of those that are installed in the version of the lock."""
    found = {}
    for name in names:
        try:
            package = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        if package.version in {pin["version"] for pin in pins("extras")[name]}:
            found[name] = licence(package)
    return found


@pytest.mark.parametrize("lock", ASKED)
def test_every_dependency_is_pinned_within_what_is_asked_for(lock: str) -> None:
    """Whoever changes pyproject.toml calls .ci/lock; a pin outside a bound, or none, is found here."""
    pinned = pins(lock)
    for text in ASKED[lock]:
        asked = Requirement(text)
        versions = [pin["version"] for pin in pinned[canonicalize_name(asked.name)]]
        assert versions, text
        assert all(asked.specifier.contains(version) for version in versions), (text, versions)


@pytest.mark.parametrize("lock", [*ASKED, "build"])
def test_every_pin_has_hashes_and_no_place(lock: str) -> None:
    """A file that does not have one of these hashes is not installed, wherever it comes from."""
    text = (LOCKS / f"{lock}.txt").read_text()
    found = [pin for of in pins(lock).values() for pin in of]
    assert len(found) == len(re.findall(r"^\w.*==", text, re.M))
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}\b", pin["rest"]) for pin in found)
    assert "://" not in text


def test_extras_hold_the_pins_of_the_core() -> None:
    """One set of versions, whatever is installed of it."""
    assert all(
        {pin["version"] for pin in of} == {pin["version"] for pin in pins("extras")[name]}
        for name, of in pins("core").items()
    )


def test_licences_are_those_of_what_is_installed() -> None:
    """Row by row, for all that are here in their pinned version. UPDATE_GOLDEN=1 writes them anew."""
    text = PAGE.read_text()
    rows = {name: (licence, needed) for name, licence, needed in ROW.findall(text)}
    here = installed(pins("extras"))
    needed = {name: "core" if name in pins("core") else "extras" for name in pins("extras")}
    if os.environ.get("UPDATE_GOLDEN"):
        rows = {name: (here.get(name) or rows.get(name, ("?",))[0], needed[name]) for name in sorted(needed)}
        table = "\n".join(f"| `{name}` | {of} | {by} |" for name, (of, by) in rows.items())
        PAGE.write_text(text[: text.index("|---|---|---|\n")] + "|---|---|---|\n" + table + "\n")
    assert {name: by for name, (_, by) in rows.items()} == needed
    assert {name: rows[name][0] for name in here} == here


def test_no_licence_forbids_to_ship() -> None:
    """Neither copyleft nor a limit on use, and none that says nothing."""
    for name, of, _ in ROW.findall(PAGE.read_text()):
        assert not any(word in of for word in NOT_WANTED), (name, of)
