"""Accounts in the end: every name, namespace and address that there is, beside what is wanted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass

import dns.name
import dns.query
import dns.rdatatype
import dns.zone

from commands.demo.stage import succeeded
from tests.chaos import load
from tests.chaos.ending import is_complete
from tests.chaos.hasty import Hasty
from tests.chaos.services import NAMESPACE
from tests.chaos.shoots import Shoots
from windowbox.clients.kubernetes.kube import Kube
from windowbox.models.extensions import OPERATION
from windowbox.models.objects import Object
from windowbox.models.refs import (
    DNSRECORDS,
    INFRASTRUCTURES,
    IP_POOLS,
    NAMESPACES,
    NETWORK_POLICIES,
    SERVICES,
    Resource,
)
from workers.loadbalancer.service import servicestatus

Zone = Mapping[tuple[str, str], frozenset[str]]
"""The values of each name and type."""


@dataclass
class Accounts:
    kube: Kube
    hasty: Hasty
    shoots: Shoots
    server: str
    zone: Zone
    """What the zone held before."""
    namespaces: frozenset[str]
    """Those that there were before."""

    async def records(self) -> list[str]:
        """Each DNSRecord of a hasty client is as its owner wants it."""
        return await load.unsettled(self.kube, self.hasty.records.wanted)

    async def names(self) -> list[str]:
        """The zone has the names of all DNSRecords, each with its owner's mark, and no others."""
        wanted = dict(self.zone)
        there = dict(await asyncio.to_thread(transferred, self.server))
        async for record in found(self.kube, DNSRECORDS):
            name, kind = record.spec["name"], record.spec["recordType"]
            wanted[name, kind] = frozenset(record.spec["values"])
            mark = f"_windowbox-{kind.lower()}.{name}", "TXT"
            if any("owner=" in text for text in there.get(mark, ())):
                wanted[mark] = there[mark]
            else:
                wanted[mark] = frozenset({"a mark of the owner"})
        return [
            f"{key} leads to {sorted(there.get(key, ()))}, not {sorted(wanted.get(key, ()))}"
            for key in sorted(wanted.keys() | there.keys())
            if there.get(key) != wanted.get(key)
        ]

    async def balancers(self) -> list[str]:
        """Each Service of a hasty client shows an address, and its ports; no address is shown twice."""
        wanted, there, given = self.hasty.balancers.wanted, dict[str, Object](), dict[str, str]()
        problems = []
        async for one in found(self.kube, SERVICES):
            if one.namespace == NAMESPACE:
                there[one.name] = one
            for address in servicestatus.addresses(one):
                if other := given.get(address):
                    problems.append(f"{address} is shown by {other} and {one.name}")
                given[address] = one.name
        problems += [f"Service {name} is there: {name in there}" for name in wanted.keys() ^ there.keys()]
        return problems + [
            f"Service {name}, port {wanted[name]}: {one.spec['ports']}, {one.status}"
            for name, one in there.items()
            if name in wanted and not (_ports(one) == [wanted[name]] and is_complete(one))
        ]

    async def infrastructures(self) -> list[str]:
        """Each Infrastructure of a hasty client has succeeded, and those deleted are gone."""
        wanted, there = self.hasty.infrastructures.wanted, dict[str, Object]()
        async for one in found(self.kube, INFRASTRUCTURES):
            if one.namespace in self.hasty.shoots:
                there[one.namespace] = one
        problems = [f"Infrastructure of {name} is there: {name in there}" for name in wanted ^ there.keys()]
        return problems + [
            f"Infrastructure of {name}: {one.last_operation}, {one.annotations}, deleting {one.deleting}"
            for name, one in there.items()
            if name in wanted and (not succeeded(one) or OPERATION in one.annotations or one.deleting)
        ]

    async def places(self) -> list[str]:
        """There are the namespaces that are wanted, with their pools and policies, and no others."""
        homes = {f"infra-{name}" for name in (*self.hasty.infrastructures.wanted, *self.shoots.living)}
        shoots = {*self.hasty.shoots, *self.shoots.living, *self.shoots.dead}
        there = {one.name async for one in found(self.kube, NAMESPACES)}
        fenced = {one.namespace async for one in found(self.kube, NETWORK_POLICIES)}
        pools = {one.name async for one in found(self.kube, IP_POOLS)}
        wanted = {f"shoot-machine-pods-{home.removeprefix('infra-')}-ipv4" for home in homes}
        return [
            *_differences("Namespace", homes | shoots | {NAMESPACE} | self.namespaces, there),
            *_differences("Namespace with policies", homes, fenced),
            *_differences("IPPool", wanted, pools),
        ]


def _ports(service: Object) -> list[int]:
    return [port["port"] for port in service.spec["ports"]]


def _differences(what: str, wanted: set[str] | frozenset[str], there: set[str]) -> Iterator[str]:
    yield from (f"{what} {name} is missing" for name in wanted - there)
    yield from (f"{what} {name} is left" for name in there - wanted)


async def found(kube: Kube, resource: Resource) -> AsyncIterator[Object]:
    """All objects of a kind."""
    async for one in kube.objects(resource._replace(selector="")):
        yield one


def transferred(server: str) -> Zone:
    """Everything that the zone holds, but for what it says of itself."""
    host, _, port = server.rpartition(":")
    zone, origin = dns.zone.Zone(load.ZONE), dns.name.from_text(load.ZONE)
    dns.query.inbound_xfr(host, zone, port=int(port), timeout=60)
    return {
        (str(name.derelativize(origin)).rstrip("."), dns.rdatatype.to_text(records.rdtype)): frozenset(
            record.to_text() for record in records
        )
        for name, records in zone.iterate_rdatasets()
        if records.rdtype != dns.rdatatype.SOA
    }
