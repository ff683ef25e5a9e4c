"""Which routes lead to the Pods and Services of a Shoot whose nodes are Pods of the sandbox's nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Any, Protocol

from windowbox.models import addresses
from windowbox.models.addresses import Address, Network

HOST = ""
"""Where: on this host. Other places are network namespaces."""


class SandboxNode(Protocol):
    """A node of the sandbox: its namespace, its address, and the range of its Pods."""

    @property
    def namespace(self) -> str: ...
    @property
    def address(self) -> str: ...
    @property
    def pods(self) -> str: ...


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


def wanted(
    machines: Iterable[Machine], nodes: Sequence[SandboxNode], services: str
) -> dict[str, dict[str, str]]:
    """For this host and each namespace: the next hop to each range.

    The Services of the Shoot are known to each of its machines; one of them gets what this host, where the
    Shoot's API server runs, sends there.
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
