"""Neo's models on 128 A100: throughputs as published, and what the tables of the docs hold."""

import pytest

from benchmarks.accuracy import mad_max
from benchmarks.accuracy.judges import estimated, simulated
from benchmarks.neo import PARTS, PUBLISHED, Row, ShardingRow, by_shardings, markdown, sharding_table
from cost_models.workload import load_workload


@pytest.mark.parametrize(("name", "within"), [("model-a-fitted", 0.1), ("model-i", 0.05)])
def test_throughput_is_the_published_one(name: str, within: float) -> None:
    """Whole tables dealt evenly: 1.2 and 3.4 million samples a second; the simulator within 5 % of both."""
    samples, (step_s, _) = load_workload(name).batch(128), mad_max.step(estimated, name)
    assert samples / step_s == pytest.approx(PUBLISHED[name].samples_per_s, rel=within)
    played_s = mad_max.step(simulated, name)[0]
    assert played_s == pytest.approx(step_s, rel=0.05)
    assert samples / played_s == pytest.approx(PUBLISHED[name].samples_per_s, rel=0.05)


def test_what_was_not_published_is_not_shown() -> None:
    """A dash for the exposed share, no brackets behind a part."""
    text = markdown([Row("m", 1e6, 2e6, 3e6, {}, dict.fromkeys(PARTS, 1.0), None, 50.0, 10.0)])
    assert "| `m` | 1.00 M/s | 2.00 M/s | 3.00 M/s | 50 % (–) | 10 % |" in text
    assert "| `m` | 1.0 | 1.0 | 1.0 | 1.0 |" in text


def test_a_plan_of_neos_shardings_has_its_throughput() -> None:
    """Within 5 %, simulated; a plan of all shardings is faster."""
    model = "model-a-fitted"
    rate = {row.held: row.simulated_samples_per_s for row in by_shardings([model])}
    assert rate["Neo's four, planned"] == pytest.approx(PUBLISHED[model].samples_per_s, rel=0.05)
    assert rate["all, planned"] > rate["Neo's four, planned"]


def test_plans_are_shown_with_their_differences() -> None:
    """From what was published."""
    text = sharding_table([ShardingRow("m", "some", 1e6, 1.1e6, 0.95e6, 12.0)])
    assert "| `m` | some | 1.00 M/s | 1.10 M/s (+10.0%) | 0.95 M/s (-5.0%) | 12 % |" in text
