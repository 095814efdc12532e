"""What thousands of candidate models cost beside one that is planned: `from planner.oracle import Oracle`."""

from planner.oracle.oracle import Costs, Oracle

__all__ = ["Costs", "Oracle"]
