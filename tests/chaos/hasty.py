"""Clients whose changes queue up while the API is away, and then come back to back."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from commands.demo import stage
from tests.chaos import load, shoots
from tests.chaos.load import NAMESPACE, asking, insist
from windowbox.clients.kubernetes.kube import Kube
from windowbox.models.refs import DNSRECORDS, INFRASTRUCTURES, SERVICES, Resource

PATIENCE = 900.0
"""Seconds that a client asks for one change: it waits until the object before of the same name is gone."""
_AT_ONCE = (1, 1, 2, 3, 4)
"""How many changes of one object a client makes at once."""
_APART = 0.03
"""Seconds between two of these, at most."""
_RECORDS, _SERVICES = 8, 3
"""How many names each client has, besides one Infrastructure."""


@dataclass
class Owned:
    """Objects of one kind, as their owner wants them."""

    kube: Kube
    resource: Resource
    drawn: Callable[[random.Random], Any]
    """What is wanted of an object: an address, a port."""
    body: Callable[[str, Any], Mapping[str, Any]]
    patch: Callable[[Any], Mapping[str, Any]]
    wanted: dict[str, Any] = field(default_factory=dict)
    """By name, what was asked for last."""

    async def step(self, name: str, chance: random.Random) -> None:
        """Create the object where there is none, and change or delete it otherwise."""
        value = self.drawn(chance)
        body = self.body(name, value)
        place = body["metadata"]["namespace"], body["metadata"]["name"]
        if name not in self.wanted:
            await load.create(self.kube, self.resource, body, PATIENCE)
        elif chance.random() < 0.5:
            await insist(lambda: self.kube.merge(self.resource, *place, self.patch(value)), PATIENCE)
        else:
            await insist(lambda: self.kube.delete(self.resource, *place), PATIENCE)
            del self.wanted[name]
            return
        self.wanted[name] = value


class Hasty:
    """Clients with objects of their own, which they create, change and delete under the same few names."""

    def __init__(self, kube: Kube, kubeconfig: str, seed: int, changes: int, clients: int) -> None:
        self.records = Owned(
            kube,
            DNSRECORDS,
            load.address,
            load.record,
            lambda value: asking() | {"spec": {"values": [value]}},
        )
        self.balancers = Owned(
            kube, SERVICES, lambda chance: chance.randrange(1024, 60000), _service,
            lambda port: {"spec": _ports(port)},
        )  # fmt: skip
        # One for each Shoot, called as in examples/. The names are those of the Shoots.
        self.infrastructures = Owned(
            kube, INFRASTRUCTURES, lambda _: None,
            lambda name, _: stage.manifests("infrastructure.yaml", name)[0], lambda _: asking(),
        )  # fmt: skip
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
        things = [(self.infrastructures, shoot)]
        things += [(self.records, f"{shoot}-{number}") for number in range(_RECORDS)]
        things += [(self.balancers, f"{shoot}-{number}") for number in range(_SERVICES)]
        loop, done = asyncio.get_running_loop(), 0
        begun = loop.time()
        while done < self._share:
            # A client that is late, because the API was away, does not wait.
            await asyncio.sleep(begun + seconds * done / self._share - loop.time())
            owned, name = chance.choice(things)
            for _ in range(chance.choice(_AT_ONCE)):
                await owned.step(name, chance)
                self.changes += 1
                done += 1
                await asyncio.sleep(chance.uniform(0, _APART))  # the next meets the run at every stage


def _service(name: str, port: int) -> dict[str, Any]:
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": _ports(port)}


def _ports(port: int) -> dict[str, Any]:
    return {"type": "LoadBalancer", "ports": [{"port": port, "protocol": "TCP"}]}
