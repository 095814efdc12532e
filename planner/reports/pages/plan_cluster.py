"""The cluster of a plan, drawn: its nodes under the network, and how busy each part is in a simulated step."""

from collections.abc import Sequence

import numpy as np

from cost_models.resources import Resource
from cost_models.shards import Floats
from cost_models.simulator.simulation import Simulation
from planner.reports.pages.charts import Chart, Json, View, escaped, hover, layout
from planner.reports.pages.palette import FAINT, INK, SEQUENTIAL
from planner.reports.timeline.slices import use_by_rank
from planner.reports.words import resource_words
from topologies.sentences import counted

MOST_NODES, MOST_NAMED = 128, 32
COLUMNS, MANY_COLUMNS, FEW_COLUMNS = 64, 128, 16
"""Ranks side by side, and where nodes are many or few."""
ROW_PX, LOW_ROW_PX = 15, 12
LABELS = {
    "nic": "scale-out card",
    "device": "accelerator",
    "link": "scale-up link",
    "host_link": "PCIe link",
    "pcie": "PCIe switch",
    "front_end": "front end",
    "ddr": "host memory",
}
"""Short words for what serves ranks."""
ORDER = ("uplink", "nic", "device", "link", "host_link", "pcie")
"""From the network down; memories follow."""


def cluster(simulation: Simulation) -> Chart:
    """Every node with its ranks side by side, and below each other what serves them, as dark as it is busy."""
    network = simulation.network
    use = use_by_rank(simulation)
    kinds = sorted(use, key=lambda kind: ORDER.index(kind.kind) if kind.kind in ORDER else len(ORDER))
    drawn = _Drawing(simulation, use, kinds)
    notes = ["A column is a rank, a row what serves it; the stronger the colour, the longer a simulated step uses it."]
    if drawn.trunk is not None:
        notes.append(
            f"Nodes, by number, hang from the network by lines with the colour of their busiest {drawn.trunk}."
        )
    if len(drawn.nodes) < network.topology.node_count:
        notes.append(f"The {len(drawn.nodes)} of {counted(network.topology.node_count, 'node')} with the busiest part.")
    busiest = ", ".join(
        f"{resource_words(kind, network.topology)} {use[kind].max():.0%} at rank {int(use[kind].argmax()):,}"
        for kind in kinds
    )
    return Chart(
        "cluster", "Cluster", (View("", *drawn.chart(), rows=drawn.rows()),), " ".join(notes), f"Busiest: {busiest}."
    )


class _Drawing:
    """Tiles of nodes on a grid of cells: x counts ranks, y counts rows downwards."""

    def __init__(self, simulation: Simulation, use: dict[Resource, Floats], kinds: Sequence[Resource]) -> None:
        self._network, self._use, self._kinds = simulation.network, use, kinds
        ranks_of = [np.flatnonzero(simulation.network.node_of_rank == node) for node in self._node_numbers()]
        self.nodes = self._busiest(ranks_of)
        self._wide = max(len(ranks) for ranks in self.nodes.values())
        columns, self._is_many = len(self.nodes) * self._wide, len(self.nodes) > MOST_NAMED
        room = MANY_COLUMNS if self._is_many else FEW_COLUMNS if columns <= 4 * FEW_COLUMNS else COLUMNS
        self._beside = max(1, min(len(self.nodes), room // self._wide))
        self._tall = len(kinds) + 2
        self._lines = -(-len(self.nodes) // self._beside)

    @property
    def trunk(self) -> str | None:
        """What joins nodes: scale-out cards, or the links of a domain that spans them; None for a single node."""
        kind = self._trunk
        return None if kind is None or len(self.nodes) < 2 else self._label(kind)

    @property
    def _trunk(self) -> Resource | None:
        ways = {kind.kind: kind for kind in self._kinds}
        return ways.get("nic") or ways.get("link")

    def rows(self) -> list[list[str]]:
        """Every rank with the share of each part, in %."""
        head = ["rank", "node", *(f"{self._label(kind)} (%)" for kind in self._kinds)]
        shares = [100 * self._use[kind] for kind in self._kinds]
        ranks = [(rank, node) for node, of in self.nodes.items() for rank in of.tolist()]
        return [head, *([f"{rank:,}", f"{node:,}", *(f"{of[rank]:.1f}" for of in shares)] for rank, node in ranks)]

    def _node_numbers(self) -> range:
        return range(int(self._network.node_of_rank.max()) + 1)

    def _busiest(self, ranks_of: Sequence[np.ndarray]) -> dict[int, np.ndarray]:
        """The ranks of the nodes that are drawn."""
        most = np.max([self._use[kind] for kind in self._kinds], axis=0)
        peak = np.array([most[ranks].max() for ranks in ranks_of])
        kept = sorted(np.argsort(-peak, kind="stable")[:MOST_NODES].tolist())
        return {node: ranks_of[node] for node in kept}

    def _corner(self, place: int) -> tuple[int, int]:
        """The first column and row of the cells of a tile."""
        line, column = divmod(place, self._beside)
        return column * (self._wide + 1), line * self._tall + 1

    def chart(self) -> tuple[list[Json], Json]:
        """Data and layout."""
        width, height = self._beside * (self._wide + 1) - 1, self._lines * self._tall
        share: list[list[float | None]] = [[None] * width for _ in range(height)]
        words = [[""] * width for _ in range(height)]
        for place, ranks in enumerate(self.nodes.values()):
            x, y = self._corner(place)
            for row, kind in enumerate(self._kinds):
                for column, rank in enumerate(ranks.tolist()):
                    share[y + row][x + column] = round(100 * float(self._use[kind][rank]), 2)
                    words[y + row][x + column] = self._hover(rank, kind)
        trace: Json = {
            "type": "heatmap",
            "x": list(range(width)),
            "y": list(range(height)),
            "z": share,
            "hovertext": words,
            "hoverinfo": "text",
            "hoverongaps": False,
            "colorscale": SEQUENTIAL,
            "zmin": 0,
            "zmax": 100,
            "xgap": 1,
            "ygap": 1,
            "colorbar": {
                "title": {"text": "in use (%)", "side": "right"},
                "orientation": "h",
                "thickness": 10,
                "len": 0.6,
            }
            | {"outlinewidth": 0, "y": 0, "yanchor": "top", "x": 0, "xanchor": "left", "ypad": 8},
        }
        return [trace], self._layout(width, height)

    def _hover(self, rank: int, kind: Resource) -> str:
        node = int(self._network.node_of_rank[rank])
        return hover(
            f"rank {rank:,} on node {node:,}",
            {resource_words(kind, self._network.topology): f"{self._use[kind][rank]:.1%} of the step in use"},
        )

    def _layout(self, width: int, height: int) -> Json:
        places = [line * self._tall + 1 + row for line in range(self._lines) for row in range(len(self._kinds))]
        names = [escaped(self._label(kind)) for kind in self._kinds]
        hidden: Json = {"showgrid": False, "zeroline": False, "ticks": "", "automargin": True}
        x: Json = {"range": [-1, width], "showticklabels": False, "fixedrange": True}
        y: Json = {"range": [height - 0.5, -1], "tickmode": "array", "tickvals": places, "fixedrange": True}
        y["ticktext"] = names * self._lines
        return layout(
            90 + (LOW_ROW_PX if self._is_many else ROW_PX) * (height + 1),
            margin={"l": 16, "r": 16, "t": 12, "b": 60},
            xaxis=hidden | x,
            yaxis=hidden | y | {"tickfont": {"size": 9 if self._is_many else 11}},
            shapes=self._shapes(),
            annotations=self._names(),
        )

    def _shapes(self) -> list[Json]:
        """The network: a line above each row of nodes, a line down its left side, and one down to each node."""
        if len(self.nodes) < 2:
            return []
        use = np.zeros(self._network.world) if self._trunk is None else self._use[self._trunk]
        shapes = [_line(-0.9, self._corner(0)[1] - 1.4, -0.9, (self._lines - 1) * self._tall - 0.4, FAINT)]
        for line in range(self._lines):
            y = line * self._tall - 0.4
            last = self._corner(min((line + 1) * self._beside, len(self.nodes)) - 1)[0]
            shapes.append(_line(-0.9, y, last, y, FAINT))
        for place, ranks in enumerate(self.nodes.values()):
            x, y = self._corner(place)
            stop = min(int(use[ranks].max() * len(SEQUENTIAL)), len(SEQUENTIAL) - 1)
            shapes.append(_line(x, y - 1.4, x, y - 0.5, str(SEQUENTIAL[max(stop, 1)][1]), 4))
        return shapes

    def _label(self, kind: Resource) -> str:
        words = resource_words(kind, self._network.topology)
        return words if kind.kind == "uplink" else LABELS.get(kind.kind, words.partition(" (")[0])

    def _names(self) -> list[Json]:
        if self._is_many:
            return []
        text: Json = {"showarrow": False, "xanchor": "left", "font": {"size": 10, "color": INK}}
        corners = [self._corner(place) for place in range(len(self.nodes))]
        return [
            text | {"text": f"{node}", "x": x + 0.2, "y": y - 0.95}
            for node, (x, y) in zip(self.nodes, corners, strict=True)
        ]


def _line(x: float, y: float, to_x: float, to_y: float, colour: str, width: int = 2) -> Json:
    return {
        "type": "line", "x0": x, "y0": y, "x1": to_x, "y1": to_y, "line": {"color": colour, "width": width}
    }  # fmt: skip
