"""The files of `cost_models/coefficients/collectives` from `measured/nccl_collectives.csv`."""

from pathlib import Path

from benchmarks.accuracy.nccl import times
from cost_models import coefficients
from cost_models.calibration.collectives import COLLECTIVE_UNIT, collective_times, fit_protocols
from cost_models.calibration.files import collective_file
from cost_models.coefficients import CollectiveCoefficients

DIRECTORY = Path(coefficients.__file__).parent / "collectives"
SOURCE = "nvidia/aiconfigurator system data, collective kernels; fitted by python -m benchmarks.accuracy --refit"
SYSTEMS: dict[str, dict[str, object]] = {
    "a100_sxm": {
        "devices": ["A100-SXM4-80GB", "A100-SXM4-40GB"],
        "link": "nvlink3",
        "stands_in_for": ["nvlink2"],
        "represents_link": True,
        "bytes_per_s": 300e9,
    },
    "h100_sxm": {"devices": ["H100-SXM5-80GB"], "link": "nvlink4", "represents_link": True, "bytes_per_s": 450e9},
    "h200_sxm": {"devices": ["H200-SXM-141GB"], "link": "nvlink4", "bytes_per_s": 450e9},
    "b200_sxm": {"devices": ["B200-SXM-180GB"], "link": "nvlink5", "represents_link": True, "bytes_per_s": 900e9},
    "b300_sxm": {"devices": ["B300-SXM-288GB"], "link": "nvlink5", "bytes_per_s": 900e9},
    "gb200": {"devices": ["GB200"], "link": "nvlink5", "bytes_per_s": 900e9},
    "rtx_pro_6000_server": {"devices": ["RTX-PRO-6000-96GB"], "link": "pcie", "bytes_per_s": 63e9},
    "l40s": {"devices": [], "link": "pcie", "bytes_per_s": 31.5e9},
    "b60": {"devices": ["B60-24GB"], "link": "pcie", "bytes_per_s": 31.5e9},
}
"""What each system of the data is to a topology; bandwidths by data sheet, one direction of one port. The L40S box is
slow at 8 ranks (flagged in the data), so no device takes its laws."""


def files(folder: Path) -> dict[str, str]:
    """Text of each coefficient file, by system."""
    rows = times(folder)
    return {
        str(system): collective_file(
            CollectiveCoefficients(
                name=str(system),
                unit=COLLECTIVE_UNIT,
                kind="fitted",
                source=SOURCE,
                laws=tuple(fit_protocols(each) for each in collective_times(part)),
                **SYSTEMS[str(system)],
            )
        )
        for system, part in rows.groupby("system")
    }


def write(folder: Path) -> list[Path]:
    """Write the files; returns their paths."""
    paths = []
    for system, text in files(folder).items():
        path = DIRECTORY / f"{system}.yaml"
        path.write_text(text)
        paths.append(path)
    return paths
