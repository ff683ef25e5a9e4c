"""Somebody who looks on all the time: at every version of every Service, and at every page of the book."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from bus import streams, subjects
from bus.transport.buckets import Bucket
from bus.transport.connection import Bus
from tests.chaos.services import NAMESPACE, Place
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import TransientError, WatchExpired
from windowbox.models.objects import Object
from windowbox.models.refs import SERVICES
from workers.loadbalancer.ipam import entries
from workers.loadbalancer.service import servicestatus


@dataclass(frozen=True)
class Shown:
    """What the status of a Service promises its clients."""

    name: str
    uid: str
    address: str
    ports: frozenset[Place]


@dataclass
class Witness:
    """Has in `problems` what should never be, not even for a moment. Both `run`s must be running."""

    kube: Kube
    problems: list[str] = field(default_factory=list)
    shown: dict[str, Shown] = field(default_factory=dict)
    """By uid: all Services that there are and that show an address."""
    since: dict[tuple[str, Place], float] = field(default_factory=dict)
    """Since when a port was promised, by uid and port."""
    _first: dict[str, str] = field(default_factory=dict)
    _book: dict[str, set[str]] = field(default_factory=dict)

    async def run(self) -> None:
        """Look at every Service, for ever."""
        while True:
            try:
                page = await self.kube.page(SERVICES)
                assert not page.more
                self._see_all(map(Object, page.items))
                async for events in self.kube.watch(SERVICES, page.resource_version):
                    for event in events:
                        self._happened(event.type, Object(event.object))
            except (TransientError, WatchExpired):
                await asyncio.sleep(0.1)  # the API server is away

    async def run_book(self, bus: Bus) -> None:
        """Read the address book, for ever."""
        bucket = Bucket(bus, streams.ADDRESSES)
        bucket.on_change(self._written)
        await bucket.run()

    def _see_all(self, found: Iterable[Object]) -> None:
        self.shown.clear()
        for service in found:
            self._see(service)

    def _happened(self, what: str, service: Object) -> None:
        if what == "DELETED":
            self.shown.pop(service.uid, None)
        elif what != "BOOKMARK":
            self._see(service)

    def _see(self, service: Object) -> None:
        if service.namespace != NAMESPACE:
            return
        addresses = servicestatus.addresses(service)
        first = self._first.setdefault(service.uid, addresses[0]) if addresses else None
        if service.uid in self._first and not service.deleting and addresses != (self._first[service.uid],):
            self._complain(f"{service.name} had {self._first[service.uid]}, and now {addresses}")
        if first is None:
            return
        self.shown[service.uid] = shown = Shown(service.name, service.uid, first, _ports(service))
        for place in shown.ports:
            self.since.setdefault((shown.uid, place), time.monotonic())
        for other in self.shown.values():
            if other.uid != shown.uid and other.address == first:
                self._complain(
                    f"{first} is shown by {other.name} ({other.uid}) and {shown.name} ({shown.uid})"
                )

    def _written(self, key: str, value: bytes | None) -> None:
        address = subjects.address(key)
        if address is None:
            return
        self._book[address] = {holder.uid for holder in entries.read(value).holders}
        if len(self._book[address]) > 1:
            self._complain(f"{address} is given to {sorted(self._book[address])}")

    def _complain(self, what: str) -> None:
        if what not in self.problems:
            self.problems.append(what)


def _ports(service: Object) -> frozenset[Place]:
    listed = service.status["loadBalancer"]["ingress"][0].get("ports", [])
    return frozenset((port["port"], port["protocol"]) for port in listed if "error" not in port)
