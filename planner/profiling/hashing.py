"""A hash of 31 bits that numpy and SQL compute alike: xor, shift, multiply and mask of whole numbers below 2^62."""

import numpy as np
from numpy.typing import NDArray

from planner.profiling.lists import Ids

BITS = 31
MASK = (1 << BITS) - 1
FIRST, SECOND = 739_982_445, 695_872_825
"""Odd factors: those of Mulvey's triple32 (https://github.com/skeeto/hash-prospector), cut to 31 bits."""

Hashes = NDArray[np.uint32]


def hashed(ids: Ids) -> Hashes:
    """Hashes, spread over 0 to 2^31 - 1, whatever pattern the ids have."""
    folded = ids ^ (ids >> 31)
    folded ^= ids >> 62
    value = folded.astype(np.uint32)
    value &= np.uint32(MASK)
    value *= np.uint32(FIRST)  # modulo 2^32, whose last 31 bits are those of the product
    value &= np.uint32(MASK)
    value ^= value >> np.uint32(15)
    value *= np.uint32(SECOND)
    value &= np.uint32(MASK)
    value ^= value >> np.uint32(16)
    return value
