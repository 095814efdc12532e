"""What the C library's allocator does with memory that was freed.

glibc gives freed memory at the top of its heap back to the kernel at once. Where arrays of some hundred kilobytes come
and go, as costs of hundreds of thousands of blocks are summed up, the kernel hands out and clears the same pages again
and again: a third of the processor time until the first plan of 10,000 tables on 1,024 ranks.
"""

import ctypes
import sys

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
"""Parameters of `mallopt`, as glibc's `malloc.h` numbers them."""
_SETTINGS = ((_TRIM_THRESHOLD, 2**30), (_TOP_PAD, 2**26), (_MMAP_THRESHOLD, 2**25))
"""Bytes that the heap keeps, by which it grows, and from which on an array has pages of its own, at most."""


def keep_freed_memory() -> None:
    """Let the process keep memory that it frees, up to a gibibyte, instead of giving it back at once; nothing happens
    where the C library has no such setting."""
    if not sys.platform.startswith("linux"):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    for parameter, value in _SETTINGS:
        mallopt(parameter, value)
