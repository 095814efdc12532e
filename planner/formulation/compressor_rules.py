"""Where tables of two parts may be: quotient and remainder stay together, and their rows whole."""

import numpy as np

from planner.formulation.narrowing import Narrowing
from planner.formulation.runtimes import RUNTIMES
from planner.formulation.variants import TOGETHER


def keep_parts_together(narrowing: Narrowing) -> None:
    """Leave tables of two parts shardings that cut no rows, and none where the policy's runtime does not have them."""
    workload, runtime = narrowing.model.workload, narrowing.policy.runtime
    if narrowing.policy.variants is not None:
        return  # it is of each variant, then
    has_two = np.array([each.has_two_parts for each in workload.compressors], dtype=bool)
    if not has_two.any():
        return
    words = "quotient and remainder of a table stay together"
    narrowing.narrow("shardings", ("shardings",), words, has_two, TOGETHER)
    narrowing.rules.append((words, has_two))
    if runtime != "any" and "qr" not in RUNTIMES[runtime].compressors:
        first = int(np.flatnonzero(has_two)[0])
        lacks = f"{runtime} has no tables of two parts, which {workload.compressors[first]} makes of"
        message = f"{lacks} {narrowing.names[first]!r}; give it hash:C or dim:D, or plan for any runtime"
        narrowing.fault(("runtime",), message)
