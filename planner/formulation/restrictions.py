"""The narrower questions in a question: plans of one sharding, of one memory tier, or of whole tables alone.

Whoever asks one of them must not get a better plan than who leaves it open, so the search has them as masks.
"""

import numpy as np

from cost_models.shards import DATA_PARALLEL, TABLE_WISE
from planner.formulation.options import Options
from planner.problem.numbers import Bools

WHOLE = (TABLE_WISE, DATA_PARALLEL)
"""Shardings that cut no table."""


def restrictions(options: Options) -> list[Bools]:
    """Masks [B] of the blocks that each restriction allows; those that leave a table out are none."""
    sharding, tier = options.block_sharding, options.tier[options.block_option]
    masks = [tier == code for code in np.unique(tier).tolist()]
    masks += [sharding == code for code in np.unique(sharding).tolist()]
    masks.append(np.isin(sharding, WHOLE))
    tables, of_block = len(np.unique(options.table)), options.table[options.block_option]
    whole = {mask.tobytes(): mask for mask in masks if len(np.unique(of_block[mask])) == tables}
    return list(whole.values())
