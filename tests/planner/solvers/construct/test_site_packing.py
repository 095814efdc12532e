"""Few blocks on many sites: nearly level where a level packing exists, and never beyond what a site has room for."""

import numpy as np
import pytest

from planner.problem.numbers import Floats, Ints
from planner.solvers.construct.site_packing import SitePacking, distinct_columns

SITES, EACH = 40, 4


def _planted(seed: int) -> tuple[Floats, Ints]:
    """Loads [3, I] of blocks that fill all sites to exactly 1 in each column, each column divided at random, and the
    stages of the columns."""
    random = np.random.default_rng(seed)
    parts = random.dirichlet(np.full(EACH, 1.5), size=(3, SITES)).reshape(3, -1)
    return parts[:, random.permutation(parts.shape[1])], np.array([0, 1, 2])


def _full(load: Floats, place: Ints) -> Floats:
    return np.stack([np.bincount(place, weights=column, minlength=SITES) for column in load])


def _packing(load: Floats, stage: Ints, size: Floats | None = None, room: float = np.inf) -> SitePacking:
    sizes = np.zeros((1, load.shape[1])) if size is None else size[None]
    return SitePacking(stage, load, np.zeros((len(load), SITES)), sizes, np.full((1, SITES), room))


@pytest.mark.parametrize("seed", range(3))
def test_swaps_come_near_a_level_packing(seed: int) -> None:
    """Of what longest first ends above the mean, in three stages together, swaps take off more than half."""
    load, stage = _planted(seed)
    packing = _packing(load, stage)
    assert packing.place_longest_first(np.ones(3))
    before = _full(load, packing.place).max(axis=1).sum()
    packing.level(900, 0)
    after = _full(load, packing.place).max(axis=1).sum()
    assert before > 3.15
    assert after - 3 < 0.5 * (before - 3)
    np.testing.assert_allclose(packing.loads(packing.place)[0], _full(load, packing.place))


def test_a_seed_gives_the_same_places() -> None:
    """Whatever was packed before."""
    load, stage = _planted(5)
    places = []
    for _ in range(2):
        packing = _packing(load, stage)
        packing.place_longest_first(np.ones(3))
        packing.level(300, 7)
        places.append(packing.place)
    assert (places[0] == places[1]).all()


def test_no_site_takes_more_than_it_has_room_for() -> None:
    """Where memory is nearly full, neither the first places nor swaps overfill it; where it is too small, there are
    none."""
    load, stage = _planted(3)
    size = np.random.default_rng(0).integers(1, 6, load.shape[1]).astype(float)
    room = float(np.ceil(size.sum() / SITES)) + 2
    packing = _packing(load, stage, size, room)
    assert packing.place_longest_first(np.ones(3))
    packing.level(600, 0)
    assert np.bincount(packing.place, weights=size, minlength=SITES).max() <= room
    assert not _packing(load, stage, size, size.sum() / SITES - 0.5).place_longest_first(np.ones(3))


def test_two_blocks_leave_for_one() -> None:
    """A large block that needs the room of two small ones: no exchange of one for one makes it."""
    load = np.array([[6.0, 3.0, 3.0, 4.0, 4.0, 4.0]])
    packing = SitePacking(np.array([0]), load, np.zeros((1, 2)), np.zeros((1, 6)), np.full((1, 2), 1.0))
    packing.place = np.array([0, 0, 1, 0, 1, 1])
    packing.level(60, 0)
    assert np.bincount(packing.place, weights=load[0], minlength=2).tolist() == [12.0, 12.0]


def test_what_sites_have_before_counts() -> None:
    """A block goes where there is less, and the stage lasts as long as the fullest site."""
    load = np.array([[2.0]])
    packing = SitePacking(np.array([0]), load, np.array([[3.0, 0.5]]), np.zeros((1, 1)), np.ones((1, 2)))
    assert packing.place_longest_first(np.ones(1))
    assert packing.place.tolist() == [1]


def test_columns_below_others_of_their_stage_are_left_out() -> None:
    """A column that blocks load no more than another one at any site says nothing new; of two alike one is kept."""
    load = np.array([[2.0, 1.0], [1.0, 1.0], [0.0, 3.0], [0.0, 0.0], [2.0, 1.0], [2.0, 1.0]])
    base = np.zeros((6, 1))
    base[5] = 1.0
    assert distinct_columns(np.array([0, 0, 0, 0, 0, 1]), load, base).tolist() == [0, 2, 5]
