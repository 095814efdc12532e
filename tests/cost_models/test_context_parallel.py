"""Context parallelism: pairs and bytes counted token by token, the paper's thresholds, and its measured orders."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cost_models.context_parallel import (
    Passed,
    RingAttention,
    RingRates,
    causal_chunks,
    fastest,
    forward_seconds,
    kv_share_threshold,
    published_choice,
    tokens_that_hide_kv,
    tokens_that_hide_queries,
    training_seconds,
)

LLAMA_405B = {"heads": 128, "kv_heads": 8, "head_dim": 128}
RATES = [RingRates(8 * flops, 8 * size) for flops in (400e12, 550e12, 800e12) for size in (25e9, 50e9)]
"""Of a node of 8 H100, a rank of the ring: the paper does not publish all of its settings, so that the orders have to
hold from half of its peak to all of it, and of 400 Gb/s a GPU."""


def test_eight_of_128_heads_make_a_threshold_of_an_eighth() -> None:
    """12.5 % of new tokens, as published."""
    assert kv_share_threshold(128, 8) == 0.125
    for new in (124, 125, 126):
        ring = RingAttention(4, new, **LLAMA_405B, cached_tokens=1000 - new)
        assert (ring.kv_message_bytes <= ring.query_message_bytes) == (new >= 125)


@pytest.mark.parametrize(
    ("cached", "new", "faster"),
    [(126_720, 1_280, "queries"), (115_200, 12_800, "keys_and_values")],
)
def test_the_published_orders_are_right(cached: int, new: int, faster: Passed) -> None:
    """On four nodes: 898.7 ms against 1,023.4 with 1 % of new tokens, 2,080.7 against 2,205.3 with 10 %."""
    ring = RingAttention(4, new, **LLAMA_405B, cached_tokens=cached)
    for rates in RATES:
        assert published_choice(ring, rates) == faster
        assert fastest(ring, rates) == faster


@given(st.integers(2, 16), st.sampled_from([1, 2, 8, 16]), st.sampled_from([1.0, 2.0]), st.floats(10, 1e5))
def test_at_the_thresholds_messages_and_attention_take_as_long(
    ranks: int, kv_heads: int, element_bytes: float, flops_per_byte: float
) -> None:
    """Without a mask: from so many tokens on, and not before, steps are as long as their attention."""
    rates = RingRates(flops_per_byte * 1e9, 1e9)
    base = RingAttention(ranks, 1.0, 16, kv_heads, 64, 1e6, element_bytes, is_causal=False)
    new = tokens_that_hide_kv(base, rates)
    ring = RingAttention(ranks, new, 16, kv_heads, 64, 1e6, element_bytes, is_causal=False)
    assert ring.step_flops / rates.flops_per_s == pytest.approx(rates.sending_s(ring.kv_message_bytes))
    every = tokens_that_hide_queries(base, rates)
    ring = RingAttention(ranks, every / 4, 16, kv_heads, 64, every * 3 / 4, element_bytes, is_causal=False)
    assert ring.step_flops / rates.flops_per_s == pytest.approx(rates.sending_s(ring.query_message_bytes))


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_mirrored_chunks_balance_a_causal_mask(ranks: int) -> None:
    """Pairs counted one by one: as many on each rank in each step as the formula says, but for the diagonal."""
    chunk, chunks = 6, causal_chunks(ranks)
    assert sorted(itertools.chain(*chunks)) == list(range(2 * ranks))
    tokens = [[c * chunk + place for c in own for place in range(chunk)] for own in chunks]
    ring = RingAttention(ranks, 2 * ranks * chunk, 1, 1, 1)
    for queries, keys in itertools.product(range(ranks), repeat=2):
        pairs = sum((key < query) + (key == query) / 2 for query in tokens[queries] for key in tokens[keys])
        assert ring.step_flops == 4 * pairs


def test_seconds_by_hand() -> None:
    """Two ranks with 10 new and 30 cached tokens, 4 heads of 8 numbers and 2 key-value heads in 2 bytes."""
    ring = RingAttention(2, 10, 4, 2, 8, cached_tokens=30, is_causal=False)
    attention = 4 * 5 * 20 * 4 * 8
    kv, queries, home = 2 * 20 * 2 * 8 * 2, 5 * 4 * 8 * 2, 5 * 4 * (8 * 2 + 4)
    slow = RingRates(flops_per_s=1e9, bytes_per_s=1.0, message_s=0.5)
    assert forward_seconds(ring, slow, "keys_and_values") == pytest.approx(kv + 0.5 + attention / 1e9)
    assert forward_seconds(ring, slow, "queries") == pytest.approx(queries + 0.5 + attention / 1e9 + home + 0.5)
    fast = RingRates(flops_per_s=1.0, bytes_per_s=1e12)
    assert forward_seconds(ring, fast, "keys_and_values") == pytest.approx(2 * attention)
    assert training_seconds(ring, fast) == pytest.approx(2 * attention * (1 + 2.5))
    backward = kv + 2 * kv + 0.5 + 2 * kv + 0.5
    assert training_seconds(ring, slow) == pytest.approx(kv + 0.5 + backward + 3.5 * attention / 1e9)


@given(st.sampled_from(["keys_and_values", "queries"]), st.booleans())
def test_a_ring_of_one_sends_nothing(passed: Passed, causal: bool) -> None:
    """It takes its attention, however slow its links."""
    ring = RingAttention(1, 100, **LLAMA_405B, is_causal=causal)
    pairs = 100 * 100 / (2 if causal else 1)
    assert forward_seconds(ring, RingRates(1e12, 1.0, 1.0), passed) == pytest.approx(4 * pairs * 128 * 128 / 1e12)


def test_rings_that_are_none_are_refused() -> None:
    """Key-value heads that do not divide the heads, and nothing to do."""
    with pytest.raises(ValueError, match="3 key-value heads do not divide the 8"):
        RingAttention(2, 10, 8, 3, 8)
    with pytest.raises(ValueError, match="a ring needs ranks"):
        RingAttention(0, 10, 8, 8, 8)
