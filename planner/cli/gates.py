"""The limits of `planner check`: their flags, and what they find."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli import streams, values

if TYPE_CHECKING:
    from planner.verification.gates import Gate, Limits

MaxStepFlag = Annotated[
    str | None, typer.Option("--max-step", metavar="TIME", help="Of plans: the longest step, as in 90ms.")
]
MaxHbmFlag = Annotated[
    str | None,
    typer.Option(
        "--max-hbm", metavar="SHARE", help="Of plans: the most of its usable HBM that a rank takes, as in 90%."
    ),
]
MaxImbalanceFlag = Annotated[
    str | None,
    typer.Option(
        "--max-imbalance",
        metavar="RATIO",
        help="Of plans: the slowest rank's seconds for tables over the mean rank's, summed over stages, as in 1.1.",
    ),
]
MaxGapFlag = Annotated[
    str | None, typer.Option("--max-gap", metavar="SHARE", help="Of plans: the largest gap to the bound, as in 2%.")
]
SameAsFlag = Annotated[
    Path | None, typer.Option("--same-as", metavar="PLAN", help="Of plans: all tables are placed as in this one.")
]


def limits(
    max_step: str | None, max_hbm: str | None, max_imbalance: str | None, max_gap: str | None, same_as: Path | None
) -> "Limits | None":
    """What the flags demand; None where none is given."""
    if (max_step, max_hbm, max_imbalance, max_gap, same_as) == (None,) * 5:
        return None
    read = {
        "max_step": None if max_step is None else values.seconds("--max-step", max_step),
        "max_hbm": None if max_hbm is None else values.share("--max-hbm", max_hbm),
        "max_imbalance": None if max_imbalance is None else values.ratio("--max-imbalance", max_imbalance),
        "max_gap": None if max_gap is None else values.tolerance("--max-gap", max_gap),
    }
    from planner.verification.gates import Limits
    from planner.verification.loading import load_plan

    return Limits(**read, same_as=None if same_as is None else (str(same_as), load_plan(same_as)))


def flag(name: str) -> str:
    """The flag of a limit."""
    return f"--{name.replace('_', '-')}"


def first_flag(demanded: "Limits") -> str:
    """The first flag that was given."""
    return next(flag(name) for name, limit in vars(demanded).items() if limit is not None)


def line(gate: "Gate") -> str:
    """A gate as text."""
    return f"{'ok' if gate.passed else 'failed'}: {gate.words}"


def document(gate: "Gate") -> dict[str, object]:
    """A gate as plain data."""
    return asdict(gate)


def record(file: str, gate: "Gate") -> dict[str, streams.Cell]:
    """A gate as a line of a file's messages."""
    return {
        "file": file,
        "severity": "passed" if gate.passed else "failed",
        "source": file,
        "line": 0,
        "column": 0,
        "path": gate.name,
        "message": gate.words,
        "figure": gate.figure,
        "limit": gate.limit,
    }
