"""Routes for what the API server of a sandbox dials: into its nodes, or nowhere.

The API server runs on this host, and dials Services and Pods, for webhooks, say. Without these routes,
its packets would leave the host by the default route.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_network
from pathlib import Path

from sandbox import files
from sandbox.nodes import claims, iproute
from sandbox.nodes.addresses import Plan
from sandbox.nodes.claims import Claim
from sandbox.servers import ranges
from sandbox.servers.ranges import ClusterNetwork, Ranges
from windowbox.errors import Refused
from windowbox.models.addresses import Network
from workers.loadbalancer.links import hostnetwork

logger = logging.getLogger(__name__)

_PROTOCOL = "142"
"""Marks routes as ours, unused by any routing daemon; the metric names the sandbox."""
_INTO_NODES = 1 << 10
_NOWHERE = 1 << 16
"""A higher metric: these routes apply while the link to the nodes is down, too."""


@contextlib.contextmanager
def laid(
    folder: Path, balancers: Sequence[str] = (), claim: Claim | None = None, plan: Plan | None = None
) -> Iterator[ClusterNetwork]:
    """Routes for the sandbox whose data is in `folder`, while the block lasts.

    None are set without root, or if other routes cover the addresses. `balancers` are the prefixes of load
    balancers, if they are chosen; `claim` and `plan` are those of the nodes, if there are any.
    """
    more = [network for network in map(ip_network, balancers) if not network.is_loopback]
    kept = ranges.kept(folder, known() if possible() else [])
    nodes: list[Network] = [plan.v4, plan.v6] if plan else []
    with contextlib.nullcontext(claim) if claim else _claimed() as owner:
        try:
            if owner:
                files.write(_record(owner), str(folder.absolute() / "edge" / hostnetwork.ADDED))
            routed = owner is not None and _lay(owner, kept, plan, more)
            disabled = Path("/proc/sys/net/ipv6/conf/lo/disable_ipv6")
            v6 = disabled.exists() and disabled.read_text().strip() == "0"
            yield ClusterNetwork(kept, nodes, routed, v6)
        finally:
            if owner:
                remove(owner)


def remove(claim: Claim) -> None:
    """Remove all routes of a claim that exist, and the addresses of its load balancers."""
    if not shutil.which("ip"):
        return
    if (noted := _record(claim)).exists():
        record = Path(noted.read_text())
        for address in hostnetwork.added(record):
            with contextlib.suppress(Refused):  # gone already
                iproute.run(*hostnetwork.removing(address))
        record.unlink(missing_ok=True)
    reopen(claim)


def close(claim: Claim, networks: Sequence[Network]) -> None:
    """Keep packets to these networks on this host. Idempotent."""
    for family in _families():
        tags = f"proto {_PROTOCOL} metric {_NOWHERE + claim.number}"
        version = 4 if family == "-4" else 6
        iproute.apply(
            [f"route replace unreachable {n} {tags}" for n in networks if n.version == version], family=family
        )


def lead(claim: Claim, namespace: str, wanted: Mapping[str, str], inside: Sequence[Network]) -> None:
    """Route these networks by these next hops, and remove our other routes `inside`. Idempotent.

    On this host, or in a network namespace, if one is named.
    """
    metric = _INTO_NODES + claim.number
    inside_of = ["-n", namespace] if namespace else []
    found = {
        route["dst"]: route.get("gateway")
        for route in iproute.asked(*inside_of, "-4", "route", "show", "proto", _PROTOCOL)
        if route.get("metric") == metric and any(_covers(one, route["dst"]) for one in inside)
    }
    tags = f"proto {_PROTOCOL} metric {metric}"
    commands = [f"route replace {n} via {hop} {tags}" for n, hop in wanted.items() if found.get(n) != hop]
    commands += [f"route del {n} {tags}" for n in found.keys() - wanted.keys()]
    if commands:
        iproute.apply(commands, namespace or None, family="-4")


def reopen(claim: Claim, networks: Sequence[Network] | None = None) -> None:
    """Remove the routes of a claim from this host: all, or those to these networks."""
    metrics = (_INTO_NODES + claim.number, _NOWHERE + claim.number)
    for family in _families():
        for route in iproute.asked(family, "route", "show", "proto", _PROTOCOL):
            dst, ours = route["dst"], route.get("metric") in metrics
            if ours and (networks is None or any(_covers(n, dst) for n in networks)):
                kind = [route["type"]] if "type" in route else []
                with contextlib.suppress(Refused):  # already removed with its link
                    iproute.run("ip", family, "route", "del", *kind, dst, "metric", str(route["metric"]))


def known(*, foreign: bool = False) -> list[Network]:
    """The destinations of this host's routes; with `foreign`, only those that no sandbox set."""
    return [
        ip_network(route["dst"], strict=False)
        for family in _families()
        for route in iproute.asked(family, "route", "show")
        if route["dst"] != "default"
        and not (foreign and route.get("protocol") == _PROTOCOL)
        and not (foreign and claims.is_name(str(route.get("dev", ""))))
    ]


def possible() -> bool:
    """Whether this process may set routes on this machine."""
    return sys.platform == "linux" and os.geteuid() == 0 and shutil.which("ip") is not None


@contextlib.contextmanager
def _claimed() -> Iterator[Claim | None]:
    """A claim of a sandbox without nodes."""
    if not possible():
        yield None
        return
    with claims.highest() as claim:
        claims.begin(claim)
        try:
            yield claim
        finally:
            claims.done(claim)


def _lay(claim: Claim, kept: Ranges, plan: Plan | None, more: Sequence[Network]) -> bool:
    try:
        with claims.alone():
            there = known()
            if not kept.routable or any(ranges.overlapping(network, there) for network in kept.networks):
                logger.warning("Services are not routed: this host has other routes to their addresses")
                return False
            for family in _families():
                version = 4 if family == "-4" else 6
                own: list[Network] = [*kept.networks, *more]
                own += [plan.v4, plan.v6] if plan else []
                tags = f"proto {_PROTOCOL} metric"
                commands = [
                    f"route add unreachable {network} {tags} {_NOWHERE + claim.number}"
                    for network in own
                    if network.version == version
                ]
                if plan:
                    # Each node serves all Services.
                    hops = [node.v4 if version == 4 else node.v6 for node in plan.nodes]
                    services = kept.services_v4 if version == 4 else kept.services_v6
                    through = " ".join(f"nexthop via {hop}" for hop in hops)
                    commands.append(f"route add {services} {tags} {_INTO_NODES + claim.number} {through}")
                iproute.apply(commands, family=family)
    except Refused as error:
        logger.warning("Services are not routed: %s", error)
        remove(claim)
        return False
    return True


def _covers(network: Network, destination: str) -> bool:
    if destination == "default":
        return False
    found = ip_network(destination, strict=False)
    return found.version == network.version and network.supernet_of(found)  # type: ignore[arg-type]


def _record(claim: Claim) -> Path:
    """The file that records the addresses added to this host for load balancers."""
    return claim.folder / "addresses"


def _families() -> list[str]:
    return ["-4", "-6"] if Path("/proc/sys/net/ipv6").exists() else ["-4"]
