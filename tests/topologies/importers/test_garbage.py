"""Whatever a file holds, an import ends with a topology or with an InputError that has a place."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.topologies.importers.dumps import (
    ASTRA,
    HGX,
    HWLOC,
    INFRAGRAPH,
    NCCL,
    ROCM,
    SLURM_TREE,
    SLURM_YAML,
    TOPOGRAPH,
    fabric,
    query,
)
from topologies.errors import Fault, InputError
from topologies.importers.hostlists import expand, fold
from topologies.importers.imported import imported
from topologies.importers.kinds import FORMATS

GOOD = {
    "nvidia-smi": HGX + query("NVIDIA H200", 143771, 8),
    "rocm-smi": ROCM,
    "nccl": NCCL,
    "hwloc": HWLOC,
    "slurm": SLURM_TREE,
    "slurm-yaml": SLURM_YAML,
    "topograph": TOPOGRAPH,
    "ibnetdiscover": fabric(pods=2, hosts=2, rails=2, uplinks=1),
    "infragraph": INFRAGRAPH,
    "astra-sim": ASTRA,
}
BAD = {
    "nvidia-smi": [
        (HGX.replace("\nGPU7\t", "\nGPUX\t"), "rows of GPU7 are missing"),
        (HGX.replace("GPU7", "GPUX"), "must name every accelerator once"),
        (HGX.replace("NV18", "NVX", 1), "is no relation"),
        (query("NVIDIA H200", 143771, 2) + "NVIDIA A100-SXM4-40GB, 40960 MiB\n", "must be alike"),
        ("name, memory.total [MiB]\n", "names no accelerator"),
        (HGX + query("NVIDIA H200", 143771, 4), "has 8 accelerators"),
    ],
    "rocm-smi": [
        (ROCM.replace("GPU1   XGMI         0", ""), "1 of 2 rows"),
        (ROCM.replace("XGMI         0", "QPI 0"), "is no row"),
        (ROCM + "GPU[1]\t\t: Card Series: \t\tAMD Instinct MI300X\n", "must be alike"),
    ],
    "nccl": [
        (NCCL[:700], "is not valid XML"),
        (NCCL + NCCL, "goes on behind the end of a document"),
        ("<system version='1'></system>", "holds no <cpu>"),
        (NCCL.replace('count="12"', 'count="many"'), "must be a whole number"),
        ('<!DOCTYPE s [<!ENTITY a "b">]>\n<system><cpu>&a;</cpu></system>', "declares entities"),
        (NCCL.replace('device="0x20b0"', 'device="0x2330"', 1), "must be alike"),
    ],
    "hwloc": [
        (HWLOC[:900], "is not valid XML"),
        (HWLOC.replace('"Machine"', '"Misc"'), "no object of type Machine"),
        (HWLOC.replace('local_memory="549755813888"', 'local_memory="lots"'), "must be a number of bytes"),
    ],
    "slurm": [
        ("SwitchName=a Switches=b\nSwitchName=b Switches=a\n", "below itself"),
        ("SwitchName=a Switches=b\n", "which no line describes"),
        ("SwitchName=a Nodes=node[3-1]\n", "runs backwards"),
        ("SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2\n", "stands twice"),
        ("SwitchName=a Nods=n1\n", "did you mean 'nodes'"),
        ("BlockName=a Nodes=n[1-99999999]\n", "stands for more than"),
        ("BlockName=a Nodes=n1\nBlockName=b Nodes=n1\n", "is in block 'a', too"),
    ],
    "slurm-yaml": [
        ("- topology: a\n  flat: true\n", "has a tree or block"),
        ("- topology: a\n  tree:\n    switches: 7\n", "must be a list"),
        ("- topology: a\n  block:\n    blocks:\n    - {block: b1}\n", "nothing below it"),
    ],
    "topograph": [
        ("switches: {a: {switches: [b]}, b: {switches: [a]}}\nblocks: []\n", "below itself"),
        ("switches: {}\nblocks:\n  - {switch: a}\n", "must be a block with nodes"),
        ("switches: {}\nblocks:\n  - {switch: a, nodes: ['n[1-']}\n", "does not belong there"),
    ],
    "ibnetdiscover": [
        ('Switch\t64 "S-1"\t\t# "leaf" base port 0\n[1]\tH-1\n', "is no port"),
        ('Switch\t64 "S-1"\t\t# "leaf" base port 0\n', "no named host"),
        (fabric(pods=2, hosts=2, rails=1, uplinks=0), "joined by no switch"),
    ],
    "infragraph": [
        ("devices:\n  - {name: a, components: [{name: port, choice: port, count: 2}]}\n", "nothing to plan for"),
        (INFRAGRAPH.replace("scheme: many2many", "scheme: all"), "must be one2one or many2many"),
        (INFRAGRAPH.replace("count: 4, desc", "count: four, desc"), "must be a whole number"),
    ],
    "astra-sim": [
        (ASTRA.replace("Switch ]", "Torus ]"), "is no topology"),
        (ASTRA.replace("[ 8, 4, 2 ]", "[ 8, 4 ]"), "every dimension"),
        (ASTRA.replace("[ 400.0,", "[ fast,"), "must be a number above 0"),
        (ASTRA.replace("latency", "# latency"), "latency: is missing"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "text", "said"), [(kind, text, said) for kind, each in BAD.items() for text, said in each]
)
def test_a_bad_file_is_refused_with_its_line(import_, tmp_path, kind, text, said):
    """By line, with what is wrong."""
    with pytest.raises(InputError) as refused:
        import_(text, like="dgx-h100", forced={tmp_path / "0.txt": kind})
    assert said in str(refused.value)
    assert all(fault.line > 0 and fault.source.endswith("0.txt") for fault in refused.value.faults)


@pytest.mark.parametrize("kind", GOOD)
def test_every_format_is_recognised(import_, kind):
    """By its content alone."""
    assert set(GOOD) == set(FORMATS)
    assert import_(GOOD[kind], like="gb200-nvl72").topology.world_size > 1


def outcome(path: Path, text: str, kind: str | None) -> None:
    path.write_text(text, encoding="utf-8", newline="")
    faults: tuple[Fault, ...] = ()
    try:
        found = imported([path], "c", like="dgx-h100", forced={path: kind} if kind else None)
        assert found.topology.world_size > 0
    except InputError as error:
        faults = error.faults
    assert all(fault.line > 0 for fault in faults if fault.source == str(path))


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("garbage") / "dump"


WORDS = (
    'GPU0 NV4 X SYS NIC0 SwitchName= Switches= Nodes= a[1-3] [ ] < > <system> <cpu> </cpu> <object type="Machine"> '
    'Switch 64 "S-1" # "n mlx5_0" : - { } topology: npus_count: 8 -1 1e99 null devices: components: edges: &a *a '
    "switches: blocks: nodes: \n \n  \t , . 0 99999999999999999999"
)
words = st.sampled_from(WORDS.split(" "))
texts = st.one_of(st.text(st.characters(exclude_categories=["Cs"])), st.lists(words, max_size=40).map(" ".join))
quick = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))


@quick
@given(text=texts, kind=st.sampled_from([None, *GOOD]))
def test_garbage_is_refused(path, text, kind):
    """Text of any kind, as any format."""
    outcome(path, text, kind)


@settings(quick, max_examples=200)
@given(data=st.data(), kind=st.sampled_from(list(GOOD)))
def test_damaged_files_are_read_or_refused(path, data, kind):
    """Lines lost, doubled or moved, words replaced by others of the file or by nonsense."""
    lines = GOOD[kind].splitlines()
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(lines) - 1))
        how = data.draw(st.integers(0, 4))
        if how == 0 and len(lines) > 1:
            del lines[at]
        elif how == 1:
            lines.insert(at, lines[data.draw(st.integers(0, len(lines) - 1))])
        elif how == 2:
            lines[at] = lines[at][: data.draw(st.integers(0, len(lines[at])))]
        else:
            parts = lines[at].split()
            if parts:
                new = data.draw(st.one_of(words, st.sampled_from(GOOD[kind].split())))
                lines[at] = lines[at].replace(data.draw(st.sampled_from(parts)), new, 1)
    outcome(path, "\n".join(lines), data.draw(st.sampled_from([None, kind])))


@quick
@given(st.lists(st.tuples(st.sampled_from(["n", "rack-", "a1b"]), st.integers(0, 120)), min_size=1, max_size=30))
@example([("n", 1), ("n", 2)])
def test_host_lists_fold_and_expand(hosts):
    """Folding loses nothing."""
    names = [f"{head}{number:03d}" for head, number in hosts]
    assert expand(fold(names)) == names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("node[001-003,20]", ["node001", "node002", "node003", "node20"]),
        ("a[1-2]b[3-4]", ["a1b3", "a1b4", "a2b3", "a2b4"]),
        ("x,y[08-10]", ["x", "y08", "y09", "y10"]),
        ("[1101-1102]", ["1101", "1102"]),
        ("10.0.0.1,10.0.0.2", ["10.0.0.1", "10.0.0.2"]),
    ],
)
def test_host_lists_of_slurm(text, names):
    """Ranges keep their zeros; several brackets multiply."""
    assert expand(text) == names


def test_entities_do_not_grow(import_):
    """A file of a few hundred bytes does not become gigabytes."""
    bomb = '<!DOCTYPE s [<!ENTITY a "aaaaaaaaaa">' + "".join(
        f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    )
    with pytest.raises(InputError, match="declares entities"):
        import_(f"{bomb}]>\n<system><cpu>&i;</cpu></system>")


def test_bytes_that_are_no_text(tmp_path):
    """Are refused with the line."""
    (tmp_path / "x").write_bytes(b"GPU0\n\xff\xfe")
    with pytest.raises(InputError, match=r"x:2:1: is not UTF-8"):
        imported([tmp_path / "x"], "c")
