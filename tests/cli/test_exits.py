"""Every way a command can end has its exit code, and no exception gets past the boundary."""

import signal
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from planner.cli import app
from planner.cli.app import PlannerCommands
from planner.cli.exits import ExitCode
from planner.cli.interruption import Terminated
from planner.document.plan import read_plan
from topologies.errors import Fault, InputError


def end_with(error: BaseException):
    """The result of a program whose command raises `error`."""
    app = typer.Typer(cls=PlannerCommands, pretty_exceptions_enable=False)

    @app.callback()
    def program():
        """One command, as a group."""

    @app.command()
    def fail():
        raise error

    return CliRunner().invoke(app, ["fail"])


def test_invalid_input_exits_with_3_and_says_every_fault():
    """All faults are on stderr, in order of position, and stdout is empty."""
    result = end_with(
        InputError([Fault("b.yaml", 7, 3, "rows", "is missing"), Fault("a.yaml", 1, 1, "dim", "is zero")])
    )
    assert result.exit_code == ExitCode.INVALID_INPUT == 3
    assert result.stderr.splitlines() == ["a.yaml:1:1: dim: is zero", "b.yaml:7:3: rows: is missing"]
    assert result.stdout == ""


def test_a_signal_while_a_class_is_made_is_no_bug():
    """Python wraps what a signal raises there."""
    wrapped = RuntimeError("Error calling __set_name__")
    wrapped.__cause__ = Terminated()
    assert end_with(wrapped).exit_code == ExitCode.TERMINATED


def test_what_came_of_a_signal_is_no_bug():
    """An extension whose loading it broke off, wrapped twice; and what went wrong while it was handled."""
    wrapped, handled = ImportError("initialization failed"), ValueError("half of a file")
    wrapped.__cause__ = SystemError("returned a result with an exception set")
    wrapped.__cause__.__cause__ = Terminated()
    handled.__context__ = KeyboardInterrupt()
    assert end_with(wrapped).exit_code == ExitCode.TERMINATED
    assert end_with(handled).exit_code == ExitCode.INTERRUPTED


def test_interruption_exits_with_130():
    """Ctrl-C is told from a failure."""
    result = end_with(KeyboardInterrupt())
    assert result.exit_code == ExitCode.INTERRUPTED == 130
    assert "interrupted" in result.stderr


def test_termination_exits_with_143():
    """As the shell says of a process that SIGTERM ended."""
    result = end_with(Terminated())
    assert result.exit_code == ExitCode.TERMINATED == 143
    assert "terminated" in result.stderr


@pytest.mark.parametrize("is_wrapped", [False, True])
@pytest.mark.parametrize(("asked", "code"), [(KeyboardInterrupt, 130), (Terminated, 143)])
def test_a_signal_before_any_command_is_an_end_not_a_bug(
    asked: type[KeyboardInterrupt],
    code: int,
    is_wrapped: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One that comes while the commands are put together: its own exit code, one line and no traceback."""

    def interrupted() -> None:
        try:
            raise asked
        except asked as signalled:
            if is_wrapped:
                raise RuntimeError("Error calling __set_name__") from signalled
            raise

    monkeypatch.setattr(app, "app", interrupted)
    monkeypatch.setattr(app, "end_when_terminated", lambda: None)
    monkeypatch.setattr(app.streams, "ready", lambda: None)
    with pytest.raises(SystemExit) as ended:
        app.main()
    assert ended.value.code == code
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_plan_that_is_asked_to_end_keeps_the_best_so_far(starter, tmp_path, number):
    """The plan is written and printed, whole; 130 for Ctrl-C, 143 for SIGTERM."""
    words = ["plan", "-t", "zionex-16", "-w", "dlrm-dcnv2", "--effort", "1000", "--no-simulate", "-o"]
    process = subprocess.Popen(
        [sys.executable, "-m", "planner", *words, str(tmp_path / "plan.json")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    while line := process.stderr.readline():
        if "best" in line:
            break
    process.send_signal(number)
    shown, said = process.communicate(timeout=120)
    assert process.returncode == 128 + number
    assert "stopping with the best plan so far" in said
    assert read_plan(tmp_path / "plan.json").objective is not None
    assert "bound" in shown


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_command_with_nothing_to_keep_ends_at_once(tmp_path, number, code):
    """No half file is left behind, not even a temporary one."""
    program = (
        "import os, signal; from planner.cli import app; from planner.document import files\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"def end(*_): os.kill(os.getpid(), {int(number)})\n"
        "files.os.fdopen = end\n"
        "app.main()"
    )
    words = ["import", str(tmp_path / "in.json"), "--from", "torchrec-topology", "-o", str(tmp_path / "t.yaml")]
    (tmp_path / "in.json").write_text('{"world_size": 8, "local_world_size": 8, "compute_device": "cuda"}')
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["in.json"]


def test_a_bug_exits_with_1_and_asks_for_a_report():
    """The traceback and where to send it, nothing on stdout."""
    result = end_with(ZeroDivisionError("division by zero"))
    assert result.exit_code == ExitCode.BUG == 1
    assert "ZeroDivisionError: division by zero" in result.stderr
    assert "planner doctor" in result.stderr
    assert result.stdout == ""


def test_an_unusable_path_is_no_bug():
    """A file that cannot be written is named in one line, without a traceback."""
    result = end_with(PermissionError(13, "Permission denied", "plan.json"))
    assert result.exit_code == ExitCode.WRONG_COMMAND_LINE == 2
    assert result.stderr == "planner: plan.json: Permission denied\n"


@pytest.mark.parametrize("code", [ExitCode.INFEASIBLE, ExitCode.NO_PLAN_IN_TIME, ExitCode.GATE_FAILED])
def test_a_deliberate_exit_passes(code):
    """A command may end with any code of its own."""
    assert end_with(typer.Exit(code)).exit_code == code


@pytest.mark.parametrize(
    "words",
    [["plam"], ["plan", "--nodez", "3"], ["plan"], ["plan", "-t", "x", "--nodes", "0"], ["schema", "plain"]],
    ids=" ".join,
)
def test_a_wrong_command_line_exits_with_2(run, words):
    """Usage errors are on stderr and say where help is or what was meant."""
    result = run(*words)
    assert result.exit_code == ExitCode.WRONG_COMMAND_LINE == 2
    assert "Error: " in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (("plan", "-w", "nv-tiny", "-t", ""), "-t"),
        (("verify", "plan.json", "--topology="), "--topology"),
        (("plan", "-t", "cpu", "-w", "nv-tiny", "--forbid", ""), "--forbid"),
        (("init", ""), "an argument"),
    ],
)
def test_an_empty_word_is_refused(run, words, flag):
    """An unset variable of a script: as a path it would be this folder, as an input it would be left out."""
    result = run(*words)
    assert result.exit_code == ExitCode.WRONG_COMMAND_LINE
    assert f"Invalid value for {flag}: is empty, as an unset variable" in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("name", "said"), [("x.parquet", "is a file of tables; a JSON document is needed here"), ("x.json", "is empty")]
)
def test_files_that_are_no_plan_are_told_what_they_are(run, tmp_path, name, said):
    """Tables, and nothing at all, where a plan is expected."""
    (tmp_path / name).write_bytes(b"" if name == "x.json" else b"PAR1\xff")
    result = run("explain", tmp_path / name)
    assert (result.exit_code, result.stderr) == (ExitCode.INVALID_INPUT, f"{tmp_path / name}: {said}\n")


def test_a_closed_pipe_is_no_failure():
    """`planner schema topology | head -1` ends quietly."""
    process = subprocess.Popen(
        [sys.executable, "-m", "planner", "schema", "topology"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(timeout=60) == ExitCode.DONE


def test_a_full_disk_is_no_bug():
    """One line, no traceback."""
    result = end_with(OSError(28, "No space left on device"))
    assert result.exit_code == ExitCode.WRONG_COMMAND_LINE
    assert result.stderr == "planner: the output cannot be written: No space left on device\n"


@pytest.mark.parametrize(
    ("words", "streams", "code"),
    [
        ("catalog list", ">&-", 0),
        ("verify plan.json", ">&-", 3),
        ("catalog show zionex", "2>&-", 0),
        ("memory -t cpu -w nv-tiny", "| true; exit ${PIPESTATUS[0]}", 0),
        ("plan -t cpu -w nv-tiny --effort 0 --gap 50% -o plan.json", ">/dev/null 2> >(true)", 0),
        ("memory -t cpu -w nv-tiny", ">/dev/full", 2),
        ("catalog show zionex", ">/dev/full", 2),
    ],
)
def test_streams_that_nobody_reads_are_no_bug(tmp_path, words, streams, code):
    """Closed, gone or full: the work is done all the same, and no traceback appears."""
    program = "import time; from planner.cli.app import main; time.sleep(0.1); main()"
    command = f"{sys.executable} -c '{program}' {words} {streams}"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "plan.json").exists() == words.startswith("plan")
