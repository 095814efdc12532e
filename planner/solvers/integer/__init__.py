"""The planning problem as one mixed-integer linear programme: built, solved, and read back as a placement."""
