"""Logs, traces and tables become rows; what cannot be read is said with its place."""

import gzip
import json
from pathlib import Path

import pytest

from cost_models.calibration import kineto, nccl_tests, tables
from topologies.errors import InputError

LOG = """# nThread 1 nGpus 2 minBytes 1024 maxBytes 4096 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1
# Using devices
#  Rank  0 Group  0 Pid   4242 on   node1 device  0 [0x07] NVIDIA A100-SXM4-40GB
#  Rank  1 Group  0 Pid   4242 on   node1 device  1 [0x0f] NVIDIA A100-SXM4-40GB
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
        1024           256     float     sum      -1    12.50    0.08    0.08      0    12.31    0.08    0.08      0
        4096          1024     float     sum      -1    13.75    0.30    0.30      0    13.02    0.31    0.31    N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 0.19
"""


def test_a_log_of_nccl_tests(tmp_path: Path) -> None:
    """Out-of-place times; the operation from the file's name, the ranks from the head."""
    path = tmp_path / "all_reduce_perf.log"
    path.write_text(LOG)
    rows = nccl_tests.read_logs([path])
    assert rows.to_dict("list") == {
        "operation": ["all_reduce"] * 2,
        "ranks": [2, 2],
        "buffer_bytes": [1024.0, 4096.0],
        "seconds": [pytest.approx(12.5e-6), pytest.approx(13.75e-6)],
    }


def test_the_command_line_in_a_log_says_the_operation(tmp_path: Path) -> None:
    """Whatever the file is called."""
    path = tmp_path / "run.txt"
    path.write_text("$ ./build/alltoall_perf -b 1K -e 4K -g 2\n" + LOG)
    assert set(nccl_tests.read_logs([path]).operation) == {"all_to_all"}


def test_every_unusable_log_is_named(tmp_path: Path) -> None:
    """One without a table, one without a name, one without ranks: all at once."""
    (tmp_path / "all_gather_perf.log").write_text("segmentation fault\n")
    (tmp_path / "run.txt").write_text(LOG)
    (tmp_path / "all_reduce_perf.log").write_text(LOG.replace("Rank", "rank"))
    with pytest.raises(InputError) as raised:
        nccl_tests.read_logs(sorted(tmp_path.iterdir()))
    assert len(raised.value.faults) == 3
    assert "keep the head of the log" in str(raised.value)


def event(name: str, seconds: float, **arguments: object) -> dict[str, object]:
    return {"ph": "X", "cat": "kernel", "name": name, "dur": seconds * 1e6, "args": arguments}


def test_collectives_of_a_trace(tmp_path: Path) -> None:
    """By operation and size, the fastest of each: the others waited for a rank."""
    record = {"Collective name": "all_to_allv", "In msg nelems": 512, "Out msg nelems": 1024, "Group size": 8}
    events = [event("ncclDevKernel_SendRecv", s, **record, dtype="Half") for s in (3e-4, 1e-4, 2e-4)]
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": [*events, event("sgemm", 1e-3)]}).encode()))
    (row,) = kineto.collectives(path).to_dict("records")
    assert row == {"operation": "all_to_all", "ranks": 8, "buffer_bytes": 2048.0, "seconds": pytest.approx(1e-4)}


def test_embedding_kernels_of_a_trace(tmp_path: Path) -> None:
    """With the shapes of the operator that launched them."""
    operator = {"ph": "X", "cat": "cpu_op", "name": "fbgemm", "args": {"External id": 7, "Input Dims": [[100, 64]]}}
    kernel = event("split_embedding_backward_codegen_sgd", 5e-5, **{"External id": 7})
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": [operator, kernel, event("sgemm", 1e-3)]}))
    (row,) = kineto.embedding_kernels(path).to_dict("records")
    assert row["is_backward"]
    assert row["input_dims"] == [[100, 64]]
    assert row["seconds"] == pytest.approx(5e-5)


def test_a_file_that_is_no_trace(tmp_path: Path) -> None:
    """Said with what to do."""
    (tmp_path / "trace.json").write_text("[]")
    with pytest.raises(InputError, match=r"torch\.profiler"):
        kineto.collectives(tmp_path / "trace.json")


def test_a_table_of_measurements(tmp_path: Path) -> None:
    """Every bad cell with its line."""
    good = "operation,ranks,buffer_bytes,seconds\nall_to_all,8,1024,1e-5\n"
    (tmp_path / "good.csv").write_text(good)
    assert len(tables.read_csv(tmp_path / "good.csv")) == 1
    (tmp_path / "bad.csv").write_text(good + "alltoall,1,1024,-1\n")
    with pytest.raises(InputError) as raised:
        tables.read_csv(tmp_path / "bad.csv")
    assert [(fault.line, fault.path) for fault in raised.value.faults] == [
        (3, "operation"),
        (3, "ranks"),
        (3, "seconds"),
    ]


def tbe_trace(path: Path, *, with_widths: bool) -> Path:
    """Two launches of an operator over 122 tables of 64 columns, 8,192 samples; one of no ids."""
    events: list[dict[str, object]] = []
    for number, (ids, seconds) in enumerate([(15_781_672, 2.542e-3), (15_854_608, 2.535e-3), (0, 3e-5)]):
        dims = [[1], [7_487_072], [0], [0], [122], [122], [123], [], [], [123], [], [ids], [122 * 8192 + 1], []]
        concrete = ["", "", "", "", "", "", "", str(122 * 64), "64", "", "40", "", "", "0"]
        arguments = {"External id": number, "Input Dims": dims}
        if with_widths:
            arguments["Concrete Inputs"] = concrete
        events.append({"cat": "cpu_op", "name": "fbgemm::split_embedding_codegen_lookup", "args": arguments})
        kernel = "split_embedding_codegen_forward_unweighted_kernel"
        events.append(event(kernel, seconds, **{"External id": number}))
    path.write_text(json.dumps({"traceEvents": events}))
    return path


def test_lookups_of_a_trace(tmp_path: Path) -> None:
    """Ids, mean width and ids per bag of each forward kernel that read something."""
    rows = kineto.lookups(tbe_trace(tmp_path / "trace.json", with_widths=True))
    assert rows.operation.tolist() == ["lookup", "lookup"]
    assert rows.lookups.tolist() == [15_781_672, 15_854_608]
    assert rows.dim.tolist() == [64, 64]
    assert rows.pooling.tolist() == pytest.approx([15_781_672 / (122 * 8192), 15_854_608 / (122 * 8192)])
    assert rows.seconds.tolist() == pytest.approx([2.542e-3, 2.535e-3])


def test_lookups_without_widths_are_refused_with_the_reason(tmp_path: Path) -> None:
    """Older profilers do not record scalars: no rate in bytes follows."""
    with pytest.raises(InputError, match=r"3 lookups, but not the widths of their rows.*PyTorch 2\.1"):
        kineto.lookups(tbe_trace(tmp_path / "trace.json", with_widths=False))
    (tmp_path / "none.json").write_text(json.dumps({"traceEvents": [event("sgemm", 1e-3)]}))
    with pytest.raises(InputError, match="no forward kernel of an embedding"):
        kineto.lookups(tmp_path / "none.json")
