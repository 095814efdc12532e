"""`planner check` says which devices and links have no coefficients, and what may have been meant."""

import pytest

from cost_models.coefficient_checks import warnings
from topologies.loading import TOPOLOGIES, read_topology, validated


def said(tmp_path, old: str, new: str) -> list[str]:
    text = TOPOLOGIES.find("dgx-a100-80").read_text()
    assert old in text
    (tmp_path / "t.yaml").write_text(text.replace(old, new))
    document = read_topology(str(tmp_path / "t.yaml"))
    return [str(fault).removeprefix(f"{tmp_path}/") for fault in warnings(validated(document), document)]


@pytest.mark.parametrize(
    ("old", "new", "where", "hint"),
    [
        ("A100-SXM4-80GB", "A100-SXM-80GB", "accelerators.device", "did you mean 'A100-SXM4-80GB'?"),
        ("A100-SXM4-80GB", "a100-sxm4-80gb", "accelerators.device", "did you mean 'A100-SXM4-80GB'?"),
        (
            "A100-SXM4-80GB",
            "Gaudi",
            "accelerators.device",
            "known here: A100-SXM4-40GB, A100-SXM4-80GB, B200",
        ),
        ("A100-SXM4-80GB", "H200-SXM5-141GB", "accelerators.device", "did you mean 'H200-SXM-141GB'?"),
        ("kind: nvlink3", "kind: nvlnk3", "links.scale_up.kind", "did you mean 'nvlink3'?"),
        ("kind: infiniband", "kind: infinband", "links.scale_out.kind", "did you mean 'infiniband'?"),
    ],
)
def test_unknown_names_are_said_with_their_place(tmp_path, old, new, where, hint):
    """Line, column, field, what follows from it, and the nearest known name."""
    (warning,) = said(tmp_path, old, new)
    number = 1 + next(n for n, text in enumerate((tmp_path / "t.yaml").read_text().splitlines()) if new in text)
    assert warning.startswith(f"t.yaml:{number}:")
    assert f"nodes.0.{where}:" in warning
    assert "no coefficients of its own" in warning
    assert hint in warning


@pytest.mark.parametrize("name", TOPOLOGIES.names())
def test_the_catalog_names_what_is_known(name):
    """No warning for a cluster that is shipped, also where its device has a data sheet alone."""
    document = read_topology(name)
    assert warnings(validated(document), document) == []


def test_calibrated_devices_are_known(tmp_path, monkeypatch):
    """Those of the user's own directory."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "x.yaml").write_text("name: Gaudi\n")
    monkeypatch.setenv("PLANNER_COEFFICIENTS", str(tmp_path / "own"))
    assert said(tmp_path, "A100-SXM4-80GB", "Gaudi") == []
