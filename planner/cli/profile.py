"""`planner profile`: table profiles measured from logs of ids."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from planner.cli import flags, streams, values
from planner.cli.exits import ExitCode
from planner.cli.interruption import interruption
from planner.cli.outputs import Outputs
from planner.cli.streams import Format
from topologies.sentences import counted

if TYPE_CHECKING:
    from planner.profiling.measured import MeasuredTable
    from planner.profiling.run import Engine, Settings
    from planner.profiling.sources.source import Source
    from planner.profiling.stated import StatedTables

KEPT = "with what was counted so far kept"
USUAL_MEMORY = "1GiB"
KINDS = ("parquet", "csv", "criteo", "torch", "query", "nvtabular", "datasketches")
DIALECTS = ("duckdb", "spark", "bigquery")


class EngineName(StrEnum):
    """What counts."""

    LOCAL = "local"
    DUCKDB = "duckdb"
    DASK = "dask"


def profile(
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
    columns: Annotated[
        str | None,
        typer.Option(metavar="A,B,...", help="The columns of ids. Unset: all lists of ids; of CSV they are needed."),
    ] = None,
    tables: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="What is known of the tables: name, dim, rows, features (a|b), dtype, ..."),
    ] = None,
    dim: Annotated[
        int | None, typer.Option(metavar="N", min=4, help="The width of all tables, without --tables.")
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Samples of a step, for distinct ids. Unset: those of a file of tensors, or 65,536.",
        ),
    ] = None,
    session: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Names a sample's session, for ids that repeat in it.")
    ] = None,
    sample: Annotated[
        str | None, typer.Option(metavar="SHARE", help="Read this share of the data, evenly spread, as in 10%.")
    ] = None,
    kind: Annotated[
        str | None, typer.Option(metavar="KIND", help=f"{', '.join(KINDS)}. Unset: as names and first lines tell.")
    ] = None,
    separator: Annotated[
        str | None, typer.Option(metavar="C", help="Separates the ids in a cell of CSV, as in '|'.")
    ] = None,
    words: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Columns of CSV whose ids are words, not numbers.")
    ] = None,
    engine: Annotated[
        EngineName, typer.Option(help="Threads of this process, DuckDB (Parquet of numbers), or a Dask cluster.")
    ] = EngineName.LOCAL,
    scheduler: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="With --engine dask: tcp://HOST:PORT. Unset: processes of this machine."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Threads or processes. Unset: as many as there are cores.")
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="BYTES",
            help="For counts; more keeps more ids of large tables. Unset: 1GiB. DuckDB itself takes more.",
        ),
    ] = None,
    resume: Annotated[bool, typer.Option(help="Go on where an interrupted run of the same data stopped.")] = True,
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
        flags.expect_unused(
            "with --sql, which only prints the query",
            output=output, tables=tables, dim=dim, batch=batch, session=session, sample=sample, kind=kind,
            separator=separator, words=words, engine=None if engine is EngineName.LOCAL else engine,
            scheduler=scheduler, workers=workers, memory=memory, no_resume=None if resume else True, report=page,
            format=None if output_format is Format.TABLE else output_format,
        )  # fmt: skip
        _print_query(sql, data, _listed(columns))
        return
    engine_of = _engine(engine, scheduler, workers)
    share = values.share("--sample", sample) if sample is not None else 1.0
    if not 0 < share <= 1:
        raise typer.BadParameter(f"{sample} is not above 0 and at most 100%", param_hint="--sample")
    if sample is not None and engine is EngineName.DUCKDB:
        flags.expect_unused("with --engine duckdb, which reads all of the files", sample=sample)
    if output is None and page is None and output_format is Format.TABLE:
        raise typer.BadParameter("name the file to write, as in -o tables.csv", param_hint="--output")
    outputs = Outputs({"--output": output, "--report": page}, {"--tables": tables})

    from planner.profiling import kinds, writing
    from planner.profiling.run import USUAL_BATCH, Settings
    from planner.profiling.sources.files import data_files
    from planner.profiling.stated import StatedTables
    from planner.studies.runners import usable_cores

    if output is not None and not writing.is_known(output):
        raise typer.BadParameter(f"must end in {', '.join(writing.SUFFIXES)}", param_hint="--output")
    files = data_files(data)
    outputs.expect_unread("DATA", files)
    what = values.word("--kind", kind, KINDS) if kind is not None else kinds.kind_of(files)
    known = StatedTables(tables, kinds.measured_by(what)) if tables is not None else None
    if known is not None:
        flags.expect_unused("beside --tables, which states it", dim=dim)
    elif dim is None and output is not None:
        message = "say how wide tables are, as in --dim 128, or in a file of --tables: ids do not tell"
        raise typer.BadParameter(message, param_hint="--dim")
    elif dim is not None and dim % 4:
        raise typer.BadParameter(f"{dim} is not a multiple of 4; tables are padded to one", param_hint="--dim")
    if what in kinds.COUNTED:
        flags.expect_unused(
            f"with counts of {what}",
            columns=columns, batch=batch, session=session, sample=sample, separator=separator, words=words,
            scheduler=scheduler, workers=workers, engine=None if engine is EngineName.LOCAL else engine,
            memory=memory, no_resume=None if resume else True,
        )  # fmt: skip
        measured = _elsewhere(files, what, known)
    else:
        if what == kinds.TORCH:
            flags.expect_extra("torch", "calibrate-device", "DATA of tensors")
        if what != kinds.CSV:
            flags.expect_unused(f"with data of {what}", separator=separator, words=words)
        source = kinds.opened(files, what, _listed(columns), _listed(words) or (), separator)
        settings = Settings(
            batch=batch or source.batch or USUAL_BATCH,
            session=session,
            share=share,
            memory_bytes=float(values.byte_count("--memory", memory or USUAL_MEMORY)),
            workers=workers or usable_cores(),
            progress_file=None if output is None else output.with_name(f".{output.name}.progress"),
        )
        measured = _counted(source, known, settings, engine_of, chosen=columns is not None, resume=resume, quiet=quiet)
    _write(measured, dim, ", ".join(data), output, page)
    _print(measured, output_format)


def _listed(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(each.strip() for each in text.split(",") if each.strip())


def _print_query(dialect: str, data: Sequence[str], columns: tuple[str, ...] | None) -> None:
    from planner.profiling.queries import query

    dialect = values.word("--sql", dialect, DIALECTS)
    if not columns:
        raise typer.BadParameter("name the columns of lists that hold ids", param_hint="--columns")
    if len(data) != 1:
        raise typer.BadParameter("name one table, or what else can stand behind FROM", param_hint="DATA")
    print(query(dialect, data[0], columns))


def _engine(name: EngineName, scheduler: str | None, workers: int | None) -> "Engine":
    if name is not EngineName.DASK:
        flags.expect_unused("without --engine dask", scheduler=scheduler)
    elif scheduler is not None:
        flags.expect_unused("beside --scheduler, whose cluster has its own", workers=workers)
    if name is EngineName.DUCKDB:
        flags.expect_extra("duckdb", "profile", "--engine duckdb")
        from planner.profiling.engines.duckdb import count_in_duckdb

        return count_in_duckdb
    if name is EngineName.DASK:
        flags.expect_extra("distributed", "dask", "--engine dask")
        from planner.profiling.engines.dask import dask_engine

        return dask_engine(scheduler)
    from planner.profiling.engines.local import count_locally

    return count_locally


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
