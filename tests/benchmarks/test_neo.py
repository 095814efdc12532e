"""Neo's models on 128 A100: throughputs as published, and what the tables of the docs hold."""

import pytest

from benchmarks.accuracy import mad_max
from benchmarks.accuracy.judges import estimated, simulated
from benchmarks.neo import PARTS, PUBLISHED, Row, markdown
from cost_models.workload import load_workload


@pytest.mark.parametrize(("name", "within"), [("model-a-fitted", 0.1), ("model-i", 0.04)])
def test_throughput_is_the_published_one(name: str, within: float) -> None:
    """Whole tables dealt evenly: 1.2 and 3.4 million samples a second; the simulator within 5 % of the estimate."""
    samples, (step_s, _) = load_workload(name).batch(128), mad_max.step(estimated, name)
    assert samples / step_s == pytest.approx(PUBLISHED[name].samples_per_s, rel=within)
    assert mad_max.step(simulated, name)[0] == pytest.approx(step_s, rel=0.05)


def test_what_was_not_published_is_not_shown() -> None:
    """A dash for the exposed share, no brackets behind a part."""
    text = markdown([Row("m", 1e6, 2e6, 3e6, {}, dict.fromkeys(PARTS, 1.0), None, 50.0, 10.0)])
    assert "| `m` | 1.00 M/s | 2.00 M/s | 3.00 M/s | 50 % (–) | 10 % |" in text
    assert "| `m` | 1.0 | 1.0 | 1.0 | 1.0 |" in text
