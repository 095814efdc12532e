"""Values of flags: what is read from their words."""

from collections.abc import Sequence
from math import inf, nan
from typing import TYPE_CHECKING, TypeVar

import typer

if TYPE_CHECKING:
    from planner.planning.integer_solution import Solver

Word = TypeVar("Word", bound=str)
PLANNED_FROM = ("topology", "workload")
"""Those that `--set` reaches into."""
THOUSANDS = {"k": 1e3, "M": 1e6, "G": 1e9}
"""What follows the number of a rate."""


def split_overrides(overrides: Sequence[str], flag: str = "--set") -> dict[str, list[str]]:
    """`topology.a.b=1` and `workload.c=2` as `a.b=1` and `c=2` for the input they belong to."""
    split: dict[str, list[str]] = {kind: [] for kind in PLANNED_FROM}
    for text in overrides:
        path, equals, _ = text.partition("=")
        kind, dot, _ = path.partition(".")
        if not (equals and dot):
            raise typer.BadParameter(
                f"{text!r} is not PATH=VALUE; write for example topology.nodes.0.count=4", param_hint=flag
            )
        if kind not in split:
            from topologies.messages import did_you_mean

            raise typer.BadParameter(
                f"{path!r} must begin with topology. or workload.{did_you_mean(kind, split)}",
                param_hint=flag,
            )
        split[kind].append(text.removeprefix(f"{kind}."))
    return split


def path_of(override: str) -> str:
    """`topology.a.b` of `topology.a.b=1`."""
    return override.partition("=")[0].strip()


def expect_once(flag: str, names: Sequence[str]) -> None:
    """Refuse a name that a flag gives two values, of which one would be passed over."""
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise typer.BadParameter(f"{twice[0]} is given twice; say it once", param_hint=flag)


def seconds(flag: str, text: str) -> float:
    """The duration that a flag gives (`30s`, `2min`)."""
    return _at_least_0(flag, text, "second", "30s")


def usd_per_hour(flag: str, text: str) -> float:
    """The price that a flag gives (`500USD/h`)."""
    return _at_least_0(flag, text, "dollar / hour", "500USD/h")


def kilowatts(flag: str, text: str) -> float:
    """The power that a flag gives (`300kW`)."""
    return _at_least_0(flag, text, "watt", "300kW") / 1e3


def rate(flag: str, text: str) -> float:
    """The things per second that a flag gives (`2e6`, `1M`, `500k/s`): above 0."""
    number = text.strip().removesuffix("/s").rstrip()
    times = THOUSANDS.get(number[-1:], 1.0)
    try:
        value = float(number[:-1] if times > 1 else number) * times
    except ValueError:
        value = nan
    if not 0 < value < inf:
        message = f"{text!r} must be above 0 and finite; write for example 2e6, 2M or 500k/s"
        raise typer.BadParameter(message, param_hint=flag)
    return value


def samples(text: str) -> int:
    """The samples that `--global-batch` gives, written as in a workload (`65536`, `1e5`): 1 or more."""
    from cost_models.workload.spellings import whole_number
    from topologies.messages import written_out

    number = int(text) if text.isdecimal() else whole_number(text)
    if not isinstance(number, int) or number < 1:
        message = f"must be a whole number of at least 1, not {text!r}{written_out(text)}"
        raise typer.BadParameter(message, param_hint="--global-batch")
    return number


def share(flag: str, text: str) -> float:
    """The share that a flag gives (`1%`, `0.01`)."""
    from topologies.units import parse_fraction

    try:
        return parse_fraction(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=flag) from None


def tolerance(flag: str, text: str) -> float:
    """The share that a flag lets go (`1%`, `0.01`); a bare 1 is refused."""
    from topologies.units import parse_tolerance

    try:
        return parse_tolerance(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=flag) from None


def ratio(flag: str, text: str) -> float:
    """The ratio of at least 1 that a flag gives (`1.1`, `110%`)."""
    try:
        number = float(text.strip().removesuffix("%")) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        number = nan
    if not 1 <= number < inf:
        raise typer.BadParameter(f"{text!r} is no ratio of at least 1; write for example 1.1", param_hint=flag)
    return number


def byte_count(flag: str, text: str) -> int:
    """The bytes that a flag gives (`500GB`, `40GiB`)."""
    return int(_at_least_0(flag, text, "byte", "500GB"))


def _at_least_0(flag: str, text: str, unit: str, example: str) -> float:
    from topologies.units import parse_quantity

    try:
        number = parse_quantity(text, unit, example)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=flag) from None
    if number < 0:
        raise typer.BadParameter(f"{text!r} is below 0; write for example {example}", param_hint=flag)
    return number


def numbers(flag: str, text: str, what: str = "node numbers") -> tuple[int, ...]:
    """The whole numbers of a comma-separated flag, which lists `what`."""
    asked = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() for word in asked):
        raise typer.BadParameter(f"{text!r} is no list of {what}; write for example 3,7", param_hint=flag)
    return tuple(map(int, asked))


def word(flag: str, text: str, known: Sequence[Word]) -> Word:
    """The one word of `known` that a flag gives."""
    chosen = words(flag, text, known)
    if chosen is None or len(chosen) != 1:
        raise typer.BadParameter(f"takes one of {', '.join(known)}", param_hint=flag)
    return chosen[0]


def solver(text: str) -> "Solver":
    """What `--solver` says is to follow a search."""
    from typing import cast, get_args

    from planner.planning.integer_solution import Solver

    return cast("Solver", word("--solver", text, get_args(Solver)))


def words(flag: str, text: str | None, known: Sequence[Word]) -> tuple[Word, ...] | None:
    """The words of a comma-separated flag, in the order of `known`; None where the flag was not given."""
    if text is None:
        return None
    asked = [word.strip() for word in text.split(",")]
    for word in asked:
        if word not in known:
            from topologies.messages import did_you_mean

            raise typer.BadParameter(f"{word!r} is not known{did_you_mean(word, known)}", param_hint=flag)
    return tuple(word for word in known if word in asked)
