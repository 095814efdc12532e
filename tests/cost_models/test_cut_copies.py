"""What each stage takes of cutting copies and gathering them: by hand, and what holds for all of them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cost_models.cut_copies import CutShares, Span, cut_shares

SECONDS = st.floats(0, 10)


def step(out: Span, forward_s: float, backward_s: float, back: Span, wait_s: float, half_s: float) -> CutShares:
    """Exchanges, each after a second until its first byte, and the dense part between them."""
    out, back = (replace(span, beside_s=span.seconds - span.idle_s) for span in (out, back))
    forward = [Span(out.stage, 1.0, 1.0, is_constant=True), out, Span("dense", forward_s, forward_s)]
    backward = [Span("dense", backward_s, backward_s), Span(back.stage, 1.0, 1.0, is_constant=True), back]
    return cut_shares(forward, backward, wait_s, half_s)


def test_idle_time_that_is_enough_is_shared_alike() -> None:
    """Four seconds each, in two of each exchange, two of latencies and ten of the dense part."""
    found = step(Span("output_dist", 2.0, 2.0), 5.0, 5.0, Span("gradient_dist", 2.0, 2.0), 0.0, 4.0)
    assert found.of_stage == pytest.approx({"output_dist": 2 / 16, "dense": 12 / 16, "gradient_dist": 2 / 16})
    assert found.hidden_s == 2.0
    assert set(found.waiting_s.values()) == {0.0}


def test_exchanges_share_links_alike() -> None:
    """An exchange that needs them all the time lets as much pass beside it as it sends."""
    found = step(Span("output_dist", 2.0, 0.0), 9.0, 9.0, Span("gradient_dist", 2.0, 0.0), 1.0, 4.0)
    assert found.of_stage == pytest.approx({"output_dist": 2 / 8, "dense": 6 / 8, "gradient_dist": 0.0})


def test_first_bytes_are_waited_for_twice() -> None:
    """Three seconds each: those in which an exchange waits for its own are lost, the others are when links are idle."""
    found = step(Span("output_dist", 4.0, 0.0), 0.0, 0.0, Span("gradient_dist", 4.0, 0.0), 3.0, 100.0)
    assert found.hidden_s == 1.0
    assert found.waiting_s == pytest.approx({"output_dist": 1.5, "dense": 0.0, "gradient_dist": 1.5})
    assert found.of_stage["dense"] == pytest.approx(1 / 200)


def test_alone_all_of_it_shows_in_the_dense_part() -> None:
    """Of one rank a group, whose exchanges take nothing."""
    assert cut_shares([], [], 1.0, 3.0) == CutShares({"dense": 1.0}, 0.0, {"dense": 2.0})


@given(out=SECONDS, back=SECONDS, busy=st.floats(0, 1), dense=SECONDS, wait=SECONDS, half=SECONDS)
def test_shares_are_of_the_whole(out: float, back: float, busy: float, dense: float, wait: float, half: float) -> None:
    """None is below zero, they add up to 1, and no more time is won or lost than there is."""
    spans = Span("output_dist", out, out * (1 - busy)), Span("gradient_dist", back, back * (1 - busy))
    found = step(spans[0], dense, 2 * dense, spans[1], wait, half)
    assert min(found.of_stage.values()) >= 0
    assert sum(found.of_stage.values()) == pytest.approx(1.0)
    assert -1e-9 <= found.hidden_s <= 2
    assert -1e-9 <= found.hidden_s + sum(found.waiting_s.values()) <= 2 + 2 * wait
