"""A cluster with simulated nodes, and clients of their open ports."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from sandbox import stages
from sandbox import state as states
from sandbox.simulated import nodes, simulatedchildren
from sandbox.simulated.openports import BEHAVIOUR
from sandbox.state import ChildState, State
from tests.support.running import eventually
from windowbox.clients.kubernetes.kube import Kube
from windowbox.models.objects import Object
from windowbox.models.refs import ENDPOINT_SLICES, NODES, SERVICES

_numbers = itertools.count(1)
_OTHERS = {"loadBalancerClass": "example.com/other"}
"""No worker serves them."""


@dataclass(frozen=True)
class Sandbox:
    """One that runs in the background."""

    folder: Path
    state: State
    """When it had started."""

    @property
    def kubeconfig(self) -> Path:
        return Path(stages.variables(self.folder, self.state)["KUBECONFIG"])

    @property
    def network(self) -> str:
        """Of the nodes."""
        return simulatedchildren.network(self.state.ports["kube-controller-manager"])

    def signal(self, name: str, number: int) -> None:
        os.kill(self._pid(name), number)

    async def kill(self, name: str) -> None:
        """Kill a process, and wait until another one has taken its place."""
        before = self._pid(name)
        self.signal(name, signal.SIGKILL)

        async def is_back() -> bool:
            child = self._child(name)
            return child.condition == "ready" and child.pid != before

        await eventually(is_back, 60)

    def restarts(self, name: str) -> int:
        return self._child(name).restarts

    def _pid(self, name: str) -> int:
        pid = self._child(name).pid
        assert pid
        return pid

    def _child(self, name: str) -> ChildState:
        state = states.read(self.folder)
        assert state
        return state.children[name]


@dataclass(frozen=True)
class World:
    """Services, their endpoints and Nodes in the API, all with names of the test's own."""

    kube: Kube
    network: str
    """Of the nodes."""

    @property
    def first(self) -> str:
        """The address of the Node `simulated-1`."""
        return self.address(1)

    @property
    def second(self) -> str:
        """The address of the Node `simulated-2`."""
        return self.address(2)

    def address(self, number: int) -> str:
        return nodes.addresses(self.network, number)[-1]

    async def service(self, *ports: dict[str, Any], **spec: Any) -> Object:
        body = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": f"web-{next(_numbers)}"},
            "spec": {"type": "LoadBalancer", "ports": list(ports) or [{"port": 80}], **_OTHERS, **spec},
        }
        return await self.kube.create(SERVICES, "default", body)

    async def endpoints(
        self, service: Object, on: Sequence[str], *, ready: bool = True, protocol: str = "TCP"
    ) -> Object:
        """Say that a Pod is behind the Service on each of these nodes."""
        conditions = {"ready": ready, "serving": ready, "terminating": False}
        body = {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": f"{service.name}-{next(_numbers)}",
                "labels": {"kubernetes.io/service-name": service.name},
            },
            "addressType": "IPv4",
            "ports": [{"port": 8080, "protocol": protocol}],
            "endpoints": [
                {"addresses": [f"10.64.0.{n}"], "nodeName": node, "conditions": conditions}
                for n, node in enumerate(on, 1)
            ],
        }
        return await self.kube.create(ENDPOINT_SLICES, "default", body)

    async def served(self, *on: str, **spec: Any) -> tuple[Object, int]:
        """A Service with an endpoint on each of the nodes, and its node port."""
        service = await self.service(**spec)
        await self.endpoints(service, on or ["simulated-1"])
        return service, node_port(service)

    async def behave(self, node: str, how: str | None) -> None:
        await self.kube.merge(NODES, "", node, {"metadata": {"annotations": {BEHAVIOUR: how}}})

    async def drop(self, service: Object) -> None:
        await self.kube.delete(SERVICES, "default", service.name)


def node_port(service: Object, index: int = 0) -> int:
    return int(service.spec["ports"][index]["nodePort"])


async def outcome(address: str, port: int) -> str:
    """What becomes of a connection: its greeting's node, or `refused`, `dropped`, `silent`."""
    try:
        async with asyncio.timeout(0.5):
            reader, writer = await asyncio.open_connection(address, port)
    except ConnectionRefusedError:
        return "refused"
    except ConnectionResetError:  # the port was closed in the middle of the handshake
        return "reset"
    except TimeoutError:
        return "dropped"
    try:
        async with asyncio.timeout(0.5):
            line = (await reader.readline()).decode()
            return line.split()[0].removeprefix("node=") if line else "closed"
    except TimeoutError:
        return "silent"
    except ConnectionResetError:  # it had not been accepted yet when its port was closed
        return "reset"
    finally:
        writer.close()


async def becomes(wanted: str, address: str, port: int) -> None:
    """Wait until connections end like this."""

    async def seen() -> bool:
        return await outcome(address, port) == wanted

    await eventually(seen)


class Caller(asyncio.DatagramProtocol):
    """A UDP client that keeps all answers."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[bytes | Exception] = asyncio.Queue()

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.heard.put_nowait(data)

    def error_received(self, exc: Exception) -> None:
        self.heard.put_nowait(exc)


async def asked(address: str, port: int, data: bytes) -> bytes | str:
    """The answer to a datagram; `refused` or `dropped` if there is none."""
    loop = asyncio.get_running_loop()
    transport, caller = await loop.create_datagram_endpoint(Caller, remote_addr=(address, port))
    try:
        transport.sendto(data)
        async with asyncio.timeout(0.5):
            answer = await caller.heard.get()
        return answer if isinstance(answer, bytes) else "refused"
    except TimeoutError:
        return "dropped"
    finally:
        transport.close()


async def answered(address: str, port: int, data: bytes) -> bytes:
    """The answer to a datagram, once the port answers."""

    async def heard() -> bytes | None:
        answer = await asked(address, port, data)
        return answer if isinstance(answer, bytes) else None

    return await eventually(heard) or b""


async def health(address: str, port: int) -> tuple[int, Any]:
    """The answer of /healthz; 0 if there is none."""
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=0.5)) as session,
            session.get(f"http://{address}:{port}/healthz") as answer,
        ):
            return answer.status, await answer.json()
    except (aiohttp.ClientError, TimeoutError) as error:
        return 0, type(error).__name__
