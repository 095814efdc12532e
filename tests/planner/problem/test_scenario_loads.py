"""Scenarios as arrays: what moves and swaps would make of the longest steps is what they make of it, one by one."""

import numpy as np
import pytest

from planner.problem.scenario_loads import ScenarioCosts, ScenarioLoads, quantile

SEEDS = range(12)
WORLD, SCENARIOS, BLOCKS, LONGEST = 6, 9, 5, 3


class _Instance:
    """Random costs of blocks on ranks of two kinds, some of whose resources are shared."""

    def __init__(self, seed: int) -> None:
        random = np.random.default_rng(seed)
        pairs = np.arange(WORLD) // 2
        resource = np.stack([np.arange(WORLD), pairs, np.arange(WORLD), np.zeros(WORLD, dtype=np.int64)])
        self.costs = ScenarioCosts(
            stage_of_column=np.array([0, 0, 1, 2]),
            resource_of_rank=resource,
            kind_of_rank=np.array([0, 0, 0, 0, 1, 1]),
            constants=random.random(SCENARIOS),
            least_s=np.where(random.random(SCENARIOS) < 0.2, 9.0, 0.0),
            blocks=np.array([1, 4, 5, 7, 9]),
            whole_load=random.random((SCENARIOS, 2, BLOCKS, 4)),
            slowness=1 + random.random((SCENARIOS, WORLD)),
            is_device=np.array([True, False, False, False]),
        )
        self.block = random.permutation(np.repeat(self.costs.blocks, 2))
        self.place = random.integers(WORLD, size=len(self.block))

    def loads(self, block: np.ndarray, place: np.ndarray) -> ScenarioLoads:
        """Summed block by block."""
        costs, load = self.costs, np.zeros((SCENARIOS, 4, WORLD))
        for n in range(SCENARIOS):
            for b, rank in zip(block.tolist(), place.tolist(), strict=True):
                own = costs.whole_load[n, costs.kind_of_rank[rank], costs.blocks.tolist().index(b)].copy()
                own[0] *= costs.slowness[n, rank]
                for c in range(4):
                    same = costs.resource_of_rank[c] == costs.resource_of_rank[c, rank]
                    load[n, c, same] += own[c]
        return ScenarioLoads(costs, load, LONGEST)

    def tail_s(self, block: np.ndarray, place: np.ndarray) -> float:
        """The mean of the longest steps, in plain arithmetic."""
        costs, load = self.costs, self.loads(block, place).load
        steps = [
            max(costs.constants[n] + load[n, :2].max() + load[n, 2].max() + load[n, 3].max(), costs.least_s[n])
            for n in range(SCENARIOS)
        ]
        return float(np.mean(sorted(steps)[-LONGEST:]))


@pytest.mark.parametrize("seed", SEEDS)
def test_moves_are_foretold(seed: int) -> None:
    """Every block on every rank: the mean of the longest steps is as foretold, and as it is once the block is there."""
    case = _Instance(seed)
    loads = case.loads(case.block, case.place)
    assert loads.tail_s() == pytest.approx(case.tail_s(case.block, case.place))
    for item in range(len(case.block)):
        foretold = loads.after_moves(int(case.block[item]), int(case.place[item]))
        for rank in range(WORLD):
            place = case.place.copy()
            place[item] = rank
            assert foretold[rank] == pytest.approx(case.tail_s(case.block, place))
    loads.move(int(case.block[0]), int(case.place[0]), 3)
    place = case.place.copy()
    place[0] = 3
    assert loads.load == pytest.approx(case.loads(case.block, place).load)


@pytest.mark.parametrize("seed", SEEDS)
def test_swaps_are_foretold(seed: int) -> None:
    """Two blocks on different ranks in each other's place."""
    case = _Instance(seed)
    loads = case.loads(case.block, case.place)
    others = np.flatnonzero(case.place != case.place[0])
    foretold = loads.after_swaps(int(case.block[0]), int(case.place[0]), case.block[others], case.place[others])
    for value, other in zip(foretold, others.tolist(), strict=True):
        place = case.place.copy()
        place[[0, other]] = place[[other, 0]]
        assert value == pytest.approx(case.tail_s(case.block, place))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_rank_that_binds_nothing_gains_nothing(seed: int) -> None:
    """Nothing that leaves other ranks alone helps: without the blocks of one, the longest steps are as long."""
    case = _Instance(seed)
    binds = case.loads(case.block, case.place).binding()
    for rank in np.flatnonzero(~binds).tolist():
        kept = case.place != rank
        assert case.tail_s(case.block[kept], case.place[kept]) <= case.tail_s(case.block, case.place)
    assert binds.any()


@pytest.mark.parametrize(("percent", "place"), [(50.0, 9), (95.0, 18), (99.9, 19), (90.0, 17)])
def test_a_quantile_is_the_least_value_of_its_share(percent: float, place: int) -> None:
    """p95 of twenty values is the nineteenth."""
    values = np.random.default_rng(0).permutation(20).astype(float)
    assert quantile(values, percent) == place
    assert (values <= quantile(values, percent)).mean() >= percent / 100 - 1e-12
