"""The host agent of one Shoot: routes to the Pods of its machines, and copies of their console logs.

A route controller, as clouds have one: each node of the Shoot has a range of Pod addresses, and is itself a
Pod of one of the sandbox's nodes. So this host and the sandbox's nodes need a route to each such range.

The console log of a machine is the log of its Pod, which the kubelet removes with the Pod. A hard link keeps
it for a day.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from typing import Any

from sandbox.nodes import routes
from sandbox.nodes.claims import Claim
from sandbox.servers.apiserver import ApiServer, from_kubeconfig
from sandbox.shoots import consoles
from windowbox.errors import Refused, Unreachable
from windowbox.models import addresses
from windowbox.models.addresses import Address, Network

logger = logging.getLogger(__name__)

_WATCH_SECONDS = 300
_PAUSE = 0.5

HOST = ""
"""Where: on this host. Other places are network namespaces."""


@dataclass(frozen=True)
class Machine:
    """A node of the Shoot: its address is that of a Pod in the sandbox."""

    address: Address
    pods: Network


def machine(node: dict[str, Any]) -> Machine | None:
    """None as long as the node has no IPv4 address or no Pod range that can be read."""
    listed = node.get("status", {}).get("addresses") or []
    internal = [addresses.address(one["address"]) for one in listed if one["type"] == "InternalIP"]
    address = next((one for one in internal if one and one.version == 4), None)
    pods = addresses.prefix(node.get("spec", {}).get("podCIDR") or "")
    return Machine(address, pods) if address and pods else None


def routable(nodes: dict[str, dict[str, Any]], inside: Network, refused: dict[str, str]) -> list[Machine]:
    """The machines that get a route. Nodes with a range of Pods that is not `inside` the Shoot's are skipped.

    Users of the Shoot write its nodes, and root sets the routes. `refused` holds the skipped ones, which are
    logged once.
    """
    found = {name: str(node.get("spec", {}).get("podCIDR") or "") for name, node in nodes.items()}
    outside = {name: text for name, text in found.items() if text and not _is_inside(text, inside)}
    for name, text in outside.items():
        if refused.get(name) != text:
            logger.warning("no route to node %s: its podCIDR %.80s is not inside %s", name, text, inside)
    refused.clear()
    refused.update(outside)
    return [one for name, node in nodes.items() if name not in outside and (one := machine(node))]


def _is_inside(text: str, network: Network) -> bool:
    found = addresses.prefix(text)
    return found is not None and found.version == network.version and found.subnet_of(network)  # type: ignore[arg-type]


def wanted(
    machines: Iterable[Machine], nodes: Sequence[NodeConfig], services: str
) -> dict[str, dict[str, str]]:
    """For this host and each namespace: the next hop to each range.

    Every machine serves the Services of the Shoot. So what this host, where the Shoot's API server runs,
    sends to them goes to any one machine.
    """
    found: dict[str, dict[str, str]] = {HOST: {}, **{node.namespace: {} for node in nodes}}
    for machine in sorted(machines, key=lambda machine: int(machine.address)):
        home = next((node for node in nodes if machine.address in ip_network(node.pods)), None)
        if home is None:
            continue
        for place in found:
            hop = str(machine.address) if place == home.namespace else home.address
            found[place][str(machine.pods)] = hop
        if services not in found[HOST]:
            found[HOST][services] = home.address
            found[home.namespace][services] = str(machine.address)
    return found


@dataclass(frozen=True)
class NodeConfig:
    """A node of the sandbox: its namespace, its address, the range of its Pods, the folder of their logs."""

    namespace: str
    address: str
    pods: str
    logs: str


@dataclass(frozen=True)
class Config:
    """The configuration of the host agent of one Shoot."""

    claim: int
    kubeconfig: str
    shoot_kubeconfig: str
    namespace: str
    services: str
    pods: str
    consoles: str
    nodes: list[NodeConfig]


def main(path: Path) -> None:
    config = read(path)
    routing = threading.Thread(target=_routes_or_end, args=(config, path), name="routes", daemon=True)
    routing.start()
    api, folder = from_kubeconfig(Path(config.kubeconfig)), Path(config.consoles)
    logs = [Path(node.logs) for node in config.nodes]
    consoles.forget_old(folder)
    _each_state(
        api,
        f"/api/v1/namespaces/{config.namespace}/pods",
        lambda pods: consoles.keep(folder, logs, pods.values()),
    )


def read(path: Path) -> Config:
    found = json.loads(path.read_text())
    return Config(**{**found, "nodes": [NodeConfig(**node) for node in found["nodes"]]})


def _routes_or_end(config: Config, path: Path) -> None:
    """Keep the routes. If this thread fails, end the process, so that the sandbox restarts it."""
    try:
        api, claim = from_kubeconfig(Path(config.shoot_kubeconfig)), Claim(config.claim)
        pods, refused = ip_network(config.pods), dict[str, str]()
        inside = [pods, ip_network(config.services)]

        def follow(nodes: dict[str, dict[str, Any]]) -> None:
            machines = routable(nodes, pods, refused)
            for where, found in wanted(machines, config.nodes, config.services).items():
                routes.lead(claim, where, found, inside)
            path.with_name("host-agent.ready").touch()

        _each_state(api, "/api/v1/nodes", follow)
    except BaseException:
        logger.exception("routes")
        os._exit(1)


def _each_state(api: ApiServer, path: str, follow: Callable[[dict[str, dict[str, Any]]], None]) -> None:
    """Call `follow` with all objects at `path`, at first and after each change, for ever."""
    while True:
        try:
            listed = api.read(path)
            objects = {one["metadata"]["name"]: one for one in listed["items"]}
            follow(objects)
            version = listed["metadata"]["resourceVersion"]
            for event in api.events(f"{path}?resourceVersion={version}", seconds=_WATCH_SECONDS):
                found = event["object"]
                # The API server has forgotten the version: list again.
                if event["type"] == "ERROR":
                    break
                if event["type"] == "DELETED":
                    objects.pop(found["metadata"]["name"], None)
                else:
                    objects[found["metadata"]["name"]] = found
                follow(objects)
        except (Refused, Unreachable) as error:
            logger.warning("%s: %s", path, error)
            time.sleep(_PAUSE)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    main(Path(sys.argv[1]))
