"""The nodes behind load balancers: real ones where this machine can have them, else simulated ones."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Sequence
from typing import Any

import yaml

from sandbox.nodes import hostresources
from sandbox.nodes.images import ECHO
from sandbox.options import Options
from sandbox.programs import binaries
from sandbox.programs.binaries import Found
from sandbox.simulated.nodes import names
from sandbox.simulated.openports import BEHAVIOUR
from sandbox.supervisor import Supervisor
from tools.bench.client import NAMESPACE, Client, until
from windowbox.models.refs import DEPLOYMENTS, ENDPOINT_SLICES, NODES

_PATIENCE = 60.0
_APP = {"app": "echo"}
_PORTS = (8080, 8081)
_DEPLOYMENT = """
metadata: {name: echo}
spec:
  selector: {matchLabels: {app: echo}}
  template:
    metadata: {labels: {app: echo}}
    spec:
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule,
         labelSelector: {matchLabels: {app: echo}}}
      containers:
      - name: echo
        imagePullPolicy: Never
        env:
        - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
        - {name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
        readinessProbe: {httpGet: {path: /healthz, port: 10200}, periodSeconds: 1}
"""

Manifest = dict[str, Any]


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


class Real:
    """Real nodes, kube-proxies and Pods: an echo server on all nodes but the last."""

    def __init__(self, sandbox: Supervisor, client: Client) -> None:
        self._sandbox = sandbox
        self._client = client
        self.names = [node.name for node in sandbox.nodes]
        self.kind = f"{len(self.names)} real nodes"

    async def prepare(self) -> None:
        """Start the echo servers."""
        serving = self.names[:-1]
        deployment = yaml.safe_load(_DEPLOYMENT)
        deployment["spec"]["replicas"] = len(serving)
        pod = deployment["spec"]["template"]["spec"]
        pod["containers"][0] |= {
            "image": ECHO,
            "args": [f"--tcp={','.join(map(str, _PORTS))}", "--http=10200"],
        }
        here = {"key": "kubernetes.io/hostname", "operator": "In", "values": serving}
        chosen = {"nodeSelectorTerms": [{"matchExpressions": [here]}]}
        pod["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": chosen}}
        path = DEPLOYMENTS.path(NAMESPACE)
        await self._client.request("POST", path, deployment)

        async def ready() -> bool:
            found = await self._client.request("GET", f"{path}/echo")
            return bool(found.get("status", {}).get("readyReplicas") == len(serving))

        await until(ready, _PATIENCE, 0.2)

    def service(self, name: str, ports: Sequence[int]) -> Manifest:
        """A Service with these ports, at most two."""
        return _service(name, ports, {"selector": _APP})

    async def create_endpoints(self, name: str) -> None:
        """Nothing: Kubernetes' controllers create the EndpointSlices."""

    async def drop_packets(self, node: str) -> None:
        await asyncio.to_thread(self._sandbox.node(node).cut)

    async def repair(self, node: str) -> None:
        await self._sandbox.node(node).repair()

    def forwarding_node(self, greeting: str) -> str:
        """The node that forwarded the connection with this greeting."""
        # Nodes replace the client's address by their own (SNAT).
        peer = ipaddress.ip_address(_fields(greeting)["peer"].rpartition(":")[0])
        for node in self._sandbox.nodes:
            if str(peer) == node.v4 or peer in node.plan.pods_v4:
                return node.name
        return ""


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
        endpoints = [
            {"addresses": [f"10.64.0.{n}"], "nodeName": node, "conditions": {"ready": True}}
            for n, node in enumerate(self.names, 1)
        ]
        made = {
            "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
            "addressType": "IPv4",
            "ports": [{"name": f"p{port}", "port": port, "protocol": "TCP"} for port in _PORTS],
            "endpoints": endpoints,
        }
        await self._client.request("POST", ENDPOINT_SLICES.path(NAMESPACE), made, accepted=(201, 409))

    async def drop_packets(self, node: str) -> None:
        await self._behave(node, "drop")

    async def repair(self, node: str) -> None:
        await self._behave(node, None)

    def forwarding_node(self, greeting: str) -> str:
        return _fields(greeting)["node"]

    async def _behave(self, node: str, how: str | None) -> None:
        patch = {"metadata": {"annotations": {BEHAVIOUR: how}}}
        await self._client.request("PATCH", NODES.path(name=node), patch)
        await asyncio.sleep(0.5)  # until the simulator has applied it


NodeSetup = Real | Simulated
"""Nodes with endpoints that serve clients."""


def ground(sandbox: Supervisor, client: Client, chosen: Options) -> NodeSetup:
    """The nodes of a sandbox with these options."""
    return Real(sandbox, client) if chosen.nodes else Simulated(client, chosen.simulated_nodes)


def _fields(greeting: str) -> dict[str, str]:
    """The fields of a greeting, such as `pod=echo-1 node=node-1 peer=…`."""
    words = (word.partition("=") for word in greeting.split())
    return {key: value for key, _, value in words}


def _service(name: str, ports: Sequence[int], spec: Manifest) -> Manifest:
    listed = [
        {"name": f"p{target}", "port": port, "protocol": "TCP", "targetPort": target}
        for port, target in zip(ports, _PORTS, strict=False)
    ]
    return {"metadata": {"name": name}, "spec": {"type": "LoadBalancer", "ports": listed, **spec}}
