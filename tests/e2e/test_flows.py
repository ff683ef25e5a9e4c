"""The flows of the life cycle: what is written in which order, and what a client sees of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e import client, zones
from tests.e2e.client import FINALIZER, OPERATION, TIMESTAMP, Record, Space, failed, ready, stamp
from tests.e2e.smallworld import SmallWorld
from tests.e2e.witness import Witness
from tests.support.rules import rule
from tests.support.servers import ControlPlane
from windowbox.models.objects import Object


@pytest.fixture(scope="module", autouse=True)
def forgotten(control_plane: ControlPlane, witness: Witness, world: SmallWorld) -> Record:
    """A record of which a worker took the wish off, and died: only the time still tells of it.

    Its client's clock is ahead, so that the time is a later one than that of the last report.
    """
    space = client.space(control_plane.api, witness, world.named.zone)
    record = space.record(space.name(), ["10.0.0.1"])
    record.until_ready()
    record.patch(
        {"metadata": {"annotations": {TIMESTAMP: stamp(ahead=60)}}, "spec": {"values": ["10.0.0.2"]}}
    )
    return record


@pytest.fixture
def away(world: SmallWorld) -> Iterator[None]:
    """The name server is not there."""
    world.named.stop()
    yield
    world.named.start()


def writes(plane: ControlPlane) -> int:
    """How often anybody has tried to change a DNSRecord, status included."""
    lines = plane.api.request("GET", "/metrics").read().decode().splitlines()
    counts = [x for x in lines if x.startswith("apiserver_request_total{") and 'resource="dnsrecords"' in x]
    return sum(int(float(x.split()[-1])) for x in counts if any(v in x for v in ('"PATCH"', '"PUT"')))


@rule("V-7", "V-2", "O-2")
def test_a_record_costs_finalizer_and_status_writes(control_plane: ControlPlane, space: Space) -> None:
    before = writes(control_plane)
    record = space.record(space.name(), ["10.0.0.1"], annotations={OPERATION: "reconcile"})
    record.until_ready()
    created, held, done = (version.object for version in record.history)
    assert (created.finalizers, created.status) == ((), {})
    assert (held.finalizers, held.annotations, held.status) == ((FINALIZER,), {}, {})
    assert done.last_operation["state"] == "Succeeded"
    assert writes(control_plane) - before == 2


@rule("O-2", "U-4", "W-2", "W-3", "W-4", "W-5", "W-7", "W-8", "V-6")
def test_a_record_is_reconciled_when_its_client_asks(
    control_plane: ControlPlane, world: SmallWorld, space: Space
) -> None:
    name = space.name()
    record = space.record(name, ["10.0.0.1"])
    record.until_ready()
    before = writes(control_plane)
    asked = record.ask("reconcile", values=["10.0.0.2", "10.0.0.3"])
    found = record.until_ready(asked)
    assert found.last_operation["type"] == "Reconcile"
    assert found.status["observedGeneration"] == 2
    assert client.moment(found.last_operation["lastUpdateTime"]) >= client.moment(asked).replace(
        microsecond=0
    )
    assert zones.answers(world.named, name) == ["10.0.0.2", "10.0.0.3"]
    assert writes(control_plane) - before == 3  # the client's, the annotation, the status


@rule("W-7", "N-16")
def test_a_request_without_changes_is_answered(space: Space) -> None:
    record = space.record(space.name(), ["10.0.0.1"])
    record.until_ready()
    for _ in range(2):
        record.until_ready(record.ask("reconcile"))


@rule("T-4", "V-5", "C.5-5", "C.5-6")
def test_a_new_spec_alone_starts_nothing(world: SmallWorld, space: Space) -> None:
    name = space.name()
    record = space.record(name, ["10.0.0.1"])
    record.until_ready()
    record.patch({"spec": {"values": ["10.0.0.2"]}})
    neighbour = space.record(space.name(), ["10.0.0.1"])
    neighbour.until_ready()
    assert zones.answers(world.named, name) == ["10.0.0.1"]
    record.until_ready(record.ask("reconcile"))
    runs = world.runs(record, until=lambda runs: len(runs) > 1)
    assert [run.note for run in runs] == ["Create", "Reconcile"]


@rule("T-1", "T-2", "C.5-14")
@pytest.mark.parametrize("other", [{"class_": "garden"}, {"type": "other"}], ids=["class", "type"])
def test_what_is_not_ours_is_left_alone(space: Space, other: dict[str, Any]) -> None:
    stranger = space.record(space.name(), ["10.0.0.1"], annotations={OPERATION: "reconcile"}, **other)
    space.record(space.name(), ["10.0.0.1"]).until_ready()
    assert len(stranger.history) == 1


@rule("T-1", "P-1")
def test_every_class_that_was_asked_for_is_served(world: SmallWorld, space: Space) -> None:
    name = space.name()
    space.record(name, ["10.0.0.1"], class_="seed").until_ready()
    assert zones.answers(world.named, name) == ["10.0.0.1"]


@rule("N-14", "V-7")
def test_a_deleted_record_goes_from_the_server_first(world: SmallWorld, space: Space) -> None:
    name = space.name()
    record = space.record(name, ["10.0.0.1"])
    record.until_ready()
    record.delete()
    record.until_gone()
    assert zones.answers(world.named, name) == []


@rule("F-3", "C.5-9", "O-6")
def test_a_record_held_by_others_reports_our_release(world: SmallWorld, space: Space) -> None:
    name = space.name()
    record = space.record(name, ["10.0.0.1"], finalizers=["example.com/other"])
    record.until_ready()
    record.delete()
    found = record.until(
        lambda now: bool(now and FINALIZER not in now.finalizers and "Delete" in str(now.raw))
    )
    assert found.finalizers == ("example.com/other",)
    done = record.until(lambda now: bool(now and now.last_operation["type"] == "Delete"))
    assert {key: done.last_operation[key] for key in ("state", "progress", "description")} == {
        "state": "Succeeded",
        "progress": 100,
        "description": "Successfully deleted DNSRecord",
    }
    assert zones.answers(world.named, name) == []
    record.patch({"metadata": {"finalizers": None}})
    record.until_gone()


@rule("C.5-9")
def test_deletions_without_our_finalizer_are_ignored(world: SmallWorld, space: Space) -> None:
    name = space.name()
    record = space.record(name, ["10.0.0.1"], finalizers=["example.com/other"])
    record.until_ready()
    record.patch({"metadata": {"finalizers": ["example.com/other"]}})
    record.delete()
    runs = world.runs(record, until=lambda runs: len(runs) > 1)
    assert [run.outcome for run in runs] == ["succeeded", "nothing to do"]
    assert zones.answers(world.named, name) == ["10.0.0.1"]
    record.patch({"metadata": {"finalizers": None}})
    record.until_gone()


@rule("V-1", "O-4")
def test_a_recreated_object_is_a_new_one(world: SmallWorld, space: Space) -> None:
    name = space.name()
    old = space.record(name, ["10.0.0.1"], name="same")
    first = old.until_ready()
    old.patch({"metadata": {"finalizers": None}})
    old.delete()
    new = space.record(name, ["10.0.0.2"], name="same")
    found = new.until(lambda now: bool(now and now.uid != first.uid and ready(now)))
    assert found.last_operation["type"] == "Create"
    assert zones.answers(world.named, name) == ["10.0.0.2"]


@rule("U-1", "U-2", "U-3", "D-1", "S-5", "B-1", "W-1", "N-14", "V-9")
def test_a_record_fails_while_its_server_is_away(world: SmallWorld, space: Space) -> None:
    world.named.stop()
    name = space.name()
    try:
        record = space.record(name, ["10.0.0.1"])
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
    assert zones.answers(world.named, name) == ["10.0.0.1"]


@rule("D-1")
def test_a_record_never_created_is_deleted_without_server(away: None, space: Space) -> None:
    record = space.record(space.name(), ["10.0.0.1"])
    record.until(failed)
    record.delete()
    record.until_gone()
    assert all(version.object.last_operation.get("type") != "Delete" for version in record.history)


@rule("V-11", "U-1", "D-1", "O-4")
def test_a_deletion_is_retried_until_the_server_returns(world: SmallWorld, space: Space) -> None:
    record = space.record(space.name(), ["10.0.0.1"])
    record.until_ready()
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


@rule("U-2", "W-1", "N-13", "E-1")
def test_the_next_error_replaces_the_code(world: SmallWorld, space: Space) -> None:
    record = space.record(space.name(), ["10.0.0.999"])
    first = record.until(failed).status["lastError"]
    assert first["codes"] == ["ERR_CONFIGURATION_PROBLEM"]
    assert 'spec.values holds "10.0.0.999"' in first["description"]
    world.named.stop()
    try:
        record.ask("reconcile", values=["10.0.0.1"])
        second = record.until(
            lambda now: bool(now and now.status["lastError"]["description"] != first["description"])
        )
        assert "codes" not in second.status["lastError"]
    finally:
        world.named.start()
    record.until_ready()


@rule("W-1", "W-7")
def test_each_request_of_a_failing_record_is_answered(space: Space) -> None:
    record = space.record(space.name(), ["nonsense"])
    record.until(failed)
    asked = client.moment(record.ask("reconcile", ahead=60)).replace(microsecond=0)

    def answered(now: Object | None) -> bool:
        return bool(now and client.moment(now.last_operation["lastUpdateTime"]) >= asked and failed(now))

    record.until(answered)


@rule("V-3", "W-5", "B.26")
def test_a_lost_wish_is_found_by_its_time(world: SmallWorld, forgotten: Record) -> None:
    forgotten.until_ready(forgotten.read().annotations[TIMESTAMP])
    assert forgotten.read().status["observedGeneration"] == 2
