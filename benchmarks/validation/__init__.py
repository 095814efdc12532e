"""The simulator against the closed form, against measured steps, and its ranking of plans."""
