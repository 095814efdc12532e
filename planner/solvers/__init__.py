"""Solvers: functions from a problem (arrays) to a placement with its bound."""
