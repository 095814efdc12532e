"""How a command ends: the exit codes, and the one place where an exception becomes one."""

import errno
import io
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from typing import NoReturn, TypeVar

import typer

from planner.cli import streams
from planner.cli.interruption import Terminated
from planner.errors import UnsoundPlanError
from topologies.errors import InputError

Result = TypeVar("Result")

REPORT_BUGS = (
    "planner: this is a bug in the planner, not in your input. Please report it with the lines above,"
    " the command you typed and the output of `planner doctor`."
)


FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""What a write fails with where there is no room for it."""


class ExitCode(IntEnum):
    """What the shell sees."""

    DONE = 0
    BUG = 1
    WRONG_COMMAND_LINE = 2
    INVALID_INPUT = 3
    INFEASIBLE = 4
    NO_PLAN_IN_TIME = 5
    GATE_FAILED = 6
    PLANS_DIFFER = 7
    INTERRUPTED = 130
    TERMINATED = 143


def guarded(action: Callable[[], Result]) -> Result:
    """Run a command; whatever it raises becomes a message on stderr and an exit code."""
    try:
        result = action()
        sys.stdout.flush()
    except UnsoundPlanError as error:
        _end(ExitCode.GATE_FAILED, str(error))
    except InputError as error:
        _end(ExitCode.INVALID_INPUT, str(error))
    except Terminated:
        _end(ExitCode.TERMINATED, "planner: terminated")
    except KeyboardInterrupt:
        _end(ExitCode.INTERRUPTED, "planner: interrupted")
    except BrokenPipeError:
        _end_quietly()
    except Exception as error:  # the one boundary: a bug ends with a request to report it
        if hasattr(error, "exit_code"):  # Typer's own: a usage error, or a command's deliberate exit
            raise
        if isinstance(error, OSError) and error.filename is not None:
            _end(ExitCode.WRONG_COMMAND_LINE, f"planner: {error.filename}: {error.strerror}")
        if isinstance(error, OSError) and error.errno in FULL:
            _drop_output()
            _end(ExitCode.WRONG_COMMAND_LINE, f"planner: the output cannot be written: {error.strerror}")
        _end(ExitCode.BUG, f"{traceback.format_exc()}\n{REPORT_BUGS}")
    return result


def _end(code: ExitCode, message: str) -> NoReturn:
    streams.say(message)
    raise typer.Exit(code)


def _end_quietly() -> NoReturn:
    """The reader of our output (`head`) has seen enough, which is no failure."""
    _drop_output()
    raise typer.Exit(ExitCode.DONE)


def _drop_output() -> None:
    """Python flushes stdout once more as it ends; that must not meet the closed pipe or the full disk again."""
    with suppress(io.UnsupportedOperation):  # a stdout that is no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
