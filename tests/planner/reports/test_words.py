"""Sentences of reports, by figures worked out by hand."""

import pytest

from cost_models.resources import LINK_OUT, NIC_OUT
from planner import plan
from planner.document.planned import placed_shards, planned_model
from planner.formulation.policy import Policy
from planner.reports.words import mixed_words, resource_words
from tests.oracles.instances import node_group, topology, workload

TABLE_WISE = Policy(tiers=("hbm",), shardings=("table_wise",))


@pytest.mark.parametrize(
    ("dim", "bits", "indexed"),
    [
        (256, 4 + 0.01 * 32, 4 + 0.01 * 32 + 8 * (4 + 0.01 * 16) / 256),
        (16, 4 + 0.01 * 32, 4 + 0.01 * 32 + 8 * (4 + 0.01 * 16) / 16),
    ],
)
def test_bits_of_a_number_with_and_without_the_index(dim: int, bits: float, indexed: float) -> None:
    """INT4 with 1 % of the rows in fp32: 4.32 bits, and 4 bytes a row and 16 a slot for the index."""
    table = {"rows": 100_000, "dim": dim, "dtype": "int4", "precision_cache": "1%", "zipf_alpha": 1.0}
    found = plan(topology(node_group("a", ranks=2)), workload([table]), effort=0, policy=TABLE_WISE, simulate=False)
    words = mixed_words(planned_model(found), placed_shards(found))
    assert words is not None
    assert f": {bits:.2f} bits a number, {indexed:.2f} with the caches' index" in words


def test_tables_of_one_precision_are_not_mentioned() -> None:
    """Nothing beside them, nothing to say."""
    found = plan(topology(node_group("a", ranks=2)), workload([{"rows": 1000, "dim": 16}]), effort=0, simulate=False)
    assert mixed_words(planned_model(found), placed_shards(found)) is None


def test_cards_are_named_by_the_links_that_they_wait_for() -> None:
    """Where these are slower and their traffic crosses them; of nodes of both sorts either is said."""
    quick, slow, apart = (
        node_group(name, nic_bytes_per_s=rate, cards_over_pcie=carries)  # links of 31.5 GB/s
        for name, rate, carries in (("q", 25e9, True), ("s", 50e9, True), ("a", 50e9, False))
    )
    for groups, words in (
        ((quick,), "scale-out card, sending"),
        ((slow,), "PCIe links to scale-out card, sending"),
        ((apart,), "scale-out card, sending"),
        ((quick, slow), "scale-out card or PCIe links to it, sending"),
    ):
        assert resource_words(NIC_OUT, topology(*groups)) == words
    assert resource_words(LINK_OUT, topology(slow)) == "scale-up link, sending"
