"""The part of the page that compares estimate and simulation: written, and read to make single rows anew."""

from collections.abc import Sequence

from benchmarks.validation import catalog
from benchmarks.validation.catalog import Comparison
from planner.diagnosis.drift import DRIFTED

HEADING = "## Against the estimate\n"
ALL_PAIRS = "All pairs:\n"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def against_the_estimate(comparisons: Sequence[Comparison]) -> str:
    """The part of the page that has a row for each pair of the catalog."""
    topologies = ", ".join(dict.fromkeys(each.topology for each in comparisons))
    near = sum(abs(each.difference) <= 0.03 for each in comparisons)
    share = f"{near} of {len(comparisons)} pairs of topology and workload are within 3 %"
    own = sum(abs(each.drawn_difference) <= DRIFTED for each in comparisons)
    share += (
        f"; with rows that the simulator draws and counts itself, {own} are within {DRIFTED * 100:.0f} % of the"
        " estimate with what hot rows of tables that are cut by rows take beyond it, by the mean of"
        f" {catalog.DRAWN} drawn batches where that is more than {catalog.HOT:.0%}"
    )
    return "\n".join(
        [
            HEADING,
            f"Quick plans on {topologies}: the first that the search of `--effort 0` finds less than"
            f" {catalog.LIMITS.gap:.0%} above its bound; {share}. {_differing(comparisons)}",
            ALL_PAIRS,
            table(
                ("topology", "workload", "estimate", "simulated", "difference", "hot rows", "with rows drawn"),
                [
                    (
                        each.topology,
                        each.workload,
                        f"{each.estimate_s * 1e3:.3f} ms",
                        f"{each.simulated_s * 1e3:.3f} ms",
                        f"{each.difference:+.1%}",
                        f"{each.hot_rows_s / each.estimate_s:+.1%}",
                        f"{each.drawn_difference:+.1%}",
                    )
                    for each in comparisons
                ],
            ),
        ]
    )


def _differing(comparisons: Sequence[Comparison]) -> str:
    """The pairs that differ much, and why; or that there are none."""
    rows = [
        (
            each.topology,
            each.workload,
            f"{each.difference:+.1%}",
            each.cause.stage,
            _percent(each.cause.alike),
            _percent(each.cause.planned),
        )
        for each in comparisons
        if each.cause is not None
    ]
    if not rows:
        return f"None differs by more than {DRIFTED * 100:.0f} %.\n"
    header = ("topology", "workload", "difference", "most in", "ranks of a switch alike", "`planner plan --effort 0`")
    return (
        f"Where they differ by more than {DRIFTED * 100:.0f} %: in which stage most, what is left of the"
        " difference where the ranks of each PCIe switch are given equal parts of what they hold together, and how much"
        f" the plan differs that `planner plan --effort 0` makes, whose search goes on:\n\n{table(header, rows)}"
    )


def _percent(share: float) -> str:
    return f"{share:+.1%}"


def with_pairs(text: str, pairs: Sequence[tuple[str, str]]) -> str:
    """The page with the rows of these pairs made anew, and those that differ much; the rest stays as it is.

    Raises ValueError for a pair that does not fit, or that the page does not have.
    """
    before, _, section = text.partition(HEADING)
    lines = {pair: line for line in section.partition(ALL_PAIRS)[2].splitlines() if (pair := _pair(line))}
    if unknown := [f"{topology}/{workload}" for topology, workload in pairs if (topology, workload) not in lines]:
        raise ValueError(f"no row of the page is of {', '.join(unknown)}")
    held = {pair: _held(line) for pair, line in lines.items()}
    anew = [pair for pair, each in held.items() if pair in pairs or abs(each.difference) > DRIFTED]
    for pair in anew:
        found = catalog.compare(*pair)
        if found is None:
            raise ValueError(f"{'/'.join(pair)} does not fit any more")
        held[pair] = found
    made, _, table_made = against_the_estimate(list(held.values())).partition(ALL_PAIRS)
    rows = [line if (pair := _pair(line)) is None or pair in anew else lines[pair] for line in table_made.split("\n")]
    return before + made + ALL_PAIRS + "\n".join(rows)


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def _pair(line: str) -> tuple[str, str] | None:
    """The topology and workload of a row; None of any other line."""
    cells = _cells(line)
    return (cells[0], cells[1]) if len(cells) == 7 and cells[2].endswith(" ms") else None


def _held(line: str) -> Comparison:
    """What a row says, as precisely as it is printed."""
    topology, workload, *times, _, hot, drawn = _cells(line)
    estimate_s, played_s = (float(cell.removesuffix(" ms")) / 1e3 for cell in times)
    hot_rows_s = estimate_s * float(hot.strip("%")) / 100
    drawn_s = (estimate_s + hot_rows_s) * (1 + float(drawn.strip("%")) / 100)
    return Comparison(topology, workload, estimate_s, played_s, drawn_s, hot_rows_s, None)
