"""Phases of Machines, as tables of what their nodes, annotations and the time make of them."""

from __future__ import annotations

from typing import Any, cast

import pytest

from bus.messages import Reason, Wish
from tests.support.machineapi import MachineApi
from tests.support.rules import rule
from tests.unit.machines.samples import NOW, TIMEOUTS, ago, machine, node, spelled
from windowbox.errors import Conflict
from windowbox.models import machinekeys as keys
from windowbox.models.machines import Phase
from windowbox.models.objects import Object
from windowbox.models.refs import MACHINES, RUNTIME, ObjectRef
from workers.core.owned.targets import TargetClusters
from workers.core.reconcile import Request
from workers.machines.machine import nodeupdate, phases, preserving, reasons
from workers.machines.machine.machinecreation import claim
from workers.machines.machine.machinepool import MachineMapping
from workers.machines.machine.machinespecs import Timeouts
from workers.machines.machine.machinestatus import MachineRun
from workers.machines.machine.machineviews import KnownMachine, may_be_replaced
from workers.machines.machine.phases import MachineState

CRITICAL = {"key": "node.gardener.cloud/critical-components-not-ready", "effect": "NoSchedule"}
GOOD, BAD = node(Ready="True"), node(Ready="False")
FAILED = node(Ready="True", metadata={"labels": {keys.UPDATE_RESULT: keys.FAILED}})
CONDITIONS = [{"type": "Ready", "status": "True"}]
GONE = reasons.Reason("PodGone", "Pod infra/machine-a is gone: see who deleted it")
UNHEALTHY = (
    "Machine a is unhealthy - changing MachinePhase to Unknown. Node conditions: Ready is False (R: m)"
)
JOINED, REJOINED = (f"Machine a successfully {verb} the cluster" for verb in ("joined", "re-joined"))
LATE = "Machine a failed to join the cluster in 20 minutes."
NOT_UPDATED = f"Machine a failed to in-place update: {GONE.text}"
GIVEN_UP = "Updating machine phase to Failed. Node Conditions:"
FAILING = f"Machine a health checks failing since last 10 minutes. {GIVEN_UP} Ready is False (R: m)"
LOST = f"Machine a is lost: {GONE.text}. {GIVEN_UP}"


def state(
    phase: str, *, age: float = 60, since: float = 60, last: str = "", conditions: Any = ()
) -> MachineState:
    """`last` is type and state of the last operation."""
    operation, _, operation_state = last.partition(" ")
    return MachineState("a", phase, ago(age), ago(since), operation, operation_state, conditions)


@pytest.mark.parametrize(
    ("before", "found", "after"),
    [
        pytest.param(state("Pending"), GOOD, "Running", id="B9"),
        pytest.param(state("Pending"), node(), None, id="B9-R2+no-conditions"),
        pytest.param(state("Pending"), node(DiskPressure="False"), "Running", id="B9-R2+ready-is-not-there"),
        pytest.param(state("Pending"), BAD, None, id="B9+pending-and-not-ready"),
        pytest.param(state("Pending"), node(Ready="True", taints=[CRITICAL]), None, id="B9-R3"),
        pytest.param(state("Unknown"), node(Ready="True", taints=[CRITICAL]), "Running", id="B9-R3+unknown"),
        pytest.param(state("Failed"), GOOD, "Running", id="B9-R8"),
        pytest.param(state("InPlaceUpdating"), GOOD, None, id="B9+updating"),
        pytest.param(state("Running"), GOOD, None, id="B9+runs"),
        pytest.param(state("Running"), BAD, "Unknown", id="B9+unhealthy"),
        pytest.param(state("Running"), node(Ready="True", KernelDeadlock="True"), "Unknown", id="B9-R2"),
        pytest.param(state("Running"), node(Ready="True", DiskPressure="True"), None, id="B9-R2+not-named"),
        pytest.param(state("Running", conditions=CONDITIONS), None, "Unknown", id="B9+node-missing"),
        pytest.param(state("Running"), None, None, id="B9+never-had-a-node"),
        pytest.param(state("Pending", age=1201), None, "Failed", id="B9-R7"),
        pytest.param(state("Pending", age=1199), None, None, id="B9-R7+in-time"),
        pytest.param(state("Pending", age=1201), GOOD, "Running", id="B9-R7+joined-late"),
        pytest.param(state("Unknown", since=601), BAD, "Failed", id="B9-R4"),
        pytest.param(state("Unknown", since=599), BAD, None, id="B9-R4+in-time"),
        pytest.param(state("Unknown", age=5000, since=601), None, "Failed", id="B9-R4+node-missing"),
    ],
)
def test_the_phase_follows_from_node_and_time(
    before: MachineState, found: Object | None, after: str | None
) -> None:
    change = phases.verdict(before, found, TIMEOUTS, NOW).change
    assert (change.phase if change else None) == after


@pytest.mark.parametrize(
    ("before", "found", "seconds", "then"),
    [
        pytest.param(state("Pending", age=200), None, 1000, "joined", id="B9-R5+pending"),
        pytest.param(state("Unknown", since=100), BAD, 500, "healthy", id="B9-R5+unknown"),
        pytest.param(state("Running"), BAD, 600, "healthy", id="B9-R9+unknown-from-now-on"),
        pytest.param(state("InPlaceUpdating", since=200), GOOD, 1000, "update in place", id="updating"),
        pytest.param(state("InPlaceUpdating", since=1201), GOOD, 600, "healthy", id="B9-R9+update-too-late"),
        pytest.param(state("InPlaceUpdating"), FAILED, 600, "healthy", id="B9-R9+update-failed"),
    ],
)
def test_the_next_look_is_at_the_deadline(
    before: MachineState, found: Object | None, seconds: float, then: str
) -> None:
    found_now = phases.verdict(before, found, TIMEOUTS, NOW)
    assert found_now.deadline
    assert (found_now.deadline - NOW).total_seconds() == seconds
    assert then in found_now.then


@pytest.mark.parametrize(
    ("before", "found", "last", "words"),
    [
        pytest.param(
            state("Pending", last="Create Processing"), GOOD, "Create Successful", JOINED, id="B9+first"
        ),
        pytest.param(
            state("Unknown", last="HealthCheck"), GOOD, "HealthCheck Successful", REJOINED, id="B9+again"
        ),
        pytest.param(
            state("Running", last="Create Successful"),
            BAD,
            "HealthCheck Processing",
            UNHEALTHY,
            id="B9+words",
        ),
        pytest.param(state("Pending", age=1300, last="Create"), None, "Create Failed", LATE, id="B9+late"),
        pytest.param(
            state("Unknown", since=700, last="HealthCheck"),
            BAD,
            "HealthCheck Failed",
            FAILING,
            id="B9+given-up",
        ),
    ],
)
def test_each_change_says_why(before: MachineState, found: Object | None, last: str, words: str) -> None:
    change = phases.verdict(before, found, TIMEOUTS, NOW).change
    assert change
    assert (f"{change.type} {change.state}", change.description) == (last, words)


@pytest.mark.parametrize("loss", [None, GONE], ids=["unhealthy", "pod-gone"])
def test_an_unhealthy_machine_without_a_timeout_stays(loss: reasons.Reason | None) -> None:
    forever = Timeouts(1200.0, None, 7200.0, 1200.0, 360, ())
    found = phases.verdict(state(Phase.UNKNOWN, since=1e6), BAD, forever, NOW, loss)
    assert found == phases.Verdict()


@pytest.mark.parametrize(
    ("before", "found", "after", "words"),
    [
        pytest.param(state("Running"), BAD, "Unknown", f"{UNHEALTHY}. {GONE.text}", id="runs"),
        pytest.param(state("Unknown", since=1), BAD, "Failed", f"{LOST} Ready is False (R: m)", id="unknown"),
        pytest.param(state("Unknown", since=1), None, "Failed", f"{LOST} there is no node", id="no-node"),
        pytest.param(
            state("InPlaceUpdating", since=1), BAD, "InPlaceUpdateFailed", NOT_UPDATED, id="updating"
        ),
    ],
)
def test_a_machine_without_its_pod_is_given_up_at_once(
    before: MachineState, found: Object | None, after: str, words: str
) -> None:
    verdict = phases.verdict(before, found, TIMEOUTS, NOW, GONE)
    assert verdict.change
    assert (verdict.change.phase, verdict.change.description) == (after, words)
    assert verdict.needs_permit if after == "Failed" else verdict.deadline == NOW


@pytest.mark.parametrize(
    ("before", "found", "asks"),
    [
        pytest.param(state("Running"), GOOD, False, id="works"),
        pytest.param(state("Running"), BAD, True, id="unhealthy"),
        pytest.param(state("Running"), None, False, id="never-had-a-node"),
        pytest.param(state("Unknown", conditions=CONDITIONS), None, True, id="node-missing"),
        pytest.param(state("InPlaceUpdating"), BAD, True, id="updating"),
        pytest.param(state("Pending"), BAD, False, id="not-joined"),
        pytest.param(state("Failed"), BAD, False, id="given-up"),
    ],
)
def test_a_pod_is_asked_for_when_its_node_does_not_work(
    before: MachineState, found: Object | None, asks: bool
) -> None:
    assert phases.may_have_lost_its_pod(before, found, TIMEOUTS) is asks


@pytest.mark.parametrize(
    ("phase", "is_unfinished"),
    [("Running", False), ("Unknown", True), ("InPlaceUpdating", True), ("InPlaceUpdateFailed", True)],
)
def test_a_machine_with_a_deadline_is_unfinished(phase: str, is_unfinished: bool) -> None:
    found = Object({"kind": "Machine", "metadata": {}, "status": {"currentStatus": {"phase": phase}}})
    assert MachineMapping(cast(Any, None)).unfinished(found) is is_unfinished


CANDIDATE, SELECTED = {keys.CANDIDATE: "true"}, {keys.CANDIDATE: "true", keys.SELECTED: "true"}
SUCCESSFUL = {**SELECTED, keys.UPDATE_RESULT: "successful"}
UNSUCCESSFUL = {**SELECTED, keys.UPDATE_RESULT: "failed"}


def labelled(labels: dict[str, str], reason: str = "", seconds: float = 0.0, **conditions: str) -> Object:
    said: list[dict[str, Any]] = [{"type": k, "status": v} for k, v in conditions.items()]
    if reason:
        at = spelled(ago(seconds))
        said.append({"type": "InPlaceUpdate", "status": "True", "reason": reason, "lastTransitionTime": at})
    return Object({"metadata": {"name": "machine-a", "labels": labels}, "status": {"conditions": said}})


@pytest.mark.parametrize(
    ("labels", "reason", "wanted"),
    [
        pytest.param({}, "", "", id="no-candidate"),
        pytest.param({keys.SELECTED: "true"}, "", "", id="selected-but-no-candidate"),
        pytest.param(CANDIDATE, "", "CandidateForUpdate", id="a-candidate"),
        pytest.param(CANDIDATE, "CandidateForUpdate", "", id="waits-to-be-selected"),
        pytest.param(SELECTED, "", "CandidateForUpdate", id="selected-at-once"),
        pytest.param(SELECTED, "CandidateForUpdate", "SelectedForUpdate", id="selected"),
        pytest.param(SELECTED, "SelectedForUpdate", "", id="is-emptied"),
        pytest.param(SUCCESSFUL, "SelectedForUpdate", "", id="no-result-counts-before-it-is-empty"),
        pytest.param(SELECTED, "DrainSuccessful", "ReadyForUpdate", id="empty"),
        pytest.param(SELECTED, "ReadyForUpdate", "", id="is-updated"),
        pytest.param(SUCCESSFUL, "ReadyForUpdate", "UpdateSuccessful", id="updated"),
        pytest.param(SUCCESSFUL, "UpdateSuccessful", "", id="said-already"),
        pytest.param(UNSUCCESSFUL, "ReadyForUpdate", "UpdateFailed", id="failed"),
        pytest.param(UNSUCCESSFUL, "UpdateFailed", "", id="failure-said-already"),
        pytest.param(SUCCESSFUL, "UpdateFailed", "UpdateSuccessful", id="put-right"),
        pytest.param(CANDIDATE, "UpdateSuccessful", "CandidateForUpdate", id="the-next-update"),
    ],
)
@rule("C10")
def test_the_condition_follows_the_labels(labels: dict[str, str], reason: str, wanted: str) -> None:
    assert nodeupdate.next_reason(labelled(labels, reason)) == wanted


@pytest.mark.parametrize(
    ("label", "seconds", "forced"),
    [
        pytest.param({}, 60, False, id="normal"),
        pytest.param({}, 7201, True, id="since-it-was-selected"),
        pytest.param({keys.FORCE_DRAIN: "True"}, 60, True, id="label"),
        pytest.param({keys.FORCE_DRAIN: "true"}, 60, False, id="label-of-another-value"),
        pytest.param({keys.FORCE_DELETION: "True"}, 60, False, id="label-of-deletions"),
    ],
)
@rule("C10-R2")
def test_when_a_drain_for_an_update_is_forced(label: dict[str, str], seconds: float, forced: bool) -> None:
    found = labelled(SELECTED, "SelectedForUpdate", seconds, Ready="True")
    asking = Object({**machine().raw, "metadata": {**machine().metadata, "labels": label}})
    mode = nodeupdate.mode(asking, found, TIMEOUTS, NOW)
    assert (mode.forced, mode.machine_too) == (forced, False)


@pytest.mark.parametrize(
    ("phase", "labels", "seconds", "after"),
    [
        pytest.param(Phase.IN_PLACE_UPDATING, SELECTED, 60, None, id="waits"),
        pytest.param(Phase.IN_PLACE_UPDATING, SELECTED, 1201, Phase.IN_PLACE_UPDATE_FAILED, id="too-late"),
        pytest.param(
            Phase.IN_PLACE_UPDATING, SUCCESSFUL, 60, Phase.IN_PLACE_UPDATE_SUCCESSFUL, id="successful"
        ),
        pytest.param(Phase.IN_PLACE_UPDATING, UNSUCCESSFUL, 60, Phase.IN_PLACE_UPDATE_FAILED, id="failed"),
        pytest.param(Phase.IN_PLACE_UPDATE_FAILED, UNSUCCESSFUL, 60, None, id="failed-before"),
        pytest.param(
            Phase.IN_PLACE_UPDATE_FAILED, SUCCESSFUL, 60, Phase.IN_PLACE_UPDATE_SUCCESSFUL, id="put-right"
        ),
        pytest.param(Phase.IN_PLACE_UPDATE_FAILED, UNSUCCESSFUL, 601, Phase.FAILED, id="failed-for-too-long"),
        pytest.param(Phase.IN_PLACE_UPDATE_SUCCESSFUL, SUCCESSFUL, 60, Phase.RUNNING, id="runs-again"),
    ],
)
@rule("C10", "B9-R4")
def test_phases_of_an_update(
    phase: Phase, labels: dict[str, str], seconds: float, after: Phase | None
) -> None:
    before = state(phase, age=9999, since=seconds)
    change = phases.verdict(before, labelled(labels, Ready="True"), TIMEOUTS, NOW).change
    assert (change.phase if change else None) == after


KEY = "node.machine.sapcloud.io/preserve"
LAST = "node.machine.sapcloud.io/last-applied-node-preserve-value"
LATER, EARLIER = "2026-08-22T10:00:00Z", spelled(ago(1))


def asking(own: str = "", *, phase: str = "Running", last: str = "", expiry: str = "") -> Object:
    annotations = {name: value for name, value in ((KEY, own), (LAST, last)) if value}
    current: dict[str, Any] = {"phase": phase} | ({"preserveExpiryTime": expiry} if expiry else {})
    return Object(
        {"metadata": {"name": "a", "annotations": annotations}, "status": {"currentStatus": current}}
    )


def its_node(value: str = "") -> Object:
    return node(Ready="True", metadata={"annotations": {KEY: value} if value else {}})


@pytest.mark.parametrize(
    ("found", "on", "preserved"),
    [
        pytest.param(asking("now"), its_node(), True, id="C12+now"),
        pytest.param(asking("now"), None, True, id="C12-R1+node-missing"),
        pytest.param(asking("when-failed"), its_node(), False, id="C12+not-failed"),
        pytest.param(asking("when-failed", phase="Failed"), its_node(), True, id="C12+failed"),
        pytest.param(asking("now"), its_node("false"), False, id="C12-R1+node-first"),
        pytest.param(asking("now", last="now"), its_node(), False, id="C12-R1+node-takes-it-back"),
        pytest.param(asking("sometimes"), its_node(), False, id="C12-R1+nonsense"),
        pytest.param(asking(expiry=LATER), its_node("sometimes"), True, id="C12-R1+nonsense-on-node"),
        pytest.param(asking("now", expiry=EARLIER), its_node(), False, id="C12-R4+expired"),
        pytest.param(asking("auto-preserved", expiry=LATER), its_node(), False, id="C12-R4+recovered"),
        pytest.param(asking("when-failed", expiry=LATER), its_node(), True, id="C12-R4+recovered-by-a-user"),
        pytest.param(asking("auto-preserved", phase="Failed"), its_node(), True, id="C12+auto"),
    ],
)
def test_annotations_decide(found: Object, on: Object | None, preserved: bool) -> None:
    assert preserving.decide(found, on, NOW).preserved is preserved


def known(name: str, phase: str, since: int, *, preserved: bool = False) -> KnownMachine:
    at = f"2026-01-01T00:00:0{since}Z"
    return KnownMachine(RUNTIME, "shoot--l--d", name, name, "small", "pool", phase, at, preserved)


@rule("B9-R6")
@pytest.mark.parametrize(
    ("phases", "given_up"),
    [
        pytest.param(["Unknown", "Unknown"], "a", id="longest-unhealthy-first"),
        pytest.param(["Unknown", "Pending"], "", id="another-is-made"),
        pytest.param(["Unknown", "InPlaceUpdating"], "", id="another-is-updated"),
        pytest.param(["InPlaceUpdateFailed", "InPlaceUpdateFailed"], "a", id="updates-have-failed"),
        pytest.param(["InPlaceUpdateFailed", "Unknown"], "a", id="one-line-for-both"),
        pytest.param(["Failed", "InPlaceUpdateFailed"], "", id="another-is-replaced"),
    ],
)
def test_one_machine_is_given_up_at_a_time(phases: list[str], given_up: str) -> None:
    waiting = ("Unknown", "InPlaceUpdateFailed")
    found = [known(name, phase, n) for n, (name, phase) in enumerate(zip("ab", phases, strict=True))]
    permitted = [one.name for one in found if one.phase in waiting and may_be_replaced(one.name, found)]
    assert "".join(permitted) == given_up


CLAIMED = {
    "finalizers": [keys.FINALIZER],
    "labels": {keys.NODE: "machine-a"},
    "annotations": {keys.PRIORITY: keys.USUAL_PRIORITY},
}


def claimed(**metadata: Any) -> Object:
    found = machine(providerID="machine-a")
    return Object({**found.raw, "metadata": {**found.metadata, **CLAIMED, **metadata}})


@pytest.mark.parametrize(
    "live",
    [
        pytest.param(None, id="gone"),
        pytest.param(claimed(uid="another"), id="recreated"),
        pytest.param(claimed(deletionTimestamp="2026-08-21T10:00:00Z"), id="deleted"),
    ],
)
async def test_nothing_is_made_for_a_machine_that_is_gone(live: Object | None) -> None:
    api = MachineApi()
    if live:
        api.add(MACHINES, live)
    with pytest.raises(Conflict):
        await _claim(api)


async def test_a_machine_that_is_claimed_and_there_is_read_once() -> None:
    api = MachineApi()
    api.add(MACHINES, claimed())
    await _claim(api)
    assert api.asked == ["Machine a"]


async def _claim(api: MachineApi) -> None:
    nothing, clusters = cast(Any, None), cast(Any, api)
    ref = ObjectRef(RUNTIME, MACHINES.id, "shoot--l--d", "a")
    run = MachineRun(Request(ref, Wish(reason=Reason.RETRY), api, nothing), claimed(), NOW)
    await claim(TargetClusters(clusters, nothing).own_cluster(run.run), run)
