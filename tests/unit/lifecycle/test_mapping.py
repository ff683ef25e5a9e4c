"""What a mapping tells of a change at once, without a question."""

from __future__ import annotations

import orjson
import pytest

from bus import subjects
from bus.messages import BODY, OPERATION, Announcement
from bus.transport.connection import Bus, Stored
from bus.transport.directclient import DirectClient
from tests.support.lifecycleobjects import record
from windowbox.models.objects import Object
from windowbox.models.refs import CLUSTERS, DNSRECORDS, RUNTIME, ObjectRef
from workers.core.lifecycle.lifecyclemapping import LifeCycleMapping
from workers.core.lifecycle.runpredicates import Scope
from workers.dns.record.actuator import KIND

DONE = "Create/Succeeded"
OURS = Scope(frozenset({"local"}), frozenset({"shoot"}))
BY_GENERATION = Scope(frozenset({"local"}), frozenset({"shoot"}), ignore_operation_annotation=True)


def change(operation: str, new: Object, kind: str = DNSRECORDS.id, **headers: str) -> Announcement:
    subject = subjects.seen(ObjectRef(RUNTIME, kind, "garden", "a"))
    return Announcement(Stored(subject, 1, "", {OPERATION: operation, **headers}, orjson.dumps(new.raw)))


@pytest.mark.parametrize(
    ("told", "ignored"),
    [
        pytest.param(change("MODIFIED", record(last=DONE)), True, id="our-own-report"),
        pytest.param(change("ADDED", record(last=DONE)), True, id="known-and-succeeded"),
        pytest.param(change("ADDED", record()), False, id="new"),
        pytest.param(change("MODIFIED", record("reconcile", last=DONE)), False, id="requested"),
        pytest.param(change("MODIFIED", record(last=DONE, deleting=True)), False, id="deleting"),
        pytest.param(change("DELETED", record(last=DONE)), False, id="gone"),
        pytest.param(change("MODIFIED", record(), **{BODY: "omitted"}), False, id="too-large"),
        pytest.param(change("MODIFIED", record(last=DONE), CLUSTERS.id), False, id="of-another-kind"),
    ],
)
def test_a_change_is_ignored_if_it_alone_tells_that_it_concerns_nobody(
    told: Announcement, ignored: bool
) -> None:
    assert LifeCycleMapping(Bus(DirectClient()), KIND, OURS).ignores(told) is ignored


def test_a_change_that_has_to_be_compared_is_not_ignored() -> None:
    mapping = LifeCycleMapping(Bus(DirectClient()), KIND, BY_GENERATION)
    assert not mapping.ignores(change("MODIFIED", record(last=DONE)))


def test_a_change_that_others_may_wait_for_is_not_ignored() -> None:
    mapping = LifeCycleMapping(Bus(DirectClient()), KIND, OURS, waiters=lambda ref, object: [ref])
    assert not mapping.ignores(change("MODIFIED", record(last=DONE)))
    held = record(last=DONE, finalizers=(KIND.finalizer,))
    assert mapping.ignores(change("MODIFIED", held))
