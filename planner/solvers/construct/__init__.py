"""Placements made from nothing."""
