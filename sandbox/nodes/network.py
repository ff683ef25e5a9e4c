"""The network of a sandbox's nodes: create, break, repair and remove it.

The bridge is in a namespace of its own, so that the firewall of this host (Docker's, say) does not filter
traffic between nodes; one link leads from it to the host. There is no NAT, and no forwarding beyond the host.
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from sandbox.nodes import iproute
from sandbox.nodes.addresses import NodePlan, Plan
from sandbox.nodes.claims import Claim
from windowbox.errors import Refused

_SWITCH = "switch"
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
    """Create namespaces, links, addresses and routes for all nodes of `plan`."""
    switch, link = claim.namespace(_SWITCH), claim.name
    for name in (switch, *(claim.namespace(node.name) for node in plan.nodes)):
        iproute.run("ip", "netns", "add", name)
    _set(switch, {"net/ipv6/conf/default/disable_ipv6": "1"})
    iproute.apply(
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
    # A host with Docker forwards packets, which would let those of nodes and Pods leave it.
    rules = f"""
table inet {claim.name} {{
    chain forward {{
        type filter hook forward priority filter; policy accept;
        iifname "{claim.name}" ct state established,related accept
        iifname "{claim.name}" drop
    }}
}}
"""
    iproute.run("nft", "-f", "-", stdin=rules)
    # A container of Docker, and some hosts, have it disabled on new links.
    Path(f"/proc/sys/net/ipv6/conf/{link}/disable_ipv6").write_text("0")
    # nodad: without it an IPv6 address is tentative for a second, in which servers cannot bind it.
    iproute.apply(
        [
            f"link set {link} up",
            f"address add {plan.host_v4}/{plan.nodes_v4.prefixlen} dev {link}",
            f"address add {plan.host_v6}/{plan.nodes_v6.prefixlen} dev {link} nodad",
            *_routes_to_pods(plan.nodes),
        ]
    )


def join(one: Claim, plan: Plan, other: Claim, others: Plan) -> None:
    """Let the nodes and Pods of two sandboxes reach each other, until one of these ends. Idempotent."""
    sides = ((one, plan, others), (other, others, plan))
    first, second = (claim.namespace(_SWITCH) for claim, _, _ in sides)
    name = f"to-{other.name}"
    if any(link["ifname"] == name for link in iproute.asked("-n", first, "link", "show")):
        return
    iproute.apply([f"link add {name} type veth peer name to-{one.name} netns {second}"], first)
    for claim, own, beyond in sides:
        joint = name if claim == one else f"to-{one.name}"
        # The host would answer for all of its addresses on both of its links: these hear of one bridge only.
        isolated = [f"link set {port} type bridge_slave isolated on" for port in (joint, "host")]
        iproute.apply([f"link set {joint} master bridge up", *isolated], claim.namespace(_SWITCH))
        # Of an earlier sandbox with the same addresses.
        forgotten = [f"neigh flush dev eth0 to {nodes}" for nodes in (beyond.nodes_v4, beyond.nodes_v6)]
        for node in own.nodes:
            iproute.apply([*_routes_beyond(own, beyond), *forgotten], claim.namespace(node.name))


def remove(claim: Claim) -> None:
    """Remove what `build` created, as far as it exists. The namespaces must hold no processes any more."""
    if shutil.which("nft"):
        iproute.run("nft", "-f", "-", stdin=f"table inet {claim.name}\ndelete table inet {claim.name}\n")
    for name in namespaces(claim):
        iproute.run("ip", "netns", "delete", name)
    if claim.name in iproute.links():  # its peer keeps it until the kernel has destroyed the namespace
        with contextlib.suppress(Refused):
            iproute.run("ip", "link", "delete", claim.name)


def namespaces(claim: Claim) -> list[str]:
    folder = namespace_path("")
    return sorted(path.name for path in folder.glob(f"{claim.name}-*")) if folder.exists() else []


def inhabitants(claim: Claim) -> list[int]:
    """The processes in the namespaces of a claim."""
    return [
        int(pid) for name in namespaces(claim) for pid in iproute.run("ip", "netns", "pids", name).split()
    ]


def cut(namespace: str) -> None:
    """Drop every packet from and to the node, as a broken network does."""
    iproute.run("nsenter", f"--net={namespace_path(namespace)}", "nft", "-f", "-", stdin=_CUT)


def repair(namespace: str) -> None:
    table = "table inet windowbox_cut\ndelete table inet windowbox_cut\n"
    iproute.run("nsenter", f"--net={namespace_path(namespace)}", "nft", "-f", "-", stdin=table)


def unplug(claim: Claim, node: str) -> None:
    """Set the node's link down."""
    iproute.apply([f"link set {node} down"], claim.namespace(_SWITCH))


def plug(claim: Claim, node: str) -> None:
    iproute.apply([f"link set {node} up"], claim.namespace(_SWITCH))


def _connect(claim: Claim, plan: Plan, node: NodePlan) -> None:
    name = claim.namespace(node.name)
    _set(name, _NODE_SETTINGS)
    iproute.apply(
        [
            f"link add {node.name} type veth peer name eth0 netns {name}",
            f"link set {node.name} master bridge up",
        ],
        claim.namespace(_SWITCH),
    )
    iproute.apply(
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


def _routes_beyond(own: Plan, beyond: Plan) -> list[str]:
    """Routes of a node to all of the other sandbox; to what its nodes know as the host, by its own host."""
    return [
        f"route replace {beyond.nodes_v4} dev eth0",
        f"route replace {beyond.nodes_v6} dev eth0",
        f"route replace {beyond.host_v4} via {own.host_v4}",
        f"route replace {beyond.host_v6} via {own.host_v6}",
        *_routes_to_pods(beyond.nodes),
    ]


def _routes_to_pods(nodes: list[NodePlan]) -> list[str]:
    return [
        f"route replace {pods} via {address}"
        for node in nodes
        for pods, address in ((node.pods_v4, node.v4), (node.pods_v6, node.v6))
    ]


def _set(namespace: str, settings: dict[str, str]) -> None:
    # /proc/sys/net shows the network namespace of the process that reads it.
    script = "".join(f"echo {value} > /proc/sys/{key}\n" for key, value in settings.items())
    iproute.run("nsenter", f"--net={namespace_path(namespace)}", "sh", "-e", stdin=script)
