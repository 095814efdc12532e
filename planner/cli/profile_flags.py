"""The flags of `planner profile` that say what is read, and how it is counted."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli import flags, values

if TYPE_CHECKING:
    from planner.profiling.run import Engine
    from planner.profiling.sources.source import Source
    from planner.profiling.stated import StatedTables

USUAL_MEMORY = "1GiB"
KINDS = ("parquet", "csv", "criteo", "torch", "query", "nvtabular", "datasketches")


class EngineName(StrEnum):
    """What counts."""

    LOCAL = "local"
    DUCKDB = "duckdb"
    DASK = "dask"


@dataclass(frozen=True)
class ReadingFlags:
    """What is read of the data, and as what."""

    columns: Annotated[
        str | None,
        typer.Option(metavar="A,B,...", help="The columns of ids. Unset: all lists of ids; of CSV they are needed."),
    ] = None
    tables: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="What is known of the tables: name, dim, rows, features (a|b), dtype, ..."),
    ] = None
    dim: Annotated[int | None, typer.Option(metavar="N", min=4, help="The width of all tables, without --tables.")] = (
        None
    )
    batch: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Samples of a step, for distinct ids. Unset: those of a file of tensors, or 65,536.",
        ),
    ] = None
    session: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Names a sample's session, for ids that repeat in it.")
    ] = None
    sample: Annotated[
        str | None, typer.Option(metavar="SHARE", help="Read this share of the data, evenly spread, as in 10%.")
    ] = None
    kind: Annotated[
        str | None, typer.Option(metavar="KIND", help=f"{', '.join(KINDS)}. Unset: as names and first lines tell.")
    ] = None
    separator: Annotated[
        str | None, typer.Option(metavar="C", help="Separates the ids in a cell of CSV, as in '|'.")
    ] = None
    words: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Columns of CSV whose ids are words, not numbers.")
    ] = None

    def share(self, engine: EngineName) -> float:
        """The share of the data that is read, above 0 and at most 1."""
        if self.sample is None:
            return 1.0
        share = values.share("--sample", self.sample)
        if not 0 < share <= 1:
            raise typer.BadParameter(f"{self.sample} is not above 0 and at most 100%", param_hint="--sample")
        if engine is EngineName.DUCKDB:
            flags.expect_unused("with --engine duckdb, which reads all of the files", sample=self.sample)
        return share

    def stated_tables(self, kind: str, output: Path | None) -> "StatedTables | None":
        """What --tables says; without it, --dim must where profiles are written."""
        from planner.profiling import kinds
        from planner.profiling.stated import StatedTables

        if self.tables is not None:
            known = StatedTables(self.tables, kinds.measured_by(kind))
            flags.expect_unused("beside --tables, which states it", dim=self.dim)
            return known
        if self.dim is None and output is not None:
            message = "say how wide tables are, as in --dim 128, or in a file of --tables: ids do not tell"
            raise typer.BadParameter(message, param_hint="--dim")
        if self.dim is not None and self.dim % 4:
            message = f"{self.dim} is not a multiple of 4; tables are padded to one"
            raise typer.BadParameter(message, param_hint="--dim")
        return None

    def source(self, files: Sequence[Path], kind: str) -> "Source":
        """The data, opened."""
        from planner.profiling import kinds

        if kind == kinds.TORCH:
            flags.expect_extra("torch", "calibrate-device", "DATA of tensors")
        if kind != kinds.CSV:
            flags.expect_unused(f"with data of {kind}", separator=self.separator, words=self.words)
        return kinds.opened(files, kind, listed(self.columns), listed(self.words) or (), self.separator)


@dataclass(frozen=True)
class CountingFlags:
    """What counts, and with what."""

    engine: Annotated[
        EngineName, typer.Option(help="Threads of this process, DuckDB (Parquet of numbers), or a Dask cluster.")
    ] = EngineName.LOCAL
    scheduler: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="With --engine dask: tcp://HOST:PORT. Unset: processes of this machine."),
    ] = None
    workers: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Threads or processes. Unset: as many as there are cores.")
    ] = None
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="BYTES",
            help="For counts; more keeps more ids of large tables. Unset: 1GiB. DuckDB itself takes more.",
        ),
    ] = None
    resume: Annotated[bool, typer.Option(help="Go on where an interrupted run of the same data stopped.")] = True

    def given(self) -> dict[str, object]:
        """Those that are not as usual, by name; None the others."""
        engine, no_resume = None if self.engine is EngineName.LOCAL else self.engine, None if self.resume else True
        return {**vars(self), "engine": engine, "resume": None, "no_resume": no_resume}

    @property
    def memory_bytes(self) -> float:
        """Bytes that counts may take."""
        return float(values.byte_count("--memory", self.memory or USUAL_MEMORY))

    def chosen_engine(self) -> "Engine":
        """What counts, with the package that it needs."""
        if self.engine is not EngineName.DASK:
            flags.expect_unused("without --engine dask", scheduler=self.scheduler)
        elif self.scheduler is not None:
            flags.expect_unused("beside --scheduler, whose cluster has its own", workers=self.workers)
        if self.engine is EngineName.DUCKDB:
            flags.expect_extra("duckdb", "profile", "--engine duckdb")
            from planner.profiling.engines.duckdb import count_in_duckdb

            return count_in_duckdb
        if self.engine is EngineName.DASK:
            flags.expect_extra("distributed", "dask", "--engine dask")
            from planner.profiling.engines.dask import dask_engine

            return dask_engine(self.scheduler)
        from planner.profiling.engines.local import count_locally

        return count_locally


def listed(text: str | None) -> tuple[str, ...] | None:
    """The words of a list with commas."""
    return None if text is None else tuple(each.strip() for each in text.split(",") if each.strip())
