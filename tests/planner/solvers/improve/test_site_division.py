"""What a few sites hold, divided among them anew."""

import numpy as np
import pytest

from planner.problem.numbers import Floats
from planner.solvers.improve.site_balancing import Bins
from planner.solvers.improve.site_division import SMALL, divide

SITES = 5
CHANGED = np.array([1, 2, 4])


def _bins(aim: float) -> Bins:
    """Sites 1, 2 and 4 have blocks that load mostly the first resource, mostly the second, and one large one; the
    others have some as well. Aims are so many times what these three have on average."""
    random = np.random.default_rng(0)
    place = np.repeat(np.arange(SITES), 40)
    load = random.uniform(0.2, 1.0, (len(place), 2))
    load[place == 1, 1] *= 0.1
    load[place == 2, 0] *= 0.1
    load[-1] = 10.0
    full = _full(load, place)
    unit = aim * full[CHANGED].mean(axis=0)
    return Bins(full / unit - 1.0, np.zeros((SITES, 0)), load / unit, np.zeros((len(place), 0)), place)


def _full(load: Floats, place: np.ndarray) -> Floats:
    full = np.zeros((SITES, load.shape[1]))
    np.add.at(full, place, load)
    return full


def test_sites_become_level_in_all_resources() -> None:
    """But for what is rounded, a block for each resource of a site. Large blocks, and other sites, stay as they are;
    the books are right."""
    bins = _bins(1.01)
    before = bins.place.copy()
    assert bins.load[CHANGED].max() > 0.3
    assert divide(bins, CHANGED)
    assert bins.load[CHANGED].max() < 2 * bins.item_load[:-1].max()
    assert bins.item_load[-1].max() > SMALL
    assert bins.place[-1] == before[-1]
    others = ~np.isin(before, CHANGED)
    assert (bins.place[others] == before[others]).all()
    assert np.isin(bins.place[~others], CHANGED).all()
    assert np.allclose(bins.load, _full(bins.item_load, bins.place) - 1.0)


@pytest.mark.parametrize("copies", [1, 100])
def test_nothing_changes_where_fractions_do_not_fit_or_are_too_many(copies: int) -> None:
    """The aims are below the mean; or there are a hundred times as many blocks."""
    bins = _bins(0.99)
    bins.place, bins.item_load = np.tile(bins.place, copies), np.tile(bins.item_load / copies, (copies, 1))
    if copies > 1:
        bins.load -= 1.0
    place, load = bins.place.copy(), bins.load.copy()
    assert not divide(bins, CHANGED)
    assert (bins.place == place).all()
    assert (bins.load == load).all()


def test_large_blocks_stay() -> None:
    """Where there are no others, swaps tell whether the sites can be level."""
    bins = _bins(1.01)
    bins.item_load = np.full_like(bins.item_load, 2 * SMALL)
    place = bins.place.copy()
    assert divide(bins, CHANGED)
    assert (bins.place == place).all()
