"""A policy is read with all its faults, and means what it says for every table."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cost_models.shards import DDR, DDR_CACHED, DDR_SPLIT, HBM, PLACEMENT_TIERS, SHARDINGS, USUAL_SHARDINGS
from cost_models.step import StepModel
from planner import plan
from planner.formulation.allowed_choices import NO_LIMIT, planning_model
from planner.formulation.choice_rules import allowed_choices
from planner.formulation.options import build_problem, enumerate_options
from planner.formulation.policy import Policy, load_policy, narrow, policy_document
from planner.formulation.policy import replace as replace_value
from tests.oracles.instances import node_group, topology, workload
from topologies.documents import parse_yaml, validate
from topologies.errors import InputError

TABLES = [{"rows": 1000 * (i + 1), "dim": 32, "name": f"{'ab'[i % 2]}{i}"} for i in range(6)]
"""a0, b1, a2, b3, a4, b5."""


@pytest.fixture(scope="module")
def model() -> StepModel:
    """Two nodes of two ranks."""
    return StepModel(topology(node_group("g", nodes=2)), workload(TABLES))


def policy(**fields: Any) -> Policy:
    return Policy.model_validate(fields)


def said(model: StepModel, text: str) -> list[str]:
    """The faults of a policy file, when it meets the model."""
    document = parse_yaml(text, "policy.yaml")
    with pytest.raises(InputError) as error:
        allowed_choices(model, validate(document, Policy), document)
    return [str(fault) for fault in error.value.faults]


# -- reading -----------------------------------------------------------------------------------------------------


def test_every_key_is_read(tmp_path: Path) -> None:
    """Ranges of ranks, shares and sizes, single words and lists; and it is written back without loss."""
    file = tmp_path / "policy.yaml"
    file.write_text(
        """
kind: policy
schema_version: 1
runtime: torchrec
tiers: [ddr, hbm]
shardings: table_wise
forbid_ranks: [0, 4-5]
max_shards: 4
column_multiple: 8
reserve: {hbm: 10%, ddr: 4GiB}
tables:
  - {match: a*, unless: a0, ranks: "0-1,3", forbid_tiers: ddr}
colocate:
  - [a0, b1]
  - {tables: b*, on: node}
separate:
  - [a0, a2]
"""
    )
    found = load_policy(file)
    assert found.tiers == ("hbm", "ddr")
    assert found.shardings == ("table_wise",)
    assert found.forbid_ranks == (0, 4, 5)
    assert found.tables[0].ranks == (0, 1, 3)
    assert found.tables[0].unless == ("a0",)
    assert [(group.tables, group.on) for group in found.colocate] == [(("a0", "b1"), "rank"), (("b*",), "node")]
    assert (found.reserve.hbm.share, found.reserve.ddr.size, found.reserve.ssd.size) == (0.1, 4 << 30, 0)
    assert validate(policy_document(found), Policy) == found
    assert Policy.model_validate(json.loads(json.dumps(found.model_dump(mode="json")))) == found


def test_all_faults_of_a_file_at_once() -> None:
    """Each with its line and what to write instead."""
    document = parse_yaml(
        "kind: policy\nshardingz: [table_wise]\nreserve: {hbm: lots}\nforbid_ranks: 7-3\nmax_shards: 0\n"
        "tables:\n  - {match: [], tiers: [hmb]}\n",
        "policy.yaml",
    )
    with pytest.raises(InputError) as error:
        validate(document, Policy)
    faults = [str(fault) for fault in error.value.faults]
    assert [fault.split(" ")[0] for fault in faults] == [
        f"policy.yaml:{line}:{column}:" for line, column in ((2, 1), (3, 11), (4, 1), (5, 1), (7, 6), (7, 25))
    ]
    for words in ("did you mean 'shardings'", "write a number and a unit", "run upwards", "at least 1", "empty", "hbm"):
        assert any(words in fault for fault in faults), words


def test_a_policy_that_is_not_there(tmp_path: Path) -> None:
    """As for any other input."""
    with pytest.raises(InputError, match="there is no such file"):
        load_policy(tmp_path / "none.yaml")


# -- what it means -----------------------------------------------------------------------------------------------


def test_no_policy_limits_nothing(model: StepModel) -> None:
    """Every table may be everything, everywhere; but for splits, which no known runtime reads."""
    choices = allowed_choices(model, Policy())
    assert choices.tiers[:, [HBM, DDR_CACHED, DDR]].all()
    assert not choices.tiers[:, DDR_SPLIT].any()
    usual = [sharding in USUAL_SHARDINGS for sharding in SHARDINGS]
    assert (choices.shardings == usual).all()
    assert (choices.max_shards == NO_LIMIT).all()
    assert choices.rank_sets.all()
    assert not choices.rules


def test_all_limits_hold_at_once(model: StepModel) -> None:
    """Those of the top and of every rule that matches, in whatever order."""
    rules = [
        {"match": "a*", "tiers": ["hbm", "ddr"], "max_shards": 8, "column_multiple": 8, "ranks": "0-2"},
        {"match": ["a0", "b*"], "unless": "b3", "tiers": ["ddr", "ssd_cached"], "max_shards": 3, "column_multiple": 12},
        {"match": "a0", "nodes": 0},
    ]
    for order in (rules, rules[::-1]):
        choices = allowed_choices(model, policy(tables=order, forbid_ranks=1))
        of = [PLACEMENT_TIERS[i] for i in np.flatnonzero(choices.tiers[0])]
        assert of == ["ddr"]
        assert choices.max_shards.tolist() == [3, 3, 8, NO_LIMIT, 8, 3]
        assert choices.column_multiple.tolist() == [24, 12, 8, 1, 8, 12]
        sets = choices.rank_sets[choices.table_rank_set]
        assert np.flatnonzero(sets[0]).tolist() == [0]
        assert np.flatnonzero(sets[1]).tolist() == [0, 2, 3]
        assert np.flatnonzero(sets[2]).tolist() == [0, 2]


def test_ranks_decide_which_shardings_are_left(model: StepModel) -> None:
    """World-wide ones need every rank, node-wide ones a whole node."""
    choices = allowed_choices(model, policy(tables=[{"match": "a0", "ranks": [0, 2]}, {"match": "b1", "ranks": "0-2"}]))
    left = [{SHARDINGS[i] for i in np.flatnonzero(of)} for of in choices.shardings[:3]]
    assert left[0] == {"table_wise", "column_wise", "table_column_wise"}
    assert left[1] == left[0] | {"table_row_wise", "grid_shard"}
    assert left[2] == set(USUAL_SHARDINGS)


def test_names_that_match_nothing_and_ranks_that_do_not_exist(model: StepModel) -> None:
    """All of them, with the nearest name and what there is."""
    text = "tables:\n  - match: [a0, b11]\n    ranks: 3-4\n  - {match: 'c?x', nodes: 2}\ncolocate:\n  - [a0, a44]\n"
    assert said(model, text) == [
        "policy.yaml:2:17: tables.0.match.1: no table is called 'b11'; did you mean 'b1'?",
        "policy.yaml:3:5: tables.0.ranks: there is no rank 4: tiny has ranks 0 to 3",
        "policy.yaml:4:6: tables.1.match.0: no table is called 'c?x'; known here: a0, a2, a4, b1, b3, b5",
        "policy.yaml:4:20: tables.1.nodes: there is no node 2: tiny has nodes 0 to 1",
        "policy.yaml:6:5: colocate.0.tables.1: no table is called 'a44'; did you mean 'a4'?",
    ]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (
            "tables:\n  - {match: a0, ranks: 0}\n  - {match: a*, forbid_ranks: 0}\n",
            3,
            "no rank is left for 'a0': ranks 0",
        ),
        ("tiers: [hbm]\ntables:\n  - {match: a*, forbid_tiers: hbm}\n", 3, "no tier is left for 'a0' and 2 more"),
        (
            "shardings: row_wise\ntables:\n  - {match: a2, ranks: 0}\n",
            3,
            "no sharding is left for 'a2': shardings row_wise",
        ),
        ("runtime: hugectr\nshardings: [column_wise]\n", 2, "runtime hugectr and shardings column_wise"),
        ("shardings: column_wise\ncolocate:\n  - [a0, b1]\n", 3, "colocate on one rank"),
        ("colocate:\n  - [a0, b1]\nseparate:\n  - {tables: ['*'], on: rank}\n", 4, "colocate holds on one rank"),
        ("colocate:\n  - [a0, b1]\n  - [b1, a2]\nseparate:\n  - {tables: [a2, a0], on: node}\n", 5, "on one node"),
        ("separate:\n  - ['*']\n", 2, "6 tables apart that may only use 4 ranks"),
        ("separate:\n  - [a0, a2]\ntables:\n  - {match: a*, ranks: 1}\n", 2, "2 tables apart that may only use 1 rank"),
        (
            "colocate:\n  - [a0, a2]\ntables:\n  - {match: a0, ranks: 1}\n  - {match: a2, ranks: 2}\n",
            2,
            "no rank is left",
        ),
    ],
)
def test_contradictions_are_refused(model: StepModel, text: str, line: int, words: str) -> None:
    """With the limits that contradict each other, at the last of them."""
    faults = said(model, text)
    assert any(fault.startswith(f"policy.yaml:{line}:") and words in fault for fault in faults), faults


def test_flags_narrow_a_file(model: StepModel) -> None:
    """They are further limits; a fault names the flag. Runtime and reserve are said anew."""
    document = parse_yaml("runtime: hugectr\ntiers: [hbm, ddr]\n", "policy.yaml")
    narrow(document, "tiers", ["hbm", "ssd_cached"], "--tiers hbm,ssd_cached")
    narrow(document, "max_shards", 4, "--max-shards 4")
    narrow(document, "ranks", "9", "--pin a*=9", "a*")
    replace_value(document, ("runtime",), "any", "--runtime any")
    replace_value(document, ("reserve", "hbm"), "5%", "--reserve hbm=5%")
    found = validate(document, Policy)
    assert (found.runtime, found.max_shards, found.reserve.hbm.share) == ("any", 4, 0.05)
    with pytest.raises(InputError) as error:
        allowed_choices(model, found, document)
    assert [fault.source for fault in error.value.faults] == ["--pin a*=9"]


def test_numbers_of_any_size_are_limits(model: StepModel) -> None:
    """A number of parts beyond every table limits nothing, a multiple beyond every width keeps all columns together."""
    huge = policy(max_shards=10**30, column_multiple=10**30, tables=[{"match": "a0", "max_shards": 3}])
    choices = allowed_choices(model, huge)
    assert choices.max_shards.tolist() == [3, *[NO_LIMIT] * 5]
    assert (choices.column_multiple > 1 << 32).all()
    assert plan(model.topology, model.workload, policy=huge).status != "infeasible"


def test_a_sharding_without_a_tier_is_named(model: StepModel) -> None:
    """Of a table for which no sharding has a tier that it may use."""
    text = "shardings: table_wise\ntiers: hbm\ntables: [{match: a0, tiers_of: {table_wise: ddr}}]"
    (fault,) = said(model, text)
    assert "no sharding in any tier is left for 'a0': table_wise in ddr only" in fault


# -- options -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("multiple", [4, 8, 12, 16, 20, 32, 64])
def test_widths_are_multiples_or_whole(multiple: int) -> None:
    """A table whose width is no multiple is not cut by columns."""
    dims = [8, 20, 48, 64, 96, 320]
    model = StepModel(topology(node_group("g", nodes=2)), workload([{"rows": 1000, "dim": dim} for dim in dims]))
    options = enumerate_options(model, policy(column_multiple=multiple))
    whole = np.array(dims)[options.blocks.table]
    assert ((options.block_columns % multiple == 0) | (options.block_columns == whole)).all()
    cut = {dims[t] for t in options.blocks.table[options.block_columns < whole].tolist()}
    assert cut == {dim for dim in dims if dim % multiple == 0 and dim >= 2 * multiple}


@pytest.mark.parametrize("most", [1, 2, 3, 5])
def test_no_option_has_more_parts_than_allowed(most: int) -> None:
    """Whatever widths tile a free option, and whatever a fixed one is cut into; replicas are one."""
    model = StepModel(topology(node_group("g", nodes=2)), workload([{"rows": 1000, "dim": dim} for dim in (64, 96)]))
    options = enumerate_options(model, policy(max_shards=most))
    problem = build_problem(model, options)
    for option in range(len(options.table)):
        blocks = np.flatnonzero(options.block_option == option)
        if options.units[option]:
            assert options.units[option] // options.block_units[blocks].min() <= most
        elif not problem.block_replicated[blocks[0]]:
            ranks = {0: 1, 1: 2, 2: 4}[int(problem.block_extent[blocks[0]])]
            assert ranks * options.block_count[blocks].sum() <= most


def test_the_reserve_counts_per_rank_and_per_node() -> None:
    """Bytes of DDR are those of a node, also where a cost model deals a node's DDR out to its ranks."""
    cluster, model = topology(node_group("g", nodes=2, ddr_bytes=8e9)), workload(TABLES)
    for name in ("physical", "torchrec"):
        before = planning_model(name, cluster, model, Policy())
        after = planning_model(name, cluster, model, policy(reserve={"hbm": "1MB", "ddr": "1GB"}))
        taken = [
            float((old - new).sum()) for old, new in zip(before.memory_capacity, after.memory_capacity, strict=True)
        ]
        assert taken == pytest.approx([4e6, 2e9, 0])


def test_unconfined_problems_are_as_before(model: StepModel) -> None:
    """A rank set that holds every rank, whatever its number, changes nothing."""
    problem = build_problem(model, enumerate_options(model, Policy()))
    twice = replace(
        problem,
        rank_sets=np.ones((2, problem.world), dtype=bool),
        table_rank_set=np.ones(problem.tables, dtype=np.int64),
    )
    assert len(problem.capacity_regions.kind) == len(twice.capacity_regions.kind) == problem.kinds
    assert not problem.is_confined
    assert not twice.is_confined
