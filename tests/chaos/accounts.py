"""Accounts in the end: every name, namespace, address and Shoot that there is, beside what is wanted."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import dns.name
import dns.query
import dns.rdatatype
import dns.zone

from commands.demo.stage import succeeded
from tests.chaos import load
from tests.chaos.edge_ending import is_complete
from tests.chaos.hasty import Hasty
from tests.chaos.shoots import ASKED, INGRESS, NAME, SCRIPT, Shoots, Wanted
from windowbox.clients.kubernetes.kube import Kube
from windowbox.models import refs
from windowbox.models.extensions import OPERATION
from windowbox.models.objects import Object
from windowbox.models.refs import Resource
from workers.loadbalancer.service import servicestatus

_READ = (
    refs.BASTIONS, refs.CLUSTERS, refs.DNSRECORDS, refs.INFRASTRUCTURES, refs.INGRESSES, refs.IP_POOLS,
    refs.NAMESPACES, refs.NETWORK_POLICIES, refs.OPERATING_SYSTEM_CONFIGS, refs.PODS, refs.SECRETS,
    refs.SERVICES,
)  # fmt: skip
_BASTION = f"bastion-{NAME}"
_POLICIES = {
    "provider-local-allow-machine-pods", "provider-local-deny-all", "allow-load-balancers", _BASTION,
}  # fmt: skip
_RESULT = f"osc-result-{SCRIPT}"


@dataclass
class Sight:
    """Everything that there is, by kind."""

    objects: dict[str, list[Object]] = field(default_factory=dict)

    @classmethod
    async def of(cls, kube: Kube) -> Sight:
        sight = cls()
        for resource in _READ:
            page = await kube.page(resource._replace(selector=""), limit=5000)
            sight.objects[resource.kind] = [Object(raw) for raw in page.items]
        return sight

    def within(self, kind: str, namespace: str) -> dict[str, Object]:
        return {one.name: one for one in self.objects[kind] if one.namespace == namespace}


def _living(sight: Sight, name: str, wanted: Wanted) -> Iterator[str]:
    home = f"infra-{name}"
    for resource, named in ASKED:
        object = sight.within(resource.kind, name).get(named)
        if object is None:
            yield f"{name}: {resource.kind} {named} is missing"
        elif resource != refs.INGRESSES and (not succeeded(object) or OPERATION in object.annotations):
            yield f"{name}: {resource.kind} {named}: {object.last_operation}, {object.annotations}"
    yield from _exactly(sight, refs.NETWORK_POLICIES.kind, home, _POLICIES)
    for kind in (refs.PODS.kind, refs.SERVICES.kind, refs.SECRETS.kind):
        yield from _exactly(sight, kind, home, {_BASTION})
    yield from _pools(sight, name)
    yield from _content(sight, name, wanted)
    hosts = sorted(str(record.spec["name"]) for record in sight.within(refs.DNSRECORDS.kind, name).values())
    if hosts != sorted(wanted.hosts):
        yield f"{name}: {INGRESS} has records {hosts}, not {wanted.hosts}"
    yield from (
        f"{name}: DNSRecord {record.name}: {record.last_operation}"
        for record in sight.within(refs.DNSRECORDS.kind, name).values()
        if not succeeded(record)
    )


def _exactly(sight: Sight, kind: str, namespace: str, names: set[str]) -> Iterator[str]:
    found = {named for named, one in sight.within(kind, namespace).items() if not one.deleting}
    if found != names:
        yield f"{namespace}: of kind {kind} there are {sorted(found)}, not {sorted(names)}"


def _pools(sight: Sight, name: str) -> Iterator[str]:
    homes = {one.name: one.uid for one in sight.objects[refs.NAMESPACES.kind]}
    pools = [one for one in sight.objects[refs.IP_POOLS.kind] if name in one.name]
    owners = [owner["uid"] for pool in pools for owner in pool.metadata.get("ownerReferences", ())]
    if owners != [homes.get(f"infra-{name}")]:
        yield f"{name}: pools {[pool.name for pool in pools]} are owned by {owners}"


def _content(sight: Sight, name: str, wanted: Wanted) -> Iterator[str]:
    """What was asked for last is what there is."""
    service = sight.within(refs.SERVICES.kind, f"infra-{name}").get(_BASTION)
    ranges = service.spec.get("loadBalancerSourceRanges") if service else None
    if ranges != list(wanted.allowed):
        yield f"{name}: the Bastion lets in {ranges}, not {wanted.allowed}"
    bastion = sight.within(refs.BASTIONS.kind, name).get(NAME)
    shown = (bastion.status.get("ingress") or {}).get("ip") if bastion else None
    if service and shown != _address(service):
        yield f"{name}: the Bastion shows {shown}, its Service {_address(service)}"
    secret = sight.within(refs.SECRETS.kind, name).get(_RESULT)
    script = base64.b64decode(secret.raw["data"]["cloud_config"]) if secret else b""
    if base64.b64encode(wanted.motd) not in script:
        yield f"{name}: the script of new machines is not the one that was asked for"


def _address(service: Object) -> Any:
    ingress = (service.status.get("loadBalancer") or {}).get("ingress") or [{}]
    return ingress[0].get("ip")


def _dead(sight: Sight, name: str) -> Iterator[str]:
    home = f"infra-{name}"
    for kind, objects in sight.objects.items():
        for one in objects:
            kept = one.namespace == name and one.name == "cloudprovider" and kind == refs.SECRETS.kind
            if one.namespace in (name, home) and not kept:
                yield f"{name}: {kind} {one.name} is left"
            elif not one.namespace and one.name != name and name in one.name:
                yield f"{name}: {kind} {one.name} is left: {one.metadata.get('deletionTimestamp')}"


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

    async def converged(self) -> list[str]:
        """Every Shoot that lives has all of its parts, once; of those that are gone, nothing is left."""
        sight = await Sight.of(self.kube)
        problems = [p for name, wanted in self.shoots.living.items() for p in _living(sight, name, wanted)]
        return problems + [problem for name in self.shoots.dead for problem in _dead(sight, name)]

    async def records(self) -> list[str]:
        """Each DNSRecord of a hasty client is as its owner wants it."""
        return await load.unsettled(self.kube, self.hasty.records.wanted)

    async def names(self) -> list[str]:
        """The zone has the names of all DNSRecords, each with its owner's mark, and no others."""
        wanted = dict(self.zone)
        there = dict(await asyncio.to_thread(transferred, self.server))
        async for record in found(self.kube, refs.DNSRECORDS):
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
        async for one in found(self.kube, refs.SERVICES):
            if one.namespace == load.NAMESPACE:
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
        async for one in found(self.kube, refs.INFRASTRUCTURES):
            if one.namespace in self.hasty.shoots:
                there[one.namespace] = one
        problems = [
            f"Infrastructure of {name} is there: {name in there}" for name in wanted.keys() ^ there.keys()
        ]
        return problems + [
            f"Infrastructure of {name}: {one.last_operation}, {one.annotations}, deleting {one.deleting}"
            for name, one in there.items()
            if name in wanted and (not succeeded(one) or OPERATION in one.annotations or one.deleting)
        ]

    async def places(self) -> list[str]:
        """There are the namespaces that are wanted, with their pools and policies, and no others."""
        homes = {f"infra-{name}" for name in (*self.hasty.infrastructures.wanted, *self.shoots.living)}
        shoots = {*self.hasty.shoots, *self.shoots.living, *self.shoots.dead}
        there = {one.name async for one in found(self.kube, refs.NAMESPACES)}
        fenced = {one.namespace async for one in found(self.kube, refs.NETWORK_POLICIES)}
        pools = {one.name async for one in found(self.kube, refs.IP_POOLS)}
        wanted = {f"shoot-machine-pods-{home.removeprefix('infra-')}-ipv4" for home in homes}
        return [
            *_differences("Namespace", homes | shoots | {load.NAMESPACE} | self.namespaces, there),
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
