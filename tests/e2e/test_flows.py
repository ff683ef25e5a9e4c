"""The life cycle of a record: the order of writes, and what a client sees."""

from __future__ import annotations

from tests.e2e import client, zones
from tests.e2e.client import FINALIZER, OPERATION, Space, failed, ready
from tests.e2e.smallworld import SmallWorld
from tests.support.rules import rule
from tests.support.servers import ControlPlane


def writes(plane: ControlPlane) -> int:
    """How often anybody has tried to change a DNSRecord, status included."""
    lines = plane.api.request("GET", "/metrics").read().decode().splitlines()
    counts = [x for x in lines if x.startswith("apiserver_request_total{") and 'resource="dnsrecords"' in x]
    return sum(int(float(x.split()[-1])) for x in counts if any(v in x for v in ('"PATCH"', '"PUT"')))


@rule("V-7", "V-2", "O-2")
def test_a_record_costs_finalizer_and_status_writes(control_plane: ControlPlane, space: Space) -> None:
    before = writes(control_plane)
    record = space.served(annotations={OPERATION: "reconcile"})
    created, held, done = (version.object for version in record.history)
    assert (created.finalizers, created.status) == ((), {})
    assert (held.finalizers, held.annotations, held.status) == ((FINALIZER,), {}, {})
    assert done.last_operation["state"] == "Succeeded"
    assert writes(control_plane) - before == 2


@rule("O-2", "U-4", "W-2", "W-3", "W-4", "W-5", "W-7", "W-8", "V-6")
def test_a_record_is_reconciled_when_its_client_asks(
    control_plane: ControlPlane, world: SmallWorld, space: Space
) -> None:
    record = space.served()
    before = writes(control_plane)
    asked = record.ask("reconcile", values=["10.0.0.2", "10.0.0.3"])
    found = record.until_ready(asked)
    assert found.last_operation["type"] == "Reconcile"
    assert found.status["observedGeneration"] == 2
    reported, requested = client.moment(found.last_operation["lastUpdateTime"]), client.moment(asked)
    assert reported >= requested.replace(microsecond=0)
    assert zones.answers(world.named, record.fqdn) == ["10.0.0.2", "10.0.0.3"]
    assert writes(control_plane) - before == 3  # the client's, the annotation, the status


@rule("W-7", "N-16")
def test_a_request_without_changes_is_answered(space: Space) -> None:
    record = space.served()
    for _ in range(2):
        record.until_ready(record.ask("reconcile"))


@rule("T-4", "V-5", "C.5-5", "C.5-6")
def test_a_new_spec_alone_starts_nothing(world: SmallWorld, space: Space) -> None:
    record = space.served()
    record.patch({"spec": {"values": ["10.0.0.2"]}})
    space.served()  # so the new spec has been seen, too
    assert zones.answers(world.named, record.fqdn) == ["10.0.0.1"]
    record.until_ready(record.ask("reconcile"))
    runs = world.runs(record, until=lambda runs: len(runs) > 1)
    assert [run.note for run in runs] == ["Create", "Reconcile"]


@rule("N-14", "V-7")
def test_a_deleted_record_goes_from_the_server_first(world: SmallWorld, space: Space) -> None:
    record = space.served()
    record.delete()
    record.until_gone()
    assert zones.answers(world.named, record.fqdn) == []


@rule("F-3", "C.5-9", "O-6")
def test_a_record_held_by_others_reports_our_release(world: SmallWorld, space: Space) -> None:
    record = space.served(finalizers=["example.com/other"])
    record.delete()
    found = record.until(
        lambda now: bool(now and FINALIZER not in now.finalizers and "Delete" in str(now.raw))
    )
    assert found.finalizers == ("example.com/other",)
    done = record.until(lambda now: bool(now and now.last_operation["type"] == "Delete"))
    last = done.last_operation
    assert (last["state"], last["progress"]) == ("Succeeded", 100)
    assert last["description"] == "Successfully deleted DNSRecord"
    assert zones.answers(world.named, record.fqdn) == []
    record.patch({"metadata": {"finalizers": None}})
    record.until_gone()


@rule("V-1", "O-4")
def test_a_recreated_object_is_a_new_one(world: SmallWorld, space: Space) -> None:
    old = space.served(name="same")
    first = old.read()
    old.patch({"metadata": {"finalizers": None}})
    old.delete()
    new = space.record(old.fqdn, ["10.0.0.2"], name="same")
    found = new.until(lambda now: bool(now and now.uid != first.uid and ready(now)))
    assert found.last_operation["type"] == "Create"
    assert zones.answers(world.named, old.fqdn) == ["10.0.0.2"]


@rule("U-1", "U-2", "U-3", "D-1", "S-5", "B-1", "W-1", "N-14", "V-9")
def test_a_record_fails_while_its_server_is_away(world: SmallWorld, space: Space) -> None:
    world.named.stop()
    try:
        record = space.record()
        broken = record.until(failed)
        last = broken.last_operation
        said = last["description"]
        assert said.startswith("Error reconciling DNSRecord: ")
        at = last["lastUpdateTime"]
        assert broken.status == {
            "observedGeneration": 1,
            "lastOperation": {
                "type": "Create",
                "state": "Error",
                "progress": 50,
                "description": said,
                "lastUpdateTime": at,
            },
            "lastError": {"description": said, "lastUpdateTime": at},
            "conditions": [
                {
                    "type": "Created",
                    "status": "False",
                    "reason": "Error",
                    "message": "Error on initial record creation in infrastructure",
                    "lastTransitionTime": at,
                    "lastUpdateTime": at,
                }
            ],
        }
    finally:
        world.named.start()
    healed = record.until_ready()
    assert healed.last_operation["type"] == "Create"
    assert healed.status["conditions"][0]["status"] == "True"
    assert zones.answers(world.named, record.fqdn) == ["10.0.0.1"]


@rule("V-11", "U-1", "D-1", "O-4")
def test_a_deletion_is_retried_until_the_server_returns(world: SmallWorld, space: Space) -> None:
    record = space.served()
    world.named.stop()
    try:
        record.delete()
        broken = record.until(failed)
    finally:
        world.named.start()
    assert broken.last_operation["type"] == "Delete"
    assert broken.last_operation["description"].startswith("Error deleting DNSRecord: ")
    assert broken.status["lastError"]["description"] == broken.last_operation["description"]
    assert broken.status["conditions"][0]["status"] == "True"  # it did exist
    record.until_gone()
