"""Reports that FBGEMM writes of a table-batched embedding are read as what it ran, and as what it would draw again."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from fbgemm_gpu.tbe.bench.tbe_data_config import BatchParams, IndicesParams, PoolingParams, TBEDataConfig
from fbgemm_gpu.tbe.monitoring.bench_params_reporter import TBEBenchmarkParamsReporter

from cost_models.power_laws import hit_rate
from cost_models.workload.models import Workload
from cost_models.workload.table_profile import TableProfile
from planner.importers.tbe_config import read_tbe_reports
from topologies.documents import validate

DRAWN = 200_000


def indices(hitters: list[float], q: float = 1.0, s: float = 1.1) -> IndicesParams:
    return IndicesParams(torch.tensor(hitters), q, s, torch.int64, torch.int64)


def workload(path: Path) -> Workload:
    return validate(read_tbe_reports(path).document("theirs", str(path)), Workload)


def share(table: TableProfile, hottest: int) -> float:
    """Of the ids that go to the hottest rows."""
    if table.access_cdf is None:
        return float(hit_rate(table.rows, table.zipf_alpha or 0.0, hottest))
    x, y = zip((0.0, 0.0), *table.access_cdf, strict=True)
    return float(np.interp(hottest / table.rows, x, y))


@pytest.mark.parametrize(
    ("hitters", "q", "s"), [([0.2, 0.1, 0.05], 3.0, 1.1), ([0.01], 20.0, 0.7), ([], 1.0, 1.3), ([0.6, 0.4], 1.0, 1.0)]
)
def test_the_curve_is_that_of_the_ids_that_fbgemm_draws(tmp_path, hitters, q, s):
    """The hottest 1, 3, 50 and 1,000 rows of 5,000, whose ids FBGEMM numbers by rank."""
    rows, law = 5000, indices(hitters, q, s)
    config = TBEDataConfig(
        1, rows, 16, False, False, BatchParams(100, Bs=[100]), law, PoolingParams(2, Ls=[2.0]),
        Es=[rows], Ds=[16], feature_table_map=[0], indices_params_list=[law],
    )  # fmt: skip
    file = tmp_path / "report.json"
    file.write_text(config.json(format=True))
    drawn = torch.ops.fbgemm.tbe_generate_indices_from_distribution(law.heavy_hitters, q, s, rows, DRAWN).numpy()
    found = workload(file)
    for hottest in (1, 3, 50, 1000):
        assert share(found.tables[0], hottest) == pytest.approx(np.mean(drawn < hottest), abs=0.012)


def test_what_fbgemm_measured_is_what_is_read(tmp_path, monkeypatch):
    """Its own reporter, on ids of three features of two tables: shapes, lengths and the shares of the hottest ids."""
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(5)
    lengths = [draw.integers(1, 2 * mean, 64) for mean in (2, 5, 3)]
    ids = [
        np.minimum(draw.zipf(1.4, int(each.sum())), rows) - 1
        for each, rows in zip(lengths, (300, 40, 300), strict=True)
    ]
    offsets = torch.tensor(np.concatenate(([0], np.concatenate(lengths).cumsum())))
    reporter = TBEBenchmarkParamsReporter(1, bucket=str(tmp_path), path_prefix="reports")
    reporter.report_stats(
        feature_rows=torch.tensor([300, 40, 300]),
        feature_dims=torch.tensor([16, 8, 16]),
        iteration=3,
        indices=torch.tensor(np.concatenate(ids)),
        offsets=offsets,
        op_id="0f-3c",
        per_sample_weights=torch.ones(int(offsets[-1])),
        feature_table_map=[0, 1, 0],
    )
    (file,) = (tmp_path / "reports").iterdir()
    assert TBEDataConfig.from_json(file.read_text()).T == 3
    found = workload(tmp_path / "reports")
    shared, single = found.tables
    assert (shared.rows, shared.dim, shared.features, single.rows, single.dim) == (300, 16, 2, 40, 8)
    assert shared.pooling_factor == pytest.approx((lengths[0].sum() + lengths[2].sum()) / 64)
    assert single.pooling_factor == pytest.approx(lengths[1].mean())
    assert found.global_batch == 64
    assert shared.weighted
    hottest = np.sort(np.bincount(ids[1]))[::-1]
    (first, *_) = single.access_cdf
    assert first == pytest.approx((1 / 40, hottest[0] / len(ids[1])), abs=1e-6)
    assert json.loads(file.read_text())["indices_params_list"][1]["heavy_hitters"]
