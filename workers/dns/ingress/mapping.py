"""Mapping: from a changed Ingress, DNSRecord or Namespace to the keys of the Ingresses to reconcile."""

from __future__ import annotations

from typing import Any

from bus import subjects
from bus.messages import Announcement
from bus.workqueue.routing import PreviousVersion
from windowbox.models.extensions import ROLE
from windowbox.models.objects import Object
from windowbox.models.refs import DNSRECORDS, INGRESSES, NAMESPACES, ObjectRef
from workers.core.owned import predicates
from workers.dns.ingress import wanted
from workers.dns.ingress.views import IngressViews, made_for


class IngressMapping:
    """Their own changes, those of their records, and that a namespace becomes a Shoot's."""

    kinds: tuple[str, ...] = (INGRESSES.id, NAMESPACES.id, DNSRECORDS.id)
    owned: tuple[str, ...] = (DNSRECORDS.id,)

    def __init__(self, views: IngressViews) -> None:
        self._views = views

    def ignores(self, change: Announcement) -> bool:
        """Whether it is a record that has nothing to do with any Ingress, as most records."""
        ref = subjects.ref(subjects.without("object", change.stored.subject))
        if ref.kind != DNSRECORDS.id or change.gone or change.omitted:
            return False
        return not wanted.ingress_name(ref.name) and not made_for(ref, change.object())

    async def keys_for(self, change: Announcement, before: PreviousVersion) -> list[str]:
        ref = subjects.ref(subjects.without("object", change.stored.subject))
        match ref.kind:
            case INGRESSES.id:
                return [subjects.key(ref)] if await _changed(change, before) else []
            case NAMESPACES.id:
                return await self._within(ref, change, before)
            case _:
                return await _of_record(ref, change, before)

    def unfinished(self, object: Object) -> bool:
        return False  # an Ingress does not show what is owed to it

    async def _within(self, namespace: ObjectRef, change: Announcement, before: PreviousVersion) -> list[str]:
        if change.gone or not is_shoot(change.object()):
            return []
        old = await before.object()
        if change.operation == "MODIFIED" and old is not None and is_shoot(old):
            return []
        await self._views.complete()
        return [subjects.key(ref) for ref in self._views.in_namespace(namespace.cluster, namespace.name)]


def is_shoot(namespace: Object) -> bool:
    return bool(namespace.labels.get(ROLE) == "shoot")


def essence(ingress: Object) -> Any:
    """What of an Ingress its records depend on."""
    return ingress.uid, ingress.deleting, wanted.hosts(ingress), wanted.targets(ingress)


async def _changed(change: Announcement, before: PreviousVersion) -> bool:
    if change.gone or change.omitted:
        return True
    new, old = change.object(), await before.object()
    if old is None or change.operation != "MODIFIED":
        # Without a host it has no records, unless it had one before that nobody has seen.
        return change.operation != "ADDED" or bool(wanted.hosts(new))
    return bool(essence(old) != essence(new))


async def _of_record(ref: ObjectRef, change: Announcement, before: PreviousVersion) -> list[str]:
    """The Ingress of a record; also of one that only bears the name of its record, and is in the way."""
    name = wanted.ingress_name(ref.name)
    new = None if change.gone or change.omitted else change.object()
    if not name and new and not made_for(ref, new):
        return []  # the version before would cost a question
    versions = [await before.object(), new]
    ingresses = {owner for version in versions if version and (owner := made_for(ref, version))}
    if change.operation == "ADDED":
        # It may have been made for a rule that was gone before anybody saw it.
        return sorted(map(subjects.key, ingresses))
    if name:
        ingresses.add(ObjectRef(ref.cluster, INGRESSES.id, ref.namespace, name))
    if not ingresses or not await _triggers(change, before):
        return []
    return sorted(map(subjects.key, ingresses))


async def _triggers(change: Announcement, before: PreviousVersion) -> bool:
    if await predicates.triggers(DNSRECORDS.id, change, before):
        return True
    old, new = await before.object(), change.object()
    return old is not None and _confirmed(old) != _confirmed(new)


def _confirmed(record: Object) -> Any:
    return record.annotations.get(wanted.CONFIRMATION)
