"""Collectives between layouts bring every rank what it reads, and gradients back: acted out on small tensors."""

import itertools

import numpy as np
import pytest

from cost_models.tensor_layouts import OWN_SAMPLES, Placed, layout_calls

AXES = {"samples": 0, "tokens": 1, "columns": 2}
RANKS = 4
WHOLE = np.random.default_rng(1).integers(0, 9, (4, 4, 8)).astype(float)
"""Samples of a group, tokens, columns."""


def held_by_ranks(layout: str) -> list[np.ndarray]:
    """The tensor in a layout over four ranks."""
    if layout == "replicated":
        return [WHOLE] * RANKS
    if layout == "partial":
        addends = list(np.random.default_rng(2).integers(0, 9, (RANKS - 1, *WHOLE.shape)).astype(float))
        return [*addends, WHOLE - sum(addends)]
    return np.split(WHOLE, RANKS, axis=AXES[layout])


def acted_out(operation: str | None, held: str, needed: str) -> list[np.ndarray]:
    """What ranks have after a collective, or after taking their slice of what they have."""
    parts = held_by_ranks(held)
    if operation is None:
        return parts if held == needed else np.split(parts[0], RANKS, axis=AXES[needed])
    if operation == "all_gather":
        return [np.concatenate(parts, axis=AXES[held])] * RANKS
    if operation == "all_reduce":
        return [sum(parts)] * RANKS
    if operation == "reduce_scatter":
        return np.split(sum(parts), RANKS, axis=AXES[needed])
    sent = [np.split(part, RANKS, axis=AXES[needed]) for part in parts]
    return [np.concatenate([each[rank] for each in sent], axis=AXES[held]) for rank in range(RANKS)]


@pytest.mark.parametrize(
    ("written", "read"),
    list(itertools.product(["samples", "tokens", "columns", "replicated", "partial"], [*AXES, "replicated"])),
)
def test_collectives_bring_what_is_read_and_gradients_back(written: str, read: str) -> None:
    """The forward one turns what is written into what is read. The backward one turns the gradient of what was read,
    addends where all ranks read all, into that of what was written, which all ranks need whole where it was addends."""
    sizes = {place: RANKS for place in (written, read) if place != "samples"}
    calls = list(layout_calls(Placed(written, sizes.get(written, 1)), Placed(read, sizes.get(read, 1)), 4 * 8 * 2, 1))  # type: ignore[arg-type]
    of_phase = {call.phase: call for call in calls}
    assert len(of_phase) == len(calls)
    of_gradient = {"replicated": "partial", "partial": "replicated"}
    back = of_gradient.get(read, read), of_gradient.get(written, written)
    for phase, held, needed in (("forward", written, read), ("backward", *back)):
        call = of_phase.get(phase)  # type: ignore[call-overload]
        if needed == "partial":
            assert call is None  # one rank's own value and nothing from the others is a sum of addends
            continue
        after = acted_out(call and call.operation, held, needed)
        for own, expected in zip(after, held_by_ranks(needed), strict=True):
            assert np.array_equal(own, expected)
        if call is not None:
            part = (held_by_ranks(needed) if call.operation == "all_gather" else held_by_ranks(held))[0]
            assert call.buffer_bytes == part.size * 2
            assert call.members.size == RANKS


def test_groups_of_different_sizes_meet_at_own_samples() -> None:
    """Rows over 2 ranks, then columns over 4: reduced to own samples, gathered from them."""
    calls = list(layout_calls(Placed("partial", 2), Placed("replicated", 4), 100.0, 3))
    assert [(call.phase, call.operation, call.buffer_bytes, call.members.size) for call in calls] == [
        ("forward", "reduce_scatter", 600.0, 2),
        ("backward", "all_gather", 600.0, 2),
        ("forward", "all_gather", 1200.0, 4),
        ("backward", "reduce_scatter", 1200.0, 4),
    ]


def test_own_samples_need_nothing() -> None:
    """Data parallel layers exchange no activations; partial sums are no input."""
    assert list(layout_calls(OWN_SAMPLES, OWN_SAMPLES, 100.0, 3)) == []
    with pytest.raises(ValueError, match="no layer reads partial sums"):
        list(layout_calls(OWN_SAMPLES, Placed("partial", 2), 100.0, 3))
