"""Clients whose changes queue up while the API is away, and then come back to back."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from commands.demo import stage
from tests.chaos import load, shoots
from tests.chaos.services import NAMESPACE, insist
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Conflict, Missing
from windowbox.models.refs import DNSRECORDS, INFRASTRUCTURES, SERVICES, Resource

PATIENCE = 900.0
"""Seconds that a client asks for one change: it waits until the object before of the same name is gone."""
_AT_ONCE = (1, 1, 2, 3, 4)
"""How many changes of one object a client makes at once."""
_APART = 0.03
"""Seconds between two of these, at most."""
_RECORDS, _SERVICES = 8, 3
"""How many names each client has, besides one Infrastructure."""


class Owned(Protocol):
    """Objects of one kind, as their owner wants them."""

    async def create(self, name: str, chance: random.Random) -> None: ...
    async def change(self, name: str, chance: random.Random) -> None: ...
    async def delete(self, name: str) -> None: ...
    def __contains__(self, name: object) -> bool: ...


@dataclass
class Records:
    kube: Kube
    wanted: dict[str, str] = field(default_factory=dict)
    """Address by name."""

    async def create(self, name: str, chance: random.Random) -> None:
        address = _address(chance)
        await _create(self.kube, DNSRECORDS, load.NAMESPACE, load.record(name, address))
        self.wanted[name] = address

    async def change(self, name: str, chance: random.Random) -> None:
        address = _address(chance)
        patch = _reconcile() | {"spec": {"values": [address]}}
        await _insist(lambda: self.kube.merge(DNSRECORDS, load.NAMESPACE, name, patch))
        self.wanted[name] = address

    async def delete(self, name: str) -> None:
        await _insist(lambda: self.kube.delete(DNSRECORDS, load.NAMESPACE, name))
        del self.wanted[name]

    def __contains__(self, name: object) -> bool:
        return name in self.wanted


@dataclass
class Balancers:
    kube: Kube
    wanted: dict[str, int] = field(default_factory=dict)
    """Port by name."""

    async def create(self, name: str, chance: random.Random) -> None:
        port = chance.randrange(1024, 60000)
        metadata = {"name": name, "namespace": NAMESPACE}
        body = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": _ports(port)}
        await _create(self.kube, SERVICES, NAMESPACE, body)
        self.wanted[name] = port

    async def change(self, name: str, chance: random.Random) -> None:
        port = chance.randrange(1024, 60000)
        await _insist(lambda: self.kube.merge(SERVICES, NAMESPACE, name, {"spec": _ports(port)}))
        self.wanted[name] = port

    async def delete(self, name: str) -> None:
        await _insist(lambda: self.kube.delete(SERVICES, NAMESPACE, name))
        del self.wanted[name]

    def __contains__(self, name: object) -> bool:
        return name in self.wanted


@dataclass
class Infrastructures:
    """One for each Shoot, called as in examples/. The names are those of the Shoots."""

    kube: Kube
    wanted: set[str] = field(default_factory=set)

    async def create(self, name: str, _: random.Random) -> None:
        [body] = stage.manifests("infrastructure.yaml", name)
        await _create(self.kube, INFRASTRUCTURES, name, body)
        self.wanted.add(name)

    async def change(self, name: str, _: random.Random) -> None:
        patch = _reconcile()
        await _insist(lambda: self.kube.merge(INFRASTRUCTURES, name, shoots.NAME, patch))

    async def delete(self, name: str) -> None:
        await _insist(lambda: self.kube.delete(INFRASTRUCTURES, name, shoots.NAME))
        self.wanted.remove(name)

    def __contains__(self, name: object) -> bool:
        return name in self.wanted


class Hasty:
    """Clients with objects of their own, which they create, change and delete under the same few names."""

    def __init__(self, kube: Kube, kubeconfig: str, seed: int, changes: int, clients: int) -> None:
        self.records, self.balancers = Records(kube), Balancers(kube)
        self.infrastructures = Infrastructures(kube)
        self.shoots = [f"shoot--hasty--{number}" for number in range(clients)]
        self.changes = 0
        """How many the API has taken."""
        self._kube, self._kubeconfig = kube, kubeconfig
        self._seed, self._share = seed, changes // clients

    async def run(self, seconds: float) -> None:
        """All changes, spread over so many seconds, or as fast as the API takes them."""
        await insist(lambda: load.namespace(self._kube))
        async with asyncio.TaskGroup() as group:
            for number, shoot in enumerate(self.shoots):
                group.create_task(self._act(shoot, random.Random(self._seed + number), seconds))

    async def _act(self, shoot: str, chance: random.Random, seconds: float) -> None:
        await shoots.prepare(self._kube, self._kubeconfig, shoot)
        things: list[tuple[Owned, str]] = [(self.infrastructures, shoot)]
        things += [(self.records, f"{shoot}-{number}") for number in range(_RECORDS)]
        things += [(self.balancers, f"{shoot}-{number}") for number in range(_SERVICES)]
        loop, done = asyncio.get_running_loop(), 0
        begun = loop.time()
        while done < self._share:
            # Who is late, because the API was away, does not wait.
            await asyncio.sleep(begun + seconds * done / self._share - loop.time())
            owned, name = chance.choice(things)
            for _ in range(chance.choice(_AT_ONCE)):
                await self._step(owned, name, chance)
                done += 1
                await asyncio.sleep(chance.uniform(0, _APART))  # the next meets the run at every stage

    async def _step(self, owned: Owned, name: str, chance: random.Random) -> None:
        if name not in owned:
            await owned.create(name, chance)
        elif chance.random() < 0.5:
            await owned.change(name, chance)
        else:
            await owned.delete(name)
        self.changes += 1


async def _create(kube: Kube, resource: Resource, namespace: str, body: Mapping[str, Any]) -> None:
    async def act() -> None:
        try:
            await kube.create(resource, namespace, body)
        except Conflict:
            try:
                found = await kube.get(resource, namespace, body["metadata"]["name"])
            except Missing:
                raise Conflict("it is gone just now") from None
            if found.deleting:
                raise
            # An answer got lost, the object is there.

    await _insist(act)


async def _insist(act: Callable[[], Awaitable[object]]) -> None:
    await insist(act, patience=PATIENCE)


def _reconcile() -> dict[str, Any]:
    now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    annotations = {"gardener.cloud/operation": "reconcile", "gardener.cloud/timestamp": now}
    return {"metadata": {"annotations": annotations}}


def _ports(port: int) -> dict[str, Any]:
    return {"type": "LoadBalancer", "ports": [{"port": port, "protocol": "TCP"}]}


def _address(chance: random.Random) -> str:
    return f"10.{chance.randrange(256)}.{chance.randrange(256)}.{chance.randrange(1, 255)}"
