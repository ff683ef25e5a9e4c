"""DNSRecords that are created, changed and deleted, over and over; and what ought to be true in the end."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

from commands.demo.stage import succeeded
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Conflict, Missing, TransientError
from windowbox.models.extensions import OPERATION
from windowbox.models.objects import Object
from windowbox.models.refs import DNSRECORDS, NAMESPACES, Resource

logger = logging.getLogger(__name__)

T = TypeVar("T")

NAMESPACE = "chaos"
ZONE = "local.gardener.cloud"


async def insist(act: Callable[[], Awaitable[T]], patience: float = 120) -> T:
    """Do something as soon as the API lets us."""
    async with asyncio.timeout(patience):
        while True:
            try:
                return await act()
            except TransientError:
                await asyncio.sleep(0.3)  # as any client does, before it tries again


async def create(kube: Kube, resource: Resource, body: Mapping[str, Any], patience: float = 120) -> Object:
    """Create an object as soon as the one before of the same name is gone."""
    namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]

    async def act() -> Object:
        try:
            return await kube.create(resource, namespace, body)
        except Conflict:
            try:
                found = await kube.get(resource, namespace, name)
            except Missing:
                raise Conflict("it is gone just now") from None
            if found.deleting:
                raise
            return found  # an answer got lost, the object is there

    return await insist(act, patience)


def asking() -> dict[str, Any]:
    """The part of a patch that asks for a run."""
    now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    return {"metadata": {"annotations": {OPERATION: "reconcile", "gardener.cloud/timestamp": now}}}


def address(chance: random.Random) -> str:
    return f"10.{chance.randrange(256)}.{chance.randrange(256)}.{chance.randrange(1, 255)}"


@dataclass
class Load:
    """A client that knows what it has asked for. It keeps asking until the API has understood."""

    kube: Kube
    seed: int
    objects: int
    wanted: dict[str, str] = field(default_factory=dict)
    """Address by name of object; absent once deleted."""

    async def run(self, seconds: float, writers: int = 8) -> None:
        """Create all objects, then change and delete some of them, spread over so many seconds."""
        await insist(lambda: namespace(self.kube))
        names = [f"record-{n:04d}" for n in range(self.objects)]
        shares = [names[n::writers] for n in range(writers)]
        async with asyncio.TaskGroup() as group:
            for number, share in enumerate(shares):
                group.create_task(self._write(share, random.Random(self.seed + number), seconds))

    async def go_on(self, until: asyncio.Event, pause: float) -> None:
        """Change one record after the other until the event, with so many seconds in between."""
        chance, number = random.Random(self.seed), 0
        names = sorted(self.wanted)
        while not until.is_set():
            name, number = names[number % len(names)], number + 1
            await self.change(name, address(chance))
            await asyncio.sleep(pause)  # the pace of the load
        logger.info("%d records were changed %d times", len(names), number)

    async def change(self, name: str, address: str) -> int:
        """Ask for another address; returns the generation of the record that does."""
        patch = asking() | {"spec": {"values": [address]}}
        changed = await insist(lambda: self.kube.merge(DNSRECORDS, NAMESPACE, name, patch))
        self.wanted[name] = address
        return changed.generation

    def names(self) -> dict[str, str]:
        """The address of each name that is to resolve."""
        return {f"{name}.chaos.{ZONE}": address for name, address in self.wanted.items()}

    async def _write(self, names: list[str], chance: random.Random, seconds: float) -> None:
        steps = [(name, "create") for name in names]
        steps += [(name, "change") for name in names if chance.random() < 0.7]
        steps += [(name, "delete") for name in names if chance.random() < 0.3]
        pause = seconds / len(steps)
        for name, step in steps:
            match step:
                case "create":
                    wanted = address(chance)
                    await create(self.kube, DNSRECORDS, record(name, wanted))
                    self.wanted[name] = wanted
                case "change":
                    await self.change(name, address(chance))
                case "delete":
                    await insist(lambda n=name: self.kube.delete(DNSRECORDS, NAMESPACE, n))  # type: ignore[misc]
                    del self.wanted[name]
            await asyncio.sleep(pause * chance.random() * 2)  # the pace of the load


async def namespace(kube: Kube) -> None:
    """Make the namespace of all records."""
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    await kube.apply(NAMESPACES, "", NAMESPACE, body, owner="chaos")


def record(name: str, address: str) -> dict[str, Any]:
    return {
        "apiVersion": "extensions.gardener.cloud/v1alpha1",
        "kind": "DNSRecord",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "type": "local",
            "secretRef": {"name": "unused", "namespace": NAMESPACE},
            "name": f"{name}.chaos.{ZONE}",
            "recordType": "A",
            "values": [address],
        },
    }


async def unsettled(kube: Kube, wanted: Mapping[str, str]) -> list[str]:
    """In words, what is not yet as it ought to be in the API."""
    found = {one.name: one async for one in kube.objects(DNSRECORDS) if one.namespace == NAMESPACE}
    problems = [f"{name} is missing" for name in wanted.keys() - found.keys()]
    problems += [f"{name} should be gone: {found[name].raw}" for name in found.keys() - wanted.keys()]
    return problems + [
        f"{name}: {found[name].raw}"
        for name in wanted.keys() & found.keys()
        if not succeeded(found[name])
        or OPERATION in found[name].annotations
        or "lastError" in found[name].status
    ]
