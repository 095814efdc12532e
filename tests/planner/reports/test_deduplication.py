"""What `planner plan` says of deduplication."""

import io

from rich.console import Console

from planner import plan
from planner.reports import plan_summary
from tests.oracles.instances import node_group, topology, workload


def said(factor: float = 1.0, ingestion: dict[str, object] | None = None, **fields: float) -> str:
    tables = [{"rows": 500_000, "dim": 64, "pooling_factor": 40, "dedup_factor": factor, **fields}]
    model = workload(tables, ingestion=ingestion) if ingestion else workload(tables)
    console = Console(width=400, record=True, quiet=False, file=io.StringIO())
    plan_summary.render(plan(topology(node_group("a", ranks=4)), model), console)
    return console.export_text()


def test_the_summary_says_what_it_saves() -> None:
    """A share of lookups, vectors and the step; not a word where nothing repeats."""
    assert "Deduplication saves 75% of the lookups and ids, 0% of the vectors and" in said(4.0)
    assert "Deduplication" not in said(1.0)


def test_the_summary_says_what_samples_need_on_their_way() -> None:
    """Bandwidth, reader nodes, and whether there are enough; nothing of a workload without storage and readers."""
    text = said(ingestion={"stored_bytes_per_sample": "1kB", "reader_samples_per_s": 1000, "readers": 1})
    assert " to the ranks (" in text
    assert "from storage, " in text
    assert "The readers that there are give 1,000 a second: they limit training" in text
    assert "Samples come at" not in said()


def test_more_deduplication_than_distinct_ids_allow_is_told() -> None:
    """What acts is said beside what was asked for."""
    assert "deduplication of t0 acts as 10, not 16: unique_fraction says" in said(16.0, unique_fraction=0.1)
    assert "acts as" not in said(10.0, unique_fraction=0.1)
