"""`planner calibrate`: coefficients of collectives and devices from measurements, or from this machine."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli import flags, streams, values
from planner.cli.outputs import Outputs
from planner.cli.streams import Format, Record
from topologies.sentences import counted

if TYPE_CHECKING:
    import pandas as pd

    from cost_models.coefficients import CollectiveCoefficients


def calibrate(
    device: Annotated[
        str,
        typer.Option(metavar="NAME", help="The device's name in topologies; without FILE, cpu or cuda."),
    ],
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE",
            help="nccl-tests logs, Kineto traces (.json, .json.gz), tables (.csv). Unset: measure this machine.",
            show_default=False,
        ),
    ] = None,
    link: Annotated[
        str | None,
        typer.Option(metavar="KIND", help="Collectives: the kind of link inside a node, as in nvlink4 or pcie."),
    ] = None,
    bandwidth: Annotated[
        str | None,
        typer.Option(metavar="RATE", help="Collectives: bandwidth of one port, one direction, from the data sheet."),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=VALUE", help="Kernel tables: use only these rows. May be repeated."),
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name for this machine's device in topologies. Unset: its own.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Measure for seconds instead of a minute.")] = False,
    processes: Annotated[
        str | None,
        typer.Option(
            metavar="N,...", help="cpu: measure gloo collectives among this many processes, as in 2,4, and no kernels."
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write the coefficients here.")
    ] = None,
    measurements: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the measurements of this machine here, as a table to calibrate from."),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Plot predicted against measured times (.png, .svg).")
    ] = None,
    output_format: flags.FormatFlag = Format.TABLE,
) -> None:
    """Fit coefficients to measurements.

    Collectives of a node: from nccl-tests logs, traces, or a table with
    operation, ranks, buffer_bytes and seconds. Kernels of a device: from
    traces, a table (lookup, update, copy, stream, matmul), or, without
    FILE, short microbenchmarks of this machine. The fit is robust least
    squares of relative errors; a coefficient that the measurements do not
    determine is left out, with the reason. To plan with the result, put it
    in the directory that PLANNER_COEFFICIENTS names.

    \b
    Examples:
      planner calibrate all_reduce_perf.log alltoall_perf.log \\
        --device H100-SXM5-80GB --link nvlink4 --bandwidth 450GB/s -o my.yaml
      planner calibrate --device cpu --measurements cpu.csv -o cpu.yaml
      planner calibrate --device cpu --processes 2,4 --name MY-CPU -o gloo.yaml
      planner calibrate kernels.csv --device MY-GPU --where placement=hbm
    """
    expect_places(output, measurements, plot, files or ())
    streams.doing("measuring" if not files else f"reading {counted(len(files), 'file')}")
    with extras():
        if processes is not None:
            flags.expect_unused("with --processes", files=files, where=where)
            among_processes(
                device, name, link, bandwidth, processes, output, measurements, plot, output_format, quick=quick
            )
            return
        if not files:
            flags.expect_unused("without FILE", link=link, bandwidth=bandwidth, where=where)
            this_machine(device, name, output, measurements, plot, output_format, quick=quick)
            return
        flags.expect_unused("with FILE", name=name, quick=quick or None, measurements=measurements)
        if are_collectives(files, link):
            collectives(files, device, link, bandwidth, output, plot, output_format)
        else:
            kernels(files, device, where, output, plot, output_format)


def expect_places(output: Path | None, measurements: Path | None, plot: Path | None, files: Sequence[Path]) -> None:
    """Raise BadParameter where a file cannot be written or is one to read, before anything is measured."""
    Outputs({"--output": output, "--measurements": measurements, "--plot": plot}, {"FILE": files})
    if plot is not None:
        from cost_models.calibration.plots import FORMATS

        if plot.suffix not in FORMATS:
            known = " or ".join(FORMATS)
            raise typer.BadParameter(f"{plot.name!r} is not a picture file; end it with {known}", param_hint="--plot")


@contextmanager
def extras() -> Iterator[None]:
    """What an optional package is missing for, instead of a traceback."""
    from cost_models.calibration.microbenchmarks import UnavailableError
    from topologies.errors import MissingPackageError

    try:
        yield
    except UnavailableError as error:
        raise typer.BadParameter(str(error), param_hint="--device") from None
    except ModuleNotFoundError as error:
        needs = {"scipy": ("calibration", "calibrate"), "matplotlib": ("--plot", "plot")}
        package = (error.name or "").partition(".")[0]
        if package not in needs:
            raise
        what, extra = needs[package]
        raise MissingPackageError(f"{what} needs {package}", extra) from None


def are_collectives(files: Sequence[Path], link: str | None) -> bool:
    """Whether the files are of collectives: a link is given, or some file is no table or trace of kernels."""
    from cost_models.calibration.kernel_tables import is_of_kernels

    return link is not None or not all(is_of_kernels(path) for path in files)


def collectives(
    files: Sequence[Path],
    device: str,
    link: str | None,
    bandwidth: str | None,
    output: Path | None,
    plot: Path | None,
    output_format: Format,
) -> None:
    """Laws of collectives."""
    from cost_models.calibration.measurements import read

    if link is None or bandwidth is None:
        raise typer.BadParameter("collectives need --link and --bandwidth")
    bytes_per_s = rate_of(bandwidth)
    rows, source = read(files), "planner calibrate: " + ", ".join(file.name for file in files)
    collective_laws(rows, device, link, bytes_per_s, source, output, plot, output_format)


def collective_laws(
    rows: "pd.DataFrame",
    device: str,
    link: str,
    bytes_per_s: float,
    source: str,
    output: Path | None,
    plot: Path | None,
    output_format: Format,
    *,
    among_processes: bool = False,
) -> None:
    """Fit, write and draw the laws of measured collectives."""
    from cost_models.calibration.collectives import calibrated, predicted_beside_measured
    from cost_models.calibration.files import collective_file

    name = output.stem if output else device
    streams.doing("fitting")
    origin = {"device": device, "link": link, "source": source}
    coefficients = calibrated(rows, name=name, bytes_per_s=bytes_per_s, among_processes=among_processes, **origin)
    write(output, collective_file(coefficients))
    draw(plot, lambda: predicted_beside_measured(rows, coefficients), f"{device}, {link}")
    streams.write_records(law_records(coefficients), output_format)


def among_processes(
    device: str,
    name: str | None,
    link: str | None,
    bandwidth: str | None,
    processes: str,
    output: Path | None,
    measurements: Path | None,
    plot: Path | None,
    output_format: Format,
    *,
    quick: bool,
) -> None:
    """Laws of collectives among processes of this machine."""
    from cost_models.calibration import gloo, microbenchmarks

    values.word("--device", device, ("cpu",))
    counts = processes.split(",")
    if not all(count.strip().isdecimal() and 2 <= int(count) <= gloo.MOST_PROCESSES for count in counts):
        message = f"{processes!r} must be numbers of 2 to {gloo.MOST_PROCESSES}, as 2,4"
        raise typer.BadParameter(message, param_hint="--processes")
    bytes_per_s = rate_of(bandwidth or gloo.BANDWIDTH)
    with streams.progress() as report:
        sizes = gloo.QUICK_BYTES if quick else gloo.BUFFER_BYTES
        rows = gloo.measure([int(count) for count in counts], sizes, report)
    if measurements is not None:
        _write_measurements(measurements, rows)
    source = f"planner calibrate --device cpu --processes {processes}{' --quick' * quick}: {gloo.software()}"
    called = name or microbenchmarks.device_name("cpu")
    where = link or gloo.LINK
    collective_laws(rows, called, where, bytes_per_s, source, output, plot, output_format, among_processes=True)


def rate_of(bandwidth: str) -> float:
    """Bytes per second of --bandwidth."""
    from topologies.units import parse_quantity

    try:
        return parse_quantity(bandwidth, "byte/second", "450GB/s")
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--bandwidth") from None


def law_records(coefficients: "CollectiveCoefficients") -> list[Record]:
    """What the laws rest on, one record each."""
    return [
        {
            "operation": law.operation,
            "ranks": law.ranks,
            "rows": law.rows,
            "from_bytes": law.buffer_bytes[0],
            "to_bytes": law.buffer_bytes[1],
            "mean_error": law.mean_error,
            "band_90": law.band_90,
        }
        for law in coefficients.laws
    ]


def kernels(
    files: Sequence[Path],
    device: str,
    where: Sequence[str] | None,
    output: Path | None,
    plot: Path | None,
    output_format: Format,
) -> None:
    """What a device achieves, from kernels that were measured before."""
    from cost_models.calibration.kernel_tables import read

    rows = read(files, conditions(where or ()))
    source = "planner calibrate: " + ", ".join([*(file.name for file in files), *(where or ())])
    device_terms(rows, device, device, source, output, plot, output_format)


def conditions(where: Sequence[str]) -> dict[str, str]:
    """Columns and their values of --where."""
    wanted = {}
    for words in where:
        column, equals, value = words.partition("=")
        if not (column and equals):
            raise typer.BadParameter(f"{words!r} is not COLUMN=VALUE", param_hint="--where")
        wanted[column] = value
    return wanted


def this_machine(
    device: str,
    name: str | None,
    output: Path | None,
    measurements: Path | None,
    plot: Path | None,
    output_format: Format,
    *,
    quick: bool,
) -> None:
    """What this machine's device achieves, from microbenchmarks."""
    from cost_models.calibration import microbenchmarks

    here = values.word("--device", device, microbenchmarks.DEVICES)
    origin = f"planner calibrate --device {here}{' --quick' * quick}: {microbenchmarks.software(here)}"
    with streams.progress() as report:
        rows = microbenchmarks.measure(here, microbenchmarks.plan_for(here, quick=quick), report)
    if measurements is not None:
        _write_measurements(measurements, rows)
    base = "CPU" if here == "cpu" else "default"
    device_terms(rows, name or microbenchmarks.device_name(here), base, origin, output, plot, output_format)


def device_terms(
    rows: "pd.DataFrame",
    name: str,
    base: str,
    source: str,
    output: Path | None,
    plot: Path | None,
    output_format: Format,
) -> None:
    """Fit, say what the measurements leave open, write and draw; what is not measured is as of the device `base`."""
    from cost_models.calibration.files import device_file
    from cost_models.calibration.kernels import calibrate as fitted
    from cost_models.calibration.kernels import device_coefficients_of
    from cost_models.coefficients import device_coefficients

    streams.doing("fitting")
    others = device_coefficients(base)
    terms = fitted(rows, source, others.sector_bytes.value)
    for words in terms.left_open:
        streams.say(f"left out: {words}")
    write(output, device_file(device_coefficients_of(terms, name, source, others)))
    draw(plot, lambda: terms.predicted, name)
    records = [term.record() for term in terms.terms]
    streams.write_records(records, output_format, formats={"value": "{:.4g}".format})


def write(output: Path | None, text: str) -> None:
    """Write a coefficient file where one is asked for."""
    if output is not None:
        from planner.document.files import write_file

        write_file(output, text.encode())
        streams.say(f"wrote {output}")


def _write_measurements(path: Path, rows: "pd.DataFrame") -> None:
    from planner.document import spreadsheets
    from planner.document.files import write_file

    write_file(path, spreadsheets.of_frame(rows).encode())
    streams.say(f"wrote {path}")


def draw(plot: Path | None, rows: "Callable[[], pd.DataFrame]", title: str) -> None:
    """Draw predicted against measured where a picture is asked for."""
    if plot is not None:
        from cost_models.calibration.plots import predicted_against_measured

        predicted_against_measured(rows(), plot, title)
        streams.say(f"wrote {plot}")
