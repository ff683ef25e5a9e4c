"""The Machines that a MachineSet owns, creates and deletes, and its status."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from tests.support.cases import cases
from tests.support.machinefacts import machine, machine_set
from tests.support.rules import rule
from windowbox.models import machinekeys as keys
from windowbox.models.objects import Object
from workers.machines import preservation
from workers.machines.facts import MachineFacts
from workers.machines.set import setplan
from workers.machines.set.setplan import Condition

NOW = datetime(2026, 1, 2, tzinfo=UTC)
LATER, EARLIER = "2026-01-03T00:00:00Z", "2026-01-01T12:00:00Z"


HANDED_OVER: dict[str, Any] = {"labels": {"name": "pool", keys.UPDATE_RESULT: "successful"}}


def running(count: int) -> list[MachineFacts]:
    return [machine(f"m{number}") for number in range(count)]


def failed(**fields: Any) -> list[MachineFacts]:
    return [*running(2), machine("f", "Failed", **fields)]


def labelled(**labels: str) -> dict[str, Any]:
    return {"labels": {"name": "pool", **labels}}


@cases(
    "machines metadata wanted",
    ("C7-too-few", running(1), {}, (2, [])),
    ("C7-enough", running(3), {}, (0, [])),
    ("C7-too-many", running(5), {}, (0, ["m0", "m1"])),
    ("C7-terminating", [*running(3), machine("t", "Terminating")], {}, (0, [])),
    ("C7+C11-R6-frozen", running(1), labelled(freeze="True"), (0, [])),
    ("C7-updated-in-place", running(1), labelled(**{keys.SCALE_UP_DISABLED: "true"}), (0, [])),
    ("C11-R6-frozen-shrinks", running(5), labelled(freeze="True"), (0, ["m0", "m1"])),
    ("C7-R2-failed", failed(), {}, (0, ["f"])),
    ("C7-R2-replaced", failed(deleting=True), {}, (1, [])),
    ("C7-R2-crashing", [*running(2), machine("c", "CrashLoopBackOff")], {}, (0, [])),
    ("C12-R5-preserved", failed(preserved_until=LATER), {}, (0, [])),
    ("C12-R5-over", failed(preserved_until=EARLIER), {}, (0, ["f"])),
    ("C12-R5-to-be-preserved", failed(annotations={keys.PRESERVE: "when-failed"}), {}, (0, [])),
    ("C7-handed-over", [*running(3), machine("u", **HANDED_OVER)], {}, (0, [])),
    ("C7-deleted", running(2), {"deletionTimestamp": LATER}, (0, ["m0", "m1"])),
)
def test_plan(machines: list[MachineFacts], metadata: dict[str, Any], wanted: tuple[int, list[str]]) -> None:
    found = setplan.plan(machine_set(replicas=3, metadata=metadata), machines, {}, NOW)
    assert (found.create, [one.name for one in found.delete]) == wanted


@rule("C7")
def test_a_run_creates_at_most_a_hundred() -> None:
    assert setplan.plan(machine_set(replicas=250), [], {}, NOW).create == 100
    many = running(250)
    assert len(setplan.plan(machine_set(replicas=0), many, {}, NOW).delete) == 100


@rule("C12-R1", "C12-R9", "L38")
def test_a_missing_node_does_not_end_preservation() -> None:
    failed = machine(
        "f", "Failed", labels={"name": "pool", "node": "n"}, annotations={keys.PRESERVE: "when-failed"}
    )
    owner = machine_set(replicas=1)
    assert not setplan.plan(owner, [failed], {"n": None}, NOW).delete
    assert not setplan.plan(owner, [failed], {"n": ""}, NOW).delete
    assert setplan.plan(owner, [failed], {"n": "false"}, NOW).delete
    assert not setplan.plan(owner, [failed], {"n": "now"}, NOW).delete


@rule("C6-R8")
def test_machines_chosen_by_the_autoscaler_are_always_deleted() -> None:
    mark = {keys.PRIORITY: "1", keys.MARKED_FOR_DELETION: EARLIER}
    late = {keys.PRIORITY: "1", keys.MARKED_FOR_DELETION: LATER}
    machines = [machine("a", annotations=mark), machine("b", annotations=late), machine("c")]
    metadata = {"annotations": {keys.SCALER_TIME: EARLIER}}
    found = setplan.plan(machine_set(replicas=3, metadata=metadata), machines, {}, NOW)
    assert [one.name for one in found.delete] == ["a"]
    assert not setplan.plan(machine_set(replicas=3), machines, {}, NOW).delete


def noted(key: str, value: str, **fields: Any) -> dict[str, Any]:
    return {"annotations": {key: value}, **fields}


_PRESERVED = {"phase": "Failed", "preserved_until": LATER}
_MARKED, _LATE = noted(keys.MARKED_FOR_DELETION, EARLIER), noted(keys.MARKED_FOR_DELETION, LATER)
_BY_NOBODY = noted(keys.PRESERVE, "auto-preserved", **_PRESERVED)
_BY_A_USER = noted(keys.PRESERVE, "now", **_PRESERVED)
_FOR_LONGER = {**_PRESERVED, "preserved_until": "2026-01-04T00:00:00Z"}


def phased(phase: str) -> dict[str, str]:
    return {"phase": phase}


@cases(
    "first second",
    ("C6-R9-not-preserved", {}, _PRESERVED),
    ("C6-R9-preserved-by-nobody", _BY_NOBODY, _BY_A_USER),
    ("C6-R9-sooner-over", _PRESERVED, _FOR_LONGER),
    ("C6-R9-priority", noted(keys.PRIORITY, "1"), phased("Failed")),
    ("C6-R9-none", noted(keys.PRIORITY, "x"), noted(keys.PRIORITY, "4")),
    ("C6-R9-marked", _LATE, phased("Failed")),
    ("C6-R9-marked-first", _MARKED, _LATE),
    ("C6-R10-failed", phased("Failed"), phased("CrashLoopBackOff")),
    ("C6-R10-crashing", phased("CrashLoopBackOff"), phased("Unknown")),
    ("C6-R10-unknown", phased("Unknown"), phased("Pending")),
    ("C6-R10-pending", phased("Pending"), phased("Available")),
    ("C6-R10-available", phased("Available"), phased("Running")),
    ("L37-updating", phased("Pending"), phased("InPlaceUpdating")),
    ("L37-new", phased("Unknown"), phased("")),
    ("C6-R9-older", {"created": "2025-01-01T00:00:00Z"}, {}),
)
def test_deletion_order(first: dict[str, Any], second: dict[str, Any]) -> None:
    # Names sort the other way round, so that they decide nothing.
    one, other = (
        machine(name, **{"phase": "Running", **fields}) for name, fields in (("z", first), ("a", second))
    )
    assert [found.name for found in setplan.first_to_go([other, one], NOW)] == ["z", "a"]


def test_a_deleted_set_keeps_machines_that_its_selector_no_longer_matches() -> None:
    owner = machine_set("pool-x", 1).object
    stray = replace(machine("m"), owner=owner.uid, labels={"name": "another"})
    assert setplan.claims(owner, [stray]).released == [stray]
    going = Object({**owner.raw, "metadata": {**owner.metadata, "deletionTimestamp": "2026-01-01T00:00:00Z"}})
    assert setplan.claims(going, [stray]).owned == [stray]


FAILURE = {"description": "no room", "state": "Failed", "type": "Create"}


@rule("C8")
def test_machines_are_counted_by_phase() -> None:
    machines = [
        machine("a"),
        machine("b", "Available"),
        machine("c", "Pending"),
        machine("d", "Terminating"),
        machine("e", "Failed", failure=FAILURE, provider_id="machine-e"),
        machine("f", "Failed", failure=FAILURE, preserved_until=LATER),
        machine("g", "CrashLoopBackOff", failure=FAILURE),
        machine("h", annotations={keys.PRESERVE: preservation.AUTO}, labels={}),
    ]
    found = setplan.status(machine_set(replicas=8), machines, [], {}, NOW)
    assert found.pop("failedMachines") == [
        {"name": "e", "ownerRef": "pool-a", "lastOperation": FAILURE, "providerID": "machine-e"},
        {"name": "g", "ownerRef": "pool-a", "lastOperation": FAILURE},
    ]
    assert found == {
        "observedGeneration": 1,
        "replicas": 8,
        "fullyLabeledReplicas": 7,
        "availableReplicas": 3,
        "readyReplicas": 2,
        "preservedFailedReplicas": 1,
        "autoPreserveFailedMachineCount": 1,
        "machineSetCondition": None,
    }


def test_a_status_lists_a_bounded_number_of_failed_machines() -> None:
    long = {"description": "x" * 4000, "state": "Failed"}
    machines = [machine(f"m{n:04}", "Failed", failure=long) for n in range(1000)]
    found = setplan.status(machine_set(replicas=1000), machines, [], {}, NOW)
    assert found["replicas"] == 1000
    listed = found["failedMachines"]
    assert [one["name"] for one in listed] == [f"m{n:04}" for n in range(100)]
    assert {len(one["lastOperation"]["description"]) for one in listed} == {501}


@rule("C8")
def test_a_condition_keeps_its_time_while_it_holds() -> None:
    first = setplan.status(machine_set(), [], [Condition(setplan.FAILURE, "FailedCreate", "quota")], {}, NOW)
    [condition] = first["machineSetCondition"]
    assert condition["lastTransitionTime"] == "2026-01-02T00:00:00Z"
    later = datetime(2026, 1, 3, tzinfo=UTC)
    again = [Condition(setplan.FAILURE, "FailedCreate", "quota, still")]
    assert setplan.status(machine_set(), [], again, first, later)["machineSetCondition"] == [condition]


@rule("C11-R1", "C11-R2", "C11-R3", "C11-R5", "L43")
def test_too_many_machines_freeze_a_set() -> None:
    limit = setplan.freeze_limits(machine_set(), wanted=2, surge=1, up=2, down=1)
    assert limit == setplan.Limits(upper=5, lower=4)
    frozen = machine_set(metadata={"labels": {keys.FREEZE: "True"}})
    assert [setplan.is_frozen(machine_set(), count, limit) for count in (4, 5, 6)] == [False, True, True]
    assert [setplan.is_frozen(frozen, count, limit) for count in (4, 5, 6)] == [False, True, True]
    metadata = {"labels": {keys.FREEZE: "True"}, "annotations": {keys.UNFREEZE: "True"}}
    assert not setplan.is_frozen(machine_set(metadata=metadata), 9, limit)
    assert setplan.freeze_limits(machine_set(replicas=3), None, 0, 2, 1) == setplan.Limits(8, 7)
    assert setplan.frozen(machine_set(), 5, limit).message == (
        "The number of machines backing MachineSet: pool-a is 5 >= 5 which is the Max-ScaleUp-Limit"
    )


@rule("C12-R6")
def test_the_newest_failed_machines_are_preserved_automatically() -> None:
    failed = [machine(f"f{n}", "Failed", created=f"2026-01-01T00:00:0{n}Z") for n in range(3)]
    decided = machine("no", "Failed", annotations={keys.PRESERVE: "false"})
    auto = machine("auto", "Failed", annotations={keys.PRESERVE: "auto-preserved"})
    begun, ended = preservation.automatic([*failed, decided, auto, machine("ok")], 3)
    assert ([one.name for one in begun], ended) == (["f2", "f1"], [])
    older = machine("old", created="2025-01-01T00:00:00Z", annotations={keys.PRESERVE: "auto-preserved"})
    begun, ended = preservation.automatic([auto, older, *failed], 1)
    assert (begun, [one.name for one in ended]) == ([], ["old"])
