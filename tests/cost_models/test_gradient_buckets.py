"""Gradients of a replicated dense part are summed bucket by bucket, beside the backward pass that fills them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cost_models.dense_size import DenseSize
from cost_models.gradient_buckets import Backward, holding_up
from tests.oracles.instances import workload

PARAMETERS = st.integers(0, 10**9)
SECONDS = st.floats(0.0, 1.0)


@given(st.tuples(PARAMETERS, PARAMETERS), st.integers(0, 10**6), st.tuples(SECONDS, SECONDS, SECONDS), SECONDS)
def test_sums_end_as_if_every_bucket_were_played(
    parameters: tuple[int, int], others: int, seconds: tuple[float, float, float], sums_s: float
) -> None:
    """One after the other, each when it is full and the one before is summed: the four that are looked at tell when the
    last of all ends, to the rounding. Layers without parameters fill none."""
    latency_s, whole = 0.003, sum(parameters) + others
    begun_s, *backward_s = seconds
    parts = [Backward(DenseSize(parameters=n), s) for n, s in zip(parameters, backward_s, strict=True)]
    told = holding_up(workload([{"rows": 10, "dim": 8}]), begun_s, parts[0], parts[1], others)
    filled_s, ended_s, left = begun_s, 0.0, 1.0
    for number, part in enumerate(parts):
        count = min(-(-part.size.parameters * 4 // 25_000_000), 16) or int(number == 1 and others > 0)
        share = part.size.parameters / whole if whole else 0.0
        filled_s += part.seconds if count == 0 else 0.0
        for each in range(count):
            filled_s += part.seconds / count
            left -= share / count
            is_last = number == 1 and each == count - 1
            own = share / count + (left if is_last else 0.0)
            ended_s = max(filled_s, ended_s) + latency_s + own * sums_s
    found = max(float(bucket.sums_begin_s(sums_s, latency_s)) for bucket in told) + sums_s * (whole > 0)
    assert found == pytest.approx(ended_s, abs=1e-9)
