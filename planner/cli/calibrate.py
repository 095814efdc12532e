"""`planner calibrate`: coefficients of collectives and devices from measurements, or from this machine."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli import flags, streams, values
from planner.cli.flag_groups import grouped
from planner.cli.outputs import Outputs
from planner.cli.streams import Format, Record
from topologies.sentences import counted

if TYPE_CHECKING:
    import pandas as pd

    from cost_models.coefficients import CollectiveCoefficients


@dataclass(frozen=True)
class OutputFlags:
    """What is written, drawn and printed."""

    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write the coefficients here.")
    ] = None
    measurements: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the measurements of this machine here, as a table to calibrate from."),
    ] = None
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Plot predicted against measured times (.png, .svg).")
    ] = None
    output_format: flags.FormatFlag = Format.TABLE

    def expect_places(self, files: Sequence[Path]) -> None:
        """Raise BadParameter where a file cannot be written or is one to read, before anything is measured."""
        Outputs({"--output": self.output, "--measurements": self.measurements, "--plot": self.plot}, {"FILE": files})
        if self.plot is not None:
            from cost_models.calibration.plots import FORMATS

            if self.plot.suffix not in FORMATS:
                message = f"{self.plot.name!r} is not a picture file; end it with {' or '.join(FORMATS)}"
                raise typer.BadParameter(message, param_hint="--plot")

    def write(self, text: str) -> None:
        """Write a coefficient file where one is asked for."""
        if self.output is not None:
            from planner.document.files import write_file

            write_file(self.output, text.encode())
            streams.say(f"wrote {self.output}")

    def write_measurements(self, rows: "pd.DataFrame") -> None:
        """Write what was measured where it is asked for."""
        if self.measurements is not None:
            from planner.document import spreadsheets
            from planner.document.files import write_file

            write_file(self.measurements, spreadsheets.of_frame(rows).encode())
            streams.say(f"wrote {self.measurements}")

    def draw(self, rows: "Callable[[], pd.DataFrame]", title: str) -> None:
        """Draw predicted against measured where a picture is asked for."""
        if self.plot is not None:
            from cost_models.calibration.plots import predicted_against_measured

            predicted_against_measured(rows(), self.plot, title)
            streams.say(f"wrote {self.plot}")


@grouped
def calibrate(
    *,
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
    quick: Annotated[bool, typer.Option("--quick", help="Measure for seconds instead of minutes.")] = False,
    processes: Annotated[
        str | None,
        typer.Option(
            metavar="N,...", help="cpu: measure gloo collectives among this many processes, as in 2,4, and no kernels."
        ),
    ] = None,
    to: OutputFlags,
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
    to.expect_places(files or ())
    streams.doing("measuring" if not files else f"reading {counted(len(files), 'file')}")
    with extras():
        if processes is not None:
            flags.expect_unused("with --processes", files=files, where=where)
            among_processes(device, name, link, bandwidth, processes, to, quick=quick)
            return
        if not files:
            flags.expect_unused("without FILE", link=link, bandwidth=bandwidth, where=where)
            this_machine(device, name, to, quick=quick)
            return
        flags.expect_unused("with FILE", name=name, quick=quick or None, measurements=to.measurements)
        if are_collectives(files, link):
            collectives(files, device, link, bandwidth, to)
        else:
            kernels(files, device, where, to)


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


def collectives(files: Sequence[Path], device: str, link: str | None, bandwidth: str | None, to: OutputFlags) -> None:
    """Laws of collectives."""
    from cost_models.calibration.measurements import read

    if link is None or bandwidth is None:
        raise typer.BadParameter("collectives need --link and --bandwidth")
    bytes_per_s = rate_of(bandwidth)
    rows, source = read(files), "planner calibrate: " + ", ".join(file.name for file in files)
    collective_laws(rows, device, link, bytes_per_s, source, to)


def collective_laws(
    rows: "pd.DataFrame",
    device: str,
    link: str,
    bytes_per_s: float,
    source: str,
    to: OutputFlags,
    *,
    among_processes: bool = False,
) -> None:
    """Fit, write and draw the laws of measured collectives."""
    from cost_models.calibration.collectives import calibrated, predicted_beside_measured
    from cost_models.calibration.files import collective_file

    name = to.output.stem if to.output else device
    streams.doing("fitting")
    origin = {"device": device, "link": link, "source": source}
    coefficients = calibrated(rows, name=name, bytes_per_s=bytes_per_s, among_processes=among_processes, **origin)
    to.write(collective_file(coefficients))
    to.draw(lambda: predicted_beside_measured(rows, coefficients), f"{device}, {link}")
    streams.write_records(law_records(coefficients), to.output_format)


def among_processes(
    device: str,
    name: str | None,
    link: str | None,
    bandwidth: str | None,
    processes: str,
    to: OutputFlags,
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
    to.write_measurements(rows)
    source = f"planner calibrate --device cpu --processes {processes}{' --quick' * quick}: {gloo.software()}"
    called = name or microbenchmarks.device_name("cpu")
    where = link or gloo.LINK
    collective_laws(rows, called, where, bytes_per_s, source, to, among_processes=True)


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


def kernels(files: Sequence[Path], device: str, where: Sequence[str] | None, to: OutputFlags) -> None:
    """What a device achieves, from kernels that were measured before."""
    from cost_models.calibration.kernel_tables import read

    rows = read(files, conditions(where or ()))
    source = "planner calibrate: " + ", ".join([*(file.name for file in files), *(where or ())])
    device_terms(rows, device, device, source, to)


def conditions(where: Sequence[str]) -> dict[str, str]:
    """Columns and their values of --where."""
    wanted = {}
    for words in where:
        column, equals, value = words.partition("=")
        if not (column and equals):
            raise typer.BadParameter(f"{words!r} is not COLUMN=VALUE", param_hint="--where")
        wanted[column] = value
    return wanted


def this_machine(device: str, name: str | None, to: OutputFlags, *, quick: bool) -> None:
    """What this machine's device achieves, from microbenchmarks."""
    from cost_models.calibration import microbenchmarks

    here = values.word("--device", device, microbenchmarks.DEVICES)
    origin = f"planner calibrate --device {here}{' --quick' * quick}: {microbenchmarks.software(here)}"
    with streams.progress() as report:
        rows = microbenchmarks.measure(here, microbenchmarks.plan_for(here, quick=quick), report)
    to.write_measurements(rows)
    base = "CPU" if here == "cpu" else "default"
    device_terms(rows, name or microbenchmarks.device_name(here), base, origin, to)


def device_terms(rows: "pd.DataFrame", name: str, base: str, source: str, to: OutputFlags) -> None:
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
    to.write(device_file(device_coefficients_of(terms, name, source, others)))
    to.draw(lambda: terms.predicted, name)
    records = [term.record() for term in terms.terms]
    streams.write_records(records, to.output_format, formats={"value": "{:.4g}".format})
