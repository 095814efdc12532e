"""A fault between fields is at the field to change: file, line, column and remedy."""

from pathlib import Path

import pytest

from cost_models.workload.loading import load_workload
from topologies.errors import Fault, InputError

HEAD = "name: m\nglobal_batch: 8\ntables: tables.csv\nmode: training\n"
TABLES = "name,rows,dim,pooling_factor{more}\na,100,64,1{a}\nb,100,{dim},1{b}\n"


def faults(tmp_path: Path, text: str, *, dim: int = 64, more: tuple[str, str, str] = ("", "", ""), overrides=()):
    (tmp_path / "tables.csv").write_text(TABLES.format(dim=dim, more=more[0], a=more[1], b=more[2]))
    (tmp_path / "workload.yaml").write_text(text)
    with pytest.raises(InputError) as caught:
        load_workload(tmp_path / "workload.yaml", overrides=overrides)
    return caught.value.faults


def place(fault: Fault) -> str:
    return f"{Path(fault.source).name}:{fault.line}:{fault.column}: {fault.path}"


@pytest.mark.parametrize(
    ("text", "more", "where", "remedy"),
    [
        (HEAD.replace("global_batch: 8", "description: x"), {}, "workload.yaml:1:1: global_batch", "give exactly one"),
        (f"{HEAD}batch_per_rank: 1\n", {}, "workload.yaml:2:1: global_batch", "give exactly one"),
        (
            f"{HEAD}dense:\n  numerical_features: 4\n  interaction: dot\n",
            {"dim": 32},
            "workload.yaml:7:3: dense.interaction",
            "give the tables and the end of bottom_mlp one width, or choose concat",
        ),
        (
            f"{HEAD}dense:\n  bottom_mlp: [8]\n",
            {},
            "workload.yaml:6:3: dense.bottom_mlp",
            "needs numerical_features",
        ),
        (f"{HEAD}dense:\n  parameters: 8\n", {}, "workload.yaml:6:3: dense.parameters", "give both"),
        (
            f"{HEAD}dense:\n  numerical_features: 4\n  bottom_mlp: [64]\n  parameters: 8\n",
            {},
            "workload.yaml:8:3: dense.parameters",
            "not both",
        ),
        (
            HEAD,
            {"more": (",zipf_alpha,access_cdf", ",1,", ",1,0.1:0.5|1:1")},
            "tables.csv:3:14: tables.1.access_cdf",
            "give one",
        ),
        (HEAD, {"more": (",dtype", ",", ",int4")}, "tables.csv:3:12: tables.1.dtype", "mode: inference"),
        (f"{HEAD}embedding: {{dtype: int4}}\n", {}, "workload.yaml:5:13: embedding.dtype", "mode: inference"),
        (
            HEAD,
            {"more": (",dedup_group,dedup_factor", ",g,2", ",g,4")},
            "tables.csv:3:14: tables.1.dedup_factor",
            "give them one factor",
        ),
    ],
)
def test_the_culprit_is_named(tmp_path, text, more, where, remedy):
    """Wherever it stands, in the workload or in its file of tables."""
    (fault,) = faults(tmp_path, text, **more)
    assert place(fault) == where
    assert remedy in fault.message


def test_a_field_changed_from_outside_is_the_culprit(tmp_path):
    """`--set` of one of the fields, and not of another one."""
    text = f"{HEAD}dense:\n  numerical_features: 4\n  interaction: dot\n"
    (fault,) = faults(tmp_path, text, overrides=["name=x", "tables.b.dim=32", "mode=training"])
    assert fault.source == "--set workload.tables.b.dim=32"
    (fault,) = faults(tmp_path, text, dim=32, overrides=["name=x"])
    assert place(fault) == "workload.yaml:7:3: dense.interaction"
