"""Damaged data ends with an InputError that names the file, and with nothing else."""

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from planner.profiling import kinds
from planner.profiling.run import Settings, profile
from planner.profiling.sources.tables import TableSource
from topologies.errors import InputError

CSV = b"id,l,w\n" + b"".join(b"%d,%d|%d,x%d\n" % (k, k, k * 3, k % 5) for k in range(60))
QUERY = b"feature,statistic,value,count\na,reads,1,3\na,reads,2,1\na,length,1,5\na,least,0,1\na,largest,9,1\n"
CRITEO = b"".join(
    b"\t".join([b"1", *[b"3"] * 13, *(b"%08x" % (7 * k + c) for c in range(26))]) + b"\n" for k in range(30)
)


def columns() -> bytes:
    """A Parquet file of lists, words and single ids."""
    sink = pa.BufferOutputStream()
    lists = {"f": [[1, 2], [3], [], None, [5] * 7] * 20, "s": [["a", "b"], [], ["c"], ["d"], None] * 20}
    parquet.write_table(pa.table(lists | {"u": list(range(100))}), sink)
    return sink.getvalue().to_pybytes()


SEEDS = {"x.parquet": columns(), "x.csv": CSV, "q.csv": QUERY, "c.tsv": CRITEO}
EDITS = st.lists(
    st.tuples(st.integers(0, 10**6), st.sampled_from("scid"), st.binary(min_size=1, max_size=5)), max_size=6
)


def damaged(content: bytes, edits: list[tuple[int, str, bytes]]) -> bytes:
    """Bytes set, cut off, inserted or doubled at some places."""
    for place, how, some in edits:
        at = place % (len(content) + 1)
        after = {"s": content[at + len(some) :], "c": b"", "i": content[at:], "d": content[max(at - 20, 0) :]}[how]
        content = content[:at] + (b"" if how in "cd" else some) + after
    return content


@pytest.mark.parametrize("name", list(SEEDS))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edits=EDITS)
def test_damaged_files(tmp_path: Path, name: str, edits: list[tuple[int, str, bytes]]) -> None:
    path = tmp_path / name
    path.write_bytes(damaged(SEEDS[name], edits))
    try:
        kind = kinds.kind_of([path])
        if kind in kinds.COUNTED:
            kinds.counted([path], kind)
            return
        source = kinds.opened(
            [path], kind, ("l", "w") if name == "x.csv" else None, (), "|" if name == "x.csv" else None
        )
        tables = TableSource(source, {feature: (feature,) for feature in source.features})
        for table in profile(tables, {}, Settings(batch=20, workers=1, memory_bytes=1 << 20)) or []:
            table.record()
    except InputError as error:
        assert all(name in fault.source for fault in error.faults)  # noqa: PT017 - most damage is read all the same
