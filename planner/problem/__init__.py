"""The planning problem as arrays, and what can be said of it without searching."""
