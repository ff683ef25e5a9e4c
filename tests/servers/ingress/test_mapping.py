"""Which changes make an Ingress be looked at."""

from __future__ import annotations

from typing import Any

import orjson

from bus import streams, subjects
from bus.messages import OPERATION, PREDECESSOR, UID, VERSION, Announcement
from bus.transport.connection import Bus
from bus.workqueue.routing import PreviousVersion
from tests.support.cases import cases
from tests.support.rules import rule
from tests.support.running import running, soon
from windowbox.models.refs import DNSRECORDS, INGRESSES, NAMESPACES, RUNTIME, ObjectRef
from workers.dns.ingress import ingressrecords
from workers.dns.ingress.ingressmapping import IngressMapping, IngressViews

SPACE = "shoot--t--one"
WEB = ObjectRef(RUNTIME, INGRESSES.id, SPACE, "web")
RECORD = ObjectRef(RUNTIME, DNSRECORDS.id, SPACE, "web-a39b281d")
ODD = RECORD._replace(name="cut-short")

Raw = dict[str, Any]


def ingress(host: str = "a.test", ip: str = "10.0.0.1", **metadata: Any) -> Raw:
    return {
        "metadata": {"name": "web", "namespace": SPACE, "uid": "u1", **metadata},
        "spec": {"rules": [{"host": host}] if host else []},
        "status": {"loadBalancer": {"ingress": [{"ip": ip}]}},
    }


def record(*, ours: bool = True, value: str = "10.0.0.1", **more: Any) -> Raw:
    owner = {"kind": "Ingress", "name": "web", "uid": "u1", "controller": True}
    metadata = {"labels": ingressrecords.LABELS, "ownerReferences": [owner]} if ours else {}
    confirmed = {"annotations": {ingressrecords.CONFIRMATION: "true"}}
    return {"metadata": {"uid": "r1", **confirmed, **metadata}, "spec": {"values": [value]}, **more}


def namespace(role: str = "") -> Raw:
    return {"metadata": {"name": SPACE, "uid": "n1", "labels": {"gardener.cloud/role": role}}}


async def reported(
    bus: Bus, ref: ObjectRef, operation: str, raw: Raw | None, before: Raw | None = None
) -> list[str]:
    """The names of what is concerned, if the object changes like this."""
    predecessor = await said(bus, ref, "ADDED", before, 0) if before else 0
    await said(bus, ref, operation, raw, predecessor)
    stored = await bus.last(streams.OBJECTS, subjects.seen(ref))
    assert stored
    change, sight = Announcement(stored), IngressViews(bus)
    async with running(*(task() for task in sight.tasks.values())):
        await soon(sight.complete())
        mapping = IngressMapping(sight)
        keys = await mapping.keys_for(change, PreviousVersion(bus, change))
        assert not (keys and mapping.ignores(change))
    return [subjects.ref(key).name for key in keys]


async def said(bus: Bus, ref: ObjectRef, operation: str, raw: Raw | None, predecessor: int) -> int:
    headers = {OPERATION: operation, UID: "u", VERSION: "1", PREDECESSOR: str(predecessor)}
    body = orjson.dumps(raw) if raw else b""
    return await bus.publish(subjects.seen(ref), body, headers) or 0


@cases(
    "operation before now names",
    ("new", "ADDED", None, ingress(), ["web"]),
    ("new-without-hosts", "ADDED", None, ingress(""), []),
    ("found-after-a-gap", "LISTED", None, ingress(""), ["web"]),
    ("IG-3-another-host", "MODIFIED", ingress(), ingress("b.test"), ["web"]),
    ("another-address", "MODIFIED", ingress(), ingress(ip="10.0.0.2"), ["web"]),
    ("another-of-its-name", "MODIFIED", ingress(), ingress(uid="u2"), ["web"]),
    ("on-its-way-out", "MODIFIED", ingress(), ingress(deletionTimestamp="now"), ["web"]),
    ("nothing-that-matters", "MODIFIED", ingress(), ingress(labels={"a": "b"}), []),
    ("gone", "DELETED", ingress(), None, ["web"]),
)
async def test_changes_of_ingresses(
    bus: Bus, operation: str, before: Raw | None, now: Raw | None, names: list[str]
) -> None:
    assert await reported(bus, WEB, operation, now, before) == names


@cases(
    "operation before now names",
    ("made-for-a-rule-that-may-be-gone", "ADDED", None, record(), ["web"]),
    ("somebody-elses", "ADDED", None, record(ours=False), []),
    ("edited", "MODIFIED", record(), record(value="6.6.6.6"), ["web"]),
    ("labels-and-owner-taken-off", "MODIFIED", record(), record(ours=False), ["web"]),
    ("acted-upon", "MODIFIED", record(), record(status={"zone": "z"}), []),
    ("deleted", "DELETED", record(), None, ["web"]),
    ("no-longer-in-the-way", "DELETED", record(ours=False), None, ["web"]),
)
async def test_changes_of_records(
    bus: Bus, operation: str, before: Raw | None, now: Raw | None, names: list[str]
) -> None:
    assert await reported(bus, RECORD, operation, now, before) == names


@rule("A-1")
async def test_a_confirmation_that_is_taken_off_is_noticed(bus: Bus) -> None:
    bare = record()
    bare["metadata"]["annotations"] = {}
    assert await reported(bus, RECORD, "MODIFIED", bare, record()) == ["web"]


async def test_a_record_with_a_shortened_name_is_known_by_its_owner(bus: Bus) -> None:
    assert await reported(bus, ODD, "DELETED", None, record()) == ["web"]
    assert await reported(bus, ODD, "DELETED", None, record(ours=False)) == []


@cases(
    "operation before now names",
    ("IG-1-becomes-a-shoots", "MODIFIED", namespace(), namespace("shoot"), ["web"]),
    ("still-a-shoots", "MODIFIED", namespace("shoot"), namespace("shoot"), []),
    ("IG-1-no-longer-a-shoots", "MODIFIED", namespace("shoot"), namespace(), []),
    ("found-after-a-gap", "LISTED", None, namespace("shoot"), ["web"]),
    ("gone", "DELETED", namespace("shoot"), None, []),
)
async def test_changes_of_namespaces(
    bus: Bus, operation: str, before: Raw | None, now: Raw | None, names: list[str]
) -> None:
    await said(bus, WEB, "ADDED", ingress(), 0)
    home = ObjectRef(RUNTIME, NAMESPACES.id, "", SPACE)
    assert await reported(bus, home, operation, now, before) == names
