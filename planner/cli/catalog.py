"""`planner catalog`: the clusters, models, studies, runs and price sheets that come with the planner."""

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated

import typer

from planner.cli import flags, streams
from planner.cli.group import CommandGroup
from planner.cli.streams import Format, Record

app = typer.Typer(cls=CommandGroup, no_args_is_help=True, rich_markup_mode=None)


class Shelves(StrEnum):
    """What the catalog holds."""

    TOPOLOGIES = "topologies"
    WORKLOADS = "workloads"
    STUDIES = "studies"
    RUNS = "runs"
    PRICES = "prices"


class CatalogKind(StrEnum):
    """One of what the catalog holds."""

    TOPOLOGY = "topology"
    WORKLOAD = "workload"
    STUDY = "study"
    RUN = "run"
    PRICES = "price sheet"


@app.callback()
def catalog() -> None:
    """Show the shipped clusters, models, studies, runs, prices.

    \b
    Example:
      planner catalog list
    """


@app.command("list")
def list_(
    what: Annotated[
        Shelves | None,
        typer.Argument(
            metavar="KIND", help="topologies, workloads, studies, runs or prices. Unset: all.", show_default=False
        ),
    ] = None,
    output_format: flags.FormatFlag = Format.TABLE,
) -> None:
    """List the catalog: names, key figures, descriptions.

    \b
    Example:
      planner catalog list topologies
    """
    if what is not None:
        streams.write_records(_LISTS[what](), output_format, formats=_formats())
    elif output_format.is_text:
        for number, records in enumerate(make() for make in _LISTS.values()):
            if number:
                streams.write_text("")
            streams.write_records(records, output_format, formats=_formats())
    else:
        streams.write_records(
            [
                {"kind": kind, "name": record["name"], "description": record["description"]}
                for kind, make in zip(CatalogKind, _LISTS.values(), strict=True)
                for record in make()
            ],
            output_format,
        )


@app.command()
def show(
    name: flags.CatalogNameArgument,
    kind: Annotated[
        CatalogKind | None,
        typer.Option(metavar="KIND", help="topology, workload, study, run or 'price sheet'.", show_default=False),
    ] = None,
) -> None:
    """Print one entry: YAML with the sources of its numbers.

    Save and edit it to describe your own cluster or model. An instance of a
    cloud is shown with the entry that it is based on, and what differs.

    \b
    Examples:
      planner catalog show zionex-16 > my-cluster.yaml
      planner catalog show p5.48xlarge
    """
    kinds = [kind] if kind else list(CatalogKind)
    matching = [choice for choice in kinds if name in flags.catalog_names(choice)]
    if not matching:
        from topologies.messages import did_you_mean

        raise typer.BadParameter(
            f"the catalog has no {name!r}{did_you_mean(name, flags.catalog_names(*kinds))}", param_hint="NAME"
        )
    if len(matching) > 1:
        raise typer.BadParameter(
            f"{name!r} is both a {matching[0].value} and a {matching[1].value}; add --kind {matching[0].value}"
            f" or --kind {matching[1].value}",
            param_hint="NAME",
        )
    file = flags.SHELVES[matching[0]] / f"{name}.yaml"
    text = file.read_text(encoding="utf-8") if file.is_file() else flags.INSTANCES.text(name)
    streams.write_text(text.rstrip("\n"))


@app.command()
def coefficients(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="A device, link, software profile or measured system. Unset: all.", show_default=False
        ),
    ] = None,
    output_format: flags.FormatFlag = Format.TABLE,
) -> None:
    """List the coefficients of the cost model.

    Each with its unit, its kind (spec, measured, fitted or assumed), the
    error that nine in ten measurements stay within and, in csv and json,
    its source and range of validity. A device without measurements shows
    the factors applied to its data sheet.

    \b
    Examples:
      planner catalog coefficients A100-SXM4-80GB
      planner catalog coefficients --format csv
    """
    from planner.reports.coefficients import records

    shown = records(name)
    if output_format.is_text:
        shown = [{key: value for key, value in record.items() if key not in ("valid", "source")} for record in shown]
    streams.write_records(shown, output_format)


def _formats() -> dict[str, Callable[[float], str]]:
    from topologies.units import format_bytes

    return {"hbm_bytes": format_bytes, "weight_bytes": format_bytes}


def _topologies() -> list[Record]:
    from planner.cli.figures import hbm_bytes
    from topologies.loading import load_topology

    loaded = {name: load_topology(name) for name in flags.catalog_names(CatalogKind.TOPOLOGY)}
    return [
        {
            "name": name,
            "nodes": topology.node_count,
            "ranks": topology.world_size,
            "hbm_bytes": hbm_bytes(topology),
            "description": _first_line(topology.description),
        }
        for name, topology in loaded.items()
    ]


def _workloads() -> list[Record]:
    from cost_models.workload.loading import load_workload
    from planner.cli.figures import weight_bytes

    loaded = {name: load_workload(name) for name in flags.catalog_names(CatalogKind.WORKLOAD)}
    return [
        {
            "name": name,
            "tables": len(workload.tables),
            "weight_bytes": weight_bytes(workload),
            "description": _first_line(workload.description),
        }
        for name, workload in loaded.items()
    ]


def _studies() -> list[Record]:
    from planner.studies.grid import Grid
    from planner.studies.study import read_study

    grids = {name: Grid(*read_study(name)) for name in flags.catalog_names(CatalogKind.STUDY)}
    return [
        {"name": name, "points": len(grid), "description": _first_line(grid.study.description)}
        for name, grid in grids.items()
    ]


def _runs() -> list[Record]:
    from planner.runs.run import read_run

    runs = {name: read_run(name)[0] for name in flags.catalog_names(CatalogKind.RUN)}
    return [
        {"name": name, "stages": len(run.stages), "description": _first_line(run.description)}
        for name, run in runs.items()
    ]


def _price_sheets() -> list[Record]:
    from planner.capacity.prices import load_prices

    sheets = {name: load_prices(name) for name in flags.catalog_names(CatalogKind.PRICES)}
    return [
        {"name": name, "date": sheet.date.isoformat(), "description": _first_line(sheet.description)}
        for name, sheet in sheets.items()
    ]


_LISTS: dict[Shelves, Callable[[], list[Record]]] = {
    Shelves.TOPOLOGIES: _topologies,
    Shelves.WORKLOADS: _workloads,
    Shelves.STUDIES: _studies,
    Shelves.RUNS: _runs,
    Shelves.PRICES: _price_sheets,
}


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
