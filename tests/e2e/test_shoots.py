"""Records of a Shoot that migrates, fails, or is deleted by force."""

from __future__ import annotations

from typing import Any

from tests.e2e import zones
from tests.e2e.client import FINALIZER, OPERATION, TIMESTAMP, Record, Space, stamp
from tests.e2e.smallworld import SmallWorld
from tests.support.rules import rule
from windowbox.models.objects import Object

SELF_HOSTED = {"spec": {"provider": {"workers": [{"name": "control-plane", "controlPlane": {}}]}}}
FAILED = {"status": {"lastOperation": {"state": "Failed"}}}
FORCED = {"metadata": {"annotations": {"confirmation.gardener.cloud/force-deletion": "true"}}}


def migrated(now: Object | None) -> bool:
    """The client's check."""
    last = now.last_operation if now else {"type": "Migrate", "state": "Succeeded"}
    return (last.get("type"), last.get("state")) == ("Migrate", "Succeeded")


def moved(record: Record) -> Object:
    """Ask for the migration; the object, once it is migrated and nobody works on it any more."""
    asked = record.ask("migrate")
    found = record.until(
        lambda now: bool(now and migrated(now) and not now.finalizers and OPERATION not in now.annotations)
    )
    assert found.annotations == {TIMESTAMP: asked}
    return found


@rule("N-15", "N-2", "O-2", "O-5", "S-3")
def test_a_migrated_record_is_removed_and_released(world: SmallWorld, shoot_space: Space) -> None:
    shoot_space.cluster()
    record = shoot_space.served(finalizers=["example.com/other"])
    found = moved(record)
    assert found.finalizers == ()
    last = dict(found.last_operation)
    assert last.pop("lastUpdateTime") >= found.annotations[TIMESTAMP][:19]
    assert last == {
        "type": "Migrate",
        "state": "Succeeded",
        "progress": 100,
        "description": "Successfully migrated DNSRecord",
    }
    assert found.status["observedGeneration"] == found.generation
    assert zones.answers(world.named, record.fqdn) == []


@rule("O-5", "O-6", "C.6-7", "C.6-8", "N-15", "C-4")
def test_a_migrated_record_outside_shoots_is_left_alone(world: SmallWorld, space: Space) -> None:
    record = space.served()
    before = moved(record)
    record.ask("reconcile")
    after = record.until(lambda now: bool(now and OPERATION not in now.annotations))
    assert (after.finalizers, after.status) == ((), before.status)
    assert zones.answers(world.named, record.fqdn) == []
    record.delete()
    record.until_gone()


@rule("N-15", "C-9")
def test_a_self_hosted_shoots_record_moves_with_it(world: SmallWorld, shoot_space: Space) -> None:
    shoot_space.cluster(**SELF_HOSTED)
    record = shoot_space.served()
    moved(record)
    assert zones.answers(world.named, record.fqdn) == ["10.0.0.1"]


def restore(space: Space) -> tuple[Record, str]:
    """What the client does on the new seed; the record, and when it asked for the restoration."""
    record = space.record(annotations={OPERATION: "wait-for-state", TIMESTAMP: stamp()})
    record.patch({"status": {"state": {"saved": ["on", "the", "old", "seed"]}}}, "/status")
    return record, record.ask("restore")


def done(runs: list[Any]) -> list[str]:
    return [run.note for run in runs if run.outcome == "succeeded"]


@rule("O-1", "F-2", "F-4", "C.5-4", "W-3")
def test_a_record_is_restored_from_its_state(world: SmallWorld, space: Space) -> None:
    record, asked = restore(space)
    found = record.until_ready(asked)
    assert found.last_operation["type"] == "Restore"
    assert found.last_operation["description"] == "Successfully restored DNSRecord"
    assert found.finalizers == (FINALIZER,)
    assert found.status["state"] == {"saved": ["on", "the", "old", "seed"]}
    assert found.status["conditions"][0]["status"] == "True"
    assert zones.answers(world.named, record.fqdn) == ["10.0.0.1"]
    record.until_ready(record.ask("reconcile"))
    runs = world.runs(record, until=lambda runs: len(done(runs)) > 1)
    assert done(runs) == ["Restore", "Reconcile"]


@rule("F-2", "V-5", "C.5-8", "B.22")
def test_a_slow_restoration_does_not_start_itself_again(world: SmallWorld, space: Space) -> None:
    world.named.pause()
    try:
        record, asked = restore(space)
        record.until(lambda now: bool(now and now.last_operation.get("state") == "Processing"))
    finally:
        world.named.resume()
    record.until_ready(asked)
    record.until_ready(record.ask("reconcile"))
    runs = world.runs(record, until=lambda runs: "Reconcile" in done(runs))
    assert done(runs) == ["Restore", "Reconcile"]


@rule("V-12")
def test_a_change_of_the_cluster_starts_nothing(world: SmallWorld, shoot_space: Space) -> None:
    shoot_space.cluster()
    record = shoot_space.served()
    shoot_space.cluster(**SELF_HOSTED)
    shoot_space.served()
    record.until_ready(record.ask("reconcile"))
    assert done(world.runs(record, until=lambda runs: len(done(runs)) > 1)) == ["Create", "Reconcile"]


@rule("C-8", "N-15", "DN-105", "C-6")
def test_a_forced_deletion_needs_no_name_server(world: SmallWorld, shoot_space: Space) -> None:
    shoot_space.cluster()
    record = shoot_space.served()
    world.named.stop()
    try:
        shoot_space.cluster(**FORCED)
        record.delete()
        record.until_gone()
    finally:
        world.named.start()
