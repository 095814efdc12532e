"""Plausibility: what is legal but unlikely is said with the value, the known range and the likely slip."""

from pathlib import Path

import pytest

from topologies.checks import warnings
from topologies.documents import read_yaml
from topologies.loading import TOPOLOGIES, load_topology, read_topology, validated


@pytest.mark.parametrize(
    ("override", "words"),
    [
        (
            "links.scale_out.bandwidth=200GB/s",
            "known devices have, 10Gb/s to 800Gb/s; did you mean 200Gb/s = 25GB/s?",
        ),
        (
            "links.scale_out.bandwidth=100GB/s",
            "behind PCIe links of 31.5GB/s cannot be used; did you mean 100Gb/s?",
        ),
        ("links.scale_out.bandwidth=200Mb/s", "did you mean 25GB/s?"),
        ("links.front_end.bandwidth=400GB/s", "did you mean 400Gb/s = 50GB/s?"),
        ("links.scale_up.bandwidth=2400GB/s", "did you mean 2.4Tb/s = 300GB/s?"),
        ("links.scale_up.bandwidth=300MB/s", "did you mean 300GB/s?"),
        ("links.pcie.bandwidth=31.5TB/s", "did you mean 31.5GB/s?"),
        (
            "accelerators.hbm.bandwidth=1555Gb/s",
            "194.4GB/s is outside of what known devices have, 250GB/s to 25TB/s; did you mean 1.555TB/s",
        ),
        ("accelerators.hbm.bandwidth=3.35GB/s", "did you mean 3.35TB/s?"),
        ("accelerators.hbm.capacity=40Gb", "did you mean 40GB, bytes and not bits?"),
        ("accelerators.hbm.capacity=400GB", "does not fit the device 'A100-SXM4-40GB'"),
        ("accelerators.flops.fp32=19.5GFLOP/s", "did you mean 19.5TFLOP/s?"),
        ("host.ddr.capacity=1.5GB", "did you mean 1.5TB?"),
        ("host.ddr.bandwidth=200MB/s", "did you mean 200GB/s?"),
        ("host.ssd.capacity=4TiB", "drives are sold in decimal ones: did you mean 4TB?"),
        ("host.ssd.iops=100IOPS", "did you mean 100kIOPS?"),
        ("links.scale_up.latency=2s", "slower than any known link"),
        ("reserve.hbm=95%", "reserves 95%, more than half of the tier"),
        ("power=6.5MW", "did you mean 6.5kW?"),
    ],
)
def test_an_unlikely_number_is_questioned_once(override: str, words: str) -> None:
    """One warning, at the field, with what was probably meant."""
    found = warnings(load_topology("zionex", overrides=[f"nodes.0.{override}"]))
    assert [fault.path for fault in found] == [f"nodes.0.{override.partition('=')[0]}"]
    assert words in found[0].message


def test_a_warning_has_its_line_when_the_document_is_known(tmp_path: Path) -> None:
    """With the document at hand the warning points into the file."""
    path = tmp_path / "slip.yaml"
    text = (TOPOLOGIES.directory / "zionex.yaml").read_text()
    path.write_text(text.replace("bandwidth: 200Gb/s", "bandwidth: 200GB/s"))
    document = read_topology(path)
    (warning,) = warnings(validated(document), document)
    line = next(i for i, line in enumerate(path.read_text().splitlines(), 1) if "200GB/s  #" in line and i > 30)
    assert str(warning).startswith(f"{path}:{line}:9: nodes.0.links.scale_out.bandwidth: 200GB/s is outside")
    assert read_yaml(path).data == document.data


def test_slow_levels_are_questioned() -> None:
    """A level of milliseconds is questioned."""
    levels = "network={levels: [{name: leaf, nodes: 4, latency: 2s}]}"
    (warning,) = warnings(load_topology("zionex-16", overrides=[levels]))
    assert warning.path == "network.levels.0.latency"


def test_a_process_on_a_cpu_has_no_hbm_and_may_be_slow() -> None:
    """The memory share of a CPU process is not held against accelerators."""
    assert warnings(load_topology("cpu", overrides=["nodes.0.accelerators.hbm.bandwidth=20GB/s"])) == []
