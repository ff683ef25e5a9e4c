"""What has to be true of Shoots when all has been quiet for a while."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from commands.demo.stage import succeeded
from tests.chaos.shoots import ASKED, INGRESS, NAME, SCRIPT, Shoots, Wanted
from windowbox.clients.kubernetes.kube import Kube
from windowbox.models.extensions import OPERATION
from windowbox.models.objects import Object
from windowbox.models.refs import (
    BASTIONS,
    CLUSTERS,
    DNSRECORDS,
    INFRASTRUCTURES,
    INGRESSES,
    IP_POOLS,
    NAMESPACES,
    NETWORK_POLICIES,
    OPERATING_SYSTEM_CONFIGS,
    PODS,
    SECRETS,
    SERVICES,
)

_READ = (
    BASTIONS, CLUSTERS, DNSRECORDS, INFRASTRUCTURES, INGRESSES, IP_POOLS, NAMESPACES, NETWORK_POLICIES,
    OPERATING_SYSTEM_CONFIGS, PODS, SECRETS, SERVICES,
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


@dataclass
class Ending:
    """What Shoots want, beside what there is."""

    kube: Kube
    shoots: Shoots

    async def converged(self) -> list[str]:
        """Every Shoot that lives has all of its parts, once; of those that are gone, nothing is left."""
        sight = await Sight.of(self.kube)
        problems = [p for name, wanted in self.shoots.living.items() for p in _living(sight, name, wanted)]
        return problems + [problem for name in self.shoots.dead for problem in _dead(sight, name)]


def _living(sight: Sight, name: str, wanted: Wanted) -> Iterator[str]:
    home = f"infra-{name}"
    for resource, named in ASKED:
        object = sight.within(resource.kind, name).get(named)
        if object is None:
            yield f"{name}: {resource.kind} {named} is missing"
        elif resource != INGRESSES and (not succeeded(object) or OPERATION in object.annotations):
            yield f"{name}: {resource.kind} {named}: {object.last_operation}, {object.annotations}"
    yield from _exactly(sight, NETWORK_POLICIES.kind, home, _POLICIES)
    for kind in (PODS.kind, SERVICES.kind, SECRETS.kind):
        yield from _exactly(sight, kind, home, {_BASTION})
    yield from _pools(sight, name)
    yield from _content(sight, name, wanted)
    hosts = sorted(str(record.spec["name"]) for record in sight.within(DNSRECORDS.kind, name).values())
    if hosts != sorted(wanted.hosts):
        yield f"{name}: {INGRESS} has records {hosts}, not {wanted.hosts}"
    yield from (
        f"{name}: DNSRecord {record.name}: {record.last_operation}"
        for record in sight.within(DNSRECORDS.kind, name).values()
        if not succeeded(record)
    )


def _exactly(sight: Sight, kind: str, namespace: str, names: set[str]) -> Iterator[str]:
    found = {named for named, one in sight.within(kind, namespace).items() if not one.deleting}
    if found != names:
        yield f"{namespace}: of kind {kind} there are {sorted(found)}, not {sorted(names)}"


def _pools(sight: Sight, name: str) -> Iterator[str]:
    homes = {one.name: one.uid for one in sight.objects[NAMESPACES.kind]}
    pools = [one for one in sight.objects[IP_POOLS.kind] if name in one.name]
    owners = [owner["uid"] for pool in pools for owner in pool.metadata.get("ownerReferences", ())]
    if owners != [homes.get(f"infra-{name}")]:
        yield f"{name}: pools {[pool.name for pool in pools]} are owned by {owners}"


def _content(sight: Sight, name: str, wanted: Wanted) -> Iterator[str]:
    """What was asked for last is what there is."""
    service = sight.within(SERVICES.kind, f"infra-{name}").get(_BASTION)
    ranges = service.spec.get("loadBalancerSourceRanges") if service else None
    if ranges != list(wanted.allowed):
        yield f"{name}: the Bastion lets in {ranges}, not {wanted.allowed}"
    bastion = sight.within(BASTIONS.kind, name).get(NAME)
    shown = (bastion.status.get("ingress") or {}).get("ip") if bastion else None
    if service and shown != _address(service):
        yield f"{name}: the Bastion shows {shown}, its Service {_address(service)}"
    secret = sight.within(SECRETS.kind, name).get(_RESULT)
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
            kept = one.namespace == name and one.name == "cloudprovider" and kind == SECRETS.kind
            if one.namespace in (name, home) and not kept:
                yield f"{name}: {kind} {one.name} is left"
            elif not one.namespace and one.name != name and name in one.name:
                yield f"{name}: {kind} {one.name} is left: {one.metadata.get('deletionTimestamp')}"
