"""Repair of a placement that is a little over-full: tables change places, and memory tiers, pool by pool.

Where a tier is nearly full, what is left of its pools is smaller than most tables: nothing can move there, but a table
may change places with one that is a little smaller, in another tier, too. Each time the exchange, or move, is made that
costs least at the bound's multipliers for what it takes off the pools that are too full; where none takes anything off,
the one that makes the others least too full, and what it touched stays for a while (tabu search: Glover, 1986).
"""

from dataclasses import dataclass

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.load_state import LoadState, load_state
from planner.problem.numbers import Bools, Floats, Ints
from planner.problem.placement import Placement
from planner.problem.rounding import ROUNDING_BYTES

MOST_CHANGES = 400
"""Moves and exchanges at most."""
TABU = 12
"""Changes for which an item stays where it was put, if nothing was gained by that."""
MOST_OFFERS = 400_000
"""Pairs of forms of items that are looked at for one exchange."""
WORTH = 1e-7
"""Share of a pool that a change must take off what is too much."""
CHEAP = 1e-4
"""Share of the step that a change may cost and still count as costing nothing."""


def repaired(problem: Problem, placement: Placement, value: Floats, step_s: float) -> Placement | None:
    """Return the placement with some blocks of single ranks elsewhere, or in other tiers, so that it fits; None where
    that is not found. `value` [B] is what each block costs at some duals, of a step that takes `step_s`.

    Of clusters with one kind of rank, and without tables that a policy confines or groups.
    """
    if problem.kinds > 1 or problem.is_confined:
        return None
    repair = _Repair(problem, placement, value, CHEAP * step_s)
    stuck: set[tuple[int, int]] = set()
    for _ in range(MOST_CHANGES):
        worst = repair.worst_pool(stuck)
        if worst is None:
            break
        if repair.reduce_overflow(*worst):
            stuck.clear()
        else:
            stuck.add(worst)
    return repair.placement() if repair.fits() else None


@dataclass(frozen=True)
class _Changes:
    """n changes of places: an item in one of its forms on a rank; and another one in its place, if there is one."""

    form: Ints
    rank: Ints
    other: Ints
    """Form of the other item, -1 for none."""
    reduction: Floats
    """Share of a pool by which pools are less too full."""


class _Repair:
    """The state of one placement. n items may move, F forms are theirs: a whole table in one of its tiers."""

    def __init__(self, problem: Problem, placement: Placement, value: Floats, cheap_s: float) -> None:
        self._problem, self._value, self._cheap_s = problem, value, cheap_s
        blocks = placement.item_block
        option = problem.block_option[blocks]
        moves = problem.is_on_rank[blocks] & problem.block_is_splittable[blocks] & ~problem.option_colocated[option]
        self._fixed = Placement(blocks[~moves], placement.item_place[~moves])
        self._block, self._rank = blocks[moves].copy(), placement.item_place[moves].copy()
        self._table: Ints = problem.table_of_block[self._block]
        self._state: LoadState = load_state(problem, placement)
        pools = zip(problem.pool_capacity, problem.pool_of_rank, strict=True)
        rooms: list[Floats] = [np.maximum(capacity, 1.0)[pool] for capacity, pool in pools]
        self._capacity: Floats = np.stack(rooms)
        """[M, W] bytes of the pools of each rank."""
        self._pool: Ints = np.array(problem.pool_of_rank)
        self._holds: Bools = np.zeros((problem.tables, problem.world), dtype=bool)
        self._holds[self._table, self._rank] = True
        self._tabu: Ints = np.zeros(len(self._block), dtype=np.int64)
        """[n] changes until each item may move again."""
        forms = [self._forms_of(int(block)) for block in self._block]
        self._form_block: Ints = np.array([block for own in forms for block in own], dtype=np.int64)
        self._form_item: Ints = np.repeat(np.arange(len(forms)), [len(own) for own in forms])
        self._size: Floats = (problem.bytes_fixed[0] + problem.bytes_by_rows[0]).T

    def _forms_of(self, block: int) -> list[int]:
        """Return the cheapest block of a whole table for each set of tiers that it may be in; a part of a table as it
        is."""
        problem = self._problem
        if problem.block_units[block] != problem.option_units[problem.block_option[block]]:
            return [block]
        table = int(problem.table_of_block[block])
        members = np.arange(*problem.table_block_start[table : table + 2])
        whole = problem.block_units[members] == problem.option_units[problem.block_option[members]]
        may = whole & problem.block_is_splittable[members] & problem.is_on_rank[members]
        members = members[may & problem.allowed[0, members] & np.isfinite(self._value[members])]
        stored = (problem.bytes_fixed[0, members] + problem.bytes_by_rows[0, members]) > 0
        best: dict[bytes, int] = {}
        for member, tiers in zip(members.tolist(), stored, strict=True):
            key = tiers.tobytes()
            if key not in best or self._value[member] < self._value[best[key]]:
                best[key] = member
        return sorted({block, *best.values()})

    def fits(self) -> bool:
        """Whether no pool is too full."""
        return self._state.overflow_bytes() <= ROUNDING_BYTES

    def placement(self) -> Placement:
        """Return the placement as it is now."""
        block = np.concatenate([self._fixed.item_block, self._block])
        place = np.concatenate([self._fixed.item_place, self._rank])
        order = np.lexsort((place, block))
        return Placement(block[order], place[order])

    def worst_pool(self, stuck: set[tuple[int, int]]) -> tuple[int, int] | None:
        """Return tier and pool of the one that is most too full, for its size; None where all fit, but for those
        `stuck`."""
        over = np.where(self._state.free < -ROUNDING_BYTES, -self._state.free / self._capacity, 0.0)
        for tier, pool in stuck:
            over[tier, self._pool[tier] == pool] = 0.0
        worst = int(over.argmax())
        return None if over.flat[worst] <= 0 else (worst // over.shape[1], int(self._pool.flat[worst]))

    def reduce_overflow(self, tier: int, pool: int) -> bool:
        """Make the best change of an item in the pool; False where there is none."""
        here = (self._pool[tier][self._rank] == pool) & (self._size[tier, self._block] > 0) & (self._tabu <= 0)
        forms = np.flatnonzero(here[self._form_item])
        changes_of_each = [self._moves(forms), self._exchanges(forms)]
        form, rank, other_form, reduction = (
            np.concatenate([getattr(changes, name) for changes in changes_of_each])
            for name in ("form", "rank", "other", "reduction")
        )
        if not len(reduction):
            return False
        cost = self._more(form) + np.where(other_form >= 0, self._more(other_form), 0.0)
        helps = reduction > WORTH
        price = np.where(helps, np.maximum(cost, self._cheap_s) / np.where(helps, reduction, 1.0), np.inf)
        best = int(price.argmin() if helps.any() else reduction.argmax())
        touched = self._make(int(form[best]), int(rank[best]), int(other_form[best]))
        self._tabu -= 1
        if not helps[best]:
            self._tabu[touched] = TABU
        return True

    def _more(self, form: Ints) -> Floats:
        """Return the seconds [n] that forms cost more than what their items are in now."""
        return np.asarray(self._value[self._form_block[form]] - self._value[self._block[self._form_item[form]]])

    def _moves(self, forms: Ints) -> _Changes:
        """Return the changes of items in `forms` alone, to any rank."""
        ranks = np.arange(self._problem.world)
        item = self._form_item[forms]
        new, old = self._size[:, self._form_block[forms]], self._size[:, self._block[item]]
        nothing = np.zeros((len(self._pool), 1, 1))
        reduction = self._reduction(item, ranks, new[:, :, None], old[:, :, None], nothing, nothing)
        is_other = self._holds[self._table[item]] & (self._rank[item][:, None] != ranks)
        is_same = (self._form_block[forms] == self._block[item])[:, None] & (self._rank[item][:, None] == ranks)
        index, rank = np.nonzero(~is_other & ~is_same)
        return _Changes(forms[index], ranks[rank], np.full(len(index), -1), reduction[index, rank])

    def _exchanges(self, forms: Ints) -> _Changes:
        """Return the changes of items in `forms` with any others."""
        offers = np.arange(len(self._form_item))
        offers = offers[self._tabu[self._form_item] <= 0]
        offers = offers[:: max(-(-len(offers) * len(forms) // MOST_OFFERS), 1)]
        item, other_item = self._form_item[forms], self._form_item[offers]
        new, old = self._size[:, self._form_block[forms]], self._size[:, self._block[item]]
        come, gone = self._size[:, self._form_block[offers]], self._size[:, self._block[other_item]]
        reduction = self._reduction(
            item, self._rank[other_item], new[:, :, None], old[:, :, None], come[:, None, :], gone[:, None, :]
        )
        here, there = self._rank[item][:, None], self._rank[other_item]
        apart = here != there
        is_own = self._form_block == self._block[self._form_item]
        legal = self._table[item][:, None] != self._table[other_item]
        legal &= ~(
            apart
            & (self._holds[self._table[item]][:, there] | self._holds[self._table[other_item]][:, self._rank[item]].T)
        )
        legal &= apart | ~(is_own[forms][:, None] & is_own[offers])
        index, at = np.nonzero(legal)
        return _Changes(forms[index], self._rank[other_item[at]], offers[at], reduction[index, at])

    def _reduction(self, item: Ints, there: Ints, new: Floats, old: Floats, come: Floats, gone: Floats) -> Floats:
        """Return what pools are less too full [n, k], as shares of them, once n items that take `old` bytes go to k
        ranks and take `new` there, and others that take `gone` there come back and take `come`; all [M, n or 1, k or
        1]."""
        here = self._rank[item]
        total = np.zeros((len(item), len(there)))
        for tier, pool in enumerate(self._pool):
            free, capacity = self._state.free[tier], self._capacity[tier]
            is_one = pool[here][:, None] == pool[there]
            left, right = old[tier] - come[tier], gone[tier] - new[tier]
            left = np.where(is_one, left + right, left)
            before, after = free[here][:, None], free[here][:, None] + left
            total += (np.maximum(-before, 0.0) - np.maximum(-after, 0.0)) / capacity[here][:, None]
            elsewhere = (np.maximum(-free[there], 0.0) - np.maximum(-free[there] - right, 0.0)) / capacity[there]
            total += np.where(is_one, 0.0, elsewhere)
        return total

    def _make(self, form: int, rank: int, other_form: int) -> list[int]:
        """Make a change; the items that it touched."""
        item, here = int(self._form_item[form]), int(self._rank[self._form_item[form]])
        if other_form >= 0:
            self._put(int(self._form_item[other_form]), int(self._form_block[other_form]), here)
        self._put(item, int(self._form_block[form]), rank)
        touched = [item] if other_form < 0 else [item, int(self._form_item[other_form])]
        for each in touched:
            self._holds[self._table[each], self._rank[each]] = True
        return touched

    def _put(self, item: int, block: int, rank: int) -> None:
        """Hold an item as another block, or on another rank."""
        for what, where, sign in ((int(self._block[item]), int(self._rank[item]), 1.0), (block, rank, -1.0)):
            for tier, pool in enumerate(self._pool):
                self._state.free[tier, pool == pool[where]] += sign * self._size[tier, what]
        self._holds[self._table[item], self._rank[item]] = False
        self._block[item], self._rank[item] = block, rank
