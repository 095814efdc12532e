"""Folders of measured rows as somebody else has them: what is predicted, and what is left out with its reason."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.accuracy import systems
from benchmarks.accuracy.__main__ import FACTS, main


def test_a_folder_without_some_files_gives_the_other_data_sets(tmp_path: Path) -> None:
    """As JSON: rows with their band, and a summary."""
    (tmp_path / "measured").mkdir()
    (tmp_path / "measured" / "ugache_cache_extraction.csv").write_bytes(
        (FACTS / "measured" / "ugache_cache_extraction.csv").read_bytes()
    )
    command = [sys.executable, "-m", "benchmarks.accuracy", str(tmp_path), "--json", "--no-hold-out"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=FACTS.parents[2])
    found = json.loads(done.stdout)
    assert list(found["rows"]) == ["ugache"]
    assert len(found["rows"]["ugache"]) == found["summary"][0]["rows"] == 15
    assert all(row["low_s"] < row["predicted_s"] < row["high_s"] for row in found["rows"]["ugache"])
    assert "nccl" in done.stderr


NEW_ROWS = """round,org,system,nodes,per_node,accel,batch,iter_ms,network
v9.0,A,known,3,6,NVIDIA H100-SXM5-80GB,65536,3.0,InfiniBand NDR
v9.0,B,a part of a rack,8,4,NVIDIA GB200,65536,3.0,
v9.0,C,unknown,1,8,NVIDIA Z900,65536,3.0,
v9.0,D,no cards,2,8,NVIDIA L40S,65536,3.0,Ethernet
v9.0,E,cards of a node,4,8,NVIDIA H100-SXM5-80GB,65536,3.0,3.2 Tb/s IB
v9.0,F,other cards,4,8,NVIDIA H100-SXM5-80GB,65536,3.0,8x ConnectX-6
"""


def printed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[dict[str, Any], str]:
    """What is printed of a folder as JSON, without fits, and what is said beside it."""
    monkeypatch.setattr(sys, "argv", ["accuracy", str(folder), "--json", "--no-hold-out"])
    assert main() == 0
    done = capsys.readouterr()
    return json.loads(done.out), done.err


def test_a_folder_of_rows_of_any_systems_is_predicted_and_the_rest_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without `published.json`, on numbers of nodes and ranks that no code names; a chip that is not known and nodes
    that nothing joins are left out with the reason."""
    (tmp_path / "measured").mkdir()
    (tmp_path / "measured" / "mlperf_dlrm_dcnv2_v90.csv").write_text(NEW_ROWS)
    head = "system,device,lib,lib_version,op_name,nccl_dtype,num_gpus,bytes,t_us\n"
    nccl_rows = [
        "h100_sxm,NVIDIA H100,nccl,9,all_gather,half,6,1048576,30",
        "new_box,NVIDIA H200,nccl,9,alltoall,half,5,1048576,30",
        "strange,NVIDIA Z900,nccl,9,alltoall,half,8,1048576,30",
    ]
    (tmp_path / "measured" / "nccl_collectives.csv").write_text(head + "\n".join(nccl_rows))
    told, said = printed(tmp_path, monkeypatch, capsys)
    found = told["rows"]
    assert [row["label"] for row in found["mlperf"]] == ["9.0 A known", "9.0 B a part of a rack", "9.0 F other cards"]
    assert len(found["nccl"]) == 2
    assert all(row["low_s"] < row["predicted_s"] < row["high_s"] for rows in found.values() for row in rows)
    assert "C unknown left out: NVIDIA Z900: no such accelerator is known" in said
    assert "no cards left out: NVIDIA L40S, 2 x 8: l40s-8 has no cards between nodes" in said
    assert "E cards of a node left out: cards between nodes, '3.2 Tb/s IB': 3200 Gb/s is more than one card has" in said
    assert "A known: 'InfiniBand NDR' does not tell the number of the cards between nodes; those of dgx-h100" in said
    assert said.count("F other cards: '8x ConnectX-6' does not tell the kind of the cards") == 1
    assert "a part of a rack:" not in said
    assert "nccl: strange left out: NVIDIA Z900: no such accelerator is known" in said


def test_a_column_that_is_missing_leaves_out_its_data_set_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With its name; the others are predicted."""
    (tmp_path / "measured").mkdir()
    (tmp_path / "measured" / "ugache_cache_extraction.csv").write_bytes(
        (FACTS / "measured" / "ugache_cache_extraction.csv").read_bytes()
    )
    (tmp_path / "measured" / "hkv_a100_ops.csv").write_text("source,gpu,dim\nx,A100,8\n")
    told, said = printed(tmp_path, monkeypatch, capsys)
    assert list(told["rows"]) == ["ugache"]
    assert "hkv: no column 'op'; left out" in said


@pytest.mark.parametrize(
    ("words", "cards"),
    [
        ("1x ConnectX-6 IB HDR 200Gb/Sec", "{kind: infiniband, count: 1, bandwidth: 200Gb/s}"),
        (
            "Storage: 2x IB HDR 200Gb/s, Compute: 8x ConnectX-7 IB NDR 400Gb/s",
            "{kind: infiniband, count: 8, bandwidth: 400Gb/s}",
        ),
        ("400GbE Ethernet", "{kind: roce, count: 1, bandwidth: 400Gb/s}"),
        ("InfiniBand; Data bandwidth for GPU-PCIe: 504 GB/s", None),
        ("8x 400Gb/s", None),
        ("", None),
    ],
)
def test_cards_between_nodes_by_the_words_of_a_row(words: str, cards: str | None) -> None:
    """Number, kind and rate; nothing where kind or rate is not told."""
    assert systems.stated_cards(words) == cards


def test_cards_that_the_catalog_does_not_have_are_those_of_the_row() -> None:
    """Servers of cards over PCIe are single nodes in the catalog; two of them are joined by what their row tells."""
    joined = systems.topology_of("NVIDIA A40", 2, 4, "1x ConnectX-6 IB HDR 200Gb/Sec").nodes[0].links.scale_out
    assert joined is not None
    assert (joined.kind, joined.count, joined.bandwidth) == ("infiniband", 1, 25e9)
    with pytest.raises(systems.UnknownSystemError, match="does not tell their kind and rate"):
        systems.topology_of("NVIDIA A40", 2, 4, "Ethernet")


def test_systems_are_those_of_the_catalog() -> None:
    """By the names of its accelerators, whatever the number of nodes; others are refused with what is missing."""
    cluster = systems.topology_of("AMD Instinct MI300X 192GB", 3, 8)
    assert (cluster.nodes[0].accelerators.device, cluster.world_size) == ("MI300X-192GB", 24)
    assert systems.topology_of("NVIDIA GB300", 4, 4).nodes[0].domain_ranks >= 16
    with pytest.raises(systems.UnknownSystemError, match="TPU v5: no such accelerator is known"):
        systems.topology_of("TPU v5", 1, 4)


@pytest.mark.parametrize(
    ("words", "cards"),
    [
        ("8x 200GbE RoCE", (8, 200, "roce")),
        ("4x ConnectX-7 IB NDR 400Gb/s", (4, 400, "infiniband")),
        ("8x 200Gb/s", (8, 200, "infiniband")),
        ("8x ConnectX-6", (8, 200, "infiniband")),
        ("4x ConnectX-8 RoCE", (4, 800, "roce")),
        ("0.2Tb/s", (8, 200, "infiniband")),
        ("2x200 Gb/s", (2, 200, "infiniband")),
        ("8 x 25 GB/s RoCE", (8, 200, "roce")),
        ("InfiniBand HDR", (8, 200, "infiniband")),
        ("32x EFA 100Gb/s", (32, 100, "efa")),
        ("InfiniBand", (8, 400, "infiniband")),
        ("", (8, 400, "infiniband")),
    ],
)
def test_cards_that_a_row_states_are_those_it_is_predicted_with(words: str, cards: tuple[int, int, str]) -> None:
    """Those of the catalog in what it does not state."""
    network = systems.network_of("NVIDIA H100-SXM5-80GB", 3, 8, words)
    found = systems.topology_of("NVIDIA H100-SXM5-80GB", 3, 8, network).nodes[0].links.scale_out
    assert found is not None
    assert (found.count, round(found.bandwidth * 8e-9), found.kind) == cards


def test_systems_that_are_left_out_are_part_of_what_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A table of them with fits, in text and JSON; none without fits, or without MLPerf's rows."""
    (tmp_path / "measured").mkdir()
    (tmp_path / "measured" / "mlperf_dlrm_dcnv2_v90.csv").write_text(NEW_ROWS)
    assert printed(tmp_path, monkeypatch, capsys)[0]["new_systems"] == []
    for words in ([], ["--json"]):
        monkeypatch.setattr(sys, "argv", ["accuracy", str(tmp_path), *words])
        assert main() == 0
        shown = capsys.readouterr().out
        if words:
            assert {each["part"] for each in json.loads(shown)["new_systems"]} >= {"combination", "ranks"}
        else:
            assert "| what is new | groups |" in shown


def test_damaged_rows_and_rows_of_other_devices_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By themselves, with the reason, and no other row is predicted differently: not as if of the device whose
    coefficients a data set has. A file without a header is a missing one."""
    names = ("nccl_collectives", "embedding_kernels", "fbgemm_b200_tbe", "torchrec_host_steps")
    files = {name: (FACTS / "measured" / f"{name}.csv").read_text().splitlines() for name in names}
    files["nccl_collectives"] = files["nccl_collectives"][:20]
    (tmp_path / "measured").mkdir()

    def written(**changed: list[str]) -> tuple[dict[str, Any], str]:
        for name, lines in (files | changed).items():
            (tmp_path / "measured" / f"{name}.csv").write_text("\n".join(lines) + "\n")
        return printed(tmp_path, monkeypatch, capsys)

    whole, _ = written()
    kernel = next(line for line in files["embedding_kernels"] if "H100" in line and "hbm" in line)
    host = files["torchrec_host_steps"][1].split(",")
    found, said = written(
        nccl_collectives=[
            *files["nccl_collectives"],
            "a100_sxm,NVIDIA A100-SXM4-80GB,nccl,2,all_gather,half,2,512,fast",
        ],
        embedding_kernels=[*files["embedding_kernels"], kernel.replace("H100", "A100")],
        fbgemm_b200_tbe=[*files["fbgemm_b200_tbe"], files["fbgemm_b200_tbe"][1].replace(",device,", ",other,")],
        torchrec_host_steps=[*files["torchrec_host_steps"], ",".join([*host[:8], "-1", *host[9:]])],
        hkv_a100_ops=[],
    )
    assert found["rows"] == whole["rows"]
    assert "nccl: 1 row left out: t_us 'fast' is not a positive number" in said
    assert "tbe_h100: 1 row left out: gpu 'NVIDIA A100" in said
    assert "tbe_b200: 1 row left out: command 'other' is not known" in said
    assert "torchrec_host: 1 row left out: step_ms" in said
    assert "hkv: no header in" in said
