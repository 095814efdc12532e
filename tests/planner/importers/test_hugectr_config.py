"""The JSON of a HugeCTR model becomes a workload."""

import copy
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost_models.workload.models import Workload
from planner.importers.hugectr_config import hugectr_workload
from topologies.documents import validate
from topologies.errors import InputError

MODEL = {
    "solver": {"batchsize": 4096, "gpu": [[0, 1], [0, 1]]},
    "optimizer": {"type": "Adam", "update_type": "Global", "adam_hparam": {"learning_rate": 0.1}},
    "layers": [
        {
            "type": "Data",
            "label": {"top": "label", "label_dim": 1},
            "dense": {"top": "dense", "dense_dim": 13},
            "sparse": [
                {"top": "wide", "nnz_per_slot": [2], "is_fixed_length": True, "slot_num": 1},
                {"top": "deep", "nnz_per_slot": 3, "is_fixed_length": False, "slot_num": 2},
            ],
        },
        {
            "type": "LocalizedSlotSparseEmbeddingHash",
            "bottom": "deep",
            "top": "emb",
            "sparse_embedding_hparam": {"embedding_vec_size": 16, "combiner": "sum", "slot_size_array": [100, 200]},
            "optimizer": {"type": "SGD", "update_type": "Global"},
        },
        {
            "type": "DistributedSlotSparseEmbeddingHash",
            "bottom": "wide",
            "top": "linear",
            "sparse_embedding_hparam": {"embedding_vec_size": 1, "combiner": "sum", "workspace_size_per_gpu_in_mb": 3},
        },
        {"type": "InnerProduct", "bottom": "emb", "top": "fc"},
    ],
}


def model(change=lambda _: None):
    """The model after a change in place."""
    document = copy.deepcopy(MODEL)
    change(document)
    return document


def workload(document):
    return validate(hugectr_workload(document, "m.json").document("mine", "m.json"), Workload)


def test_slots_with_sizes_are_tables_and_hash_tables_one():
    """The rows of a workspace are those that HugeCTR computes: 3 MiB / (4 bytes x 3 numbers), on 4 GPUs."""
    found = workload(MODEL)
    first, second, hashed = found.tables
    assert [(each.name, each.rows, each.dim, each.pooling_factor) for each in (first, second)] == [
        ("emb_0", 100, 16, 3.0),
        ("emb_1", 200, 16, 3.0),
    ]
    assert first.optimizer == "sgd"
    assert (hashed.name, hashed.rows, hashed.dim, hashed.optimizer) == ("linear", 4 * 3 * 2**20 // 12, 4, "adam")
    assert hashed.pooling_factor == 2.0
    assert (found.global_batch, found.dense.numerical_features, found.software) == (4096, 13, "hugectr")
    warnings = hugectr_workload(MODEL, "m.json").warnings
    assert any("columns of linear are rounded up" in text for text in warnings)
    assert any(text.startswith("linear: no slot_size_array") for text in warnings)


def test_older_data_layers_count_ids_of_all_slots():
    """`max_feature_num_per_sample` is of the whole input."""
    old = {"top": "deep", "type": "LocalizedSlot", "max_feature_num_per_sample": 5, "slot_num": 2}

    def change(document):
        document["layers"][0]["sparse"][1] = old

    assert [each.pooling_factor for each in workload(model(change)).tables] == [2.5, 2.5, 2.0]


def test_an_optimizer_that_we_lack_is_replaced_and_named():
    def change(document):
        document["optimizer"]["type"] = "Ftrl"

    assert "Ftrl is planned as adam" in hugectr_workload(model(change), "m.json").warnings[0]


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("layers", 1, "bottom"), "dep", "layers.1.bottom: no sparse input is called so; did you mean 'deep'"),
        (("layers", 1, "sparse_embedding_hparam", "slot_size_array"), [1], "has 1 sizes for the 2 slots of deep"),
        (("layers", 1, "type"), "EmbeddingCollection", "embeddings of type 'EmbeddingCollection' are not read"),
        (("layers", 0, "sparse", 1, "slot_num"), "x", "layers.0.sparse.1.slot_num: "),
        (("layers", 0, "sparse", 0, "nnz_per_slot"), [1, 2], "layers.0.sparse.0.nnz_per_slot: has 2 numbers"),
        (("optimizer", "type"), "Adom", "optimizer.type: unknown optimizer 'Adom'; did you mean 'Adam'"),
        (("optimizer",), None, "no optimizer is told"),
        (("solver", "gpu"), [], "or solver.gpu"),
        (("layers",), [], "layers: has no layer with embedding tables; graph_to_json writes none of an embedding coll"),
    ],
)
def test_faults_have_their_key(path, value, said):
    def change(document):
        for key in path[:-1]:
            document = document[key]
        document[path[-1]] = value

    with pytest.raises(InputError, match=said):
        workload(model(change))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["Data", "deep", "Adam", "x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["top", "type", "gpu"]), inner),
    max_leaves=8,
)


def places(document, at=()):
    """The path of every value."""
    inside = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, value in inside:
        yield (*at, key)
        yield from places(value, (*at, key))


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(places(MODEL), key=str)), JSON)
def test_garbage_is_refused_or_a_workload(path, value):
    """Any value in the place of any other: nothing but InputError comes out of it."""

    def change(document):
        for key in path[:-1]:
            document = document[key]
        document[path[-1]] = value

    with suppress(InputError):
        workload(model(change))
