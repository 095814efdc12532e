"""Matrix products whose last digit does not depend on the machine.

`@` calls BLAS, whose kernels differ between processors, and with the number of cores, in the order of their sums. A
search takes the better of two nearly equal moves: the last digit of a sum can decide over a whole plan.
`numpy.einsum` sums in one order on all processors of one architecture. Sums of whole numbers are exact in any order:
for them `@` will do.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.floating[Any]] | NDArray[np.int64]


def product(left: Numbers, right: Numbers) -> Any:
    """Return `left @ right` [..., n] of [..., k] and a matrix [k, n], or [...] where `right` is a vector [k]."""
    return np.einsum("...i,i->..." if right.ndim == 1 else "...i,ij->...j", left, right)


def sums_of_subsets(values: Numbers) -> Any:
    """Return the sums [..., 2^n] of all subsets of `values` [..., n]; bit i of a subset's number says that i is in."""
    n = values.shape[-1]
    sums = np.zeros((*values.shape[:-1], 2**n), dtype=values.dtype)
    for i in range(n):
        np.add(sums[..., : 1 << i], values[..., i : i + 1], out=sums[..., 1 << i : 2 << i])
    return sums
