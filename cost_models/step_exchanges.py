"""What blocks exchange in a step, stage by stage, and where whole tables that are spread evenly come to stand."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from cost_models import collectives, towers
from cost_models.exchange_lines import ExchangeLine, fastest_line
from cost_models.kinds import RankKind
from cost_models.loads import Loads
from cost_models.memory import Batching
from cost_models.resources import LINK_IN, LINK_OUT
from cost_models.schedule import Schedule
from cost_models.shards import Blocks
from cost_models.tables import Tables

Exchange = Callable[[Tables, Blocks, RankKind, Batching, float | None], Loads]
EXCHANGE_OF: dict[str, Exchange] = {
    "input_dist": collectives.id_exchange,
    "output_intra_host": towers.output_intra_host,
    "output_dist": collectives.output_exchange,
    "gradient_dist": collectives.gradient_exchange,
    "gradient_intra_host": towers.gradient_intra_host,
}
"""The stages that exchange, and what."""


def exchange_split(schedule: Schedule) -> Callable[[str, Loads, Blocks, RankKind], dict[str, Loads]]:
    """What divides the loads of the exchange of a stage among the terms of the step."""
    return towers.by_term if schedule.has_towers else collectives.by_term


def exchange_terms(
    schedule: Schedule, tables: Tables, blocks: Blocks, kind: RankKind, batching: Batching, ports: Mapping[str, float]
) -> dict[str, Loads]:
    """What blocks exchange on a kind of rank in some stages, at the rates of its port in them, by term of the step."""
    by_term, terms = exchange_split(schedule), dict[str, Loads]()
    for stage, port in ports.items():
        terms |= by_term(stage, EXCHANGE_OF[stage](tables, blocks, kind, batching, port), blocks, kind)
    if schedule.has_towers:
        terms |= towers.rearranging(tables, blocks, kind, batching)
    return terms


def balanced_bytes(exchange: Exchange, tables: Tables, blocks: Blocks, kind: RankKind, batching: Batching) -> float:
    """Bytes over a port in an exchange, one way, where blocks are spread evenly."""
    loads = exchange(tables, blocks, kind, batching, 1.0)
    ways = (loads[LINK_OUT], loads[LINK_IN])
    return max(float(np.sum(way.fixed + way.by_rows) / kind.world_size + np.sum(way.everywhere)) for way in ways)


def reduction_line(lines: Sequence[ExchangeLine], kinds: Sequence[RankKind], gradient_bytes: float) -> ExchangeLine:
    """The fastest line of an all-reduce of so many bytes of gradients."""
    moved = [collectives.all_reduce_seconds(gradient_bytes, kind, 1.0)[LINK_OUT] for kind in kinds]
    return lines[fastest_line(lines, np.array(moved, dtype=float))]
