"""The status of a MachineSet."""

from __future__ import annotations

from datetime import UTC, datetime

from tests.support.machinefacts import machine, machine_set
from tests.support.rules import rule
from windowbox.models import machinekeys as keys
from workers.machines import preservation
from workers.machines.set import setplan, setstatus
from workers.machines.set.setstatus import Condition

NOW = datetime(2026, 1, 2, tzinfo=UTC)
LATER = "2026-01-03T00:00:00Z"
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
    found = setstatus.status(machine_set(replicas=8), machines, [], {}, NOW)
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
    found = setstatus.status(machine_set(replicas=1000), machines, [], {}, NOW)
    assert found["replicas"] == 1000
    listed = found["failedMachines"]
    assert [one["name"] for one in listed] == [f"m{n:04}" for n in range(100)]
    assert {len(one["lastOperation"]["description"]) for one in listed} == {501}


@rule("C8")
def test_a_condition_keeps_its_time_while_it_holds() -> None:
    first = setstatus.status(
        machine_set(), [], [Condition(setstatus.FAILURE, "FailedCreate", "quota")], {}, NOW
    )
    [condition] = first["machineSetCondition"]
    assert condition["lastTransitionTime"] == "2026-01-02T00:00:00Z"
    later = datetime(2026, 1, 3, tzinfo=UTC)
    again = [Condition(setstatus.FAILURE, "FailedCreate", "quota, still")]
    assert setstatus.status(machine_set(), [], again, first, later)["machineSetCondition"] == [condition]


@rule("C11-R1", "C11-R2", "C11-R3", "L43")
def test_too_many_machines_freeze_a_set() -> None:
    limit = setplan.freeze_limits(machine_set(), wanted=2, surge=1, up=2, down=1)
    assert limit == setplan.Limits(upper=5, lower=4)
    frozen = machine_set(metadata={"labels": {keys.FREEZE: "True"}})
    assert [setplan.is_frozen(machine_set(), count, limit) for count in (4, 5, 6)] == [False, True, True]
    assert [setplan.is_frozen(frozen, count, limit) for count in (4, 5, 6)] == [False, True, True]
    assert setplan.freeze_limits(machine_set(replicas=3), None, 0, 2, 1) == setplan.Limits(8, 7)
    assert setstatus.frozen(machine_set(), 5, limit).message == (
        "The number of machines backing MachineSet: pool-a is 5 >= 5 which is the Max-ScaleUp-Limit"
    )


@rule("C11-R5")
def test_an_annotation_unfreezes_a_set() -> None:
    metadata = {"labels": {keys.FREEZE: "True"}, "annotations": {keys.UNFREEZE: "True"}}
    limit = setplan.Limits(5, 4)
    assert not setplan.is_frozen(machine_set(metadata=metadata), 9, limit)


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
