"""Process groups and their parts, counted by hand on small clusters."""

import numpy as np

from cost_models.simulator.process_groups import ProcessGroups

DOMAINS = np.array([0, 0, 0, 0, 1, 1, 1, 1])


def test_all_ranks_are_one_group_with_a_part_in_each_domain() -> None:
    everyone = ProcessGroups(np.zeros(8, dtype=np.int64), DOMAINS)
    assert (everyone.count, everyone.part_count) == (1, 2)
    assert everyone.size.tolist() == [8] * 8
    assert everyone.part_size.tolist() == [4] * 8
    assert everyone.part_of_rank.tolist() == DOMAINS.tolist()
    assert everyone.leave_domains


def test_replicas_inside_a_node_and_across_nodes() -> None:
    """Two replicas of four shards on two nodes: interleaved groups have a part in each node, halves have one part."""
    interleaved = ProcessGroups(np.array([0, 1, 0, 1, 0, 1, 0, 1]), DOMAINS)
    assert interleaved.size.tolist() == [4] * 8
    assert interleaved.part_of_rank.tolist() == [0, 2, 0, 2, 1, 3, 1, 3]
    assert interleaved.part_size.tolist() == [2] * 8
    assert interleaved.leave_domains
    halves = ProcessGroups(DOMAINS, DOMAINS)
    assert halves.part_size.tolist() == halves.size.tolist() == [4] * 8
    assert not halves.leave_domains


def test_members_in_one_place() -> None:
    """Two switches of four ranks over domains of two: whom of its group and its part each rank finds below its own."""
    everyone = ProcessGroups(np.zeros(8, dtype=np.int64), np.repeat(np.arange(4), 2))
    in_group, in_part = everyone.sharing(np.repeat([0, 1], 4))
    assert in_group.tolist() == [4] * 8
    assert in_part.tolist() == [2] * 8
    in_group, in_part = everyone.sharing(np.arange(8) % 2)
    assert in_group.tolist() == [4] * 8
    assert in_part.tolist() == [1] * 8
