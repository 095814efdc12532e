"""Every workload of the catalog loads and holds the totals that its source gives."""

import pytest

from cost_models.workload import WORKLOADS, Workload, load_workload

# name: tables, rows, ids per sample, GiB in fp32
TOTALS = {
    # MLPerf reference, recommendation_v2/torchrec_dlrm/README.MD
    "dlrm-dcnv2": (26, 204_184_588, 214, 97.363),
    # mlcommons/training_results_v2.1, HugeCTR submissions: the sum of their table sizes
    "dlrm-v1": (26, 187_767_399, 26, 89.534),
    # hpcaitech/CachedEmbedding and facebookresearch/dlrm
    "criteo-kaggle": (26, 33_762_577, 26, 2.012),
    "avazu": (13, 9_445_823, 13, 4.504),
    "criteo-terabyte-10m": (26, 52_487_036, 26, 12.514),
    # NVIDIA-Merlin/HugeCTR benchmarks/embedding_collection
    "hugectr-7": (7, 7_430_000_000, 163, 1661.777),
    "hugectr-180": (177, 1_130_980_100, 14_450, 247.109),
    "hugectr-200": (200, 831_421_000, 4_550, 386.916),
    "hugectr-510": (510, 895_100_000, 2_670, 426.817),
    # NVIDIA-Merlin/distributed-embeddings examples/benchmarks/synthetic_models/config_v3.py
    "nv-criteo": (26, 2_600_000, 26, 1.240),
    "nv-tiny": (55, 70_260_160, 85, 4.186),
    "nv-small": (107, 220_630_300, 377, 26.293),
    "nv-medium": (311, 664_860_800, 1_611, 206.192),
    "nv-large": (612, 2_846_001_000, 6_312, 773.788),
    "nv-jumbo": (1022, 5_722_001_000, 16_022, 3109.455),
    "nv-colossal": (2002, 23_824_001_000, 47_302, 22327.423),
    # pytorch/FBGEMM pull request 5710
    "fbgemm-000": (10, 45_678_567, 200, 21.781),
    "fbgemm-001": (18, 42_175_751, 360, 20.110),
    "fbgemm-002": (14, 48_686_928, 280, 23.215),
    "fbgemm-003": (20, 45_145_762, 400, 21.526),
    "fbgemm-005": (10, 49_218_779, 200, 23.469),
    "fbgemm-013": (12, 47_338_218, 240, 22.572),
    "fbgemm-027": (22, 45_335_450, 440, 21.616),
    "fbgemm-050": (2, 11_899_820, 40, 5.674),
    "fbgemm-061": (6, 10_342_540, 120, 4.932),
    "fbgemm-103": (2, 20_073_038, 40, 0.598),
    # facebookresearch/ScaleExplorer model_cfgs: tables x rows x dim, tables x ids
    "model-a": (4096, 4096 * 2_080_000, 4096 * 15, 4096 * 2_080_000 * 94 * 4 / 2**30),
    # Neo, arXiv:2104.05158: 793e9 parameters in 970 tables of 93 columns on the mean, within 0.003 %
    "model-a-fitted": (970, 970 * 8_790_405, 970 * 15, 8_790_405 * (727 * 92 + 243 * 96) * 4 / 2**30),
    "model-i": (512, 512 * 7_050_000, 512 * 70, 512 * 7_050_000 * 92 * 4 / 2**30),
    "model-f": (64, 64 * 732_421_875, 64 * 20, 12e12 * 4 / 2**30),
    # RecShard, arXiv:2201.10095: tables, total hash size, dim 64; ids are generated (15.3 per table)
    "rm1": (397, 1_331_656_544, 6069.08, 317.492),
    "rm2": (397, 2_661_369_917, 6069.08, 634.520),
    "rm3": (397, 5_320_796_628, 6069.08, 1268.577),
}


def parameters(workload: Workload) -> int:
    return sum(table.rows * table.dim for table in workload.tables)


def test_no_entry_is_without_a_check() -> None:
    assert sorted(TOTALS) == WORKLOADS.names()


@pytest.mark.parametrize("name", WORKLOADS.names())
def test_totals_are_those_of_the_source(name: str) -> None:
    workload = load_workload(name)
    tables, rows, lookups, gib = TOTALS[name]
    assert workload.name == name
    assert len(workload.tables) == tables
    assert sum(table.rows for table in workload.tables) == rows
    assert sum(table.pooling_factor for table in workload.tables) == pytest.approx(lookups)
    assert parameters(workload) * 4 / 2**30 == pytest.approx(gib, abs=6e-4)


@pytest.mark.parametrize("name", WORKLOADS.names())
def test_an_entry_says_in_one_short_line_what_it_is_and_in_a_comment_where_it_is_from(name: str) -> None:
    assert len(load_workload(name).description.splitlines()[0]) <= 80
    header = WORKLOADS.find(name).read_text().partition("name:")[0]
    assert any(word in header for word in ("Source", "Rows:", "Tables:", "arXiv"))


def test_model_f_has_twelve_trillion_parameters() -> None:
    """96 TB in fp32 with element-wise state and 24 TB in fp16, as Neo says."""
    assert parameters(load_workload("model-f")) == 12 * 10**12


def test_dcnv2_with_adagrad_takes_what_mlperf_says() -> None:
    assert parameters(load_workload("dlrm-dcnv2")) * (4 + 4) / 1e9 == pytest.approx(209.09, abs=0.005)


def test_model_a_reads_as_many_bytes_per_sample_as_published() -> None:
    """MAD-Max: 4,096 tables x 15 ids x 94 columns x 2 bytes; ours mix 92 and 96 columns."""
    tables = load_workload("model-a").tables
    assert sum(table.pooling_factor * table.dim * 2 for table in tables) == 4096 * 15 * 94 * 2
