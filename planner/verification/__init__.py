"""Whether a plan document says the truth, recomputed without a solver."""
