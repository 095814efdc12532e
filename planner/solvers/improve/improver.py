"""Local search: a placement improved in rounds, each of which changes many pairs of ranks or nodes at once.

Two kinds of round take turns. *Repartition*: paired ranks, or paired nodes, divide their blocks anew (`repartition`).
*Cuts*: paired ranks also divide the columns of one table in another way; parts of a table on one rank merge. Pairs are
disjoint, so their changes add up. All is judged by a smoothed step (`smoothing`), whose norm nears the maximum while
the search goes on. *Load balancing* comes last: ranks above a target each exchange a few blocks with whichever other
rank suits best (`load_balancing`).

To let several neighbourhoods take turns is variable neighbourhood search (Mladenović and Hansen, Comput. Oper. Res. 24,
1997).
"""

from collections.abc import Callable
from dataclasses import dataclass

from planner.problem.arrays import Problem
from planner.problem.numbers import Bools, Floats
from planner.problem.placement import Placement
from planner.solvers.improve.convert import convert
from planner.solvers.improve.cut_tables import cut_tables
from planner.solvers.improve.load_balancing import LoadBalancer
from planner.solvers.improve.repartition_groups import repartition_groups
from planner.solvers.improve.repartition_ranks import repartition_ranks
from planner.solvers.improve.respread import respread
from planner.solvers.improve.site_balancing import SiteBalancer
from planner.solvers.improve.site_converting import convert_on_sites
from planner.solvers.improve.site_merging import merge_cuts
from planner.solvers.improve.site_returning import return_to_sites
from planner.solvers.improve.site_splitting import split_cuts
from planner.solvers.improve.site_spreading import spread_from_sites
from planner.solvers.improve.smoothing import Smoothing
from planner.solvers.improve.state import SearchState

TURNS = 8
"""Rounds after which the moves come in the same order again: most of them repartition ranks, where most is won."""


@dataclass(frozen=True)
class Move:
    """A kind of round, and when its turn is."""

    apply: Callable[[SearchState, Smoothing], int]
    """Changes the state; how many blocks it moved."""
    turns: tuple[int, ...]
    """The move's turns of TURNS rounds."""
    supports: Callable[[SearchState], bool] = lambda _: True
    """Whether the move can change anything."""
    least_squarings: int = 0
    """The norm is 2 to this power at least: before, other moves level as well."""
    is_exact: bool = False
    """Whether it looks at all columns, however little they matter."""


MOVES = (
    Move(repartition_groups, (TURNS - 1,)),
    Move(cut_tables, (0, TURNS // 2), least_squarings=5),
    Move(convert, (TURNS // 4,), supports=lambda state: state.has_alternatives, is_exact=True),
    Move(repartition_ranks, tuple(range(TURNS))),
)
"""The first one whose turn it is, and which supports the state, makes the round."""


class Improver:
    """Improves one placement; deterministic for its seed. Tables outside `movable_tables` [T] stay as they are.

    A placement that is a little over-full may come to fit: ranks divide their blocks, and tables change their tiers,
    in ways that fit. `best_s` is infinite as long as none was met.
    """

    def __init__(self, problem: Problem, placement: Placement, seed: int, movable_tables: Bools | None = None) -> None:
        self.state = SearchState(problem, placement, seed, movable_tables)
        self._load_balancer = LoadBalancer(self.state)
        self._site_balancer = SiteBalancer(self.state)
        self._split: set[int] = set()

    @property
    def best_s(self) -> float:
        """The step of the best placement so far."""
        return self.state.best_s

    @property
    def present_s(self) -> float:
        """The step of the present placement."""
        return self.state.loads.step_s()

    def best(self) -> Placement:
        """Return the best placement so far; the given one where none fits."""
        return self.state.best

    def round(self, number: int, squarings: int) -> int:
        """Make a round of a kind that follows from its number; return how many blocks it moved."""
        state, turn = self.state, number % TURNS
        if not len(state.items.rank):
            move = MOVES[0]
        else:
            move = next(
                each
                for each in MOVES
                if turn in each.turns and squarings >= each.least_squarings and each.supports(state)
            )
        exactly = {"negligible": 0.0} if move.is_exact else {}
        changed = move.apply(state, Smoothing(state.problem, state.loads, squarings, **exactly))
        if changed:
            state.note()
        return changed

    def balance(self) -> bool:
        """Make one round of exchanges that bring ranks below an aim; return False once no lower aim is reached."""
        return self._load_balancer.balance()

    def balance_sites(self) -> bool:
        """Make one round of swaps that bring groups of ranks below an aim; return False once no lower aim is reached,
        or where they are few."""
        return self._site_balancer.balance()

    def merge_cuts(self, value: Floats) -> bool:
        """Hold tables that are cut over groups of ranks in options of fewer blocks that cost less, by the `value` [B]
        of the option that each block names; return whether any are."""
        return self._site_balancer.is_active and self._restarted(is_changed=merge_cuts(self.state, value, self._split))

    def split_cuts(self, value: Floats) -> bool:
        """Hold tables of which one block leaves a group of ranks less full than others in options of more blocks, by
        the same `value` [B]; they stay in as many. Return whether any are."""
        split = split_cuts(self.state, value) if self._site_balancer.is_active else []
        self._split.update(split)
        return self._restarted(is_changed=bool(split))

    def spread_from_sites(self, value: Floats) -> bool:
        """Hold cheap tables on all ranks instead of groups of ranks, by the same `value` [B], where that lets the loads
        of groups come down by a step; return whether any are."""
        return self._site_balancer.is_active and self._restarted(is_changed=spread_from_sites(self.state, value))

    def convert_on_sites(self, value: Floats) -> bool:
        """Hold tables on groups of ranks in cheaper options there, by the same `value` [B], whatever blocks and
        memories these take; return whether any are."""
        return self._site_balancer.is_active and self._restarted(
            is_changed=convert_on_sites(self.state, value, self._split)
        )

    def return_to_sites(self, value: Floats) -> bool:
        """Hold tables on groups of ranks instead of all ranks, by the same `value` [B], where groups have room below
        the step that a stage ends on; return whether any are."""
        return self._site_balancer.is_active and self._restarted(is_changed=return_to_sites(self.state, value))

    def _restarted(self, *, is_changed: bool) -> bool:
        """Let groups of ranks swap anew where what they hold has changed; return whether it has."""
        if is_changed:
            self._site_balancer = SiteBalancer(self.state)
        return is_changed

    def restart_sites(self) -> bool:
        """Let groups of ranks swap from high aims again; return False where they are few."""
        self._site_balancer = SiteBalancer(self.state)
        return self._site_balancer.is_active

    @property
    def only_sites_move(self) -> bool:
        """Whether groups of ranks are balanced, and no block stands on a single rank: other moves find nothing more."""
        return self._site_balancer.is_active and not len(self.state.items.rank)

    def respread(self) -> bool:
        """Spread tables over the world, or bring some back, where that lets stages end on a step."""
        return respread(self.state)
