"""Views (in memory, from the bus): Ingresses and their DNSRecords."""

from __future__ import annotations

from typing import Any

from bus import streams, subjects
from bus.messages import Announcement
from bus.transport import consumers
from bus.transport.connection import Bus
from bus.views import View
from bus.workqueue.routing import PreviousVersion
from windowbox.models.extensions import ROLE
from windowbox.models.objects import Object
from windowbox.models.refs import DNSRECORDS, INGRESSES, NAMESPACES, ObjectRef
from workers.core.owned import ownermapping
from workers.core.serving import Tasks
from workers.dns.ingress import ingressrecords


class IngressViews:
    """The Ingresses of a namespace, and the records of an Ingress."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._ingresses: View[tuple[str, str]] = View(
            bus, INGRESSES.id, lambda ref, _: (ref.cluster, ref.namespace), index=lambda home: home
        )

    @property
    def tasks(self) -> Tasks:
        return {"ingresses": self._ingresses.run}

    async def complete(self) -> None:
        """Wait until everything that was there at the start has been seen."""
        await self._ingresses.complete.wait()

    def in_namespace(self, cluster: str, namespace: str) -> list[ObjectRef]:
        return self._ingresses.refs((cluster, namespace))

    async def records(self, ingress: ObjectRef) -> list[ObjectRef]:
        """The records created for the Ingress, read from the bus: a view may lag behind the change that
        triggers this run, and no later change may come."""
        subject = subjects.seen_namespace(ingress.cluster, DNSRECORDS.id, ingress.namespace)
        found = [Announcement(one) async for one in consumers.snapshot(self._bus, streams.OBJECTS, [subject])]
        there = [one for one in found if not one.gone and not one.omitted]
        refs = {subjects.ref(subjects.without("object", one.stored.subject)): one for one in there}
        return sorted(ref for ref, one in refs.items() if made_for(ref, one.object()) == ingress)


def made_for(ref: ObjectRef, record: Object) -> ObjectRef | None:
    """The Ingress that a record was created for."""
    owner = ingressrecords.controller(record)
    if owner is None or owner.get("kind") != "Ingress":
        return None
    if any(record.labels.get(name) != value for name, value in ingressrecords.LABELS.items()):
        return None
    return ObjectRef(ref.cluster, INGRESSES.id, ref.namespace, str(owner.get("name", "")))


class IngressMapping:
    """Triggers: changes of an Ingress and of its records, and a namespace that becomes a Shoot's."""

    kinds: tuple[str, ...] = (INGRESSES.id, NAMESPACES.id, DNSRECORDS.id)
    owned: tuple[str, ...] = (DNSRECORDS.id,)

    def __init__(self, views: IngressViews) -> None:
        self._views = views

    def ignores(self, change: Announcement) -> bool:
        """Whether the change is one of a record that belongs to no Ingress, as most records."""
        ref = subjects.ref(subjects.without("object", change.stored.subject))
        if ref.kind != DNSRECORDS.id or change.gone or change.omitted:
            return False
        return not ingressrecords.ingress_name(ref.name) and not made_for(ref, change.object())

    async def keys_for(self, change: Announcement, before: PreviousVersion) -> list[str]:
        ref = subjects.ref(subjects.without("object", change.stored.subject))
        match ref.kind:
            case INGRESSES.id:
                return [subjects.key(ref)] if await _changed(change, before) else []
            case NAMESPACES.id:
                if change.gone or not is_shoot(change.object()):
                    return []
                old = await before.object()
                if change.operation == "MODIFIED" and old is not None and is_shoot(old):
                    return []
                await self._views.complete()
                return [subjects.key(one) for one in self._views.in_namespace(ref.cluster, ref.name)]
            case _:
                return await _of_record(ref, change, before)

    def unfinished(self, object: Object) -> bool:
        return False  # the status of an Ingress does not show whether its records exist


def is_shoot(namespace: Object) -> bool:
    return bool(namespace.labels.get(ROLE) == "shoot")


def essence(ingress: Object) -> Any:
    """The part of an Ingress that its records depend on."""
    return ingress.uid, ingress.deleting, ingressrecords.hosts(ingress), ingressrecords.targets(ingress)


async def _changed(change: Announcement, before: PreviousVersion) -> bool:
    if change.gone or change.omitted:
        return True
    new, old = change.object(), await before.object()
    if old is None or change.operation != "MODIFIED":
        # Without a host it has no records, unless it had a host before, in a version that was missed.
        return change.operation != "ADDED" or bool(ingressrecords.hosts(new))
    return bool(essence(old) != essence(new))


async def _of_record(ref: ObjectRef, change: Announcement, before: PreviousVersion) -> list[str]:
    """The Ingress of a record, also of one that only blocks the name of its record."""
    name = ingressrecords.ingress_name(ref.name)
    new = None if change.gone or change.omitted else change.object()
    if not name and new and not made_for(ref, new):
        return []  # reading the previous version would cost a request
    versions = [await before.object(), new]
    ingresses = {owner for version in versions if version and (owner := made_for(ref, version))}
    if change.operation == "ADDED":
        # It may have been created for a rule that was removed before any run saw it.
        return sorted(map(subjects.key, ingresses))
    if name:
        ingresses.add(ObjectRef(ref.cluster, INGRESSES.id, ref.namespace, name))
    if not ingresses:
        return []
    if not await ownermapping.triggers(DNSRECORDS.id, change, before):
        old = versions[0]
        confirmed = {str(one.annotations.get(ingressrecords.CONFIRMATION)) for one in (old, new) if one}
        if old is None or len(confirmed) < 2:
            return []
    return sorted(map(subjects.key, ingresses))
