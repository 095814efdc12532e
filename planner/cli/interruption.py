"""What Ctrl-C does to a command that has something to show for its work so far."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from planner.cli import streams


@contextmanager
def interruption(kept: str = "with the best plan so far") -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed: once asks for what there is so far, as `kept` says it; twice stops at once."""
    pressed = False

    def handle(_number: int, _frame: object) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True
        streams.say(f"stopping {kept}; press Ctrl-C again to stop at once")

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield lambda: pressed
    finally:
        signal.signal(signal.SIGINT, before)
