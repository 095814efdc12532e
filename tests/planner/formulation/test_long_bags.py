"""Plans say where lookups wait for the length of a bag, and there alone."""

import pytest

from planner import load_workload
from planner.formulation.policy import Policy
from planner.formulation.software import software_warnings
from tests.oracles.instances import workload
from topologies.loading import load_topology


@pytest.mark.parametrize(
    ("ids", "fields", "is_told"),
    [
        (4_000, {}, True),
        (999, {}, False),
        (4_000, {"features": 8}, False),
        (4_000, {"pooled": False}, False),
    ],
)
def test_long_bags_are_told(ids: int, fields: dict[str, object], is_told: bool) -> None:
    """Of one feature of a pooled table: 4,000 ids take 1.16 ms (decision 105: 1.2 measured) and 1.0."""
    asked = workload([{"rows": 10**6, "dim": 64, "pooling_factor": ids, **fields}, {"rows": 10, "dim": 64}])
    words = [each for each in software_warnings(asked, Policy()) if "bags of" in each]
    assert len(words) == is_told
    assert all("1.160 ms a lookup and 1.000 ms an update" in each for each in words)


def test_other_kernels_and_the_catalog_are_not_meant() -> None:
    asked = workload([{"rows": 10**6, "dim": 64, "pooling_factor": 4_000}], software="hugectr")
    assert not any("bags of" in each for each in software_warnings(asked, Policy()))
    assert not any("bags of" in each for each in software_warnings(load_workload("dlrm-dcnv2"), Policy()))


def test_devices_on_which_bags_were_measured_need_no_word() -> None:
    """The estimate has them there; of others it is named."""
    asked = workload([{"rows": 10**6, "dim": 64, "pooling_factor": 4_000}])
    of_h100, of_a100 = (software_warnings(asked, Policy(), load_topology(name)) for name in ("dgx-h100", "dgx-a100-80"))
    assert not any("bags of" in each for each in of_h100)
    (words,) = (each for each in of_a100 if "bags of" in each)
    assert words.endswith("the estimate of A100-SXM4-80GB counts bytes alone")
