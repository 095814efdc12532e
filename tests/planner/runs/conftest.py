"""Small runs on a small cluster, as files."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

TABLES = [{"name": f"t{i}", "rows": 200_000 * (1 + i), "dim": 64, "pooling_factor": 4 + 3 * i} for i in range(2)]
WORKLOAD = {
    "name": "small",
    "global_batch": 8192,
    "tables": TABLES,
    "dense": {"macs_per_sample": 10**6, "parameters": 10**6},
}
PRICES = {
    "name": "sheet",
    "date": "2026-01-01",
    "source": "made up",
    "accelerators": {"A100-SXM4-80GB": {"price": {"on_demand": "2USD/h", "spot": "1USD/h"}, "power": "800W"}},
    "regions": {"north": {"pue": 1.25, "carbon": "100g/kWh"}},
}


@pytest.fixture
def run_file(tmp_path: Path) -> Callable[..., Path]:
    """`run_file(stages=[…])`: a run of small tables on DGX A100, beside its workload and a price sheet."""
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(WORKLOAD))
    (tmp_path / "sheet.yaml").write_text(yaml.safe_dump(PRICES))

    (tmp_path / "hbm.yaml").write_text("tiers: hbm")
    (tmp_path / "fsdp.yaml").write_text("dense: {strategy: fsdp}")
    (tmp_path / "auto.yaml").write_text("dense: {strategy: auto}")

    def write(**keys: object) -> Path:
        path = tmp_path / "run.yaml"
        base = {
            "name": "test",
            "topology": "dgx-a100-80",
            "workload": "small.yaml",
            "policy": "hbm.yaml",
            "search": {"effort": 0, "gap": "50%"},
        }
        path.write_text(yaml.safe_dump({**base, **keys}, sort_keys=False))
        return path

    return write
