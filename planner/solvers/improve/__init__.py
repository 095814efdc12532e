"""Placements made better by local search."""
