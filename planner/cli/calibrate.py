"""`planner calibrate`: coefficients of collectives from measurements."""

from pathlib import Path
from typing import Annotated

import typer

from planner.cli import flags, streams
from planner.cli.streams import Format


def calibrate(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE", help="Logs of nccl-tests, Kineto traces (.json, .json.gz), tables (.csv)."),
    ],
    device: Annotated[str, typer.Option(metavar="NAME", help="The device as a topology calls it.")],
    link: Annotated[str, typer.Option(metavar="KIND", help="The kind of link inside a node: nvlink4, pcie …")],
    bandwidth: Annotated[str, typer.Option(metavar="RATE", help="Of one port, one direction, by the data sheet.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write the coefficients here.")
    ] = None,
    output_format: flags.FormatFlag = Format.TABLE,
) -> None:
    """Fit the collectives of a node to measurements.

    Robust least squares in relative errors; refuses what the measurements
    cannot tell. A table has the columns operation, ranks, buffer_bytes and
    seconds. Plans use the file where it lies in a directory that
    PLANNER_COEFFICIENTS names.

    \b
    Example:
      planner calibrate all_reduce_perf.log alltoall_perf.log \\
        --device H100-SXM5-80GB --link nvlink4 --bandwidth 450GB/s -o my.yaml
    """
    from cost_models.calibration.collectives import calibrated
    from cost_models.calibration.files import collective_file
    from cost_models.calibration.measurements import read
    from topologies.units import parse_quantity

    if output is not None:
        flags.expect_place("--output", output)
    try:
        bytes_per_s = parse_quantity(bandwidth, "byte/second", "450GB/s")
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--bandwidth") from None
    rows, source = read(files), "planner calibrate: " + ", ".join(file.name for file in files)
    name = output.stem if output else device
    try:
        found = calibrated(rows, name=name, device=device, link=link, bytes_per_s=bytes_per_s, source=source)
    except ModuleNotFoundError as error:
        if error.name != "scipy":
            raise
        streams.say("planner: calibration needs SciPy; pip install 'shardplan[calibrate]'")
        raise typer.Exit(2) from None
    if output is not None:
        output.write_text(collective_file(found), encoding="utf-8")
        streams.say(f"wrote {output}")
    records = [
        {
            "operation": law.operation,
            "ranks": law.ranks,
            "rows": law.rows,
            "from_bytes": law.buffer_bytes[0],
            "to_bytes": law.buffer_bytes[1],
            "mean_error": law.mean_error,
            "band_90": law.band_90,
        }
        for law in found.laws
    ]
    streams.write_records(records, output_format)
