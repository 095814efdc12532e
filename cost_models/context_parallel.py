"""Context parallelism: attention whose tokens are cut over a ring of ranks, which pass on keys and values, or queries.

Each of N ranks has a part of the T new tokens and of the P cached ones. In N steps a rank meets every other one's keys
and values: these come around the ring, or its queries go around, and what was computed of them is sent home at the
end. (Yang et al., "Context Parallelism for Scalable Million-Token Inference", arXiv:2411.01783.)
"""

from dataclasses import dataclass
from typing import Literal, get_args

Passed = Literal["keys_and_values", "queries"]
FLOPS_PER_PAIR = 4
"""Of a number of a head, for each pair of a query and a key: scores and their weighted values, 2 FLOPs each."""
BACKWARD_OVER_FORWARD = 2.5
"""Matrix products of the backward pass over those of the forward pass: 5 and 2 (FlashAttention-2, arXiv:2307.08691)."""
NORMALIZER_BYTES = 4
"""Of the fp32 sum of exponentials that goes home with each partial output of a head."""


@dataclass(frozen=True)
class RingAttention:
    """Attention of one sequence over a ring."""

    ranks: int
    new_tokens: float
    heads: int
    kv_heads: int
    head_dim: int
    cached_tokens: float = 0.0
    element_bytes: float = 2.0
    is_causal: bool = True
    """Whether a new token sees only those before it: half of the pairs of new tokens. Chunks are dealt so that all
    ranks, in all steps, have as many; see `causal_chunks`."""

    def __post_init__(self) -> None:
        if min(self.ranks, self.heads, self.kv_heads, self.head_dim, self.new_tokens) <= 0 or self.cached_tokens < 0:
            raise ValueError("a ring needs ranks, heads, key-value heads, a head dimension and new tokens")
        if self.heads % self.kv_heads:
            raise ValueError(f"{self.kv_heads} key-value heads do not divide the {self.heads} query heads")

    @property
    def new_share(self) -> float:
        """New tokens of all tokens: the rate at which a cache of keys and values is missed."""
        return self.new_tokens / (self.new_tokens + self.cached_tokens)

    @property
    def step_flops(self) -> float:
        """FLOPs of a rank in a step of the forward pass."""
        own, cached = self.new_tokens / self.ranks, self.cached_tokens / self.ranks
        pairs = own * (cached + own / (2 if self.is_causal else 1))
        return FLOPS_PER_PAIR * pairs * self.heads * self.head_dim

    @property
    def kv_message_bytes(self) -> float:
        """Keys and values of a rank's tokens, cached ones among them."""
        tokens = (self.new_tokens + self.cached_tokens) / self.ranks
        return 2 * tokens * self.kv_heads * self.head_dim * self.element_bytes

    @property
    def query_message_bytes(self) -> float:
        """Queries of a rank's new tokens."""
        return self.new_tokens / self.ranks * self.heads * self.head_dim * self.element_bytes

    @property
    def home_message_bytes(self) -> float:
        """Partial outputs that a rank sends to each other one, where queries went around."""
        return self.new_tokens / self.ranks * self.heads * (self.head_dim * self.element_bytes + NORMALIZER_BYTES)


@dataclass(frozen=True)
class RingRates:
    """What a rank achieves."""

    flops_per_s: float
    bytes_per_s: float
    """To the next rank of the ring."""
    message_s: float = 0.0
    """Latency of a message."""

    def sending_s(self, size: float) -> float:
        """Time of a message."""
        return self.message_s + size / self.bytes_per_s


def kv_share_threshold(heads: int, kv_heads: int) -> float:
    """Share of new tokens from which on keys and values are the smaller message: 2 N_kv / N_h."""
    return 2 * kv_heads / heads


def tokens_that_hide_kv(ring: RingAttention, rates: RingRates) -> float:
    """New tokens from which on attention to all hides passing keys and values: N C N_kv e / (2 N_h BW)."""
    per_byte = rates.flops_per_s / rates.bytes_per_s
    return ring.ranks * per_byte * ring.kv_heads * ring.element_bytes / (2 * ring.heads)


def tokens_that_hide_queries(ring: RingAttention, rates: RingRates) -> float:
    """Tokens, cached and new, from which on attention hides passing queries: N e C / (4 BW)."""
    return ring.ranks * ring.element_bytes * rates.flops_per_s / (4 * rates.bytes_per_s)


def published_choice(ring: RingAttention, rates: RingRates) -> Passed:
    """What the paper's rule passes: keys and values where they are the smaller message or are hidden, else queries."""
    smaller = ring.new_share >= kv_share_threshold(ring.heads, ring.kv_heads)
    hidden = ring.new_tokens >= tokens_that_hide_kv(ring, rates)
    return "keys_and_values" if smaller or hidden else "queries"


def forward_seconds(ring: RingAttention, rates: RingRates, passed: Passed) -> float:
    """Time of a layer's attention: in each step but the last one a message is on its way meanwhile."""
    attention_s = ring.step_flops / rates.flops_per_s
    size = ring.kv_message_bytes if passed == "keys_and_values" else ring.query_message_bytes
    around_s = (ring.ranks - 1) * max(attention_s, rates.sending_s(size)) + attention_s
    if passed == "keys_and_values" or ring.ranks == 1:
        return around_s
    return around_s + rates.message_s + (ring.ranks - 1) * ring.home_message_bytes / rates.bytes_per_s


def training_seconds(ring: RingAttention, rates: RingRates, gradient_bytes: float = 4.0) -> float:
    """Time of both passes, in which keys and values go around, and backwards their gradients with them, in a format of
    so many bytes: these make one step more, home to the ranks of their tokens."""
    backward_s = BACKWARD_OVER_FORWARD * ring.step_flops / rates.flops_per_s
    gradients = ring.kv_message_bytes / ring.element_bytes * gradient_bytes
    both_s, last_s = rates.sending_s(ring.kv_message_bytes + gradients), rates.sending_s(gradients)
    around_s = (ring.ranks - 1) * max(backward_s, both_s) + backward_s + (last_s if ring.ranks > 1 else 0.0)
    return forward_seconds(ring, rates, "keys_and_values") + around_s


def fastest(ring: RingAttention, rates: RingRates) -> Passed:
    """What is passed in the shortest time of a forward pass; keys and values where both take as long."""
    both: tuple[Passed, ...] = get_args(Passed)
    return min(both, key=lambda passed: forward_seconds(ring, rates, passed))


def causal_chunks(ranks: int) -> tuple[tuple[int, int], ...]:
    """The two of 2 N chunks of a causal sequence that each rank has: one from the front and its mirror from the back,
    so that all ranks compute as many pairs."""
    return tuple((rank, 2 * ranks - 1 - rank) for rank in range(ranks))
