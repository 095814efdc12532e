"""What a command is doing, in a line at the bottom of the terminal: for how long, until when at most, what.

The line is there from a moment after the start, and gone for good before the first data is printed.
"""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

AFTER_S = 0.6
"""Commands that end sooner show nothing."""
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
TURNS_PER_S = 8


class Activity:
    """One command at work. `doing` and `limit` may change at any time."""

    def __init__(self, doing: str, console: "Console") -> None:
        self.doing, self.limit = doing, ""
        self._console = console
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._live: Live | None = None
        self._is_over = False
        self._timer = threading.Timer(AFTER_S, self._show)
        self._timer.daemon = True
        self._timer.start()

    def __rich__(self) -> "Text":
        """The line."""
        from rich.text import Text

        elapsed_s = time.monotonic() - self._began
        sign = SPINNER[int(elapsed_s * TURNS_PER_S) % len(SPINNER)]
        until = f", {self.limit}" if self.limit else ""
        return Text(f"{sign} {elapsed_s:.0f} s{until}: {self.doing}", no_wrap=True, overflow="ellipsis")

    def _show(self) -> None:
        from rich.live import Live

        with self._lock:
            if not self._is_over:
                self._live = Live(
                    self, console=self._console, transient=True, refresh_per_second=TURNS_PER_S, redirect_stdout=False
                )
                self._live.start()

    def end(self) -> None:
        """Take the line away."""
        self._timer.cancel()
        with self._lock:
            self._is_over = True
            if self._live is not None:
                self._live.stop()
                self._live = None


_current: Activity | None = None


@contextmanager
def shown(doing: str, console: "Console | None") -> Iterator[None]:
    """Show what a command does meanwhile; nothing without a console."""
    global _current
    _current = Activity(doing, console) if console is not None else None
    try:
        yield
    finally:
        hide()


def now(doing: str, limit: str | None = None) -> bool:
    """Say what the command begins to do, and until when at most; whether anybody sees it."""
    if _current is None:
        return False
    _current.doing = doing
    if limit is not None:
        _current.limit = limit
    return True


def is_shown() -> bool:
    """Whether somebody sees what a command does."""
    return _current is not None


def hide() -> None:
    """Take the line away for good: data follows."""
    global _current
    if _current is not None:
        _current.end()
        _current = None
        sys.stderr.flush()
