"""Compressors of tables: words, exact numbers of parameters, the rule of mixed dimensions, what is refused."""

import math
import random

import pytest

from cost_models.workload.compressors import Compressor
from cost_models.workload.loading import load_workload
from cost_models.workload.mixed_dimensions import MixedDimensions, mixed_dimensions
from tests.oracles.instances import workload
from topologies.errors import InputError

CRITEO = "criteo-kaggle"
WHOLE = 540_201_232


def _parameters(*changes: str) -> int:
    overrides = [f"embedding.{change}" for change in changes]
    return load_workload(CRITEO, overrides=overrides).embedding_parameters


@pytest.mark.parametrize(
    ("collisions", "parameters"), [(2, 270_102_928), (4, 135_054_048), (16, 33_770_416), (60, 9_024_032)]
)
def test_quotient_and_remainder_have_the_published_parameters(collisions: int, parameters: int) -> None:
    """Tables above 200 rows of Criteo Kaggle: the counts of facebookresearch/dlrm's --qr-flag."""
    assert _parameters() == WHOLE
    assert _parameters(f"compressor=qr:{collisions}", "compress_above=200") == parameters


@pytest.mark.parametrize(("alpha", "times_fewer"), [(0.1, 3.98), (0.2, 15.69), (0.3, 15.99)])
def test_mixed_dimensions_have_the_published_parameters(alpha: float, times_fewer: float) -> None:
    """Of a base of 16 columns, rounded to powers of two: as often fewer as the rule gives."""
    assert round(WHOLE / _parameters(f"mixed_dimensions.alpha={alpha}"), 2) == times_fewer


def test_mixed_dimensions_of_another_base_have_the_published_parameters() -> None:
    """Of 32 columns: 31.88 times fewer than without."""
    stated = load_workload(CRITEO)
    tables = [table.model_dump(exclude_defaults=True) | {"dim": 32} for table in stated.tables]
    wide = workload(tables, name="wide", embedding={"mixed_dimensions": {"alpha": 0.3}})
    assert round(2 * WHOLE / wide.embedding_parameters, 2) == 31.88


def _published(rows: list[int], alpha: float, width: int | None, budget: float | None, *, power: bool) -> list[int]:
    """md_solver of facebookresearch/dlrm (tricks/md_embedding_bag.py), told in scalars."""
    order = sorted(range(len(rows)), key=lambda i: rows[i])
    if width is not None:
        scale = width * rows[order[0]] ** alpha
    else:
        assert budget is not None
        scale = budget / sum(n ** (1 - alpha) for n in rows)
    dims = [0] * len(rows)
    for place, i in enumerate(order):
        raw = scale * rows[i] ** -alpha
        raw = width if place == 0 and width is not None else max(raw, 1)
        whole = round(raw)
        dims[i] = 2 ** round(math.log2(whole)) if power else whole
    return dims


def test_a_thousand_random_vectors_of_rows_have_the_dimensions_of_the_published_solver() -> None:
    """With a width or a number of parameters, rounded to powers of two or not."""
    numbers = random.Random(7)
    for _ in range(1_000):
        rows = numbers.sample(range(2, 10**7), numbers.randint(1, 30))
        alpha, power = numbers.uniform(0, 1), numbers.random() < 0.5
        width = numbers.choice([8, 16, 64, 128])
        budget = None if numbers.random() < 0.5 else sum(rows) * numbers.uniform(1, width)
        rule = MixedDimensions(alpha=alpha, parameters=budget, power_of_two=power)
        expected = _published(rows, alpha, width if budget is None else None, budget, power=power)
        assert mixed_dimensions(rows, width, rule, [1.0] * len(rows)) == expected


def test_popular_tables_have_longer_vectors() -> None:
    """Where tables are as large, the one that is read more often has more numbers in a vector."""
    rule = MixedDimensions(alpha=0.5, parameters=1e6, power_of_two=False, by_pooling=True)
    often, seldom = mixed_dimensions([50_000, 50_000], 64, rule, [16.0, 1.0])
    assert often == 4 * seldom


@pytest.mark.parametrize("word", ["none", "hash:4", "qr:4:multiply", "qr:60:add", "qr:2:concat", "dim:8"])
def test_a_compressor_is_written_as_it_is_read(word: str) -> None:
    """Words come back."""
    assert str(Compressor.parse(word)) == word


@pytest.mark.parametrize("word", ["hash", "hash:1", "qr:0", "dim:0", "qr:4:max", "remainder:4", "svd:8", 4, None])
def test_what_is_no_compressor_is_refused(word: object) -> None:
    """Unknown kinds, and numbers that make nothing smaller."""
    with pytest.raises(ValueError, match=r"compressor|at least"):
        Compressor.parse(word)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["tables.cat_0.compressor=dim:16"], "'cat_0': dim:16 is no fewer than the 16 columns"),
        (["tables.cat_0.compressor=hash:99999999"], "joins more ids than the 1,460 of the table"),
        (["embedding.compressor=qr:60"], "raise compress_above"),
        (["embedding.compress_above=200"], "goes with compressor or mixed_dimensions"),
        (["embedding.compressor=hash:2", "embedding.mixed_dimensions.alpha=0.3"], "give one"),
        (["tables.cat_0.compressor=qr:4:mean"], "is no compressor; write for example hash:4"),
    ],
)
def test_what_makes_no_table_smaller_is_refused_by_name(changes: list[str], said: str) -> None:
    """Each with its field and a remedy."""
    with pytest.raises(InputError) as refused:
        load_workload(CRITEO, overrides=changes)
    assert said in str(refused.value)


def test_tables_without_compressors_are_as_before() -> None:
    """Neither the content hash of a workload nor what is written of it knows of them."""
    stated = load_workload(CRITEO)
    assert "compress" not in stated.model_dump_json(exclude_defaults=True)
    assert stated.uncompressed is stated
