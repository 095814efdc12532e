"""`planner import`: workloads from what trainers write."""

import json

import pytest

from cost_models.workload.loading import load_workload

LAW = {"heavy_hitters": [0.25], "zipf_q": 1.0, "zipf_s": 1.1}
REPORT = {"T": 1, "E": 5000, "D": 16, "weighted": False, "indices_params": LAW}
REPORT |= {"batch_params": {"B": 64}, "pooling_params": {"L": 2}}
CONFIG = 'feature_configs { id_feature { feature_name: "user" num_buckets: 100 embedding_dim: 16 } }\n'
SPARSE = {"top": "ids", "slot_num": 1, "nnz_per_slot": [1], "is_fixed_length": True}
HPARAM = {"embedding_vec_size": 16, "combiner": "sum", "slot_size_array": [100]}
EMBEDDING = {"bottom": "ids", "top": "emb", "sparse_embedding_hparam": HPARAM}
MODEL = {"layers": [{"type": "Data", "sparse": [SPARSE]}, {"type": "LocalizedSlotSparseEmbeddingHash", **EMBEDDING}]}
FILES = {
    "tbe-config": ("report.json", json.dumps(REPORT, indent=1)),
    "torcheasyrec-config": ("pipeline.config", CONFIG),
    "hugectr-config": ("model.json", json.dumps(MODEL, indent=1)),
}
every_format = pytest.mark.parametrize("kind", FILES)


def given(folder, kind, change=("", "")):
    name, text = FILES[kind]
    (folder / name).write_text(text.replace(*change) if change[0] else text)
    return folder / name


@every_format
def test_a_workload_is_written_and_checks(run, tmp_path, kind):
    """Above it stands what the file does not say; commands take it as it is."""
    file, ours = given(tmp_path, kind), tmp_path / "mine.yaml"
    done = run("import", file, "--from", kind, "--global-batch", 128, "-o", ours)
    assert done.exit_code == 0, done.stderr
    assert "1 table" in done.stderr
    head, *_, last = [line for line in ours.read_text().splitlines() if line.startswith("#")]
    assert head.startswith(f"# Read from {file}. ")
    assert head.endswith(" does not say, so edit these:")
    assert last == "# All keys: planner schema workload"
    assert run("check", ours).exit_code == 0
    workload = load_workload(ours)
    assert (workload.name, workload.global_batch, workload.batch_per_rank) == ("mine", 128, None)


@every_format
@pytest.mark.parametrize("flags", [("-t", "dgx-a100-80"), ("--nodes", 2), ("--no-simulate",), ("--effort", 1)])
def test_flags_of_plans_are_refused(run, tmp_path, kind, flags):
    """They would change nothing."""
    done = run("import", given(tmp_path, kind), "--from", kind, *flags, "-o", tmp_path / "mine.yaml")
    assert done.exit_code == 2
    assert f"has no effect with --from {kind}" in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("kind", "change", "said"),
    [
        ("tbe-config", ('"B": 64', '"B": "x"'), "report.json:14:3: batch_params.B: "),
        ("torcheasyrec-config", ("100", "many"), "pipeline.config:1:53: feature_configs.id_feature.num_buckets: "),
        ("hugectr-config", ('"bottom": "ids"', '"bottom": "id"'), "model.json:18:4: layers.1.bottom: "),
        ("hugectr-config", ("", ""), "model.json: says no batch"),
    ],
)
def test_faults_have_file_line_and_key(run, tmp_path, kind, change, said):
    """With 3, and nothing is written."""
    file = given(tmp_path, kind, change)
    done = run("import", file, "--from", kind, "-o", tmp_path / "mine.yaml")
    assert done.exit_code == 3, done.stderr
    assert said in " ".join(done.stderr.split()).replace(f"{tmp_path}/", "").replace("/ ", "/")
    assert not (tmp_path / "mine.yaml").exists()


def test_a_report_in_a_folder_is_not_written_over(run, tmp_path):
    """It is an input, though only the folder was named."""
    file = tmp_path / "tbe-a-config-estimation-1.json"
    file.write_text(json.dumps(REPORT))
    done = run("import", tmp_path, "--from", "tbe-config", "-o", file)
    assert done.exit_code == 2
    assert json.loads(file.read_text()) == REPORT
