"""Views (in memory, from the bus): Ingresses and their DNSRecords."""

from __future__ import annotations

from typing import NamedTuple

from bus import streams, subjects
from bus.messages import Announcement
from bus.transport import consumers
from bus.transport.connection import Bus
from bus.views import View
from windowbox.models.objects import Object
from windowbox.models.refs import DNSRECORDS, INGRESSES, ObjectRef
from workers.core.serving import Tasks
from workers.dns.ingress import plans, wanted


class _NamespaceKey(NamedTuple):
    cluster: str
    namespace: str


class IngressViews:
    """Which Ingresses there are in a namespace, and which records were made for which Ingress."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._ingresses: View[_NamespaceKey] = View(
            bus,
            INGRESSES.id,
            lambda ref, _: _NamespaceKey(ref.cluster, ref.namespace),
            index=lambda home: home,
        )

    @property
    def tasks(self) -> Tasks:
        return {"ingresses": self._ingresses.run}

    async def complete(self) -> None:
        """Wait until everything that was there at the start has been seen."""
        await self._ingresses.complete.wait()

    def in_namespace(self, cluster: str, namespace: str) -> list[ObjectRef]:
        return self._ingresses.refs(_NamespaceKey(cluster, namespace))

    async def records(self, ingress: ObjectRef) -> list[ObjectRef]:
        """As the bus knows them now: a view could be a moment behind the change that is acted upon, and
        there might never be another."""
        subject = subjects.seen_namespace(ingress.cluster, DNSRECORDS.id, ingress.namespace)
        found = [Announcement(one) async for one in consumers.snapshot(self._bus, streams.OBJECTS, [subject])]
        there = [one for one in found if not one.gone and not one.omitted]
        refs = {subjects.ref(subjects.without("object", one.stored.subject)): one for one in there}
        return sorted(ref for ref, one in refs.items() if made_for(ref, one.object()) == ingress)


def made_for(ref: ObjectRef, record: Object) -> ObjectRef | None:
    """The Ingress that a record was made for."""
    owner = plans.controller(record)
    if owner is None or owner.get("kind") != "Ingress":
        return None
    if any(record.labels.get(name) != value for name, value in wanted.LABELS.items()):
        return None
    return ObjectRef(ref.cluster, INGRESSES.id, ref.namespace, str(owner.get("name", "")))
