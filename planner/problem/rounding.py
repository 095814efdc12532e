"""Tolerances by which sums of doubles may differ that should be equal; bounds and rooms are rounded by them."""

ROUNDING = 1e-9
"""Relative, above the rounding of sums of 10^5 doubles: bounds are rounded down by it, rooms up."""
COARSE_ROUNDING = 1e-7
"""Relative, above `ROUNDING` of what was itself rounded: for whoever sums up otherwise what stages last at least."""
FINE_ROUNDING = 1e-12
"""Relative, of the same few numbers in another order."""
ROUNDING_BYTES = 1e-3
"""Bytes by which a memory may seem over-full."""
