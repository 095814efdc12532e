"""FBGEMM's reports of a TBE become a workload."""

import json
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost_models.workload.models import Workload
from planner.importers.eeg_distribution import IdLaw, access_profile
from planner.importers.tbe_config import read_tbe_reports
from topologies.documents import validate
from topologies.errors import InputError

LAW = {"heavy_hitters": [0.3, 0.1], "zipf_q": 2.0, "zipf_s": 1.2, "index_dtype": "torch.int64"}
REPORT = {
    "T": 3,
    "E": 700,
    "D": 12,
    "mixed_dim": True,
    "weighted": True,
    "use_cpu": False,
    "batch_params": {"B": 100, "sigma_B": None, "vbe_num_ranks": None, "Bs": [100, 100, 100]},
    "indices_params": LAW,
    "pooling_params": {"L": 3, "sigma_L": 1, "length_distribution": "normal", "Ls": [1.0, 2.5, 4.0]},
    "Es": [1000, 100, 1000],
    "Ds": [16, 4, 16],
    "max_indices": 2099,
    "feature_table_map": [0, 1, 0],
    "embedding_specs": [[1000, 16], [100, 4]],
    "indices_params_list": [LAW, LAW | {"heavy_hitters": [], "zipf_q": 1.0}, LAW],
}


def written(folder, report=REPORT, name="report.json"):
    (folder / name).write_text(json.dumps(report, indent=2))
    return folder / name


def workload(path):
    return validate(read_tbe_reports(path).document("mine", str(path)), Workload)


def test_a_report_says_tables_lengths_and_access(tmp_path):
    """Features that share a table are one; lengths are summed, weights are kept, the batch is the operator's."""
    found = workload(written(tmp_path))
    first, second = found.tables
    assert (first.rows, first.dim, first.feature_count, first.pooling_factor) == (1000, 16, 2, 5.0)
    assert (second.rows, second.dim, second.feature_count, second.pooling_factor) == (100, 4, 1, 2.5)
    assert first.weighted
    assert second.weighted
    assert found.global_batch == 100
    assert second.zipf_alpha == 1.2
    assert second.access_cdf is None
    assert first.access_cdf is not None
    curve = dict(first.access_cdf)
    assert curve[0.001] == pytest.approx(0.3)
    assert curve[0.002] == pytest.approx(0.4)
    assert read_tbe_reports(written(tmp_path)).warnings == []


@pytest.mark.parametrize("s", [0.05, 1.0, 1.2, 4.0])
@pytest.mark.parametrize("q", [0.5, 1.0, 40.0])
def test_the_curve_is_the_sum_of_the_law(s, q):
    """Against the plain sum of every row's probability, hot ones and others."""
    rows, hitters = 20_000, (0.2, 0.05, 0.04)
    rest = (np.arange(3, rows) + q) ** -s
    chances = np.concatenate((hitters, 0.71 * rest / rest.sum()))
    ranks = np.array([1, 2, 3, 4, 10, 500, 1500, 19_999, 20_000.0])
    shares = IdLaw(hitters, q, s).shares(ranks, rows)
    np.testing.assert_allclose(shares, np.cumsum(chances)[ranks.astype(int) - 1], rtol=2e-6)


def test_features_of_a_table_are_weighted_by_their_ids():
    """One that reads row 0 alone, and one without hot rows: the mean by ids, not by features."""
    hot, even = IdLaw((1.0,), 1.0, 1.0), IdLaw((0.01,) * 100, 1.0, 1.0)
    curve = str(access_profile([(hot, 30.0), (even, 10.0)], 100)["access_cdf"])
    x, y = zip(*(map(float, point.split(":")) for point in curve.split("|")), strict=True)
    np.testing.assert_allclose(np.interp([0.01, 0.1, 0.5, 1.0], x, y), [0.7525, 0.775, 0.875, 1.0], atol=1e-8)
    assert access_profile([(even, 1.0)], 100) == {}


def test_iterations_are_averaged_and_operators_added(tmp_path):
    """Two iterations of one operator are its mean; another operator has tables of its own."""
    longer = REPORT | {"pooling_params": {"L": 3, "Ls": [3.0, 2.5, 6.0]}}
    for name, report in (("a-config-estimation-2", REPORT), ("a-config-estimation-10", longer)):
        written(tmp_path, report, f"tbe-{name}.json")
    written(tmp_path, REPORT, "tbe-b-config-estimation-2.json")
    (tmp_path / "notes.txt").write_text("kept aside")
    found = workload(tmp_path)
    assert [table.name for table in found.tables] == [f"tbe{op}_table_{i}" for op in (1, 2) for i in (0, 1)]
    assert [table.pooling_factor for table in found.tables] == [7.0, 2.5, 5.0, 2.5]


def test_older_reports_have_means_alone(tmp_path):
    """T equal tables, and warnings that say so."""
    new = ("Es", "Ds", "feature_table_map", "indices_params_list", "max_indices", "embedding_specs")
    old = {key: value for key, value in REPORT.items() if key not in new}
    old |= {"batch_params": {"B": 100}, "pooling_params": {"L": 3}, "E": 700.0}
    path = written(tmp_path, old)
    assert [(each.rows, each.dim, each.pooling_factor) for each in workload(path).tables] == [(700, 12, 3.0)] * 3
    assert [text.split(" have ")[0] for text in read_tbe_reports(path).warnings] == [
        "reports without Es or Ds",
        "reports without indices_params_list",
        "reports without Ls",
    ]


def test_variable_batches_are_poolings(tmp_path):
    """The batch is that of the feature with the most vectors; others give fewer for a sample, and ids for each."""
    report = REPORT | {"T": 2, "Es": [10, 10], "Ds": [4, 4], "feature_table_map": [0, 1], "weighted": False}
    report |= {"batch_params": {"B": 75, "Bs": [100, 50]}, "pooling_params": {"L": 2, "Ls": [2.0, 3.0]}}
    found = workload(written(tmp_path, report | {"indices_params_list": None}))
    assert found.global_batch == 100
    assert [(each.pooling_factor, each.poolings) for each in found.tables] == [(2.0, 1.0), (1.5, 0.5)]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"Es": [1000, 100]}, r"report.json:\d+:3: Es: has 2 entries for T = 3 features"),
        ({"Ds": [16, 4, 8]}, "feature_table_map: features 0, 2 share a table"),
        ({"T": 0}, r"report.json:2:3: T: "),
        ({"batch_params": {"B": -1}}, r"batch_params.B: "),
        ({"Ds": [6, 4, 6]}, "tables.0.dim: 6 is not a multiple of 4"),
        ({"indices_params": LAW | {"heavy_hitters": [0.9, 0.9]}}, "indices_params.heavy_hitters: .* 1.8"),
    ],
)
def test_faults_have_file_key_and_line(tmp_path, change, said):
    with pytest.raises(InputError, match=said):
        workload(written(tmp_path, REPORT | change))


def test_reports_of_one_operator_are_of_one_shape(tmp_path):
    """Else the file that differs is named; a folder without reports is refused."""
    with pytest.raises(InputError, match="holds no report"):
        workload(tmp_path)
    written(tmp_path, REPORT, "tbe-a-config-estimation-1.json")
    written(tmp_path, REPORT | {"Es": [2000, 100, 2000]}, "tbe-a-config-estimation-2.json")
    with pytest.raises(InputError, match="Es: has other tables than tbe-a-config-estimation-1"):
        workload(tmp_path)


KEYS = st.sampled_from([*REPORT, *LAW, "B", "Bs", "L", "Ls"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(KEYS, JSON, max_size=4))
def test_garbage_is_refused_or_a_workload(tmp_path_factory, change):
    """Nothing but InputError comes out of it."""
    path = written(tmp_path_factory.getbasetemp(), REPORT | change, "garbage.json")
    with suppress(InputError):
        workload(path)
