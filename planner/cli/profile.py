"""`planner profile`: table profiles measured from logs of ids."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from planner.cli import flags, streams, values
from planner.cli.exits import ExitCode
from planner.cli.flag_groups import grouped
from planner.cli.interruption import interruption
from planner.cli.outputs import Outputs
from planner.cli.profile_flags import KINDS, CountingFlags, ReadingFlags, listed
from planner.cli.streams import Format
from topologies.sentences import counted

if TYPE_CHECKING:
    from planner.profiling.measured import MeasuredTable
    from planner.profiling.run import Engine, Settings
    from planner.profiling.sources.source import Source
    from planner.profiling.stated import StatedTables

KEPT = "with what was counted so far kept"
DIALECTS = ("duckdb", "spark", "bigquery")


@grouped
def profile(
    *,
    data: Annotated[
        list[str],
        typer.Argument(metavar="DATA...", help="Files, folders or patterns; with --sql a table.", show_default=False),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write the profiles here: .csv, .parquet or .yaml.",
            show_default=False,
        ),
    ] = None,
    reading: ReadingFlags,
    counting: CountingFlags,
    sql: Annotated[
        str | None,
        typer.Option(metavar="DIALECT", help=f"Print the query to run where the data is: {', '.join(DIALECTS)}."),
    ] = None,
    page: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="Write a page with the curves here: HTML.")
    ] = None,
    output_format: flags.FormatFlag = Format.TABLE,
    quiet: flags.QuietFlag = False,
) -> None:
    """Measure table profiles from logs of ids.

    Reads Parquet (columns of lists), CSV, Criteo's logs and FBGEMM's or
    TorchRec's tensors in one pass and bounded memory: rows, ids per sample,
    access curve, distinct ids of a batch, ids that repeat in a session.
    Counts made elsewhere are read, too: the result of the query that --sql
    prints, NVTabular's categories, sketches (<table>.frequent, <table>.hll).

    \b
    Examples:
      planner profile logs/ --dim 128 -o tables.csv
      planner profile day_0.gz --dim 128 --batch 55296 -o tables.csv
      planner profile logs/ --tables widths.csv --session user -o tables.csv
      planner profile mydb.logs --sql spark --columns items,users > query.sql
    """
    if sql is not None:
        unused = {name: value for name, value in vars(reading).items() if name != "columns"} | counting.given()
        wanted = None if output_format is Format.TABLE else output_format
        flags.expect_unused(
            "with --sql, which only prints the query", output=output, **unused, report=page, format=wanted
        )
        _print_query(sql, data, listed(reading.columns))
        return
    engine, share = counting.chosen_engine(), reading.share(counting.engine)
    if output is None and page is None and output_format is Format.TABLE:
        raise typer.BadParameter("name the file to write, as in -o tables.csv", param_hint="--output")
    outputs = Outputs({"--output": output, "--report": page}, {"--tables": reading.tables})

    from planner.processes import usable_cores
    from planner.profiling import kinds, writing
    from planner.profiling.run import USUAL_BATCH, Settings
    from planner.profiling.sources.files import data_files

    if output is not None and not writing.is_known(output):
        raise typer.BadParameter(f"must end in {', '.join(writing.SUFFIXES)}", param_hint="--output")
    files = data_files(data)
    outputs.expect_unread("DATA", files)
    kind = values.word("--kind", reading.kind, KINDS) if reading.kind is not None else kinds.kind_of(files)
    known = reading.stated_tables(kind, output)
    if kind in kinds.COUNTED:
        unused = {name: value for name, value in vars(reading).items() if name not in {"tables", "dim", "kind"}}
        flags.expect_unused(f"with counts of {kind}", **unused, **counting.given())
        measured = _elsewhere(files, kind, known)
    else:
        source = reading.source(files, kind)
        settings = Settings(
            batch=reading.batch or source.batch or USUAL_BATCH,
            session=reading.session,
            share=share,
            memory_bytes=counting.memory_bytes,
            workers=counting.workers or usable_cores(),
            progress_file=None if output is None else output.with_name(f".{output.name}.progress"),
        )
        chosen = reading.columns is not None
        measured = _counted(source, known, settings, engine, chosen=chosen, resume=counting.resume, quiet=quiet)
    _write(measured, reading.dim, ", ".join(data), output, page)
    _print(measured, output_format)


def _print_query(dialect: str, data: Sequence[str], columns: tuple[str, ...] | None) -> None:
    from planner.profiling.queries import query

    dialect = values.word("--sql", dialect, DIALECTS)
    if not columns:
        raise typer.BadParameter("name the columns of lists that hold ids", param_hint="--columns")
    if len(data) != 1:
        raise typer.BadParameter("name one table, or what else can stand behind FROM", param_hint="DATA")
    print(query(dialect, data[0], columns))


def _elsewhere(files: Sequence[Path], kind: str, known: "StatedTables | None") -> "list[MeasuredTable]":
    from planner.profiling import kinds
    from planner.profiling.measured import measured

    if kind == kinds.SKETCHES:
        flags.expect_extra("datasketches", "profile", "DATA of sketches")
    found = kinds.counted(files, kind)
    names = known.columns(tuple(found)) if known is not None else {name: (name,) for name in found}
    for table, its in names.items():
        if len(its) > 1:
            message = (
                f"{table} has {counted(len(its), 'feature')}; counts made apart cannot be joined: count them together"
            )
            raise typer.BadParameter(message, param_hint="--tables")
    stated = known.of if known is not None else {}
    every = (measured(name, its, found[its[0]], stated.get(name, {}), 0) for name, its in names.items())
    return [table for table in every if table is not None]


def _counted(
    source: "Source",
    known: "StatedTables | None",
    settings: "Settings",
    engine: "Engine",
    *,
    chosen: bool,
    resume: bool,
    quiet: bool,
) -> "list[MeasuredTable]":
    from planner.profiling.measured import shortened
    from planner.profiling.run import profile as count
    from planner.profiling.sources.tables import TableSource

    columns = known.columns(source.features) if known is not None else {name: (name,) for name in source.features}
    tables = TableSource(source, columns)
    if tables.left_out and not chosen and not quiet:
        reason = "no lists of ids; name columns with --columns" if known is None else "no lists of ids, or of no table"
        streams.say(f"left out: {shortened(tables.left_out)} ({reason})")

    def resumed(share: float) -> None:
        if not quiet:
            streams.say(f"going on where an earlier run stopped, at {share:.0%}")

    if not resume and settings.progress_file is not None:
        settings.progress_file.unlink(missing_ok=True)
    with interruption(KEPT) as stopped, _ids_shown(quiet=quiet) as follow:
        found = count(
            tables,
            known.of if known is not None else {},
            settings,
            engine=engine,
            stop=stopped,
            shown=follow,
            resumed=resumed,
        )
        if found is None:
            kept = settings.progress_file is not None
            streams.say("run the same command again to go on" if kept else "nothing is kept without --output")
            stopped.end()
            raise typer.Exit(ExitCode.BUG)
    missing = [name for name in columns if name not in {table.name for table in found}]
    if missing:
        streams.say(f"warning: no ids of {shortened(missing)}; left out of the profile")
    return found


@contextmanager
def _ids_shown(*, quiet: bool) -> Iterator[Callable[[float, int], None]]:
    """What is called with the share of the work that is done, and the ids read so far."""
    import time

    began = said = time.monotonic()
    first_share: list[float] = []

    def shown(share: float, ids: int) -> None:
        nonlocal said
        now = time.monotonic()
        first_share[:] = first_share or [share]
        rate = ids / max(now - began, 1e-9)
        done = share - first_share[0]
        left = (now - began) / done * (1 - share) if done > 0 else 0.0
        words = f"{share:.0%} of the data, {rate / 1e6:,.1f} M ids/s" + (
            f", about {left:,.0f} s left" if done > 0 else ""
        )
        if streams.is_watched():
            streams.doing(words)
        elif now - said >= streams.LINE_EVERY_S:
            said = now
            streams.say(words)

    yield (lambda _share, _ids: None) if quiet else shown


def _write(
    measured: "Sequence[MeasuredTable]", dim: int | None, source: str, output: Path | None, page: Path | None
) -> None:
    from planner.document.files import write_file
    from planner.profiling import writing
    from planner.profiling.stated import validated
    from topologies.errors import InputError

    if not measured:
        raise InputError.at(source, "holds no ids")
    rows = [{**({} if dim is None else {"dim": dim}), **table.profile()} for table in measured]
    if output is not None:
        profiles = validated(rows, source)
        write_file(output, writing.content(profiles, output.suffix.lower()))
    if page is not None:
        flags.expect_extra("plotly", "report", "--report")
        from planner.reports.pages import profile_page, to_html

        write_file(page, to_html(profile_page(measured, source, dim)).encode())


def _print(measured: "Sequence[MeasuredTable]", output_format: Format) -> None:
    from planner.profiling.measured import warnings_of

    records: list[Mapping[str, Any]] = [table.record() for table in measured]
    formats = {
        "ids": lambda value: f"{value:,.3g}",
        "spread": lambda value: f"{value:,.3g}",
        "distinct": "{:.1%}".format,
        "top_1%": "{:.1%}".format,
        "top_10%": "{:.1%}".format,
    }
    streams.write_records(records, output_format, formats=formats)
    for warning in warnings_of(measured):
        streams.say(f"warning: {warning}")
