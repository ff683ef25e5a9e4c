"""Checks that packets of a sandbox stay on this machine, before anything dials Services by their address."""

from __future__ import annotations

import json
import subprocess

from sandbox.nodes import iproute
from sandbox.nodes.addresses import Plan
from sandbox.servers.ranges import Ranges
from windowbox.errors import Refused

_NOWHERE = "nowhere"
_OUTSIDE = "203.0.113.1"
"""An address for documentation (RFC 5737): nobody has it, and nothing is sent to it."""
_PATIENCE = 10


def check(link: str, plan: Plan, ranges: Ranges) -> None:
    """Refuse unless this host sends packets for Services and Pods by `link` to the nodes, and nowhere else,
    and forwards none of those that come from there."""
    services = (ranges.services_v4[1], ranges.services_v4[-2])
    wanted = [(f"Services ({one})", str(one), link) for one in services]
    wanted += [(f"Pods of {node.name} ({node.pods_v4})", str(node.pods_v4[2]), link) for node in plan.nodes]
    wanted += [(f"Pods of played nodes ({ranges.pods})", str(ranges.pods[2]), _NOWHERE)]
    missing = [
        f"packets to {what} go to {leads}, not to {right}"
        for what, address, right in wanted
        if (leads := leading(address)) != right
    ]
    for node in plan.nodes:
        [route] = iproute.asked("-n", f"{link}-{node.name}", "route", "get", _OUTSIDE)
        if route.get("gateway") != str(plan.host_v4):
            missing.append(f"packets of {node.name} leave by {route}, not by this host")
    if f'iifname "{link}" drop' not in iproute.run("nft", "list", "chain", "inet", link, "forward"):
        missing.append(f"no rule of the firewall drops what this host would forward from {link}")
    if missing:
        raise Refused(f"packets would leave the sandbox {link}: {'; '.join(missing)}")


def leading(address: str) -> str:
    """The link by which this host would send a packet to the address, or `nowhere`."""
    answer = subprocess.run(
        ["ip", "-json", "route", "get", address],
        capture_output=True, text=True, timeout=_PATIENCE, check=False,
    )  # fmt: skip
    return str(json.loads(answer.stdout)[0]["dev"]) if answer.returncode == 0 else _NOWHERE
