"""DNSRecords that are created, changed and deleted, over and over; and what ought to be true in the end."""

from __future__ import annotations

import asyncio
import logging
import random
import subprocess
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Conflict, TransientError
from windowbox.models.objects import Object
from windowbox.models.refs import DNSRECORDS, NAMESPACES

logger = logging.getLogger(__name__)

T = TypeVar("T")

NAMESPACE = "chaos"
ZONE = "local.gardener.cloud"


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
        await self._insist(lambda: namespace(self.kube))
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
            address = f"10.{chance.randrange(256)}.{chance.randrange(256)}.{chance.randrange(1, 255)}"
            await self.change(name, address)
            await asyncio.sleep(pause)  # the pace of the load
        logger.info("%d records were changed %d times", len(names), number)

    async def change(self, name: str, address: str) -> int:
        """Ask for another address; returns the generation of the record that does."""
        changed = await self._insist(lambda: self._change(name, address))
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
            address = f"10.{chance.randrange(256)}.{chance.randrange(256)}.{chance.randrange(1, 255)}"
            match step:
                case "create":
                    await self._insist(lambda n=name, a=address: self._create(n, a))  # type: ignore[misc]
                    self.wanted[name] = address
                case "change":
                    await self.change(name, address)
                case "delete":
                    await self._insist(lambda n=name: self.kube.delete(DNSRECORDS, NAMESPACE, n))  # type: ignore[misc]
                    del self.wanted[name]
            await asyncio.sleep(pause * chance.random() * 2)  # the pace of the load

    async def _insist(self, act: Callable[[], Awaitable[T]]) -> T:
        async with asyncio.timeout(120):
            while True:
                try:
                    return await act()
                except TransientError:
                    await asyncio.sleep(0.3)  # as any client does, before it tries again

    async def _create(self, name: str, address: str) -> None:
        try:
            await self.kube.create(DNSRECORDS, NAMESPACE, record(name, address))
        except Conflict:  # an answer got lost, the object is there
            return

    async def _change(self, name: str, address: str) -> Object:
        annotations = {
            "gardener.cloud/operation": "reconcile",
            "gardener.cloud/timestamp": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
        }
        patch = {"metadata": {"annotations": annotations}, "spec": {"values": [address]}}
        return await self.kube.merge(DNSRECORDS, NAMESPACE, name, patch)


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


async def unsettled(kube: Kube, wanted: dict[str, str]) -> list[str]:
    """In words, what is not yet as it ought to be in the API."""
    found = {one.name: dict(one.raw) async for one in kube.objects(DNSRECORDS) if one.namespace == NAMESPACE}
    problems = [f"{name} is missing" for name in wanted.keys() - found.keys()]
    problems += [f"{name} should be gone: {_told(found[name])}" for name in found.keys() - wanted.keys()]
    for name in wanted.keys() & found.keys():
        if not _ready(found[name]):
            problems.append(f"{name}: {_told(found[name])}")
    return problems


def _ready(object: dict[str, Any]) -> bool:
    status, metadata = object.get("status", {}), object["metadata"]
    return (
        status.get("lastOperation", {}).get("state") == "Succeeded"
        and status.get("observedGeneration") == metadata["generation"]
        and "lastError" not in status
        and "gardener.cloud/operation" not in metadata.get("annotations", {})
    )


def _told(object: dict[str, Any]) -> str:
    metadata, status = object["metadata"], object.get("status", {})
    return (
        f"generation {metadata['generation']}, observed {status.get('observedGeneration')}, "
        f"{status.get('lastOperation')}, finalizers {metadata.get('finalizers')}, "
        f"annotations {metadata.get('annotations')}"
    )


def resolved(server: str) -> dict[str, str]:
    """Name and address of every A record below chaos."""
    host, _, port = server.rpartition(":")
    answer = subprocess.run(
        ["dig", "+noall", "+answer", "+onesoa", f"@{host}", "-p", port, ZONE, "AXFR"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    rows = [line.split() for line in answer.splitlines() if line and not line.startswith(";")]
    return {row[0].rstrip("."): row[4] for row in rows if row[3] == "A" and ".chaos." in row[0]}
