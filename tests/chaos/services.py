"""Services that come, change and go, what each of them ought to be, and a witness of all that they show."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from bus import streams, subjects
from bus.transport.buckets import Bucket
from bus.transport.connection import Bus
from tests.chaos.load import NAMESPACE, create, insist, namespace
from windowbox.clients.kubernetes.kube import Kube
from windowbox.errors import Conflict, Missing, TransientError, WatchExpired
from windowbox.models.objects import Object
from windowbox.models.refs import ENDPOINT_SLICES, SERVICES
from workers.loadbalancer.ipam import entries
from workers.loadbalancer.service import servicestatus

NODES_WITH_PODS = ("simulated-1", "simulated-2")
_FIRST, _MOST = 80, 12
"""The first port of each Service, and how many different ones it has in its life."""
_NAMES = 53

Place = tuple[int, str]


@dataclass
class Wanted:
    """A Service as its owner wants it."""

    name: str
    uid: str
    ports: set[Place]
    last: int
    """No port is ever taken up again, so that nobody confuses it with what it was before."""
    given_up: dict[Place, float] = field(default_factory=dict)
    """Since when a port is no longer wanted."""

    def give_up(self, *places: Place) -> None:
        self.ports -= set(places)
        self.given_up |= dict.fromkeys(places, time.monotonic())


@dataclass
class Services:
    """An owner of Services that knows what it has asked for, and asks until the API has understood."""

    kube: Kube
    seed: int
    count: int
    living: dict[str, Wanted] = field(default_factory=dict)
    by_uid: dict[str, Wanted] = field(default_factory=dict)
    """Also those that are gone."""

    async def run(self, seconds: float, writers: int = 4) -> None:
        """Create all Services, then change and delete some of them, spread over so many seconds."""
        await insist(lambda: namespace(self.kube))
        names = [f"web-{n:03d}" for n in range(self.count)]
        shares = [names[n::writers] for n in range(writers)]
        async with asyncio.TaskGroup() as group:
            for number, share in enumerate(shares):
                group.create_task(self._write(share, random.Random(self.seed + number), seconds))

    async def _write(self, names: list[str], chance: random.Random, seconds: float) -> None:
        changes = [(name, self._change(chance)) for name in names for _ in range(3)]
        changes += [(name, self._replace) for name in names if chance.random() < 0.2]
        chance.shuffle(changes)
        steps = [(name, self._create) for name in names] + changes
        steps += [(name, self._delete) for name in names if chance.random() < 0.3]
        pause = seconds / len(steps)
        for name, step in steps:
            await step(name)
            await asyncio.sleep(pause * chance.random() * 2)  # the pace of the load

    def _change(self, chance: random.Random) -> Callable[[str], Awaitable[None]]:
        return chance.choice([self._add_port, self._drop_port, self._flip_affinity, self._allow])

    async def _create(self, name: str) -> None:
        number = int(name.rpartition("-")[2])
        made = await create(self.kube, SERVICES, service(name, number))
        await create(self.kube, ENDPOINT_SLICES, endpoints(made))
        places = {(port["port"], port["protocol"]) for port in made.spec["ports"]}
        wanted = Wanted(name, made.uid, places, _FIRST)
        self.living[name] = self.by_uid[made.uid] = wanted

    async def _add_port(self, name: str) -> None:
        wanted = self.living[name]
        if wanted.last + 1 >= _FIRST + _MOST:
            return
        wanted.last += 1
        place = (wanted.last, "TCP")
        await self._patch(name, {"ports": [_port(*place)]})
        wanted.ports.add(place)

    async def _drop_port(self, name: str) -> None:
        wanted = self.living[name]
        numbers = sorted(place for place in wanted.ports if place[1] == "TCP")
        if len(numbers) > 1:
            wanted.give_up(numbers[0])
            await self._patch(name, {"ports": [{"$patch": "delete", "port": numbers[0][0]}]})

    async def _flip_affinity(self, name: str) -> None:
        found = await insist(lambda: self.kube.get(SERVICES, NAMESPACE, name))
        other = {"None": "ClientIP", "ClientIP": "None"}[found.spec["sessionAffinity"]]
        await self._patch(name, {"sessionAffinity": other})

    async def _allow(self, name: str) -> None:
        """Let in those who are let in already, written differently."""
        found = await insist(lambda: self.kube.get(SERVICES, NAMESPACE, name))
        before = found.spec.get("loadBalancerSourceRanges") or []
        await self._patch(name, {"loadBalancerSourceRanges": [] if before else ["127.0.0.0/8", "10.0.0.0/8"]})

    async def _replace(self, name: str) -> None:
        """Another Service of the same name, with ports of its own."""
        uid = self.living[name].uid
        await self._delete(name)

        async def gone() -> None:
            try:
                if (await self.kube.get(SERVICES, NAMESPACE, name)).uid == uid:
                    raise Conflict(f"{name} is still there")
            except Missing:
                return

        await insist(gone)
        await self._create(name)

    async def _delete(self, name: str) -> None:
        wanted = self.living.pop(name)
        wanted.give_up(*wanted.ports)
        await insist(lambda: self.kube.delete(SERVICES, NAMESPACE, name))

    async def _patch(self, name: str, spec: dict[str, Any]) -> None:
        patch = {"spec": spec}
        await insist(lambda: self.kube.strategic_merge(SERVICES, NAMESPACE, name, patch))


def service(name: str, number: int) -> dict[str, Any]:
    """Every fourth answers questions over UDP, too; every third sends only to nodes with Pods."""
    places = [(_FIRST, "TCP")] + ([(_NAMES, "UDP")] if number % 4 == 0 else [])
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "type": "LoadBalancer",
            "ports": [_port(*place) for place in places],
            "externalTrafficPolicy": "Local" if number % 3 == 0 else "Cluster",
        },
    }


def endpoints(made: Object) -> dict[str, Any]:
    """Pods behind all ports that the Service will ever have. They go when it goes."""
    owner = {"apiVersion": "v1", "kind": "Service", "name": made.name, "uid": made.uid}
    places = [(_NAMES, "UDP"), *((_FIRST + n, "TCP") for n in range(_MOST))]
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"{made.name}-{made.uid[:8]}",
            "namespace": NAMESPACE,
            "labels": {"kubernetes.io/service-name": made.name},
            "ownerReferences": [owner],
        },
        "addressType": "IPv4",
        "ports": [{"name": _name(*place), "port": place[0], "protocol": place[1]} for place in places],
        "endpoints": [
            {"addresses": [f"10.64.0.{n}"], "nodeName": node, "conditions": {"ready": True}}
            for n, node in enumerate(NODES_WITH_PODS, 1)
        ],
    }


def _port(number: int, protocol: str) -> dict[str, Any]:
    return {"name": _name(number, protocol), "port": number, "protocol": protocol}


def _name(number: int, protocol: str) -> str:
    return f"{protocol.lower()}-{number}"


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
