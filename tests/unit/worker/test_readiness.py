"""The readiness of a Worker's machines."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.support import workerexample as example
from tests.support.rules import rule
from tests.support.workerexample import pool, worker
from windowbox.models.objects import Object
from workers.core import healthchecks
from workers.core import healthchecks as health
from workers.machines.worker import readiness, workermanifests
from workers.machines.worker.readiness import Failed, Pending, Verdict
from workers.machines.worker.workergroups import Group
from workers.machines.worker.workerobserved import Machine, MachineSet, Observed

ASKED = worker(pool(minimum=2, maximum=2))
AVAILABLE = {"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable", "message": "Well."}
READY = {
    "observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2,
    "conditions": [AVAILABLE],
}  # fmt: skip


def group(**more: Any) -> Group:
    [found] = example.groups(worker(pool(minimum=2, maximum=2, **more)))
    return found


def deployment(of: Group, **status: Any) -> Object:
    made = workermanifests.deployment(of, example.site(ASKED), 2)
    metadata = {**made["metadata"], "generation": 1}
    status = {name: value for name, value in {**READY, **status}.items() if value is not None}
    return Object({**made, "metadata": metadata, "status": status})


def machine_set(of: Group, class_name: str = "", replicas: int = 2, name: str = "set") -> MachineSet:
    return MachineSet(name, of.name, class_name or of.class_name, replicas)


def before(*sets: MachineSet, existed: bool = True, **more: Any) -> Observed:
    of = group()
    known: dict[str, Any] = {
        "classes": frozenset([of.class_name]),
        "deployments": {of.name: deployment(of)} if existed else {},
        "sets": sets,
        "machines": (),
    }
    return Observed(**{**known, **more})


def verdict(of: Group, found: Object | None, seen: Observed, *, hibernated: bool = False) -> Verdict:
    there = {of.name: found} if found else {}
    return readiness.verdict([of], there, seen, hibernated=hibernated)


def failed(name: str, reason: str) -> dict[str, Any]:
    return {"name": name, "lastOperation": {"description": reason, "state": "Failed", "type": "Create"}}


WAITING = (
    "Waiting until machines are available ({}/2 desired machine(s) available, {}/2 machine(s) updated, "
    "{} machine(s) pending, {} preserved failed machine(s), {}/1 machinedeployments available)..."
)
NOT_AVAILABLE = [{**AVAILABLE, "status": "False"}]
WHERE = f"for the machine deployment ({example.TECHNICAL_ID}/{example.TECHNICAL_ID}-small-z1)"
CREATE = "waiting for the machine-controller-manager to create the"


@pytest.mark.parametrize(
    ("status", "seen", "expected"),
    [
        pytest.param({}, before(machine_set(group())), None, id="A11-R7-ready"),
        pytest.param(
            {"failedMachines": [failed("a", "no image")]}, before(machine_set(group())),
            Failed('machine(s) failed: 1 error occurred: "a": no image'), id="A11-R1-one",
        ),
        pytest.param(
            {"failedMachines": [failed("a", "no image"), failed("b", "no image"), failed("c", "quota")]},
            before(machine_set(group())),
            Failed('machine(s) failed: 2 errors occurred: ["a", "b": no image, "c": quota]'),
            id="A11-R1-for-two-reasons",
        ),
        pytest.param(
            {}, before(machine_set(group()), classes=frozenset()), Pending(f"{CREATE} machine sets {WHERE}"),
            id="A11-R3-a-new-class",
        ),
        pytest.param(
            {}, before(machine_set(group()), classes=frozenset(), existed=False), None,
            id="A11-R3-a-new-deployment",
        ),
        pytest.param({}, before(), Pending(f"{CREATE} updated machine set {WHERE}"), id="A11-R4-no-set"),
        pytest.param(
            {}, before(machine_set(group(), "former")), Pending(f"{CREATE} updated machine set {WHERE}"),
            id="A11-R4-only-a-former-set",
        ),
        pytest.param(
            {"conditions": NOT_AVAILABLE, "availableReplicas": 0, "unavailableReplicas": 2},
            before(machine_set(group())), Pending(WAITING.format(0, 2, 2, 0, 0)), id="A11-R9-unavailable",
        ),
        pytest.param(
            {"updatedReplicas": 1, "conditions": NOT_AVAILABLE}, before(machine_set(group())),
            Pending(WAITING.format(2, 1, 0, 0, 0)), id="A11-R9-half-updated",
        ),
        pytest.param(
            {"observedGeneration": 0}, before(machine_set(group())), Pending(WAITING.format(2, 2, 0, 0, 0)),
            id="A11-R5-observed-late",
        ),
        pytest.param(
            {"unavailableReplicas": 1, "preservedFailedReplicas": 1}, before(machine_set(group())), None,
            id="A11-R7-preserved",
        ),
        pytest.param(
            {"unavailableReplicas": 2, "preservedFailedReplicas": 1}, before(machine_set(group())),
            Pending(WAITING.format(2, 2, 2, 1, 1)), id="A11-R7-more-than-preserved",
        ),
        pytest.param(
            {"replicas": 4}, before(machine_set(group())),
            Pending("Waiting until all old machines are drained and terminated. Waiting for 2 machine(s)..."),
            id="A11-R9+L19-old-machines-are-drained",
        ),
    ],
)  # fmt: skip
def test_rolling(status: dict[str, Any], seen: Observed, expected: Verdict) -> None:
    of = group()
    assert verdict(of, deployment(of, **status), seen) == expected


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param({"replicas": 0}, None, id="A11-R2-asleep"),
        pytest.param(
            {},
            Pending("Waiting until all machines have been hibernated (2 still awake)..."),
            id="A11-R9-awake",
        ),
        pytest.param(
            {"failedMachines": [failed("a", "stuck")]},
            Failed('machine(s) failed: 1 error occurred: "a": stuck'),
            id="A11-R1-failed",
        ),
    ],
)
def test_hibernation(status: dict[str, Any], expected: Verdict) -> None:
    of = group()
    assert verdict(of, deployment(of, **status), before(), hibernated=True) == expected


@rule("A11-R6")
def test_machines_that_wait_for_a_person_count_as_updated() -> None:
    of = group(updateStrategy="ManualInPlaceUpdate")
    old = machine_set(of, "former", replicas=1, name="old")
    known = frozenset([of.class_name])
    found = deployment(of, updatedReplicas=1)

    def seen(update: str) -> Observed:
        return before(machine_set(of), old, classes=known, machines=(Machine("m", "old", update, False),))

    assert verdict(of, found, seen("CandidateForUpdate")) is None
    assert verdict(of, found, seen("")) is None
    blocked = Pending("Waiting until 1 old machines are updated...")
    assert verdict(of, found, seen("SelectedForUpdate")) == blocked


def test_a_missing_deployment_is_pending() -> None:
    assert verdict(group(), None, before()) == Pending(WAITING.format(0, 0, 0, 0, 0).replace("/2", "/0"))


def conditions(*more: tuple[str, str]) -> list[dict[str, Any]]:
    added = [{"type": t, "status": s, "reason": "Because", "message": ".Not well."} for t, s in more]
    return [*(one for one in [AVAILABLE] if "Available" not in dict(more)), *added]


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        pytest.param({}, "", id="A11-R5-healthy"),
        pytest.param({"observedGeneration": 0}, "observed generation outdated (0/1)", id="outdated"),
        pytest.param({"conditions": []}, 'condition "Available" is missing', id="nothing-known"),
        pytest.param(
            {"conditions": conditions(("Available", "False"))}, "Not well (Because)", id="unavailable"
        ),
        pytest.param({"conditions": conditions(("Progressing", "False"))}, "Not well (Because)", id="stuck"),
        pytest.param({"conditions": conditions(("Progressing", "True"))}, "", id="progressing"),
        pytest.param(
            {"conditions": conditions(("ReplicaFailure", "True"))}, "Not well (Because)", id="failing"
        ),
        pytest.param({"conditions": conditions(("Frozen", "True"))}, "Not well (Because)", id="frozen"),
        pytest.param({"conditions": conditions(("Frozen", "False"))}, "", id="not-frozen"),
    ],
)
def test_health_of_a_deployment(status: dict[str, Any], reason: str) -> None:
    assert healthchecks.unhealthy_machines(deployment(group(), **status)) == reason


@pytest.mark.parametrize(
    ("status", "hibernated", "expected"),
    [
        pytest.param({}, False, ("True", "All health checks successful"), id="A18-R5-ready"),
        pytest.param({"conditions": []}, True, ("True", "Shoot is hibernated"), id="A18-R3-hibernated"),
        pytest.param(
            {"failedMachines": [failed("a", "quota")], "conditions": []},
            False,
            ("False", 'machine "a" failed: quota.'),
            id="A18-R4-failed",
        ),
        pytest.param(
            {"observedGeneration": 0},
            False,
            (
                "False",
                f'machine deployment "{example.TECHNICAL_ID}-small-z1" in namespace "{example.TECHNICAL_ID}" '
                "is unhealthy: observed generation outdated (0/1).",
            ),
            id="A18-R4-unhealthy",
        ),
    ],
)
def test_every_node_ready(status: dict[str, Any], hibernated: bool, expected: tuple[str, str]) -> None:
    results = {"EveryNodeReady": [healthchecks.nodes([deployment(group(), **status)])]}
    now = datetime(2026, 9, 1, tzinfo=UTC)
    (said,) = health.conditions_patch(Object({}), results, now, hibernated=hibernated)["conditions"]
    reason = "HealthCheckSuccessful" if expected[0] == "True" else "HealthCheckUnsuccessful"
    assert (said["type"], said["status"], said["reason"], said["message"]) == (
        "EveryNodeReady", expected[0], reason, expected[1],
    )  # fmt: skip
