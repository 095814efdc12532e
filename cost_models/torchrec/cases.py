"""The benchmark's cases (documents `topology/1` and `tableset/1`) as our topology and workload."""

from typing import Any

from cost_models.workload.embedding import Embedding
from cost_models.workload.models import Workload
from cost_models.workload.table_profile import TableProfile
from topologies.cluster import Topology


def case_topology(case: dict[str, Any]) -> Topology:
    """The cluster of a case; what its objective does not ask for is filled with something plausible."""
    ranks, pod = case["local_world_size"], case["pod_size"]
    group = {
        "name": "hosts",
        "count": case["world_size"] // ranks,
        "accelerators": {
            "count": ranks,
            "device": "default",
            "hbm": {"capacity": f"{case['hbm_cap_gib']}GiB", "bandwidth": f"{case['hbm_mem_bw_gibps']}GiB/s"},
            "flops": {"fp32": "19.5TFLOP/s"},
        },
        "host": {
            "ddr": {
                "capacity": f"{case['ddr_cap_gib'] * ranks}GiB",
                "bandwidth": f"{case['ddr_mem_bw_gibps']}GiB/s",
            },
            "ssd": {
                "capacity": f"{case['ssd_cap_gib'] * ranks}GiB",
                "read_bandwidth": f"{case['ssd_mem_bw_gibps']}GiB/s",
                "write_bandwidth": f"{case['ssd_mem_bw_gibps']}GiB/s",
                "iops": "1MIOPS",
            },
        },
        "links": {
            "pcie": {"bandwidth": f"{case['hbm_to_ddr_mem_bw_gibps']}GiB/s"},
            "scale_up": {
                "kind": "default",
                "bandwidth": f"{case['intra_host_bw_gibps']}GiB/s",
                "domain": ranks * pod if pod else None,
            },
            "scale_out": {"kind": "default", "count": ranks, "bandwidth": f"{case['inter_host_bw_gibps']}GiB/s"},
        },
        "reserve": {"hbm": case["storage_reservation"]["percentage"], "ddr": 0.0, "ssd": 0.0},
    }
    return Topology.model_validate({"name": case["id"], "nodes": [group]})


def case_workload(table_set: dict[str, Any], batch_per_rank: int) -> Workload:
    """The tables of a case, trained without a pipeline and without optimizer state where it says `none`."""
    optimizer = {"none": "sgd"}.get(table_set["optimizer"], table_set["optimizer"])
    tables = tuple(
        TableProfile(
            name=table["name"],
            rows=table["rows"],
            dim=table["dim"],
            pooling_factor=table["pooling_factor"] * table["num_poolings"],
            dtype=table["dtype"],
            weighted=table["weighted"],
            pooled=table["pooled"],
            zipf_alpha=table.get("zipf_alpha"),
        )
        for table in table_set["tables"]
    )
    return Workload(
        name=table_set["id"],
        batch_per_rank=batch_per_rank,
        tables=tables,
        embedding=Embedding(optimizer=optimizer),
        pipeline="none",
    )
