"""A sandbox with nodes, its load balancers, and their Events and writes."""

from __future__ import annotations

import contextlib
import ipaddress
import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from sandbox.nodes import network
from sandbox.options import Options
from sandbox.servers.apiserver import ApiServer
from tests.host.traffic import addresses
from tests.support import echoclient, worldwithnodes
from tests.support.echoclient import Answer
from tests.support.worldwithnodes import NodeWorld
from windowbox.errors import Refused

Manifest = dict[str, Any]

SERVICES = "/api/v1/namespaces/default/services"
EXCLUDED = "node.kubernetes.io/exclude-from-external-load-balancers"
_PATIENCE = 60

_names = itertools.count(1)


@dataclass(frozen=True)
class Balanced:
    """A Service that has its addresses."""

    world: World
    name: str
    addresses: tuple[str, ...]

    @property
    def address(self) -> str:
        return self.addresses[0]

    @property
    def path(self) -> str:
        return f"{SERVICES}/{self.name}"

    def read(self) -> Manifest:
        return self.world.api.read(self.path)

    def patch(self, **spec: Any) -> Manifest:
        """Merge this into its spec."""
        return self.world.merge(self.path, {"spec": spec})

    def annotate(self, **values: str | None) -> None:
        """Set annotations of ours, `idle_timeout` for `loadbalancer.windowbox/idle-timeout`; None: remove."""
        self.world.merge(self.path, {"metadata": {"annotations": annotated_with(values)}})

    def wait(self, holds: Callable[[Manifest], object]) -> Manifest:
        """Wait until the Service is like this."""
        return self.world.wait(self.name, holds)

    def events(self) -> list[tuple[str, str]]:
        """Reason and message of each Event, in order; a repeated one counts once."""
        return [(event["reason"], event["message"]) for event in self.world.events(self.name)]

    def tells(self, *wanted: tuple[str, str]) -> None:
        """Wait until these are its Events."""
        echoclient.becomes(list(wanted), self.events)

    def reported(self, reason: str) -> str:
        """Wait for an Event, and return its message."""

        def message() -> str:
            found = dict(self.events())
            assert reason in found, found
            return found[reason]

        return echoclient.until(message)

    def tcp(self, port: int = 80, payload: bytes = b"", **how: Any) -> Answer:
        return echoclient.tcp(self.address, port, payload, **how)

    def udp(self, port: int = 80, payload: bytes = b"?", **how: Any) -> Answer:
        return echoclient.udp(self.address, port, payload, **how)

    def served(self, port: int = 80, payload: bytes = b"", **how: Any) -> Answer:
        """Wait until a Pod answers over TCP."""
        return echoclient.until(partial(self.tcp, port, payload, **how))

    def served_by_udp(self, port: int = 80, payload: bytes = b"?", **how: Any) -> Answer:
        return echoclient.until(partial(self.udp, port, payload, **how))

    def outcome(self, port: int = 80, **how: Any) -> str:
        return echoclient.outcome(self.address, port, **how)

    def refuses(self, port: int = 80) -> None:
        """Wait until connections are refused."""
        echoclient.becomes("refused", partial(self.outcome, port))

    def nodes(self, connections: int) -> set[str]:
        """The nodes whose Pods answer this many connections."""
        return {self.tcp().node for _ in range(connections)}


@dataclass(frozen=True)
class World:
    """Services of type LoadBalancer before the Pods `app: echo`, of which each node has one.

    They listen on 8080 and 8081 over TCP, and on 8080 over UDP.
    """

    nodes: NodeWorld
    v6_clients: str
    """A prefix for IPv6 clients; see `source`."""
    client: str = "127.9.5.1"
    """An IPv4 address of this host from which load balancers are reached."""

    @property
    def api(self) -> ApiServer:
        return self.nodes.api

    @property
    def folder(self) -> Path:
        return self.nodes.sandbox.folder

    @contextlib.contextmanager
    def service(
        self,
        *ports: Manifest,
        annotated: Mapping[str, str] | None = None,
        ready: Callable[[Manifest], object] | None = None,
        **spec: Any,
    ) -> Iterator[Balanced]:
        """A Service, by default with port 80 over TCP, once it is served; deleted at the end."""
        name = f"web-{next(_names)}"
        self.create(name, ports, annotated or {}, **spec)
        try:
            found = self.wait(name, ready or ingress)
            yield Balanced(self, name, tuple(entry["ip"] for entry in ingress(found)))
        finally:
            with contextlib.suppress(Refused):  # gone already
                self.delete(f"{SERVICES}/{name}")

    def create(
        self, name: str, ports: Sequence[Manifest] = (), annotated: Mapping[str, str] = {}, **spec: Any
    ) -> Manifest:
        ports = list(ports) or [tcp()]
        body = {
            "metadata": {"name": name, "annotations": annotated_with(annotated)},
            "spec": {"type": "LoadBalancer", "selector": {"app": "echo"}, "ports": ports, **spec},
        }
        created: Manifest = self.api.create(SERVICES, body)
        return created

    def until(self, path: str, name: str, holds: Callable[[Manifest | None], object]) -> Manifest | None:
        """The object `name`, or None if there is none, once it is like this."""
        path = f"{path}?fieldSelector=metadata.name={name}"
        listed = self.api.read(path)
        found: Manifest | None = next(iter(listed["items"]), None)
        if holds(found):
            return found
        # From there on, or a deletion since then would be missed.
        since = listed["metadata"]["resourceVersion"]
        for event in self.api.events(f"{path}&resourceVersion={since}", seconds=_PATIENCE):
            found = None if event["type"] == "DELETED" else event["object"]
            if holds(found):
                return found
        raise TimeoutError(f"{name} is not as it should be: {json.dumps(found)}")

    def wait(self, name: str, holds: Callable[[Manifest], object]) -> Manifest:
        """Wait until the Service `name` is like this."""
        found = self.until(SERVICES, name, lambda service: service and holds(service))
        assert found
        return found

    def gone(self, name: str) -> None:
        """Wait until the Service `name` is no more."""
        self.until(SERVICES, name, lambda service: service is None)

    def merge(self, path: str, patch: Manifest, *, strategic: bool = False) -> Manifest:
        kind = f"application/{'strategic-' if strategic else ''}merge-patch+json"
        found: Manifest = json.load(self.api.request("PATCH", path, body=patch, content_type=kind))
        return found

    def delete(self, path: str) -> None:
        self.api.request("DELETE", path).close()

    def events(self, name: str) -> list[Manifest]:
        """Events of our controller about a Service. The API server reports others."""
        query = f"fieldSelector=involvedObject.name={name},involvedObject.kind=Service"
        found = self.api.read(f"/api/v1/namespaces/default/events?{query}")["items"]
        ours = (event for event in found if event.get("source", {}).get("component") == "service-controller")
        return sorted(ours, key=lambda event: int(event["metadata"]["resourceVersion"]))

    def writes(self, name: str) -> list[tuple[str, str]]:
        """The writes of our processes to the Service `name`: `(worker, patch services/status)`, in order."""
        lines = (json.loads(line) for line in (self.folder / "audit.log").read_text().splitlines())
        return [
            (event["user"]["username"].rpartition(":")[2], _request(event))
            for event in lines
            if event.get("objectRef", {}).get("name") == name
            and event["user"]["username"].startswith("system:windowbox:")
            and event["verb"] in ("create", "update", "patch", "delete")
        ]

    def pods(self, app: str = "echo") -> dict[str, str]:
        """The node of each Pod that is ready, by the Pod's name."""
        found = self.api.read(f"/api/v1/namespaces/default/pods?labelSelector=app={app}")["items"]
        return {
            pod["metadata"]["name"]: pod["spec"].get("nodeName", "")
            for pod in found
            if "deletionTimestamp" not in pod["metadata"] and _is_ready(pod)
        }

    def roll(self, name: str, pod: Manifest) -> None:
        """Merge this into the Pods of a Deployment, and wait until all of them are like that and ready.

        Pods that were not are being deleted then, or gone.
        """
        path = f"/apis/apps/v1/namespaces/default/deployments/{name}"
        self.merge(path, {"spec": {"template": {"spec": pod}}}, strategic=True)

        def is_rolled(found: Manifest | None) -> bool:
            assert found
            status, wanted = found.get("status", {}), found["spec"]["replicas"]
            counts = [status.get(of) for of in ("updatedReplicas", "availableReplicas", "replicas")]
            observed = status.get("observedGeneration") == found["metadata"]["generation"]
            return observed and counts == [wanted] * 3

        self.until(path.rpartition("/")[0], name, is_rolled)

    def register(self, node: str) -> None:
        """Register a deleted node again, and wait until it is ready."""
        self.nodes.call(self.nodes.sandbox.kill(f"{node}/kubelet"))
        self.until("/api/v1/nodes", node, lambda found: found and _is_ready(found))

    def entrance(self, peer: str) -> str:
        """The node that forwarded a connection to a Pod: nodes replace the client's address by their own."""
        address = ipaddress.ip_address(peer.rpartition(":")[0].strip("[]"))
        found = [
            node.name
            for node in self.nodes.nodes
            if str(address) in (node.v4, node.v6)
            or address in (node.plan.pods_v4 if address.version == 4 else node.plan.pods_v6)
        ]
        return found[0] if found else "the host"

    def back_at_a_node(self, address: str, port: int, size: int) -> int:
        """The size of the echo of one datagram of this size that a node sends."""
        namespace = network.namespace_path(self.nodes.nodes[0].namespace)
        asking = f"echoclient.udp({address!r}, {port}, bytes({size}), timeout=5)"
        script = f"from tests.support import echoclient; print(len({asking}.said))"
        argv = ["nsenter", f"--net={namespace}", sys.executable, "-c", script]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == 0, done.stderr
        return int(done.stdout)

    @property
    def names(self) -> set[str]:
        """The names of all nodes."""
        return {node.name for node in self.nodes.nodes}

    def label(self, node: str, value: str | None) -> None:
        """Whether the node is excluded from load balancers."""
        self.merge(f"/api/v1/nodes/{node}", {"metadata": {"labels": {EXCLUDED: value}}})

    @contextlib.contextmanager
    def excluded(self, *nodes: str) -> Iterator[None]:
        try:
            for node in nodes:
                self.label(node, "")
            yield
        finally:
            for node in nodes:
                self.label(node, None)

    def source(self, number: int) -> str:
        """An IPv6 address of this host from which clients may come."""
        address = self.v6_clients.replace("::/120", f"::{number:x}")
        addresses.add(address)
        return address

    @contextlib.contextmanager
    def settings(self, process: str, section: str, **values: Any) -> Iterator[None]:
        """Restart one of our processes with other settings, and restore them at the end."""
        path = self.nodes.sandbox.settings_file(process)
        before = path.read_text()
        settings = yaml.safe_load(before)
        settings[section] = {**settings.get(section, {}), **values}
        self._settle(process, path, yaml.safe_dump(settings))
        try:
            yield
        finally:
            self._settle(process, path, before)

    def _settle(self, process: str, path: Path, text: str) -> None:
        self.nodes.call(self.nodes.sandbox.stop(process))
        path.write_text(text)
        self.nodes.call(self.nodes.sandbox.start(process))


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[World]:
    """Three nodes with an echo server on each, and our watcher, worker and patcher."""
    v4, v6, clients = addresses.free()
    options = Options(nodes=3, audit=True, addresses=(v4, v6))
    with addresses.removed_at_the_end(v6, clients), worldwithnodes.opened(folder, options) as nodes:
        nodes.deploy_echo("echo", tcp=(8080, 8081), udp=(8080,), service={"type": "ClusterIP"})
        yield World(nodes, clients)


def tcp(port: int = 80, target: int | str = 8080, **more: Any) -> Manifest:
    return {"name": f"tcp-{port}", "port": port, "protocol": "TCP", "targetPort": target, **more}


def udp(port: int = 80, target: int | str = 8080, **more: Any) -> Manifest:
    return {"name": f"udp-{port}", "port": port, "protocol": "UDP", "targetPort": target, **more}


def annotated_with(values: Mapping[str, str | None]) -> dict[str, str | None]:
    return {k if "/" in k else f"loadbalancer.windowbox/{k.replace('_', '-')}": v for k, v in values.items()}


def ingress(service: Manifest) -> list[Manifest]:
    found: list[Manifest] = service["status"].get("loadBalancer", {}).get("ingress") or []
    return found


def shows(*places: str) -> Callable[[Manifest], bool]:
    """Whether the status shows exactly these ports: `80/TCP`."""

    def holds(service: Manifest) -> bool:
        found = [
            f"{port['port']}/{port['protocol']}" for entry in ingress(service) for port in entry["ports"]
        ]
        return bool(found) and set(found) == set(places)

    return holds


def condition(service: Manifest, kind: str) -> Manifest:
    """The Service's condition of this kind; empty if it has none."""
    found = service["status"].get("conditions") or []
    return next((one for one in found if one["type"] == kind), {})


def _request(event: Manifest) -> str:
    part = event["objectRef"].get("subresource")
    return f"{event['verb']} {event['objectRef']['resource']}{f'/{part}' if part else ''}"


def _is_ready(thing: Manifest) -> bool:
    found = thing["status"].get("conditions") or []
    return any(one["type"] == "Ready" and one["status"] == "True" for one in found)
