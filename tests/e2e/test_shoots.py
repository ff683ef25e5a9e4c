"""What the Shoot of a namespace means for the records in it: moving, failing, being forced away."""

from __future__ import annotations

from typing import Any

from tests.e2e import zones
from tests.e2e.client import FINALIZER, OPERATION, TIMESTAMP, Record, Space, failed, stamp
from tests.e2e.smallworld import SmallWorld
from tests.support.rules import rule
from windowbox.models.objects import Object
from workers.core.lifecycle.shootfacts import Blocked

SELF_HOSTED = {"spec": {"provider": {"workers": [{"name": "control-plane", "controlPlane": {}}]}}}
FAILED = {"status": {"lastOperation": {"state": "Failed"}}}
FORCED = {"metadata": {"annotations": {"confirmation.gardener.cloud/force-deletion": "true"}}}


def migrated(now: Object | None) -> bool:
    """The client's check."""
    last = now.last_operation if now else {"type": "Migrate", "state": "Succeeded"}
    return (last.get("type"), last.get("state")) == ("Migrate", "Succeeded")


def moved(record: Record, asked: str) -> Object:
    """The object, once it is migrated and nobody works on it any more."""
    return record.until(
        lambda now: bool(now and migrated(now) and not now.finalizers and OPERATION not in now.annotations)
    )


@rule("N-15", "N-2", "O-2", "O-5", "S-3")
def test_a_migrated_record_is_removed_and_let_go(world: SmallWorld, shoot_space: Space) -> None:
    name = shoot_space.name()
    shoot_space.cluster()
    record = shoot_space.record(name, ["10.0.0.1"], finalizers=["example.com/other"])
    record.until_ready()
    asked = record.ask("migrate")
    found = moved(record, asked)
    assert found.annotations == {TIMESTAMP: asked}
    assert found.finalizers == ()
    last = dict(found.last_operation)
    assert last.pop("lastUpdateTime") >= asked[:19]
    assert last == {
        "type": "Migrate",
        "state": "Succeeded",
        "progress": 100,
        "description": "Successfully migrated DNSRecord",
    }
    assert found.status["observedGeneration"] == found.generation
    assert zones.answers(world.named, name) == []


@rule("O-5", "O-6", "C.6-7", "C.6-8")
def test_a_migrated_record_is_left_alone(world: SmallWorld, space: Space) -> None:
    name = space.name()
    record = space.record(name, ["10.0.0.1"])
    record.until_ready()
    before = moved(record, record.ask("migrate"))
    record.ask("reconcile")
    after = record.until(lambda now: bool(now and OPERATION not in now.annotations))
    assert (after.finalizers, after.status) == ((), before.status)
    assert zones.answers(world.named, name) == []
    record.delete()
    record.until_gone()


@rule("N-15", "C-9")
def test_a_self_hosted_shoots_record_moves_with_it(world: SmallWorld, shoot_space: Space) -> None:
    name = shoot_space.name()
    shoot_space.cluster(**SELF_HOSTED)
    record = shoot_space.record(name, ["10.0.0.1"])
    record.until_ready()
    moved(record, record.ask("migrate"))
    assert zones.answers(world.named, name) == ["10.0.0.1"]


@rule("N-15", "C-4")
def test_a_record_outside_shoots_can_be_migrated(world: SmallWorld, space: Space) -> None:
    name = space.name()
    record = space.record(name, ["10.0.0.1"])
    record.until_ready()
    moved(record, record.ask("migrate"))
    assert zones.answers(world.named, name) == []
    assert world.alive()


def restore(space: Space, fqdn: str) -> tuple[Record, str]:
    """What the client does on the new seed; the record, and when it asked for the restoration."""
    record = space.record(fqdn, ["10.0.0.1"], annotations={OPERATION: "wait-for-state", TIMESTAMP: stamp()})
    record.patch({"status": {"state": {"saved": ["on", "the", "old", "seed"]}}}, "/status")
    return record, record.ask("restore")


def done(runs: list[Any]) -> list[str]:
    return [run.note for run in runs if run.outcome == "succeeded"]


@rule("O-1", "F-2", "F-4", "C.5-4", "W-3")
def test_a_record_is_restored_from_its_state(world: SmallWorld, space: Space) -> None:
    name = space.name()
    record, asked = restore(space, name)
    found = record.until_ready(asked)
    assert found.last_operation["type"] == "Restore"
    assert found.last_operation["description"] == "Successfully restored DNSRecord"
    assert found.finalizers == (FINALIZER,)
    assert found.status["state"] == {"saved": ["on", "the", "old", "seed"]}
    assert found.status["conditions"][0]["status"] == "True"
    assert zones.answers(world.named, name) == ["10.0.0.1"]
    record.until_ready(record.ask("reconcile"))
    runs = world.runs(record, until=lambda runs: len(done(runs)) > 1)
    assert done(runs) == ["Restore", "Reconcile"]


@rule("F-2", "V-5", "C.5-8", "B.22")
def test_a_slow_restoration_does_not_start_itself_again(world: SmallWorld, space: Space) -> None:
    world.named.pause()
    try:
        record, asked = restore(space, space.name())
        record.until(lambda now: bool(now and now.last_operation.get("state") == "Processing"))
    finally:
        world.named.resume()
    record.until_ready(asked)
    record.until_ready(record.ask("reconcile"))
    runs = world.runs(record, until=lambda runs: "Reconcile" in done(runs))
    assert done(runs) == ["Restore", "Reconcile"]


@rule("O-1")
def test_nothing_is_done_while_the_state_is_awaited(world: SmallWorld, space: Space) -> None:
    record = space.record(space.name(), ["10.0.0.1"], annotations={OPERATION: "wait-for-state"})
    world.runs(record)
    assert len(record.history) == 1


@rule("T-8", "T-9", "C-6", "C.5-15")
def test_a_failed_shoot_waits_for_its_owner(world: SmallWorld, shoot_space: Space) -> None:
    name = shoot_space.name()
    shoot_space.cluster(**FAILED)
    record = shoot_space.record(name, ["10.0.0.1"], annotations={OPERATION: "reconcile"})
    world.runs(record, until=lambda runs: any(run.note == Blocked.FAILED for run in runs))
    assert record.read().status == {}
    shoot_space.cluster()
    record.until_ready(record.ask("reconcile"))
    assert zones.answers(world.named, name) == ["10.0.0.1"]


@rule("T-8", "C-2", "C-3")
def test_a_record_waits_for_its_cluster(world: SmallWorld, shoot_space: Space) -> None:
    record = shoot_space.record(shoot_space.name(), ["10.0.0.1"])
    world.runs(record, until=lambda runs: any(run.outcome == "waiting" for run in runs))
    assert record.read().status == {}
    shoot_space.cluster()
    record.until_ready()


@rule("V-12")
def test_a_change_of_the_cluster_starts_nothing(world: SmallWorld, shoot_space: Space) -> None:
    shoot_space.cluster()
    record = shoot_space.record(shoot_space.name(), ["10.0.0.1"])
    record.until_ready()
    shoot_space.cluster(**SELF_HOSTED)
    shoot_space.record(shoot_space.name(), ["10.0.0.1"]).until_ready()
    record.until_ready(record.ask("reconcile"))
    assert done(world.runs(record, until=lambda runs: len(done(runs)) > 1)) == ["Create", "Reconcile"]


@rule("C-8", "N-15", "DN-105", "C-6")
def test_a_forced_deletion_needs_no_name_server(world: SmallWorld, shoot_space: Space) -> None:
    shoot_space.cluster()
    record = shoot_space.record(shoot_space.name(), ["10.0.0.1"])
    record.until_ready()
    world.named.stop()
    try:
        shoot_space.cluster(**FORCED)
        record.delete()
        record.until_gone()
    finally:
        world.named.start()


@rule("C-8", "V-11")
def test_a_deletion_that_fails_can_still_be_forced(world: SmallWorld, shoot_space: Space) -> None:
    shoot_space.cluster()
    record = shoot_space.record(shoot_space.name(), ["10.0.0.1"])
    record.until_ready()
    world.named.stop()
    try:
        record.delete()
        record.until(failed)
        shoot_space.cluster(**FORCED)
        record.annotate(**{TIMESTAMP: stamp()})
        record.until_gone()
    finally:
        world.named.start()
