"""The nodes behind load balancers: real ones where this machine can have them, else simulated ones."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from sandbox.nodes import hostresources
from sandbox.nodes.images import ECHO
from sandbox.options import Options
from sandbox.programs import binaries
from sandbox.programs.binaries import Found
from sandbox.simulated.nodes import names
from sandbox.simulated.objects import BEHAVIOUR
from sandbox.supervisor import Supervisor
from tools.bench.client import NAMESPACE, Client
from windowbox.models.refs import ENDPOINT_SLICES, NODES, Resource

_DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
_PATIENCE = 60.0
_APP = {"app": "echo"}
_PORTS = (8080, 8081)

Manifest = dict[str, Any]


class NodeSetup(Protocol):
    """Nodes with endpoints that serve clients."""

    @property
    def kind(self) -> str:
        """For people: `4 real nodes`."""

    @property
    def names(self) -> Sequence[str]: ...

    async def prepare(self) -> None:
        """Start endpoints on all nodes but the last."""

    def service(self, name: str, ports: Sequence[int]) -> Manifest:
        """A Service with these ports, at most two."""

    async def create_endpoints(self, name: str) -> None:
        """Create endpoints for the Service `name`, before the Service."""

    async def drop_packets(self, node: str) -> None:
        """Make a node drop every packet."""

    async def repair(self, node: str) -> None:
        """Undo `drop_packets`."""

    def forwarding_node(self, greeting: str) -> str:
        """The node that forwarded the connection with this greeting."""


def options(count: int, *, simulated: bool = False) -> Options:
    """Options of a sandbox with these nodes: real ones if possible, unless others are requested."""
    if simulated or missing():
        return Options(simulated_nodes=count)
    return Options(nodes=count)


def missing() -> str:
    """Why real nodes are impossible here; empty if they are possible."""
    if reason := hostresources.impossible():
        return reason
    lacking = [name for name in hostresources.PROGRAMS if not isinstance(binaries.look(name), Found)]
    return f"{', '.join(lacking)}: run `make setup`" if lacking else ""


def ground(sandbox: Supervisor, client: Client, chosen: Options) -> NodeSetup:
    return Real(sandbox, client) if chosen.nodes else Simulated(client, chosen.simulated_nodes)


class Real:
    """Real nodes, kube-proxies and Pods."""

    def __init__(self, sandbox: Supervisor, client: Client) -> None:
        self._sandbox = sandbox
        self._client = client
        self.names = [node.name for node in sandbox.nodes]
        self.kind = f"{len(self.names)} real nodes"

    async def prepare(self) -> None:
        *serving, _ = self.names
        await self._client.request("POST", _DEPLOYMENTS.path(NAMESPACE), _deployment(serving))
        async with asyncio.timeout(_PATIENCE):
            while not await self._ready(len(serving)):  # noqa: ASYNC110
                await asyncio.sleep(0.2)

    def service(self, name: str, ports: Sequence[int]) -> Manifest:
        return _service(name, ports, {"selector": _APP})

    async def create_endpoints(self, name: str) -> None:
        """Nothing: Kubernetes' controllers create the EndpointSlices."""

    async def drop_packets(self, node: str) -> None:
        await asyncio.to_thread(self._sandbox.node(node).cut)

    async def repair(self, node: str) -> None:
        await self._sandbox.node(node).repair()

    def forwarding_node(self, greeting: str) -> str:
        # Nodes replace the client's address by their own (SNAT).
        peer = ipaddress.ip_address(_said(greeting)["peer"].rpartition(":")[0])
        for node in self._sandbox.nodes:
            if str(peer) == node.v4 or peer in node.plan.pods_v4:
                return node.name
        return ""

    async def _ready(self, count: int) -> bool:
        found = await self._client.request("GET", _DEPLOYMENTS.path(NAMESPACE, "echo"))
        return bool(found.get("status", {}).get("readyReplicas") == count)


class Simulated:
    """Simulated nodes; the simulator answers for all Pods."""

    def __init__(self, client: Client, count: int) -> None:
        self._client = client
        self.names = names(count)
        self.kind = f"{count} simulated nodes"

    async def prepare(self) -> None:
        """Nothing: the simulator runs already."""

    def service(self, name: str, ports: Sequence[int]) -> Manifest:
        return _service(name, ports, {})

    async def create_endpoints(self, name: str) -> None:
        path = ENDPOINT_SLICES.path(NAMESPACE)
        await self._client.request("POST", path, _slice(name, self.names), accepted=(201, 409))

    async def drop_packets(self, node: str) -> None:
        await self._behave(node, "drop")

    async def repair(self, node: str) -> None:
        await self._behave(node, None)

    def forwarding_node(self, greeting: str) -> str:
        return _said(greeting)["node"]

    async def _behave(self, node: str, how: str | None) -> None:
        patch = {"metadata": {"annotations": {BEHAVIOUR: how}}}
        await self._client.request("PATCH", NODES.path(name=node), patch)
        await asyncio.sleep(0.5)  # until the simulator has applied it


def _said(greeting: str) -> Mapping[str, str]:
    words = (word.partition("=") for word in greeting.split())
    return {key: value for key, _, value in words}


def _service(name: str, ports: Sequence[int], spec: Manifest) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {
            "type": "LoadBalancer",
            "ports": [
                {"name": f"p{target}", "port": port, "protocol": "TCP", "targetPort": target}
                for port, target in zip(ports, _PORTS, strict=False)
            ],
            **spec,
        },
    }


def _slice(service: str, nodes: Sequence[str]) -> Manifest:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": service, "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4",
        "ports": [{"name": f"p{port}", "port": port, "protocol": "TCP"} for port in _PORTS],
        "endpoints": [
            {"addresses": [f"10.64.0.{n}"], "nodeName": node, "conditions": {"ready": True}}
            for n, node in enumerate(nodes, 1)
        ],
    }


def _deployment(nodes: Sequence[str]) -> Manifest:
    """An echo server on each of these nodes."""
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": _APP},
    }
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": list(nodes)}
    chosen = {"nodeSelectorTerms": [{"matchExpressions": [here]}]}
    pod = {
        "topologySpreadConstraints": [spread],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": chosen}},
        "containers": [
            {
                "name": "echo",
                "image": ECHO,
                "imagePullPolicy": "Never",
                "args": [f"--tcp={','.join(map(str, _PORTS))}", "--http=10200"],
                "env": [
                    {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                    {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                ],
                "readinessProbe": {"httpGet": {"path": "/healthz", "port": 10200}, "periodSeconds": 1},
            }
        ],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "echo"},
        "spec": {
            "replicas": len(nodes),
            "selector": {"matchLabels": _APP},
            "template": {"metadata": {"labels": _APP}, "spec": pod},
        },
    }
