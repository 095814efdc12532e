"""`planner memory --course`: every moment of every rank, the peak in words, and what has no course."""

import csv
import io
import json

from planner.document.files import read_json
from planner.document.plan import Plan


def test_the_course_of_every_rank_in_three_formats(run, plan_file):
    """JSON and CSV agree; parts add up; the fullest moment is named, and takes no more than the plan counts."""
    records = json.loads(run("memory", plan_file, "--course", "--format", "json").stdout)
    rows = list(csv.DictReader(io.StringIO(run("memory", plan_file, "--course", "--format", "csv").stdout)))
    assert [{key: str(value) for key, value in record.items()} for record in records] == rows
    document = read_json(plan_file)
    world = len({record["rank"] for record in records})
    assert world == len(document["ranks"])
    for record in records:
        parts = [
            size for name, size in record.items() if name.endswith("_bytes") and name[:5] not in ("total", "count")
        ]
        assert abs(sum(parts) - record["total_bytes"]) <= len(parts)
        assert record["total_bytes"] <= record["counted_bytes"]
    peaks = [record for record in records if record["is_peak"]]
    assert [peak["rank"] for peak in peaks] == list(range(world))
    fullest = max(peaks, key=lambda peak: peak["total_bytes"])
    shown = " ".join(run("memory", plan_file, "--course").stdout.split())
    assert f"HBM is fullest on rank {fullest['rank']}," in shown
    assert f"'{fullest['moment']}'" in shown
    counted = [record["counted_bytes"] for record in records if record["is_peak"]]
    assert counted == [rank["bytes"]["hbm"] for rank in document["ranks"]]


def test_what_has_no_course_is_refused_by_its_reason(run, plan_file, starter, tmp_path):
    """Inputs without a plan; another planner's costs."""
    inputs = ["-t", starter / "topology.yaml", "-w", starter / "workload.yaml"]
    refused = run("memory", *inputs, "--course")
    assert refused.exit_code == 2
    assert "--course is of a plan document" in " ".join(refused.stderr.replace("│", " ").split())
    other = tmp_path / "other.json"
    assert (
        run("plan", *inputs, "--cost-model", "torchrec", "--effort", 0, "--gap", "50%", "-q", "-o", other).exit_code
        == 0
    )
    assert Plan.model_validate(read_json(other)).objective is not None
    refused = run("memory", other, "--course")
    assert refused.exit_code != 0
    assert "do not say what is in HBM when" in " ".join(refused.stderr.split())
