"""Ingresses and their records, as the bus tells of them."""

from __future__ import annotations

from typing import NamedTuple

from bus.connection import Bus
from bus.views import View
from windowbox.models.objects import Object
from windowbox.models.refs import DNSRECORDS, INGRESSES, ObjectRef
from workers.ingress import plans, wanted
from workers.serving import Tasks


class _Home(NamedTuple):
    cluster: str
    namespace: str


class Sight:
    """Which Ingresses there are in a namespace, and which records have been made for which Ingress."""

    def __init__(self, bus: Bus) -> None:
        self._ingresses: View[_Home] = View(
            bus, INGRESSES.id, lambda ref, _: _Home(ref.cluster, ref.namespace), index=lambda home: home
        )
        self._records: View[ObjectRef] = View(bus, DNSRECORDS.id, made_for, index=lambda ingress: ingress)

    @property
    def tasks(self) -> Tasks:
        return {"ingresses": self._ingresses.run, "records": self._records.run}

    async def complete(self) -> None:
        """Wait until everything that was there at the start has been seen."""
        await self._ingresses.complete.wait()
        await self._records.complete.wait()

    def in_namespace(self, cluster: str, namespace: str) -> list[ObjectRef]:
        return self._ingresses.refs(_Home(cluster, namespace))

    def records(self, ingress: ObjectRef) -> list[ObjectRef]:
        return sorted(self._records.refs(ingress))


def made_for(ref: ObjectRef, record: Object) -> ObjectRef | None:
    """The Ingress that a record was made for."""
    owner = plans.controller(record)
    if owner is None or owner.get("kind") != "Ingress":
        return None
    if any(record.labels.get(name) != value for name, value in wanted.LABELS.items()):
        return None
    return ObjectRef(ref.cluster, INGRESSES.id, ref.namespace, str(owner.get("name", "")))
