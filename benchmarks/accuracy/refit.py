"""The shipped coefficients that the data sets determine, fitted again and written to their files."""

from collections.abc import Mapping
from pathlib import Path

from benchmarks.accuracy import (
    bus_bandwidth,
    deepep,
    dim_sweep,
    distributed_embeddings,
    hkv,
    host_work,
    mlperf,
    refit_collectives,
    tbe_b200,
    tbe_h100,
    tbe_mi350,
    ugache,
)
from cost_models import coefficients
from cost_models.calibration.files import set_values
from cost_models.calibration.robust import Fit

DIRECTORY = Path(coefficients.__file__).parent
SHARED_WITH_HUGECTR = (
    "uvm_forward_passes_per_lookup",
    "uvm_forward_passes_per_row",
    "uvm_kept_rows",
    "uvm_backward_passes_per_row",
    "cache_search_s",
    "cache_update_s",
    "cache_fetch_passes",
)
"""What is a property of managed memory and of a cache in front of it, whatever the framework."""


def fits(folder: Path) -> dict[str, Fit]:
    """The fit of each data set that has one set of coefficients. Raises UndeterminedError."""
    return {
        "tbe_h100": tbe_h100.refit(tbe_h100.cases(folder), tbe_h100.shipped(), must_be_determined=False),
        "tbe_mi350": tbe_mi350.refit(tbe_mi350.cases(folder), tbe_mi350.shipped()),
        "tbe_b200": tbe_b200.refit(tbe_b200.cases(folder), tbe_b200.shipped(), must_be_determined=False),
        "host_work": host_work.refit(host_work.cases(folder), host_work.shipped(), must_be_determined=False),
        "dim_sweep": dim_sweep.refit(dim_sweep.cases(folder), dim_sweep.shipped(), must_be_determined=False),
        "hkv": hkv.refit(hkv.cases(folder), hkv.shipped()),
        "ugache": ugache.refit(ugache.cases(folder), ugache.shipped()),
        "bus_bandwidth": bus_bandwidth.refit(bus_bandwidth.cases(folder), bus_bandwidth.shipped()),
    }


def values_by_file(folder: Path) -> dict[Path, Mapping[str, float]]:
    """New values, by the file that holds them."""
    found = fits(folder)
    tbe, sweep = found["tbe_h100"].values, found["dim_sweep"].values
    software = {name: tbe[name] for name, kind in tbe_h100.FITTED.items() if kind == "software"}
    return {
        DIRECTORY / "devices" / f"{tbe_h100.DEVICE}.yaml": {"lookup_efficiency": tbe["lookup_efficiency"]},
        DIRECTORY / "devices" / f"{tbe_mi350.DEVICE}.yaml": found["tbe_mi350"].values,
        DIRECTORY / "devices" / f"{tbe_b200.DEVICE}.yaml": found["tbe_b200"].values,
        DIRECTORY / "host" / f"{host_work.SOFTWARE}.yaml": found["host_work"].values,
        DIRECTORY / "software" / "torchrec.yaml": software,
        DIRECTORY / "software" / "hugectr.yaml": {name: tbe[name] for name in SHARED_WITH_HUGECTR},
        DIRECTORY / "harnesses" / f"{dim_sweep.HARNESS}.yaml": sweep,
        DIRECTORY / "devices" / "default.yaml": {name: sweep[name] for name in ("l2_reach", "l2_speedup")},
        DIRECTORY / "harnesses" / f"{ugache.HARNESS}.yaml": found["ugache"].values,
        DIRECTORY / "harnesses" / f"{hkv.HARNESS}.yaml": found["hkv"].values,
        DIRECTORY / "links" / f"{bus_bandwidth.OUT}.yaml": found["bus_bandwidth"].values,
    }


def step_values(folder: Path) -> dict[Path, Mapping[str, float]]:
    """Those of the training step, which rest on the others."""
    found: dict[Path, dict[str, float]] = {}
    for (kind, name, key), value in mlperf.refit(folder).items():
        found.setdefault(DIRECTORY / kind / f"{name}.yaml", {})[key] = value
    found[DIRECTORY / "harnesses" / f"{deepep.HARNESS}.yaml"] = deepep.refit(
        deepep.cases(folder), deepep.shipped()
    ).values
    steps = distributed_embeddings.refit(distributed_embeddings.cases(folder)).values
    return {**found, DIRECTORY / "software" / f"{distributed_embeddings.SOFTWARE}.yaml": steps}


def write(folder: Path) -> list[Path]:
    """Fit again and write every file; returns their paths. The other fits start from the collectives just written."""
    paths = refit_collectives.write(folder)
    coefficients.forget()
    for path, values in values_by_file(folder).items():
        set_values(path, values)
        paths.append(path)
    coefficients.forget()
    for path, values in step_values(folder).items():
        set_values(path, values)
        paths.append(path)
    coefficients.forget()
    return paths
