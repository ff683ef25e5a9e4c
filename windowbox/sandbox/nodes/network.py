"""The network of a sandbox's nodes: made, broken, mended and removed.

The bridge is in a namespace of its own, so that the firewall of this host (Docker's, say) has no part in what
nodes tell each other; one link leads from it to the host. Nothing is translated, and nothing goes further.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import subprocess
from pathlib import Path
from typing import Any

from windowbox.errors import Refused
from windowbox.sandbox.nodes import claims
from windowbox.sandbox.nodes.addresses import Network, NodePlan, Plan
from windowbox.sandbox.nodes.claims import Claim

_SWITCH = "switch"
_PATIENCE = 30
_NODE_SETTINGS = {
    "net/ipv6/conf/all/disable_ipv6": "0",
    "net/ipv6/conf/default/disable_ipv6": "0",
    "net/ipv4/ip_forward": "1",
    "net/ipv6/conf/all/forwarding": "1",
}
_CUT = """
table inet windowbox_cut {
    chain in { type filter hook prerouting priority -500; iif != lo drop; }
    chain out { type filter hook output priority -500; oif != lo drop; }
}
"""


def namespace_path(name: str) -> Path:
    return Path("/run/netns") / name


def build(claim: Claim, plan: Plan) -> None:
    """Namespaces, links, addresses and routes for all nodes of `plan`."""
    switch, link = claim.namespace(_SWITCH), claim.name
    for name in (switch, *(claim.namespace(node.name) for node in plan.nodes)):
        _run("ip", "netns", "add", name)
    _set(switch, {"net/ipv6/conf/default/disable_ipv6": "1"})
    _ip(
        [
            "link add bridge type bridge mcast_snooping 0",
            "link set lo up",
            "link set bridge up",
            f"link add host type veth peer name {link} netns 1",
            "link set host master bridge up",
        ],
        switch,
    )
    for node in plan.nodes:
        _connect(claim, plan, node)
    _run("nft", "-f", "-", stdin=_nothing_further(claim))
    _ip(
        [
            f"link set {link} up",
            f"address add {plan.host_v4}/{plan.nodes_v4.prefixlen} dev {link}",
            f"address add {plan.host_v6}/{plan.nodes_v6.prefixlen} dev {link} nodad",
            *_routes_to_pods(plan.nodes),
        ]
    )


def remove(claim: Claim) -> None:
    """Everything that `build` made, as far as it is there. No process may be left in the namespaces."""
    _run("nft", "-f", "-", stdin=f"table inet {claim.name}\ndelete table inet {claim.name}\n")
    for name in namespaces(claim):
        _run("ip", "netns", "delete", name)
    if claim.name in links():  # its other end keeps it while the kernel tidies up a namespace
        with contextlib.suppress(Refused):
            _run("ip", "link", "delete", claim.name)


def namespaces(claim: Claim) -> list[str]:
    folder = namespace_path("")
    return sorted(path.name for path in folder.glob(f"{claim.name}-*")) if folder.exists() else []


def inhabitants(claim: Claim) -> list[int]:
    """The processes in the namespaces of a claim."""
    return [int(pid) for name in namespaces(claim) for pid in _run("ip", "netns", "pids", name).split()]


def links() -> set[str]:
    return {link["ifname"] for link in _asked("link", "show")}


def routes(*, foreign: bool = False) -> list[Network]:
    """What this host has a route for; of `foreign` ones, those that no sandbox made."""
    return [
        ipaddress.ip_network(route["dst"], strict=False)
        for family in ("-4", "-6")
        for route in _asked(family, "route", "show")
        if route["dst"] != "default" and not (foreign and claims.is_name(route.get("dev", "")))
    ]


def cut(namespace: str) -> None:
    """Let the node swallow every packet, as a broken network does."""
    _run("nsenter", f"--net={namespace_path(namespace)}", "nft", "-f", "-", stdin=_CUT)


def mend(namespace: str) -> None:
    table = "table inet windowbox_cut\ndelete table inet windowbox_cut\n"
    _run("nsenter", f"--net={namespace_path(namespace)}", "nft", "-f", "-", stdin=table)


def unplug(claim: Claim, node: str) -> None:
    """Take the cable out."""
    _ip([f"link set {node} down"], claim.namespace(_SWITCH))


def plug(claim: Claim, node: str) -> None:
    _ip([f"link set {node} up"], claim.namespace(_SWITCH))


def _connect(claim: Claim, plan: Plan, node: NodePlan) -> None:
    name = claim.namespace(node.name)
    _set(name, _NODE_SETTINGS)
    _ip(
        [
            f"link add {node.name} type veth peer name eth0 netns {name}",
            f"link set {node.name} master bridge up",
        ],
        claim.namespace(_SWITCH),
    )
    _ip(
        [
            "link set lo up",
            "link set eth0 up",
            f"address add {node.v4}/{plan.nodes_v4.prefixlen} dev eth0",
            f"address add {node.v6}/{plan.nodes_v6.prefixlen} dev eth0 nodad",
            f"route add default via {plan.host_v4}",
            f"route add default via {plan.host_v6}",
            *_routes_to_pods([other for other in plan.nodes if other != node]),
        ],
        name,
    )


def _routes_to_pods(nodes: list[NodePlan]) -> list[str]:
    return [
        f"route add {pods} via {address}"
        for node in nodes
        for pods, address in ((node.pods_v4, node.v4), (node.pods_v6, node.v6))
    ]


def _nothing_further(claim: Claim) -> str:
    """Where this host forwards for others (with Docker, say), it does not do so for nodes and Pods."""
    return f"""
table inet {claim.name} {{
    chain forward {{
        type filter hook forward priority filter; policy accept;
        iifname "{claim.name}" ct state established,related accept
        iifname "{claim.name}" oifname != "{claim.name}" drop
    }}
}}
"""


def _set(namespace: str, settings: dict[str, str]) -> None:
    # What is under /proc/sys/net depends on who asks.
    script = "".join(f"echo {value} > /proc/sys/{key}\n" for key, value in settings.items())
    _run("nsenter", f"--net={namespace_path(namespace)}", "sh", "-e", stdin=script)


def _ip(commands: list[str], namespace: str | None = None) -> None:
    inside = ["-n", namespace] if namespace else []
    _run("ip", *inside, "-batch", "-", stdin="\n".join(commands) + "\n")


def _asked(*arguments: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(_run("ip", "-json", *arguments) or "[]")
    return found


def _run(*argv: str, stdin: str = "") -> str:
    answer = subprocess.run(argv, input=stdin, capture_output=True, text=True, timeout=_PATIENCE, check=False)
    if answer.returncode:
        raise Refused(f"{' '.join(argv)}: {answer.stderr.strip() or answer.returncode}")
    return answer.stdout
