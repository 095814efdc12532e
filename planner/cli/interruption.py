"""What Ctrl-C, or being terminated, does to a command that has something to show for its work so far."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from planner.cli import streams


class Terminated(KeyboardInterrupt):
    """The process was asked to end (SIGTERM), as a scheduler does; otherwise the same as Ctrl-C."""


SIGNALS: dict[int, type[KeyboardInterrupt]] = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: Terminated}
"""What each signal is, where it ends a command."""


class Interruption:
    """Whether somebody asked for the end: once asks for what there is so far, as `kept` says it; twice ends at once."""

    def __init__(self, kept: str) -> None:
        self._kept = kept
        self._asked: int | None = None

    def __call__(self) -> bool:
        """Whether to stop."""
        return self._asked is not None

    def handle(self, number: int, _frame: FrameType | None) -> None:
        """Note a signal."""
        if self._asked is not None:
            raise SIGNALS[number]
        self._asked = number
        again = "press Ctrl-C again" if number == signal.SIGINT else "send it again"
        streams.say(f"stopping {self._kept}; {again} to stop at once")

    def end(self) -> None:
        """After what there is has been shown: end as the signal wants it, if one came."""
        if self._asked is not None:
            raise SIGNALS[self._asked]


@contextmanager
def interruption(kept: str = "with the best plan so far") -> Iterator[Interruption]:
    """Turn Ctrl-C and SIGTERM into a request to stop, meanwhile."""
    interrupted = Interruption(kept)
    before = {number: signal.signal(number, interrupted.handle) for number in SIGNALS}
    try:
        yield interrupted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def end_when_terminated() -> None:
    """From now on SIGTERM ends a command as Ctrl-C does: what it has begun to write is removed."""

    def handle(_number: int, _frame: FrameType | None) -> None:
        raise Terminated

    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, handle)
