"""A Worker's readiness, conditions and other status, and the decoded state of a former seed."""

from __future__ import annotations

import base64
import gzip
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from clouds.frame.pools import Group
from tests.support import workerexample as example
from tests.support.cases import cases
from tests.support.rules import rule
from tests.support.workerexample import pool, worker
from windowbox.errors import Malformed
from windowbox.models.extensions import TIMESTAMP
from windowbox.models.objects import Object
from windowbox.models.refs import RUNTIME, ObjectRef
from workers.core import healthchecks
from workers.core.lifecycle.shootfacts import ShootFacts
from workers.core.owned.targets import TargetCluster
from workers.machines.worker import workeractuator, workerplan, workerrestoration, workerstate
from workers.machines.worker.workerstate import Failed, Machine, MachineSet, Observed, Pending, Verdict

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
    made = workerplan.deployment(of, example.site(ASKED), 2)
    metadata = {**made["metadata"], "generation": 1}
    status = {name: value for name, value in {**READY, **status}.items() if value is not None}
    return Object({**made, "metadata": metadata, "status": status})


def machine_set(of: Group, class_name: str = "", replicas: int = 2, name: str = "set") -> MachineSet:
    return MachineSet(name, of.name, class_name or of.class_name, replicas)


def before(*sets: MachineSet) -> Observed:
    of = group()
    return Observed(frozenset([of.class_name]), {of.name: deployment(of)}, sets, ())


def verdict(of: Group, found: Object | None, seen: Observed, *, hibernated: bool = False) -> Verdict:
    there = {of.name: found} if found else {}
    return workerstate.verdict([of], there, seen, hibernated=hibernated)


def failed(name: str, reason: str) -> dict[str, Any]:
    return {"name": name, "lastOperation": {"description": reason, "state": "Failed", "type": "Create"}}


WAITING = (
    "Waiting until machines are available ({}/2 desired machine(s) available, {}/2 machine(s) updated, "
    "{} machine(s) pending, {} preserved failed machine(s), {}/1 machinedeployments available)..."
)
DOWN = {"conditions": [{**AVAILABLE, "status": "False"}]}
SEEN = before(machine_set(group()))
NEW = replace(SEEN, classes=frozenset())
WHERE = f"for the machine deployment ({example.TECHNICAL_ID}/{example.TECHNICAL_ID}-small-z1)"
CREATE = "waiting for the machine-controller-manager to create the"
NO_SET = Pending(f"{CREATE} updated machine set {WHERE}")
OLD_STAY = "Waiting until all old machines are drained and terminated. Waiting for 2 machine(s)..."
ONE = Failed('machine(s) failed: 1 error occurred: "a": no image')
TWO = Failed('machine(s) failed: 2 errors occurred: ["a", "b": no image, "c": quota]')


def failing(**machines: str) -> dict[str, Any]:
    return {"failedMachines": [failed(name, why) for name, why in machines.items()]}


def waiting(*numbers: int) -> Pending:
    return Pending(WAITING.format(*numbers))


@cases(
    "status seen expected",
    ("A11-R7-ready", {}, SEEN, None),
    ("A11-R1-one", failing(a="no image"), SEEN, ONE),
    ("A11-R1-for-two-reasons", failing(a="no image", b="no image", c="quota"), SEEN, TWO),
    ("A11-R3-a-new-class", {}, NEW, Pending(f"{CREATE} machine sets {WHERE}")),
    ("A11-R3-a-new-deployment", {}, replace(NEW, deployments={}), None),
    ("A11-R4-no-set", {}, before(), NO_SET),
    ("A11-R4-only-a-former-set", {}, before(machine_set(group(), "former")), NO_SET),
    (
        "A11-R9-unavailable",
        {**DOWN, "availableReplicas": 0, "unavailableReplicas": 2},
        SEEN,
        waiting(0, 2, 2, 0, 0),
    ),
    ("A11-R9-half-updated", {**DOWN, "updatedReplicas": 1}, SEEN, waiting(2, 1, 0, 0, 0)),
    ("A11-R5-observed-late", {"observedGeneration": 0}, SEEN, waiting(2, 2, 0, 0, 0)),
    ("A11-R7-preserved", {"unavailableReplicas": 1, "preservedFailedReplicas": 1}, SEEN, None),
    (
        "A11-R7-more-than-preserved",
        {"unavailableReplicas": 2, "preservedFailedReplicas": 1},
        SEEN,
        waiting(2, 2, 2, 1, 1),
    ),
    ("A11-R9+L19-old-machines-are-drained", {"replicas": 4}, SEEN, Pending(OLD_STAY)),
)
def test_rolling(status: dict[str, Any], seen: Observed, expected: Verdict) -> None:
    of = group()
    assert verdict(of, deployment(of, **status), seen) == expected


@cases(
    "status expected",
    ("A11-R2-asleep", {"replicas": 0}, None),
    ("A11-R9-awake", {}, Pending("Waiting until all machines have been hibernated (2 still awake)...")),
    ("A11-R1-failed", failing(a="stuck"), Failed('machine(s) failed: 1 error occurred: "a": stuck')),
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
        machines = (Machine("m", "old", update, False),)
        return replace(before(machine_set(of), old), classes=known, machines=machines)

    assert verdict(of, found, seen("CandidateForUpdate")) is None
    assert verdict(of, found, seen("")) is None
    blocked = Pending("Waiting until 1 old machines are updated...")
    assert verdict(of, found, seen("SelectedForUpdate")) == blocked


def test_a_missing_deployment_is_pending() -> None:
    assert verdict(group(), None, before()) == Pending(WAITING.format(0, 0, 0, 0, 0).replace("/2", "/0"))


def with_condition(type_: str, status: str) -> dict[str, Any]:
    others = [AVAILABLE] if type_ != "Available" else []
    said = {"type": type_, "status": status, "reason": "Because", "message": ".Not well."}
    return {"conditions": [*others, said]}


@cases(
    "status reason",
    ("A11-R5-healthy", {}, ""),
    ("outdated", {"observedGeneration": 0}, "observed generation outdated (0/1)"),
    ("nothing-known", {"conditions": []}, 'condition "Available" is missing'),
    ("unavailable", with_condition("Available", "False"), "Not well (Because)"),
    ("stuck", with_condition("Progressing", "False"), "Not well (Because)"),
    ("progressing", with_condition("Progressing", "True"), ""),
    ("failing", with_condition("ReplicaFailure", "True"), "Not well (Because)"),
    ("frozen", with_condition("Frozen", "True"), "Not well (Because)"),
    ("not-frozen", with_condition("Frozen", "False"), ""),
)
def test_health_of_a_deployment(status: dict[str, Any], reason: str) -> None:
    assert healthchecks.unhealthy_machines(deployment(group(), **status)) == reason


DEPLOYMENT: dict[str, Any] = {
    "metadata": {"name": "machine-controller-manager", "namespace": "shoot--one", "generation": 1},
    "spec": {"replicas": 0},
    "status": {"observedGeneration": 1, "conditions": [{"type": "Available", "status": "True"}]},
}


async def test_a_deployment_that_is_not_mirrored_yet_is_not_missing() -> None:
    async def read(ref: ObjectRef) -> None:
        """Nothing is mirrored."""

    async def call(*args: Any, **options: Any) -> Any:
        return DEPLOYMENT

    recorder, connection = SimpleNamespace(read=read, call=call), SimpleNamespace(call=None)
    target = TargetCluster(RUNTIME, cast(Any, recorder), cast(Any, connection))
    result = await workeractuator.manager_health(target, "shoot--one")
    assert "not found" not in str(result)


NOW = datetime(2026, 8, 21, 10, 0, 4, 700000, tzinfo=UTC)
PROCESSING, SUCCEEDED, FAILED = {"state": "Processing"}, {"state": "Succeeded"}, {"state": "Error"}
LISTED = [{"name": f"{example.TECHNICAL_ID}-small-z1", "minimum": 1, "maximum": 1}]


def time(seconds: str) -> str:
    return f"2026-08-21T10:00:0{seconds}Z"


def asked(
    seconds: str, last: dict[str, Any], reported: str, *, listed: bool = True, year: str = "2026"
) -> Object:
    """A Worker that was requested, and reported its MachineDeployments, so many seconds after ten."""
    status: dict[str, Any] = {"lastOperation": last}
    if reported:
        deployments = LISTED if listed else []
        status |= {"machineDeploymentsLastUpdateTime": time(reported), "machineDeployments": deployments}
    at = {TIMESTAMP: time(seconds).replace("2026", year)} if seconds else {}
    return worker(pool(), status=status, annotations=at)


@cases(
    "found reported",
    ("A4-R1-for-the-first-time", asked("", {}, ""), "4"),
    ("A4-R1-a-new-request", asked("4.5", SUCCEEDED, "0"), "5"),
    ("A4-R1-reported-already", asked("3.5", PROCESSING, "4"), None),
    ("A4-R1-a-new-request-within-the-same-second", asked("4.5", PROCESSING, "4"), "5"),
    ("A4-R1-always-later-than-before", asked("", SUCCEEDED, "4"), "5"),
    ("A4-R1-others-than-before", asked("", PROCESSING, "3", listed=False), "4"),
    ("a-clock-that-cannot-be-right", asked("4.5", PROCESSING, "3", year="2999"), "4"),
    ("a-failure-alone-is-no-request", asked("", FAILED, "3"), None),
    ("no-pools", worker(), None),
)
def test_when_machine_deployments_are_reported(found: Object, reported: str | None) -> None:
    patch = workerstate.machine_deployments(found, example.groups(found), NOW)
    at = time(reported) if reported else ""
    assert patch == ({"machineDeployments": LISTED, "machineDeploymentsLastUpdateTime": at} if at else {})


@cases(
    "found answered",
    ("goes-on", asked("", PROCESSING, "4"), True),
    ("failed-and-no-time-is-sent", asked("", FAILED, "4"), False),
    ("failed-not-asked-again", asked("3", FAILED, "4"), True),
    ("failed-and-asked-again", asked("5", FAILED, "4"), False),
    ("succeeded", asked("", SUCCEEDED, "4"), False),
    ("for-the-first-time", asked("", {}, ""), False),
)
def test_when_user_data_is_read_again(found: Object, answered: bool) -> None:
    assert workerstate.secrets_are_written(found) == answered


@rule("AP1.1")
def test_the_status_of_the_example() -> None:
    [raw] = example.example("AP1.1")
    found = Object(raw)
    known = example.profile(("1.0.0", found.status["providerStatus"]["machineImages"][0]["image"]))
    plan = workerplan.plan(
        found, ShootFacts(technical_id=example.TECHNICAL_ID), {"cloudProfile": {"spec": known}}
    )
    groups = plan.groups
    fresh = Object({**raw, "status": {}})
    reported = workerstate.machine_deployments(fresh, groups, NOW)["machineDeployments"]
    assert reported == found.status["machineDeployments"]
    assert plan.provider_status == found.status["providerStatus"]
    there = {one["metadata"]["name"]: Object(one) for one in example.example("AP1.4")}
    hashes = workerstate.in_place_hashes(fresh, groups, there)
    assert hashes == {"inPlaceUpdates": found.status["inPlaceUpdates"]}
    assert workerstate.in_place_hashes(found, groups, there) == {}


def in_place(strategy: str, before: dict[str, str], **status: int) -> dict[str, Any]:
    """The reported hashes of a pool `small` with in-place updates."""
    found = worker(pool(updateStrategy=strategy), status={"inPlaceUpdates": {"workerPoolToHashMap": before}})
    groups = example.groups(found)
    made = workerplan.deployment(groups[0], example.site(found), 1)
    return workerstate.in_place_hashes(found, groups, {groups[0].name: Object({**made, "status": status})})


PENDING, UPDATED = {"replicas": 2, "updatedReplicas": 1}, {"replicas": 2, "updatedReplicas": 2}
HASH = "158f7ddcc5c0a83f"


@cases(
    "strategy before status hashes",
    ("auto", "AutoInPlaceUpdate", {}, PENDING, {"small": HASH}),
    ("manual-pending", "ManualInPlaceUpdate", {"small": "old"}, PENDING, "same"),
    ("manual-updated", "ManualInPlaceUpdate", {"small": "old"}, UPDATED, {"small": HASH}),
    ("a-pool-that-is-gone", "AutoInPlaceUpdate", {"gone": "x"}, {}, {"gone": None, "small": HASH}),
    ("none-in-place-any-more", "AutoRollingUpdate", {"small": "old"}, {}, None),
)
@rule("A14-R1", "A14-R2")
def test_hashes_of_pools_updated_in_place(
    strategy: str, before: dict[str, str], status: dict[str, int], hashes: Any
) -> None:
    patch = {} if hashes == "same" else {"inPlaceUpdates": hashes and {"workerPoolToHashMap": hashes}}
    assert in_place(strategy, before, **status) == patch


SET: dict[str, Any] = {
    "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet",
    "metadata": {"name": "s", "namespace": "elsewhere", "labels": {"name": "d"}, "uid": "u"},
    "spec": {"replicas": 1}, "status": {"replicas": 1},
}  # fmt: skip


def one(**deployment: Any) -> dict[str, Any]:
    return {"state": example.saved_state({"d": deployment})}


def packed(content: bytes) -> dict[str, Any]:
    return {"state": {"state": base64.b64encode(gzip.compress(content)).decode()}}


@rule("A15-R2", "A15-R3", "A15-R4")
def test_the_state_is_decoded_for_the_namespace_of_the_worker() -> None:
    machine = {"metadata": {"name": "m"}, "spec": {"providerID": "machine-m"}}
    saved = one(replicas=2, machineSets=[SET], machines=[machine])
    [(name, state)] = workerrestoration.decoded(worker(status=saved)).items()
    assert (name, state.replicas) == ("d", 2)
    assert state.sets == (
        {
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet",
            "metadata": {"name": "s", "namespace": "shoot--local--demo", "labels": {"name": "d"}},
            "spec": {"replicas": 1},
        },
    )  # fmt: skip
    assert state.machines[0]["kind"] == "Machine"
    assert state.machines[0]["spec"] == {"providerID": "machine-m"}


@cases(
    "status",
    ("A15-R3-none", {}),
    ("A15-R3-empty", {"state": {}}),
    ("A15-R3-nothing-in-it", packed(b"{}")),
    ("A15-R2-no-sets", one(replicas=2, machineSets=[])),
)
def test_no_state(status: dict[str, Any]) -> None:
    assert workerrestoration.decoded(worker(status=status)) == {}


@cases(
    "status words",
    ("no-base64", {"state": {"state": "%"}}, "is not base64 of gzip"),
    ("no-gzip", {"state": {"state": "aGFsbG8="}}, "is not base64 of gzip"),
    ("no-json", packed(b"{"), "holds no JSON"),
    ("bomb", packed(b" " * (32 * 1024 * 1024 + 1)), "unpacks to more than"),
    ("deep", packed(b"[" * 100_000), "holds no JSON"),
    ("half-a-character", packed(b'{"machineDeployments": "\\ud800"}'), "holds no JSON"),
    ("no-name", one(machineSets=[{}]), "without a name"),
    ("name-is-a-number", one(machineSets=[{"metadata": {"name": 5}}]), "without a name"),
    ("replicas-huge", one(replicas=10**30), "has 1e.30 replicas"),
    ("no-number", one(replicas=True), "has True replicas"),
)
def test_a_state_that_cannot_be_read_is_an_error(status: dict[str, Any], words: str) -> None:
    with pytest.raises(Malformed, match=words):
        workerrestoration.decoded(worker(status=status))
