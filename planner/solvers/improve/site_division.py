"""What a few sites hold, divided among them anew: a linear programme, and its fractions rounded.

Swaps of single blocks level sites that hold much the same. They do not where one has many small blocks beside a large
one that comes or goes: whatever comes in return has other proportions of seconds and bytes. Shares of all small blocks
on all of the sites at once do; a vertex of the programme has few fractions, at most one for each resource of each
site, and swaps make up for those.
"""

import numpy as np

from planner.problem.numbers import Ints
from planner.solvers.bound.programs import LinearProgram, optimum
from planner.solvers.improve.site_balancing import Bins

SMALL = 0.1
"""Share of an aim up to which a block may be held in fractions, and then be rounded."""
MOST = 20_000
"""Shares of blocks that the programme has at most, 50 to 100 ms: larger ones are not solved."""
REACHED = 1e-6
"""Share of an aim by which the programme may be above it."""


def divide(bins: Bins, sites: Ints) -> bool:
    """Divide the small blocks that are on these sites [n], ascending, among them, so that they are as far below their
    aims as can be; return whether these, if they had fractions, would lift none above it: otherwise nothing has
    changed. Loads and bytes are shares of their aims (`SiteLevelling`)."""
    here = np.flatnonzero(np.isin(bins.place, sites) & (bins.item_load <= SMALL).all(axis=1))
    load, count = bins.item_load[here], len(sites)
    if not len(here):
        return True
    if len(here) * count > MOST:
        return False
    settled = bins.load[sites]
    np.subtract.at(settled, np.searchsorted(sites, bins.place[here]), load)
    programme = LinearProgram(maximize=False)
    shares = np.array(programme.add_variables(len(here) * count)).reshape(len(here), count)
    columns = np.flatnonzero(load.any(axis=0)).tolist()
    above = programme.add_variables(len(columns), lower=-1.0, is_counted=True)
    for column, most in zip(columns, above, strict=True):
        for own, already in zip(shares.T, settled[:, column].tolist(), strict=True):
            programme.add_row([*own, most], np.append(load[:, column], -1.0), -np.inf, -already)
    for block in shares:
        programme.add_row(block, np.ones(count), 1.0, 1.0)
    found = optimum(programme)
    if found is None or (found.values[above] > REACHED).any():
        return False
    divided = found.values[shares].argmax(axis=1)
    np.add.at(settled, divided, load)
    bins.load[sites], bins.place[here] = settled, sites[divided]
    return True
