"""How a command ends: the exit codes, and the one place where an exception becomes one."""

import errno
import io
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from enum import IntEnum
from typing import Any, NoReturn, TypeVar

import typer

from planner.cli import streams
from planner.cli.interruption import Terminated
from planner.errors import UnsoundPlanError
from topologies.errors import Fault, InputError, MissingPackageError, printable

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
    """done"""
    BUG = 1
    """a bug"""
    WRONG_COMMAND_LINE = 2
    """the command line is wrong: a flag, a place that cannot be written, an output that is an input, a missing extra"""
    INVALID_INPUT = 3
    """an input is invalid"""
    INFEASIBLE = 4
    """infeasible, proven and explained"""
    NO_PLAN_IN_TIME = 5
    """no plan within the limits, and nothing proven"""
    GATE_FAILED = 6
    """a verification or a gate failed"""
    PLANS_DIFFER = 7
    """`diff --exit-code`: the plans differ"""
    INTERRUPTED = 130
    """interrupted (Ctrl-C)"""
    TERMINATED = 143
    """terminated (SIGTERM)"""


def guarded(action: Callable[[], Result], *, as_json: bool = False) -> Result:
    """Run a command; whatever it raises becomes a message on stderr and an exit code.

    `as_json`: the message is one line of JSON (see `_end`).
    """
    try:
        result = action()
        sys.stdout.flush()
    except UnsoundPlanError as error:
        _end(ExitCode.GATE_FAILED, str(error), error.faults, as_json=as_json)
    except InputError as error:
        _end(ExitCode.INVALID_INPUT, str(error), error.faults, as_json=as_json)
    except MissingPackageError as error:
        _end(ExitCode.WRONG_COMMAND_LINE, f"planner: {error}", as_json=as_json)
    except KeyboardInterrupt as asked:
        _end(*end_that_was_asked(asked), as_json=as_json)
    except BrokenPipeError:
        _end_quietly()
    except Exception as error:  # the one boundary: a bug ends with a request to report it
        if hasattr(error, "format_message"):
            _end_wrong(error, as_json=as_json)
        if hasattr(error, "exit_code"):  # a command's deliberate exit
            raise
        if (signalled := asked_for(error)) is not None:
            _end(*end_that_was_asked(signalled), as_json=as_json)
        _end(*_what_failed(error), as_json=as_json)
    return result


def asked_for(error: BaseException) -> KeyboardInterrupt | None:
    """What a signal raised, if an error came of it: Python 3.11 wraps what is raised inside `__set_name__`, extensions
    what is raised while they are loaded, and others what they had begun to handle."""
    while not isinstance(error, KeyboardInterrupt):
        before = error.__cause__ or error.__context__
        if before is None:
            return None
        error = before
    return error


def end_that_was_asked(asked: KeyboardInterrupt) -> tuple[ExitCode, str]:
    """Exit code and words of an end that somebody asked for, by SIGTERM or Ctrl-C."""
    if isinstance(asked, Terminated):
        return ExitCode.TERMINATED, "planner: terminated"
    return ExitCode.INTERRUPTED, "planner: interrupted"


def _end_wrong(error: Any, *, as_json: bool) -> NoReturn:
    """A command line that cannot be: Typer prints how it is used, or it is a fault of the flag."""
    error.message = printable(_value_fault(error) or str(error.message), keep="\n")
    if not as_json:
        raise error
    hint = getattr(error, "param_hint", None) or getattr(getattr(error, "param", None), "opts", [""])[0]
    fault = Fault("command line", 0, 0, str(hint), str(error.message) or error.format_message())
    _end(ExitCode.WRONG_COMMAND_LINE, error.format_message(), [fault], as_json=True)


def _value_fault(error: Any) -> str:
    """What is wrong with a value that typer had pydantic read, in the words of files' faults; "" of any other error."""
    read_errors = getattr(error.__cause__, "errors", None)
    if read_errors is None:
        return ""
    from pydantic import BaseModel

    from topologies.messages import describe

    return describe(read_errors()[0], BaseModel, ())


def _what_failed(error: Exception) -> tuple[ExitCode, str]:
    """An operating system that refuses, or a bug."""
    if isinstance(error, OSError) and error.filename is not None:
        return ExitCode.WRONG_COMMAND_LINE, f"planner: {error.filename}: {error.strerror}"
    if isinstance(error, OSError) and error.errno in FULL:
        _drop_output()
        return ExitCode.WRONG_COMMAND_LINE, f"planner: the output cannot be written: {error.strerror}"
    return ExitCode.BUG, f"{traceback.format_exc()}\n{REPORT_BUGS}"


def _end(code: ExitCode, message: str, faults: Iterable[Fault] = (), *, as_json: bool = False) -> NoReturn:
    """Say why, and end. In JSON: kind "error", the exit code, the message, and the faults with their places.

    `line` and `column` are 0 where a source has no such position; `path` is a field, or a flag of the command line.
    """
    if as_json:
        places = [
            {"file": each.source, "line": each.line, "column": each.column, "path": each.path, "message": each.message}
            for each in faults
        ]
        message = json.dumps({"kind": "error", "exit": int(code), "message": message, "faults": places})
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
