"""What `planner plan` says of deduplication."""

import io

from rich.console import Console

from planner import plan
from planner.reports import plan_summary
from tests.oracles.instances import node_group, topology, workload


def said(factor: float) -> str:
    tables = [{"rows": 500_000, "dim": 64, "pooling_factor": 40, "dedup_factor": factor}]
    console = Console(width=200, record=True, quiet=False, file=io.StringIO())
    plan_summary.render(plan(topology(node_group("a", ranks=4)), workload(tables)), console)
    return console.export_text()


def test_the_summary_says_what_it_saves() -> None:
    """A share of lookups, vectors and the step; not a word where nothing repeats."""
    assert "Deduplication saves 75% of the lookups and ids, 0% of the vectors and" in said(4.0)
    assert "Deduplication" not in said(1.0)
