"""Which changes of an extension object start a run, by themselves and on their way from the bus."""

from __future__ import annotations

from functools import partial
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus import subjects
from bus.messages import BODY, OPERATION, Announcement, StatusIntent
from bus.transport.connection import Bus, Stored
from bus.transport.directclient import DirectClient
from tests.support.lifecycleobjects import DONE, EARLIER, FINALIZER, NOW, record, records
from tests.support.rules import rule
from windowbox.models.objects import Object
from windowbox.models.refs import CLUSTERS, DNSRECORDS, RUNTIME, ObjectRef
from workers.core.lifecycle.lifecyclemapping import LifeCycleMapping
from workers.core.lifecycle.orphancleanup import is_orphan
from workers.core.lifecycle.runpredicates import (
    EventType,
    Scope,
    classes_for,
    needs_old,
    overdue,
    responsible,
    triggers,
    wants_run,
)
from workers.dns.record.actuator import KIND

LOCAL = frozenset({"local"})
OURS = Scope(LOCAL, frozenset({"shoot"}))
IGNORING = Scope(LOCAL, frozenset({"shoot"}), ignore_operation_annotation=True)
ADDED, LISTED, MODIFIED, DELETED = EventType
LATER = "2026-09-01T10:15:40Z"
done, going, seed = partial(record, last=DONE), partial(record, deleting=True), partial(record, class_="seed")
ASKED, ASKED_AGAIN = (done("reconcile", timestamp=time) for time in (EARLIER, LATER))
FAILED, FAILED_AGAIN = (going(last="Delete/Error", timestamp=time) for time in (EARLIER, LATER))
MIGRATING, DELETING = record("migrate", "Migrate/Processing"), going(last="Delete/Processing")


@pytest.mark.parametrize(
    ("seen", "old", "new", "default", "ignoring"),
    [
        pytest.param(ADDED, None, record(), True, True, id="C.5-1-new-without-status"),
        pytest.param(ADDED, None, done(), False, True, id="C.5-2-known-and-succeeded"),
        pytest.param(ADDED, None, record(last="Create/Error"), True, True, id="C.5-3-known-with-an-error"),
        pytest.param(ADDED, None, record("wait-for-state"), True, True, id="C.5-4-new-and-waiting-for-state"),
        pytest.param(MODIFIED, done(), done(generation=2), False, True, id="C.5-5+T-4-only-the-spec"),
        pytest.param(MODIFIED, done(), done("reconcile"), True, False, id="C.5-6-asked-to-reconcile"),
        pytest.param(MODIFIED, ASKED, ASKED_AGAIN, True, False, id="C.5-7-asked-again-before-we-looked"),
        pytest.param(MODIFIED, done("migrate"), MIGRATING, True, False, id="C.5-8-report-while-migrating"),
        pytest.param(MODIFIED, done(), done(deleting=True, generation=2), True, True, id="C.5-9-deletion"),
        pytest.param(MODIFIED, going(last=DONE), DELETING, False, False, id="C.5-10-report-while-deleting"),
        pytest.param(MODIFIED, FAILED, FAILED_AGAIN, True, False, id="C.5-11-asked-again-to-delete"),
        pytest.param(MODIFIED, done("reconcile"), done(), False, False, id="C.5-12+V-5-own-patch"),
        pytest.param(DELETED, None, done(), False, True, id="C.5-13-gone"),
        pytest.param(ADDED, None, seed("reconcile"), False, False, id="C.5-14-new-of-another-class"),
        pytest.param(MODIFIED, seed(), seed("reconcile"), False, False, id="C.5-14-of-another-class"),
    ],
)
def test_changes_that_start_a_run(
    seen: EventType, old: Object | None, new: Object, default: bool, ignoring: bool
) -> None:
    assert triggers(seen, old, new, OURS) is default
    assert triggers(seen, old, new, IGNORING) is ignoring


@pytest.mark.parametrize(
    ("obj", "wanted"),
    [
        pytest.param(done("reconcile"), True, id="T-3-asked-to-reconcile"),
        pytest.param(done("migrate"), True, id="T-3-asked-to-migrate"),
        pytest.param(record("restore", "Migrate/Succeeded"), True, id="T-3-asked-to-restore"),
        pytest.param(done(deleting=True), True, id="T-3-deleting"),
        pytest.param(record(), True, id="T-3-never-run"),
        pytest.param(record(last="Reconcile/Processing"), True, id="T-3+T-4-died-while-processing"),
        pytest.param(record(last="Reconcile/Error"), True, id="T-3+T-4-failed"),
        pytest.param(done(), False, id="T-3-succeeded"),
        pytest.param(done("keepalive"), False, id="T-3-word-of-another-controller"),
        pytest.param(done("wait-for-state"), False, id="T-3-waiting-for-state-after-success"),
    ],
)
def test_an_object_seen_first_or_after_a_gap(obj: Object, wanted: bool) -> None:
    assert wants_run(obj) is wanted
    assert triggers(ADDED, None, obj, OURS) is wanted
    assert triggers(LISTED, None, obj, OURS) is wanted


@pytest.mark.parametrize(
    ("seen", "new", "scope", "needed"),
    [
        pytest.param(MODIFIED, going("reconcile"), OURS, False, id="T-3-the-wish-says-it-all"),
        pytest.param(MODIFIED, done(), OURS, False, id="T-3-nothing-asked"),
        pytest.param(MODIFIED, going(), OURS, True, id="T-3-deleting"),
        pytest.param(MODIFIED, going(class_="seed"), OURS, False, id="T-1-not-ours"),
        pytest.param(ADDED, going(), OURS, False, id="T-3-new"),
        pytest.param(MODIFIED, done(), IGNORING, True, id="T-5-each-change-is-compared"),
        pytest.param(ADDED, done(), IGNORING, False, id="T-5-new"),
    ],
)
def test_the_predecessor_is_read_only_where_it_matters(
    seen: EventType, new: Object, scope: Scope, needed: bool
) -> None:
    assert needs_old(seen, new, scope) is needed


@rule("T-3", "T-5")
@given(st.sampled_from(EventType), records, records, st.sampled_from([OURS, IGNORING]))
def test_a_predecessor_that_is_not_needed_changes_nothing(
    seen: EventType, old: Object, new: Object, scope: Scope
) -> None:
    if not needs_old(seen, new, scope):
        assert triggers(seen, old, new, scope) == triggers(seen, None, new, scope)
    assert not triggers(DELETED, old, old, OURS)


@rule("T-3")
@given(records, st.sampled_from([OURS, IGNORING]))
def test_a_forgotten_predecessor_never_costs_a_run(new: Object, scope: Scope) -> None:
    if any(triggers(MODIFIED, old, new, scope) for old in (record(), new)):
        assert triggers(MODIFIED, None, new, scope)


@rule("V-1")
def test_an_object_that_replaced_another_is_new() -> None:
    assert triggers(MODIFIED, done(uid="old"), record(uid="new"), OURS)


@pytest.mark.parametrize(
    ("classes", "class_", "ours"),
    [
        pytest.param({"shoot"}, None, True, id="T-1-unset-means-shoot"),
        pytest.param({"shoot"}, "shoot", True, id="T-1-shoot"),
        pytest.param({"shoot"}, "seed", False, id="T-1-seed-is-another"),
        pytest.param({"seed", "shoot"}, "seed", True, id="T-1-one-of-several"),
        pytest.param(set(), None, True, id="T-1-no-class-configured-means-shoot"),
        pytest.param({""}, None, True, id="T-1-an-empty-class-configured-means-shoot"),
        pytest.param({""}, "garden", False, id="T-1-an-empty-class-configured-means-only-shoot"),
        pytest.param({"garden"}, None, False, id="T-1-unset-is-not-garden"),
    ],
)
def test_responsibility_by_class(classes: set[str], class_: str | None, ours: bool) -> None:
    assert responsible(record(class_=class_), Scope(LOCAL, frozenset(classes))) is ours


@rule("T-2")
def test_responsibility_by_type() -> None:
    scope = Scope(frozenset({"local", "local-ext"}), frozenset())
    found = [responsible(record(type_=type_), scope) for type_ in ("local", "local-ext", "aws-route53")]
    assert found == [True, True, False]


@pytest.mark.parametrize(
    ("configured", "supported", "effective"),
    [
        pytest.param("seed shoot", "garden seed shoot", "seed shoot", id="P-1-all-supported"),
        pytest.param("garden seed", "garden shoot", "garden", id="P-1-some-supported"),
        pytest.param("garden", "shoot", "shoot", id="P-1-none-supported-means-shoot"),
        pytest.param("", "garden seed shoot", "shoot", id="P-1-none-configured-means-shoot"),
    ],
)
def test_classes_are_those_configured_and_supported(configured: str, supported: str, effective: str) -> None:
    found = classes_for(frozenset(configured.split()), frozenset(supported.split()))
    assert found == set(effective.split())


@pytest.mark.parametrize(
    ("obj", "late"),
    [
        pytest.param(done(timestamp="2026-09-01T10:15:32.000000001Z"), True, id="V-3-after-the-answer"),
        pytest.param(done(timestamp="2026-09-01T10:15:31.999999999Z"), False, id="V-3-same-second"),
        pytest.param(
            done(timestamp="2026-09-01T10:15:31.9Z", generation=2), True, id="V-3-same-second-newer-spec"
        ),
        pytest.param(done(timestamp="2026-09-01T12:15:31+02:00"), False, id="V-3-other-time-zone"),
        pytest.param(record(timestamp=EARLIER), True, id="V-3-never-answered"),
        pytest.param(done("wait-for-state", timestamp=LATER), False, id="V-3-waiting-for-state"),
        pytest.param(done(), False, id="V-3-never-asked"),
        pytest.param(done(timestamp="yesterday"), False, id="V-3-asked-at-no-readable-time"),
        pytest.param(done(timestamp=EARLIER, updated="soon"), True, id="V-3-answered-at-no-readable-time"),
    ],
)
def test_an_object_is_overdue_while_its_client_waits(obj: Object, late: bool) -> None:
    assert overdue(obj) is late


def change(operation: str, new: Object, kind: str = DNSRECORDS.id, **headers: str) -> Announcement:
    subject = subjects.seen(ObjectRef(RUNTIME, kind, "garden", "a"))
    return Announcement(Stored(subject, 1, "", {OPERATION: operation, **headers}, orjson.dumps(new.raw)))


@pytest.mark.parametrize(
    ("seen", "options", "ignored"),
    [
        pytest.param(change("MODIFIED", done()), {}, True, id="our-own-report"),
        pytest.param(change("ADDED", done()), {}, True, id="known-and-succeeded"),
        pytest.param(change("ADDED", record()), {}, False, id="new"),
        pytest.param(change("MODIFIED", done("reconcile")), {}, False, id="requested"),
        pytest.param(change("MODIFIED", done(deleting=True)), {}, False, id="deleting"),
        pytest.param(change("DELETED", done()), {}, False, id="gone"),
        pytest.param(change("MODIFIED", record(), **{BODY: "omitted"}), {}, False, id="too-large"),
        pytest.param(change("MODIFIED", done(), CLUSTERS.id), {}, False, id="of-another-kind"),
        pytest.param(change("MODIFIED", done()), {"scope": IGNORING}, False, id="to-be-compared"),
        pytest.param(change("MODIFIED", done()), {"waiters": lambda *_: []}, False, id="others-may-wait"),
        pytest.param(
            change("MODIFIED", done(finalizers=(FINALIZER,))), {"waiters": lambda *_: []}, True, id="held"
        ),
    ],
)
def test_a_change_is_ignored_if_it_alone_shows_that_nothing_is_to_do(
    seen: Announcement, options: dict[str, Any], ignored: bool
) -> None:
    mapping = LifeCycleMapping(Bus(DirectClient()), KIND, **({"scope": OURS} | options))
    assert mapping.ignores(seen) is ignored


def report(last: str = "Create/Processing", uid: str = record().uid) -> StatusIntent:
    type_, _, state = last.partition("/")
    return StatusIntent(
        uid=uid, patch={"lastOperation": {"type": type_, "state": state, "lastUpdateTime": NOW}}
    )


held, seen_at = record(finalizers=(FINALIZER,)), partial(record, last="Create/Processing")


@pytest.mark.parametrize(
    ("found", "reported", "orphan"),
    [
        pytest.param(held, None, True, id="removed-with-our-finalizer"),
        pytest.param(going(finalizers=(FINALIZER,)), report(), False, id="after-a-delete-run"),
        pytest.param(record(finalizers=("other",)), None, False, id="never-begun"),
        pytest.param(record(), report(), True, id="begun-while-nobody-watched"),
        pytest.param(record(), report("Restore/Processing"), True, id="restored-while-nobody-watched"),
        pytest.param(record(), report("Migrate/Processing"), False, id="migrated"),
        pytest.param(held, report("Migrate/Succeeded"), False, id="migrated-unseen"),
        pytest.param(held, report("Migrate/Processing"), True, id="not-migrated-yet"),
        pytest.param(record(), report(uid="later"), False, id="report-about-another"),
        pytest.param(seen_at(updated=EARLIER), report(), True, id="only-an-older-report-seen"),
        pytest.param(seen_at(updated=NOW), report(), False, id="finalizer-removed-by-a-person"),
    ],
)
def test_a_vanished_object_may_be_an_orphan(
    found: Object, reported: StatusIntent | None, orphan: bool
) -> None:
    assert is_orphan(found, FINALIZER, reported) is orphan
