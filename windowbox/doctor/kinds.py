"""Which kinds are served, by whom, and which objects wait for somebody who never comes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

from bus import presence
from bus.connection import connected
from windowbox import rbac
from windowbox.clients import kube
from windowbox.clients.kube import Kube
from windowbox.doctor.findings import Finding
from windowbox.errors import Missing, WindowboxError
from windowbox.models.objects import Object
from windowbox.models.refs import Resource
from windowbox.settings import ClusterSettings, NatsSettings, Settings

_PATIENCE = 15
_NAMED = 5
"""Objects that are told by name; the others are counted."""

SERVED = {
    "backupbucket": "BackupBucket of type local",
    "backupentry": "BackupEntry of type local",
    "bastion": "Bastion of type local",
    "dnsrecord": "DNSRecord of type local",
    "exposure": "SelfHostedShootExposure of type local",
    "heartbeat": "the Lease gardener-extension-heartbeat",
    "infrastructure": "Infrastructure of type local",
    "ingress": "Ingress in namespaces of Shoots",
    "loadbalancer": "Service of type LoadBalancer",
    "local-ext-seed": "Extension of type local-ext-seed",
    "local-ext-shoot": "Extension of type local-ext-shoot",
    "local-ext-shoot-after-worker": "Extension of type local-ext-shoot-after-worker",
    "operatingsystemconfig": "OperatingSystemConfig of type local",
}
"""What each pool is there for."""

_ON_REQUEST = {
    "backupbucket": "set backup.root for the workers of one host",
    "backupentry": "set backup.root for the workers of one host",
    "heartbeat": "set heartbeat.namespace to the namespace of the ControllerInstallation",
    "loadbalancer": "set loadbalancer.ranges",
}
"""How to have the pools served that are served only where settings say so."""


def _extension(plural: str, kind: str) -> Resource:
    return Resource("extensions.gardener.cloud", "v1alpha1", plural, kind)


UNSERVED = {
    _extension("networks", "Network"): (
        "give the Shoot a networking type that an extension is there for, such as calico or cilium"
    ),
    _extension("containerruntimes", "ContainerRuntime"): (
        "take it out of the Shoot's workers, or name a type that an extension is there for"
    ),
    _extension("controlplanes", "ControlPlane"): "leave this kind to Gardener's own provider-local",
    _extension("workers", "Worker"): "leave this kind to Gardener's own provider-local",
}
"""The kinds of Gardener that windowbox does not serve, and what to do about objects of type local."""


def examine(settings: Settings) -> Iterator[Finding]:
    """Everything about kinds. Changes nothing."""
    if settings.nats.user in rbac.RULES:
        return  # a role may neither ask who is there, nor look at what is not its business
    yield from _pools(settings.nats)
    yield from _waiting(settings.cluster)


def _pools(settings: NatsSettings) -> Iterator[Finding]:
    try:
        serving = asyncio.run(_serving(settings))
    except WindowboxError:
        return  # that the bus is away has been told
    for pool, what in SERVED.items():
        yield pool_finding(pool, what, serving[pool])


def pool_finding(pool: str, what: str, processes: int) -> Finding:
    """How a pool stands that so many processes serve."""
    if processes:
        several = "1 process" if processes == 1 else f"{processes} processes"
        return Finding(f"pool {pool}", "ok", f"{what}: {several}")
    mend = f"windowbox work --pool {pool}"
    if pool in _ON_REQUEST:
        mend = f"if you want it, {_ON_REQUEST[pool]}, then: {mend}"
    return Finding(f"pool {pool}", "note", f"{what}: no process serves it", mend)


async def _serving(settings: NatsSettings) -> Counter[str]:
    async with connected(settings.access("windowbox doctor"), patience=5) as bus:
        found = await presence.processes(bus)
    return Counter(pool["pool"] for process in found for pool in process.get("pools", ()))


def _waiting(settings: ClusterSettings) -> Iterator[Finding]:
    try:
        yield from asyncio.run(_look(settings))
    except (WindowboxError, TimeoutError) as error:
        mend = "check the server in the kubeconfig"
        yield Finding("kinds that nobody serves", "note", f"cannot be looked at: {error}", mend)


async def _look(settings: ClusterSettings) -> list[Finding]:
    async with asyncio.timeout(_PATIENCE), kube.from_file(settings.kubeconfig, settings.context) as api:
        return [found for resource in UNSERVED if (found := await _of_kind(api, resource))]


async def _of_kind(api: Kube, resource: Resource) -> Finding | None:
    what = f"kind {resource.kind}"
    try:
        left = await _local(api, resource)
    except Missing:
        return None  # where there is no such kind, there are no such objects
    except WindowboxError as error:
        mend = "to know, give doctor settings with a kubeconfig that may list this kind"
        return Finding(what, "note", f"not served, and cannot be looked at: {error}", mend)
    if not left:
        return Finding(what, "ok", "not served, and there is none of type local")
    named = ", ".join(left[:_NAMED]) + (f" and {len(left) - _NAMED} more" if len(left) > _NAMED else "")
    return Finding(
        what, "note", f"nobody serves type local, so clients wait in vain for {named}", UNSERVED[resource]
    )


async def _local(api: Kube, resource: Resource) -> list[str]:
    """Namespace and name of all objects of type local."""
    names, more = [], ""
    while True:
        page = await api.page(resource, more=more)
        local = [one for one in map(Object, page.items) if one.spec.get("type") == "local"]
        names += [f"{one.namespace}/{one.name}" for one in local]
        if not (more := page.more):
            return sorted(names)
