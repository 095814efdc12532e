"""Flows over links as SimGrid plays them; run by the interpreter that has its Python module.

Reads {"bytes_per_s": [of each link], "flows": [[bytes, start in s, [its links]], ...]}; writes [end of each flow in s].
Latencies are 0 and no factor stands for a protocol, so that max-min fair sharing is all that there is.
"""

import json
import sys

import simgrid

SETTINGS = (
    "network/model:CM02",
    "network/bandwidth-factor:1",
    "network/latency-factor:1",
    "network/TCP-gamma:0",
    "network/weight-S:0",
    "network/crosstraffic:0",
    "maxmin/precision:1e-9",
    "surf/precision:1e-12",
)


def main() -> None:
    """One host at either end of each flow, and an actor that sends it."""
    case = json.load(sys.stdin)
    engine = simgrid.Engine(["play", "--log=root.thresh:error", *(f"--cfg={each}" for each in SETTINGS)])
    zone = simgrid.NetZone.create_full_zone("all")
    links = [zone.create_link(f"link{i}", rate).seal() for i, rate in enumerate(case["bytes_per_s"])]
    ends = [0.0] * len(case["flows"])

    def send(number: int, receiver: simgrid.Host, size: float, start_s: float) -> None:
        simgrid.this_actor.sleep_for(start_s)
        simgrid.Comm.sendto(simgrid.this_actor.get_host(), receiver, size)
        ends[number] = engine.clock

    hosts = []
    for number, (_size, _start_s, used) in enumerate(case["flows"]):
        pair = [zone.create_host(f"{end}{number}", 1.0).seal() for end in ("from", "to")]
        route = [simgrid.LinkInRoute(links[i]) for i in used]
        zone.add_route(pair[0].netpoint, pair[1].netpoint, None, None, route, False)
        hosts.append(pair)
    zone.seal()
    for number, (size, start_s, _used) in enumerate(case["flows"]):
        simgrid.Actor.create(f"flow{number}", hosts[number][0], send, number, hosts[number][1], size, start_s)
    engine.run()
    json.dump(ends, sys.stdout)


if __name__ == "__main__":
    main()
