"""Coefficients from measurements: readers of logs, traces and tables, and the fits that turn them into numbers."""
