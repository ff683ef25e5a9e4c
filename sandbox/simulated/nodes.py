"""The Nodes to be simulated, as their kubelets would register them."""

from __future__ import annotations

import ipaddress
import re

from sandbox.simulated.openports import PLAYED
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Conflict, Malformed
from windowbox.models.refs import NODES

_NAME = re.compile(r"simulated-(\d+)")


def addresses(network: str, count: int) -> list[str]:
    """The first `count` addresses of the network."""
    try:
        prefix = ipaddress.IPv4Network(network)
    except ValueError as error:
        raise Malformed(f"network {network!r}: {error}; write it like 127.77.0.0/24") from None
    if not prefix.is_loopback:
        raise Malformed(f"network {network!r}: simulated nodes live on loopback; write it like 127.77.0.0/24")
    if count > max(prefix.num_addresses - 2, 0):
        raise Malformed(f"network {network!r} has no room for {count} nodes")
    hosts = prefix.hosts()
    return [str(next(hosts)) for _ in range(count)]


def names(count: int) -> list[str]:
    return [f"simulated-{number}" for number in range(1, count + 1)]


async def register(kube: Kube, count: int, network: str) -> None:
    """Create the Nodes, and remove those of an earlier, larger number.

    As with kubelets that is done once at the start: a Node that is deleted later is not created again.
    """
    for name, address in zip(names(count), addresses(network, count), strict=True):
        labels = {PLAYED: "fake", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
        metadata = {"name": name, "labels": labels, "annotations": {PLAYED: "fake"}}
        reported = [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}]
        status = {"addresses": reported}
        try:
            node = {"metadata": metadata, "spec": {"providerID": f"simulated://{name}"}, "status": status}
            await kube.create(NODES, "", {"apiVersion": "v1", "kind": "Node", **node})
        except Conflict:
            await kube.merge(NODES, "", name, {"metadata": metadata})
            # A patch of the object itself ignores its status.
            await kube.merge(NODES, "", name, {"status": status}, part="status")
    async for object in kube.objects(NODES):
        match = _NAME.fullmatch(object.name)
        if match and int(match[1]) > count and object.labels.get(PLAYED):
            await kube.delete(NODES, "", object.name)
