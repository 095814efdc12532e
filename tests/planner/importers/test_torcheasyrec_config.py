"""TorchEasyRec's pipeline.config becomes a workload."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost_models.workload.models import Workload
from planner.importers.torcheasyrec_config import read_torcheasyrec
from topologies.documents import validate
from topologies.errors import InputError

CONFIG = """# a model
train_config { sparse_optimizer { adam_optimizer { lr: 1e-3 } constant_learning_rate {} } }
data_config { batch_size: 512 }
feature_configs { id_feature { feature_name: "user" hash_bucket_size: 1000 embedding_dim: 16 value_dim: 1 } }
feature_configs: <
  id_feature: { feature_name: 'a', embedding_name: "shared"; num_buckets: 0x64 embedding_dim: 8 weighted: true }
>
feature_configs { lookup_feature { feature_name: "b" embedding_name: "sha" "red" num_buckets: 100 embedding_dim: 8 } }
feature_configs { raw_feature { feature_name: "age" boundaries: [1, -2.5, 3e1] embedding_dim: 4 value_dim: 2 } }
feature_configs { raw_feature { feature_name: "price" } }
feature_configs { id_feature { feature_name: "kind" vocab_list: ["x", "y"] embedding_dim: 4 data_type: "FP16" } }
feature_configs { combo_feature { feature_name: "left" zch { zch_size: 7 } embedding_dim: 4 } }
feature_configs {
  sequence_feature {
    sequence_name: "clicks" sequence_length: 50 sequence_delim: "|"
    features { id_feature { feature_name: "item" embedding_name: "shared" num_buckets: 100 embedding_dim: 8 } }
  }
}
model_config {
  feature_groups { group_name: "deep" feature_names: "user" feature_names: ["a", "b", "age", "price"] group_type: DEEP }
  feature_groups { group_name: "wide" feature_names: "user" group_type: WIDE }
  feature_groups { group_name: "own" feature_names: "kind" embedding_name_suffix: "z" group_type: DEEP
    sequence_groups { group_name: "s" feature_names: "clicks__item" feature_names: "a" embedding_name_suffix: "" } }
  wide_and_deep { wide_embedding_dim: 12 }
}
"""


def stated(folder, text=CONFIG):
    path = folder / "pipeline.config"
    path.write_text(text)
    return read_torcheasyrec(path)


def workload(folder, text=CONFIG):
    return validate(stated(folder, text).document("mine", "pipeline.config"), Workload)


def test_feature_groups_say_the_tables(tmp_path):
    """Shared names, wide tables, suffixes, sequences; a feature of no group has none."""
    found = workload(tmp_path)
    shown = {each.name: (each.rows, each.dim, each.pooling_factor, each.features, each.pooled) for each in found.tables}
    assert shown == {
        "user_emb": (1000, 16, 1.0, ("user",), True),
        "shared": (100, 8, 2.0, ("a", "b"), True),
        "age_emb": (4, 4, 2.0, ("age",), True),
        "user_emb_wide": (1000, 12, 1.0, ("user",), True),
        "kind_emb_z": (4, 4, 1.0, ("kind",), True),
        "shared_z": (100, 8, 51.0, ("clicks__item", "a"), False),
    }
    tables = {each.name: each for each in found.tables}
    assert tables["shared"].weighted
    assert tables["kind_emb_z"].dtype == "fp16"
    assert (found.batch_per_rank, found.embedding.optimizer) == (512, "adam")
    warnings = stated(tmp_path).warnings
    assert "in no feature group, so without a table: left" in warnings
    assert "number of ids not given, taken as 1: a, kind" in warnings


def test_without_groups_every_feature_has_a_table(tmp_path):
    """And the batch is TorchEasyRec's default; a vocabulary file is read beside the configuration."""
    (tmp_path / "words").write_text("x\ny 7\n")
    text = (
        'feature_configs { id_feature { feature_name: "v" vocab_file: "words" default_bucketize_value: 1'
        " embedding_dim: 4 } }\nfeature_configs { sequence_id_feature {"
        ' feature_name: "s" num_buckets: 9 embedding_dim: 4 } }'
    )
    found = workload(tmp_path, text)
    assert [(each.name, each.rows, each.pooled) for each in found.tables] == [("v_emb", 8, True), ("s_emb", 9, False)]
    assert found.batch_per_rank == 1024


def feature(body, kind="id_feature"):
    return f"\nfeature_configs {{ {kind} {{ {body} }} }}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (feature('feature_name: "x" num_buckets: 9'), r":2:19: feature_configs.id_feature.embedding_dim: is missing"),
        (feature('feature_name: "x" embedding_dim: 4'), "hash_bucket_size: is missing: the rows"),
        (
            feature('feature_name: "x" embedding_dim: 6 num_buckets: 9'),
            r":2:19: tables.0.dim: 6 is not a multiple of 4",
        ),
        (
            feature('feature_name: "x" embedding_dim: -4 num_buckets: 9'),
            r":2:\d+: .*embedding_dim: must be a whole num",
        ),
        (feature("feature_name: x embedding_dim: 4 num_buckets: 9"), "feature_name: must be a string in quotes"),
        (feature('vocab_file: "no" embedding_dim: 4 feature_name: "x"'), r":2:32: .*there is no file no"),
        (feature('feature_name: "x"', "idd_feature"), "unknown kind of feature; did you mean 'id_feature'"),
        (feature('feature_name: "x" vocab_file: "v" embedding_dim: 4', "tokenize_feature"), "tokenizer is not read"),
        (CONFIG.replace('["a", ', '["aa", '), "there is no feature 'aa'; did you mean 'a"),
        (CONFIG.replace('"kind" vocab', '"user" vocab'), r":11:\d+: .*feature_name: the name 'user' stands twice"),
        (
            CONFIG.replace('"sha" "red" num_buckets: 100', '"shared" num_buckets: 9'),
            "shares shared, of 100 x 8, but has 9",
        ),
        ("\nfeature_configs { id_feature {", r":2:\d+: is not protobuf text"),
        ("a: {" * 200, "Nested too deep"),
        ("", "no feature with an embedding"),
        (
            "train_config { sparse_optimizer { adom_optimizer {} } }" + CONFIG.split("\n", 2)[2],
            "did you mean 'adam_opt",
        ),
    ],
)
def test_faults_have_file_line_and_key(tmp_path, text, said):
    with pytest.raises(InputError, match=said):
        workload(tmp_path, text)


@settings(max_examples=200, deadline=None)
@given(
    st.integers(0, len(CONFIG)),
    st.integers(0, 40),
    st.text(max_size=8) | st.sampled_from(["{", "}", ": [", '"', "< 1"]),
)
def test_garbage_is_refused_or_a_workload(tmp_path_factory, start, length, text):
    """Any piece of a configuration replaced by anything: nothing but InputError comes out of it."""
    changed = CONFIG[:start] + text.encode("utf-8", "replace").decode() + CONFIG[start + length :]
    with suppress(InputError):
        workload(tmp_path_factory.getbasetemp(), changed)
