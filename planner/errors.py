"""What goes wrong with plans beyond the faults of input files."""

from topologies.errors import InputError


class UnsoundPlanError(InputError):
    """A plan document that can be read, but is no plan of its own inputs: it was changed after it was written."""
