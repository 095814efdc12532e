"""Traces of simulated steps: what viewers need, and what the simulation says; pictures; files whole or not there."""

import gzip
import json
from collections import Counter, defaultdict
from itertools import pairwise, product
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from cost_models.resources import DEVICE, Resource
from cost_models.simulator.conditions import Conditions
from cost_models.simulator.program import COMPUTE
from cost_models.simulator.simulation import HOST_OVERHEAD, Simulation
from planner.reports.timeline import MOST_RANKS, picture, write_timeline
from planner.reports.timeline.slices import critical_rank, loads, sample
from planner.verification.simulation import simulate_plan
from tests.oracles import simulations
from tests.oracles.instances import node_group, topology, workload
from topologies.errors import InputError, MissingPackageError

Trace = dict[str, Any]


@pytest.fixture(scope="module")
def varied() -> Simulation:
    return simulations.varied()


@pytest.fixture(scope="module", params=list(simulations.CASES))
def simulation(request: pytest.FixtureRequest) -> Simulation:
    return simulations.CASES[request.param]()


@pytest.fixture(scope="module")
def traces(simulation: Simulation, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Trace]:
    return read(write_timeline(simulation, tmp_path_factory.mktemp("trace")))


def read(paths: list[Path]) -> dict[int, Trace]:
    found = [json.loads(gzip.decompress(path.read_bytes())) for path in paths]
    return {trace["distributedInfo"]["rank"]: trace for trace in found}


def events(trace: Trace, phase: str, **fields: str) -> list[dict[str, Any]]:
    return [
        event
        for event in trace["traceEvents"]
        if event["ph"] == phase and all(event.get(key) == value for key, value in fields.items())
    ]


def on_device(trace: Trace) -> list[dict[str, Any]]:
    return [event for event in events(trace, "X") if event["cat"] in ("kernel", "gpu_memcpy")]


def test_every_rank_of_a_small_cluster_has_a_file(simulation: Simulation, traces: dict[int, Trace]) -> None:
    assert list(traces) == list(range(simulation.network.world))
    for rank, trace in traces.items():
        assert trace["schemaVersion"] == 1
        assert trace["distributedInfo"] == {"backend": "nccl", "rank": rank, "world_size": 4}
        assert trace["deviceProperties"][0]["id"] == rank % 2


def test_the_rank_is_followed_by_a_space_where_hta_looks_for_it(varied: Simulation, tmp_path: Path) -> None:
    (path,) = write_timeline(varied, tmp_path, ranks=[2])
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    assert '"rank": 2,' in next(line for line in lines if '"rank"' in line)


def test_slices_of_a_thread_follow_each_other_or_nest(traces: dict[int, Trace]) -> None:
    for trace in traces.values():
        of_thread = defaultdict(list)
        for event in events(trace, "X"):
            of_thread[event["pid"], event["tid"]].append((event["ts"], -event["dur"]))
        for spans in of_thread.values():
            open_ends: list[int] = []
            for start, less in sorted(spans):
                while open_ends and open_ends[-1] <= start:
                    open_ends.pop()
                assert not open_ends or start - less <= open_ends[-1]
                open_ends.append(start - less)


def test_slices_of_a_stream_never_overlap(traces: dict[int, Trace]) -> None:
    for trace in traces.values():
        of_stream = defaultdict(list)
        for event in on_device(trace):
            assert event["tid"] == event["args"]["stream"]
            of_stream[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
        for spans in of_stream.values():
            ordered = sorted(spans)
            assert all(end <= start for (_, end), (start, _) in pairwise(ordered))


def test_steps_are_annotated_and_fill_the_counted_time(simulation: Simulation, traces: dict[int, Trace]) -> None:
    for trace in traces.values():
        steps = events(trace, "X", cat="user_annotation")
        expected = [f"ProfilerStep#{step}" for step in range(simulation.fill, simulation.last)]
        assert [event["name"] for event in steps] == expected
        assert [event["dur"] for event in steps] == pytest.approx(simulation.step_seconds * 1e6, abs=1)
        last = steps[-1]["ts"] + steps[-1]["dur"]
        assert steps[0]["ts"] == 0
        assert all(event["ts"] >= 0 and event["ts"] + event["dur"] <= last for event in events(trace, "X"))


def test_device_time_is_what_the_simulation_says(simulation: Simulation, traces: dict[int, Trace]) -> None:
    low, high = simulation.window
    for rank, trace in traces.items():
        computing = sum(event["dur"] for event in on_device(trace) if event["tid"] == 7)
        assert computing / 1e6 == pytest.approx(simulation.busy()[DEVICE][rank] * (high - low), rel=1e-3)


def test_the_fixed_overhead_is_the_time_of_the_host(simulation: Simulation, traces: dict[int, Trace]) -> None:
    """It stands on a thread of its own beside the device, which waits: no kernel runs on the compute stream."""
    low, high = simulation.window
    for rank, trace in traces.items():
        assert "overhead" not in {event["name"] for event in on_device(trace)}
        waits = events(trace, "X", cat="cpu_op", name="overhead")
        assert sum(event["dur"] for event in waits) / 1e6 == pytest.approx(
            simulation.busy()[HOST_OVERHEAD][rank] * (high - low), rel=1e-3
        )
        kernels = [event for event in on_device(trace) if event["tid"] == 7]
        for wait, kernel in product(waits, kernels):
            assert wait["ts"] + wait["dur"] <= kernel["ts"] or kernel["ts"] + kernel["dur"] <= wait["ts"]


def test_every_kernel_has_one_launch_that_is_not_later(traces: dict[int, Trace]) -> None:
    for trace in traces.values():
        launches = {event["args"]["correlation"]: event for event in events(trace, "X", cat="cuda_runtime")}
        kernels = {event["args"]["correlation"]: event for event in on_device(trace)}
        assert launches.keys() == kernels.keys()
        assert len(kernels) == len(on_device(trace))
        assert all(launches[number]["ts"] <= kernels[number]["ts"] for number in kernels)


def test_names_tell_communication_memory_and_computation_apart(
    simulation: Simulation, traces: dict[int, Trace]
) -> None:
    tasks = {task.name: task for task in simulation.program.tasks}
    for event in (event for trace in traces.values() for event in on_device(trace)):
        task = tasks[event["args"]["task"]]
        if task.is_exchange:
            assert event["name"].startswith("ncclDevKernel_")
            assert event["args"]["Group size"] == 4
            assert event["args"]["In msg nelems"] > 0
        elif task.stream == COMPUTE:
            assert not event["name"].startswith(("nccl", "Mem"))
        else:
            assert event["cat"] == "gpu_memcpy"
            assert event["name"].startswith("Memcpy HtoD")


def test_flows_lead_once_from_rank_to_rank_through_every_exchange(
    simulation: Simulation, traces: dict[int, Trace]
) -> None:
    starts = {event["id"]: event for trace in traces.values() for event in events(trace, "s")}
    ends = {event["id"]: event for trace in traces.values() for event in events(trace, "f")}
    assert starts.keys() == ends.keys()
    assert len(starts) == sum(len(events(trace, "s")) for trace in traces.values())
    for number, start in starts.items():
        end = ends[number]
        assert (start["name"], start["pid"]) != (end["name"], end["pid"])
        assert start["name"] == end["name"]
        assert start["ts"] <= end["ts"]
        for event in (start, end):
            slices = {(each["tid"], each["ts"], each["args"]["task"]) for each in on_device(traces[event["pid"]])}
            assert (event["tid"], event["ts"], event["name"]) in slices
    in_window = [
        task
        for task in simulation.program.tasks
        if task.is_exchange
        and (simulation.run.start[task.first] >= simulation.window[0]).all()
        and (simulation.run.end[task.last] <= simulation.window[1]).all()
    ]
    joined = Counter(event["name"] for event in starts.values())
    expected = Counter(task.name for task in in_window)
    assert in_window
    assert all(joined[name] >= 3 * count for name, count in expected.items())  # 4 ranks: 3 arrows


def test_counters_hold_the_load_of_links(simulation: Simulation, traces: dict[int, Trace]) -> None:
    low, high = simulation.window
    busy = simulation.busy()
    for trace in traces.values():
        end = sum(event["dur"] for event in events(trace, "X", cat="user_annotation"))
        values = defaultdict(list)
        for event in events(trace, "C"):
            assert 0 <= event["args"]["share"] <= 1
            assert 0 <= event["ts"] <= end
            values[event["name"]].append((event["ts"], event["args"]["share"]))
        assert values
        for name, points in values.items():
            resource, number = name.removeprefix("load of ").split(" ")
            times = [ts for ts, _ in points]
            assert times == sorted(set(times))
            lasting = np.diff([*times, end])
            mean = float(lasting @ [share for _, share in points]) / end
            used = busy[Resource.parse(resource)][int(number)]
            assert mean == pytest.approx(used, abs=0.01)  # `busy` evens out what crosses a border
    assert high > low


def test_the_same_simulation_gives_the_same_bytes(tmp_path: Path) -> None:
    first, second = (simulations.varied() for _ in range(2))
    for name, each in (("a", first), ("b", second)):
        write_timeline(each, tmp_path / name)
        picture(each, tmp_path / name / "step.svg")
        picture(each, tmp_path / name / "step.png")
    files = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert files == [*(f"rank_{rank}.json.gz" for rank in range(4)), "step.png", "step.svg"]
    for name in files:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_of_a_large_cluster_a_sample_holds_the_critical_rank() -> None:
    from planner import plan

    tables = [{"rows": 20_000, "dim": 64}, {"rows": 30_000, "dim": 64}]
    found = plan(topology(node_group("a", nodes=12)), workload(tables), effort=0, gap=1.0)
    slow = simulate_plan(found, conditions=Conditions(slow_ranks={13: 3.0}))
    ranks = sample(slow, MOST_RANKS)
    assert critical_rank(slow) == 13
    assert {0, 13, 22} <= set(ranks)
    assert len(ranks) == MOST_RANKS
    assert all(rank % 2 == 0 for rank in ranks if rank != 13)


def test_the_critical_path_has_no_pause_and_fills_the_counted_time(simulation: Simulation) -> None:
    pieces, (low, high) = simulation.path(), simulation.window
    assert pieces[0].start == pytest.approx(low, abs=1e-12)
    assert pieces[-1].end == pytest.approx(high, abs=1e-12)
    assert all(after.start == pytest.approx(before.end, abs=1e-12) for before, after in pairwise(pieces))
    total = sum(share.seconds for share in simulation.critical_path())
    assert total == pytest.approx(simulation.step_s, rel=1e-9)


def test_loads_of_a_rank_are_those_of_its_own_links(varied: Simulation) -> None:
    found = loads(varied, [0, 3])
    for rank in (0, 3):
        of_rank = {load.name.partition(" ")[0]: int(load.name.split(" ")[1]) for load in found[rank]}
        assert of_rank["link_out"] == of_rank["host_link"] == of_rank["nic_in"] == rank
        assert of_rank["front_end"] == rank // 2


@pytest.mark.parametrize("ranks", [[], [4], [-1, 0]])
def test_ranks_that_do_not_exist_are_refused(varied: Simulation, tmp_path: Path, ranks: list[int]) -> None:
    with pytest.raises(InputError, match="numbered 0 to 3"):
        write_timeline(varied, tmp_path / "new", ranks)
    assert not (tmp_path / "new").exists()


def test_a_directory_that_cannot_be_made_is_named(varied: Simulation, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"file.*cannot be written"):
        write_timeline(varied, tmp_path / "file" / "traces", [0])


def test_traces_of_other_ranks_in_the_directory_are_not_mixed_in(varied: Simulation, tmp_path: Path) -> None:
    write_timeline(varied, tmp_path, [0, 1])
    write_timeline(varied, tmp_path, [0, 1])
    with pytest.raises(InputError, match=r"holds rank_1\.json\.gz of another timeline"):
        write_timeline(varied, tmp_path, [0, 2])
    assert not (tmp_path / "rank_2.json.gz").exists()


def svg_texts(path: Path) -> str:
    """Matplotlib writes each text as a comment before its outlines."""
    parser = ElementTree.XMLParser(target=ElementTree.TreeBuilder(insert_comments=True))
    root = ElementTree.parse(path, parser).getroot()
    return "\n".join(str(each.text).strip() for each in root.iter() if each.tag is ElementTree.Comment)


def test_the_picture_names_streams_links_and_the_step(simulation: Simulation, tmp_path: Path) -> None:
    picture(simulation, tmp_path / "step.svg")
    text = svg_texts(tmp_path / "step.svg")
    rank = critical_rank(simulation)
    assert f"Rank {rank} of 4" in text
    assert "critical path" in text
    for stream in {task.stream for task in simulation.program.tasks}:
        assert stream in text
    assert f"host_link {rank}" in text


def test_a_png_is_1600_pixels_wide(varied: Simulation, tmp_path: Path) -> None:
    picture(varied, tmp_path / "step.png", rank=1)
    content = (tmp_path / "step.png").read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    assert int.from_bytes(content[16:20], "big") == 1600


@pytest.mark.parametrize(
    ("name", "rank", "message"),
    [("step.pdf", None, "png or .svg"), ("no/step.png", 0, "cannot be written"), ("step.png", 4, "numbered 0 to 3")],
)
def test_a_picture_that_cannot_be_drawn_says_why(
    varied: Simulation, tmp_path: Path, name: str, rank: int | None, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        picture(varied, tmp_path / name, rank)


def test_without_matplotlib_the_extra_is_named(
    varied: Simulation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(MissingPackageError, match=r"shardplan\[plot\]"):
        picture(varied, tmp_path / "step.png")
