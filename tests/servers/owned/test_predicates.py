"""Which changes of what was made are worth another look at its owner."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import orjson

from bus import streams, subjects
from bus.messages import BODY, OPERATION, PREDECESSOR, UID, VERSION, Announcement
from bus.transport.connection import Bus
from bus.workqueue.routing import PreviousVersion
from tests.support.cases import cases
from windowbox.models.objects import merge
from windowbox.models.refs import (
    INFRASTRUCTURES,
    MACHINE_DEPLOYMENTS,
    NAMESPACES,
    NETWORK_POLICIES,
    PODS,
    RUNTIME,
    SERVICES,
    ObjectRef,
    Resource,
)
from workers.core.lifecycle.lifecyclemapping import LifeCycleMapping
from workers.core.lifecycle.runpredicates import Scope
from workers.core.owned import ownermapping
from workers.core.owned.ownermapping import OwnerMapping, Wrote
from workers.kinds.infrastructure.infrastructurepool import KIND

Json = dict[str, Any]

BASE: Json = {"metadata": {"name": "a", "namespace": "b", "uid": "1", "labels": {"l": "1"}}, "spec": {"x": 1}}


async def announced(
    bus: Bus,
    operation: str,
    object: Mapping[str, Any],
    kind: Resource = NETWORK_POLICIES,
    *,
    before: int = 0,
    headers: Mapping[str, str] | None = None,
) -> Announcement:
    """One version of an object, on the bus."""
    subject = subjects.seen(ObjectRef(RUNTIME, kind.id, "b" if kind.namespaced else "", "a"))
    head = {OPERATION: operation, UID: "1", VERSION: "1", PREDECESSOR: str(before), **(headers or {})}
    await bus.publish(subject, orjson.dumps(object), head)
    stored = await bus.last(streams.OBJECTS, subject)
    assert stored
    return Announcement(stored)


async def matter(bus: Bus, change: Json, kind: Resource = NETWORK_POLICIES, base: Json = BASE) -> bool:
    """Whether it matters that `base` has changed in this way."""
    first = await announced(bus, "ADDED", base, kind)
    second = await announced(bus, "MODIFIED", merge(base, change), kind, before=first.stored.sequence)
    return await ownermapping.triggers(kind.id, second, PreviousVersion(bus, second))


@cases(
    "change matters",
    ("spec", {"spec": {"x": 2}}, True),
    ("label-gone", {"metadata": {"labels": {"l": None}}}, True),
    ("label-changed", {"metadata": {"labels": {"l": "2"}}}, True),
    ("label-of-another", {"metadata": {"labels": {"m": "1"}}}, False),
    ("annotation-of-another", {"metadata": {"annotations": {"a": "1"}}}, False),
    ("owner-of-another", {"metadata": {"ownerReferences": [{"uid": "2"}]}}, False),
    ("field-added-to-a-kind-without-defaults", {"spec": {"y": 1}}, True),
    ("deletion", {"metadata": {"deletionTimestamp": "2026-09-01T10:15:30Z"}}, True),
    ("another-object-of-this-name", {"metadata": {"uid": "2"}}, True),
    ("version-alone", {"metadata": {"resourceVersion": "2", "generation": 2}}, False),
    ("finalizer-of-another", {"metadata": {"finalizers": ["a"]}}, False),
    ("status-of-no-interest", {"status": {"conditions": []}}, False),
)
async def test_which_changes_of_an_object_matter(bus: Bus, change: Json, matters: bool) -> None:
    assert await matter(bus, change) is matters


@cases(
    "kind change matters",
    ("scheduled", PODS, {"spec": {"nodeName": "n"}}, False),
    ("default", SERVICES, {"spec": {"clusterIP": "10.0.0.1"}}, False),
    ("a-label-more-selects-nothing", SERVICES, {"spec": {"selector": {"s": "1", "t": "1"}}}, True),
    ("field-gone", SERVICES, {"spec": {"x": None}}, True),
    ("a-field-more-is-removed", MACHINE_DEPLOYMENTS, {"spec": {"y": 1}}, True),
    ("a-label-more-says-whose-it-is", NAMESPACES, {"metadata": {"labels": {"m": "1"}}}, True),
    ("an-annotation-more-does-not", NAMESPACES, {"metadata": {"annotations": {"a": "1"}}}, False),
)
async def test_fields_that_others_add_matter_where_runs_remove_them(
    bus: Bus, kind: Resource, change: Json, matters: bool
) -> None:
    base = {**BASE, "spec": {"x": 1, "selector": {"s": "1"}}}
    assert await matter(bus, change, kind, base) is matters


READY = {"type": "Ready", "status": "True"}


@cases(
    "kind status matters",
    ("pod-ready", PODS, {"conditions": [READY]}, True),
    ("pod-not-ready", PODS, {"conditions": [READY | {"status": "False"}]}, False),
    ("pod-running", PODS, {"phase": "Running"}, False),
    ("address", SERVICES, {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}, True),
    ("other-status-of-a-service", SERVICES, {"conditions": [READY]}, False),
)
async def test_an_awaited_status_matters(bus: Bus, kind: Resource, status: Json, matters: bool) -> None:
    assert await matter(bus, {"status": status}, kind) is matters


@cases(
    "operation headers matters",
    ("appeared", "ADDED", {}, False),
    ("found-for-the-first-time", "LISTED", {}, True),
    ("gone", "DELETED", {}, True),
    ("changed-from-what-is-forgotten", "MODIFIED", {}, True),
    ("too-large-to-compare", "MODIFIED", {BODY: "omitted"}, True),
)
async def test_how_an_object_came_to_notice_matters(
    bus: Bus, operation: str, headers: dict[str, str], matters: bool
) -> None:
    change = await announced(bus, operation, BASE, headers=headers)
    assert await ownermapping.triggers(NETWORK_POLICIES.id, change, PreviousVersion(bus, change)) is matters


@cases("spec matters", ("changed", {"x": 2}, True), ("unchanged", {"x": 1}, False))
async def test_what_a_listing_shows_after_a_gap_matters_if_it_differs(
    bus: Bus, spec: Json, matters: bool
) -> None:
    before = await announced(bus, "ADDED", BASE)
    change = await announced(bus, "LISTED", {**BASE, "spec": spec}, before=before.stored.sequence)
    assert await ownermapping.triggers(NETWORK_POLICIES.id, change, PreviousVersion(bus, change)) is matters


OWNER = ObjectRef(RUNTIME, INFRASTRUCTURES.id, "shoot", "local")


def interest(
    bus: Bus, owners: list[ObjectRef], known: asyncio.Event, wrote: Wrote = lambda *_: False
) -> OwnerMapping:
    own = LifeCycleMapping(bus, KIND, Scope(KIND.types, KIND.classes))
    return OwnerMapping(
        own,
        lambda _: owners,
        made=(NETWORK_POLICIES, NAMESPACES),
        awaited=(NAMESPACES,),
        known=(known.wait,),
        wrote=wrote,
    )


@cases(
    "operation kind before may_wait",
    ("listed", "LISTED", NETWORK_POLICIES, 0, True),
    ("listed-anew", "LISTED", NETWORK_POLICIES, 7, False),
    ("changed", "MODIFIED", NETWORK_POLICIES, 7, False),
    ("awaited", "LISTED", NAMESPACES, 0, False),
    ("of-its-own-kind", "LISTED", INFRASTRUCTURES, 0, False),
)
async def test_the_first_listing_of_what_nobody_awaits_may_wait(
    bus: Bus, operation: str, kind: Resource, before: int, may_wait: bool
) -> None:
    change = await announced(bus, operation, BASE, kind, before=before)
    assert interest(bus, [OWNER], asyncio.Event()).defers(change) is may_wait


async def test_a_change_of_an_owned_object_requeues_its_owner(bus: Bus) -> None:
    known = asyncio.Event()
    known.set()
    gone = await announced(bus, "DELETED", {})
    of_one = interest(bus, [OWNER], known)
    assert await of_one.keys_for(gone, PreviousVersion(bus, gone)) == [subjects.key(OWNER)]
    assert await interest(bus, [], known).keys_for(gone, PreviousVersion(bus, gone)) == []
    assert of_one.kinds == (INFRASTRUCTURES.id, NETWORK_POLICIES.id, NAMESPACES.id)
    assert of_one.owned == (NETWORK_POLICIES.id, NAMESPACES.id)


async def test_a_new_object_requeues_only_owners_that_await_it(bus: Bus) -> None:
    known = asyncio.Event()
    known.set()
    both = interest(bus, [OWNER], known)
    policy = await announced(bus, "ADDED", BASE)
    namespace = await announced(bus, "ADDED", {"metadata": {"name": "a", "uid": "1"}}, NAMESPACES)
    assert await both.keys_for(policy, PreviousVersion(bus, policy)) == []
    assert await both.keys_for(namespace, PreviousVersion(bus, namespace)) == [subjects.key(OWNER)]


@cases(
    "operation version another requeued",
    ("its-own", "MODIFIED", "2", False, False),
    ("of-another-owner", "MODIFIED", "2", True, True),
    ("of-somebody-else", "MODIFIED", "3", False, True),
    ("after-a-gap", "LISTED", "2", False, True),
)
async def test_a_write_of_the_owners_run_in_flight_requeues_no_owner(
    bus: Bus, operation: str, version: str, another: bool, requeued: bool
) -> None:
    known = asyncio.Event()
    known.set()
    policy = ObjectRef(RUNTIME, NETWORK_POLICIES.id, "b", "a")
    writer = subjects.key(OWNER._replace(name="other") if another else OWNER)

    def wrote(*written: object) -> bool:
        return written == (writer, policy, "2")

    before = await announced(bus, "ADDED", BASE)
    change = await announced(
        bus,
        operation,
        {**BASE, "spec": {"x": 2}},
        before=before.stored.sequence,
        headers={VERSION: version},
    )
    keys = await interest(bus, [OWNER], known, wrote).keys_for(change, PreviousVersion(bus, change))
    assert keys == ([subjects.key(OWNER)] if requeued else [])


async def test_no_object_counts_as_unowned_before_owners_are_known(bus: Bus) -> None:
    known, owners = asyncio.Event(), list[ObjectRef]()
    gone = await announced(bus, "DELETED", {})
    asking = asyncio.create_task(interest(bus, owners, known).keys_for(gone, PreviousVersion(bus, gone)))
    await asyncio.sleep(0)
    owners.append(OWNER)
    known.set()
    assert await asking == [subjects.key(OWNER)]
