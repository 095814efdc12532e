"""Lower bounds: the relaxation, its cuts and branch and bound."""
