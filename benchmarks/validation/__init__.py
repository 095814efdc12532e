"""The simulator against the closed form, against measured steps, and as a judge of plans."""
