"""The narrower questions in a question: plans of one sharding, of one memory tier, of whole tables alone, or of the
usual shardings.

Whoever asks one of them must not get a better plan than who leaves it open, so the search has them as masks.
"""

import numpy as np

from cost_models.shards import DATA_PARALLEL, SHARDINGS, TABLE_WISE, USUAL_SHARDINGS
from planner.formulation.options import Options
from planner.problem.numbers import Bools

WHOLE = (TABLE_WISE, DATA_PARALLEL)
"""Shardings that cut no table."""
USUAL = tuple(SHARDINGS.index(sharding) for sharding in USUAL_SHARDINGS)


def restrictions(options: Options) -> list[Bools]:
    """Masks [B] of the blocks that each restriction allows; those that leave a table out are none."""
    sharding, tier = options.block_sharding, options.tier[options.block_option]
    masks = [tier == code for code in np.unique(tier).tolist()]
    masks += [sharding == code for code in np.unique(sharding).tolist()]
    masks.append(np.isin(sharding, WHOLE))
    if (is_usual := np.isin(sharding, USUAL)).any() and not is_usual.all():
        masks.append(is_usual)
    tables, of_block = len(np.unique(options.table)), options.table[options.block_option]
    whole = {mask.tobytes(): mask for mask in masks if len(np.unique(of_block[mask])) == tables}
    return list(whole.values())
