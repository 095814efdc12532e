"""Rows that are drawn: against enumeration, and literal streams of ids through a literal cache."""

from collections import OrderedDict

import numpy as np
import pytest

from cost_models.simulator.row_samples import Draw, RowLaw, law_of_distinct, law_of_reads
from cost_models.workload.table_profile import TableProfile

LAWS = (RowLaw(30_000, 0.0), RowLaw(30_000, 0.8), RowLaw(30_000, 1.2), RowLaw(30_000, 0.0, ((0.1, 0.8), (1.0, 1.0))))


def draw(law: RowLaw, ids: float, seed: int = 0, size: int = 20_000) -> Draw:
    random = np.random.default_rng(seed)
    return Draw.of(law, ids, size, random)


@pytest.mark.parametrize("law", LAWS)
def test_probabilities_add_up_to_one(law: RowLaw) -> None:
    """Over all rows; and ids that are drawn stand for all ids."""
    every = law.probability(np.arange(1.0, law.rows + 1))
    assert every.sum() == pytest.approx(1, rel=1e-6)
    assert draw(law, 1e6).ids.sum() == pytest.approx(1e6, rel=1e-2)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("held", [300, 6000])
def test_distinct_rows_and_misses_are_those_of_a_stream_of_ids(law: RowLaw, held: int) -> None:
    """Ids drawn one by one read as many rows, and a cache of the rows read last lacks as many of them."""
    random, ids = np.random.default_rng(1), 20_000
    likely = law.probability(np.arange(1.0, law.rows + 1))
    stream = random.choice(len(likely), 6 * ids, p=likely / likely.sum())
    cache: OrderedDict[int, None] = OrderedDict()
    for row in stream[:-ids].tolist():
        cache[row] = None
        cache.move_to_end(row)
        if len(cache) > held:
            cache.popitem(last=False)
    batch = np.unique(stream[-ids:])
    missed = sum(row not in cache for row in batch.tolist())
    ours = draw(law, ids)
    assert ours.rows.sum() == pytest.approx(len(batch), rel=0.03)
    assert ours.rows[~ours.is_held(held)].sum() == pytest.approx(missed, rel=0.08)
    assert ours.hit_share(held) == pytest.approx(likely[:held].sum(), rel=0.05, abs=2e-3)


def test_a_sample_stands_for_a_table_that_is_too_large_to_list() -> None:
    """4 M rows by a sample of 20,000: within 1 % as many distinct as by the sum over all."""
    law, ids = RowLaw(4e6, 0.9), 1e6
    likely = law.probability(np.arange(1.0, 4e6 + 1))
    exact = -np.expm1(-ids * likely).sum()
    assert np.mean([draw(law, ids, seed).rows.sum() for seed in range(2)]) == pytest.approx(exact, rel=0.01)


@pytest.mark.parametrize("dedup", [1, 4, 10])
def test_a_measured_share_of_distinct_ids_is_drawn(dedup: float) -> None:
    """131,072 distinct rows of 10 M, 20 ids, 65,536 samples, a tenth distinct; after deduplication as many."""
    profile = TableProfile.model_validate(
        {"name": "t", "rows": 10_000_000, "dim": 8, "pooling_factor": 20, "unique_fraction": 0.1, "dedup_factor": dedup}
    )
    law = law_of_distinct(profile, 1e7, 65_536)
    found = np.mean([draw(law, 65_536 * 20 / dedup, seed, 100_000).rows.sum() for seed in range(3)])
    assert found == pytest.approx(131_072, rel=0.01)
    elsewhere = profile.model_copy(update={"unique_fraction_batch": 65_536})
    assert law_of_distinct(elsewhere, 1e7, 512) == law


def test_what_is_stated_goes_before_what_was_measured() -> None:
    """The hottest rows take the share that a curve or an exponent says; distinct rows are as many as were measured."""
    given = {"name": "t", "rows": 1000, "dim": 8, "pooling_factor": 20, "unique_fraction": 0.1}
    stated = TableProfile.model_validate({**given, "zipf_alpha": 1.5})
    assert law_of_reads(stated, 1000, 100) == RowLaw(1000, 1.5)
    assert law_of_distinct(stated, 1000, 100) == law_of_reads(TableProfile.model_validate(given), 1000, 100)
    plain = TableProfile.model_validate({"name": "t", "rows": 1000, "dim": 8, "pooling_factor": 20})
    assert law_of_reads(plain, 1000, 100) == law_of_distinct(plain, 1000, 100) == RowLaw(1000, 0.0)
