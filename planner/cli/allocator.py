"""What the C library's allocator does with memory that was freed, and the kernel with memory that is new.

glibc gives freed memory at the top of its heap back to the kernel at once. Where arrays of some hundred kilobytes come
and go, as costs of hundreds of thousands of blocks are summed up, the kernel hands out and clears the same pages again
and again: a third of the processor time until the first plan of 10,000 tables on 1,024 ranks.

numpy asks for huge pages, which the kernel clears whole, and first makes room for where memory is fragmented. Half a
gibibyte of arrays of which many columns stay empty takes 0.7 s more with them than without.

Python looks for cycles of garbage after every 700 objects that are new: 0.15 s until that plan, to find next to none.
"""

import ctypes
import gc
import sys

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
"""Parameters of `mallopt`, as glibc's `malloc.h` numbers them."""
_THP_DISABLE = 41
"""`PR_SET_THP_DISABLE` of Linux's `prctl`."""
_NEW_OBJECTS = (50_000, 20, 20)
"""Objects, and looks at the new ones, after which Python looks at those that are new, or older ones, too."""
_SETTINGS = ((_TRIM_THRESHOLD, 2**30), (_TOP_PAD, 2**26), (_MMAP_THRESHOLD, 2**25))
"""Bytes that the heap keeps, by which it grows, and from which on an array has pages of its own, at most."""


def tune_memory() -> None:
    """Let the process keep memory that it frees, up to a gibibyte, instead of giving it back at once, take no huge
    pages, and look for cycles of garbage seldom; the former two where the C library has such settings."""
    gc.set_threshold(*_NEW_OBJECTS)
    if not sys.platform.startswith("linux"):
        return
    try:
        library = ctypes.CDLL(None)
        mallopt, prctl = library.mallopt, library.prctl
    except (OSError, AttributeError):
        return
    for parameter, value in _SETTINGS:
        mallopt(parameter, value)
    prctl(_THP_DISABLE, *(ctypes.c_ulong(value) for value in (1, 0, 0, 0)))
