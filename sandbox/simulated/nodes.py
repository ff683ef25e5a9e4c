"""The Nodes to be simulated, as their kubelets would register them."""

from __future__ import annotations

import contextlib
import ipaddress
import re
from typing import Any

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
        await _register(kube, name, address)
    async for object in kube.objects(NODES):
        match = _NAME.fullmatch(object.name)
        if match and int(match[1]) > count and object.labels.get(PLAYED):
            await kube.delete(NODES, "", object.name)


async def _register(kube: Kube, name: str, address: str) -> None:
    manifest: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {PLAYED: "fake", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux"},
            "annotations": {PLAYED: "fake"},
        },
        "spec": {"providerID": f"simulated://{name}"},
        "status": {
            "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}]
        },
    }
    with contextlib.suppress(Conflict):
        await kube.create(NODES, "", manifest)
        return
    await kube.merge(NODES, "", name, {"metadata": manifest["metadata"]})
    await kube.merge(NODES, "", name, {"status": manifest["status"]}, part="status")
